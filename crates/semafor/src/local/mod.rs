//! Semaphores for the processes of one user on one machine, with no server to set up.
//!
//! ```no_run
//! use semafor::{Home, secs};
//!
//! # pollster::block_on(async {
//! let home = Home::connect("local:").await?;
//! let sem = home.named("images").slots(4).timeout(secs(60)).build()?;
//! let permit = sem.acquire().await?; // one of four, whichever process asks
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! An [`Agent`] hosts them, on a Unix socket in a folder that only the user can enter. The first process that needs one starts
//! it, by way of the `semafor` command ([`Config::program`] says which); after a minute in which nobody needed it, it is
//! gone. [`Config`] tells where it is found.
//!
//! # When something dies
//!
//! The connection of a process is its sign of life. When the process ends, however it ends, its slots and its places in
//! line are given back at once. Only permits that were [detached](crate::Permit::detach) and have a time to live outlast
//! it, until that is over.
//!
//! When the agent dies, holders are told that their permits are lost ([`Loss::Vanished`](crate::Loss::Vanished)), and those
//! who wait go on waiting in the line of a new agent. Slots whose guards are not dropped yet stay occupied there: a new
//! holder does not begin before an old one has let go, or all copies of its process are gone. Numbers of slots that were set
//! by [`resize`](crate::Semaphore::resize) are known to the new agent, and its fencing tokens are larger than all before.
//! Slots that are held by id stay held there for the rest of their time to live, and can be released, renewed and evicted by
//! the same id. The time that a waiter has waited already counts.
//!
//! The new agent knows that from a journal in its folder. If the journal is damaged or missing (an agent on a full disk may
//! have to go on without one), the new agent says so and makes no new grants for 8 seconds, so that holders can come
//! back first. The numbers of slots are then those of the clients, slots that were held by id are free, and fencing
//! tokens are larger than all before unless the clock of the machine was set back. On systems other than Linux the new
//! agent cannot see copies of a holder's process, and gives the holder's process a minute to come back.

mod address;
mod agent;
mod driver;
mod engine;
mod fork;
mod home;
mod launch;
mod lifeline;
mod protocol;
mod socket;

use std::path::PathBuf;
use std::time::Duration;

pub use address::Config;
pub use agent::{Agent, BindError};
pub(crate) use fork::after_fork;
pub(crate) use home::LocalHome;

use crate::error::HomeError;
use crate::remote::client::ServerStart;
use driver::DriverHandle;
use protocol::{Request, Response};

/// How an agent is, as [`status`] tells.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Status {
    /// Its process.
    pub pid: u32,
    /// Which version of semafor it is.
    pub version: String,
    /// Where its socket is.
    pub directory: PathBuf,
    /// For how long it has been there.
    pub uptime: Duration,
    /// How many processes are connected, not counting who asks.
    pub clients: usize,
    /// How many names it knows.
    pub names: usize,
    /// How many permits are held.
    pub held: usize,
    /// How many wait.
    pub waiting: usize,
}

/// What came of [`stop`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Stopped {
    /// It is about to end.
    Yes,
    /// There was none.
    NotRunning,
    /// So many permits are held, and so many wait: it goes on.
    InUse {
        /// Held permits.
        held: usize,
        /// Those in line.
        waiting: usize,
    },
}

/// How the agent is; `None` if there is none. None is started.
///
/// # Errors
///
/// [`HomeError`] if there is one that does not answer.
pub async fn status(config: &Config) -> Result<Option<Status>, HomeError> {
    let handle = DriverHandle::new(config.clone());
    let response = handle.ask(Request::Status, ServerStart::Never).await?.pop();
    match (response, handle.driver().agent()) {
        (Some(Response::Status(status)), Some(agent)) => Ok(Some(Status {
            pid: agent.pid,
            version: agent.version,
            directory: agent.directory,
            uptime: status.uptime,
            clients: status.clients.saturating_sub(1),
            names: status.names,
            held: status.held,
            waiting: status.waiting,
        })),
        (Some(Response::Status(_)) | None, _) => Ok(None),
        (Some(other), _) => Err(driver::unexpected(&other)),
    }
}

/// Ends the agent, if nothing is held and nobody waits, or if `force` is true. Holders lose their permits then.
///
/// # Errors
///
/// [`HomeError`] if there is one that does not answer.
pub async fn stop(config: &Config, force: bool) -> Result<Stopped, HomeError> {
    match DriverHandle::new(config.clone()).ask(Request::Stop { force }, ServerStart::Never).await?.pop() {
        Some(Response::Done) => Ok(Stopped::Yes),
        Some(Response::InUse { held, waiting }) => Ok(Stopped::InUse { held, waiting }),
        None => Ok(Stopped::NotRunning),
        Some(other) => Err(driver::unexpected(&other)),
    }
}
