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
//! An [`Agent`] hosts them, on a Unix socket in a folder that only the user can enter. The first process that needs an
//! agent starts it, by running the `semafor` command (see [`Config::program`]). An agent that was unused for a minute
//! ends. [`Config`] says where it is found.
//!
//! # When a process dies
//!
//! The agent knows by its connection that a process is alive. When the process ends, for any reason, its slots and its
//! places in line are released at once. Only permits that were [detached](crate::Permit::detach) and have a time to live
//! outlast it, until their lease ends.
//!
//! When the agent dies, holders learn that their permits are lost ([`Loss::Vanished`](crate::Loss::Vanished)), and
//! waiters go on waiting in the line of a new agent. Slots whose guards are not dropped yet stay occupied there: a new
//! holder starts only when the old holder has released its slot, or all copies of its process have ended. The new agent
//! knows the numbers of slots that were set by [`resize`](crate::Semaphore::resize), and its fencing tokens are larger
//! than all before. Slots that are held by id stay held there for the rest of their time to live, and can be released,
//! renewed and evicted by the same id. The time that a waiter has waited already counts.
//!
//! The new agent reads all this from a journal in its folder. If the journal is damaged or missing (an agent on a full
//! disk may have to work without one), the new agent warns, and makes no new grants for 8 seconds, so that holders can
//! return first. Then the clients' numbers of slots count, slots that were held by id are free, and fencing tokens are
//! larger than all before unless the clock of the machine was set back. On systems other than Linux the new agent cannot
//! see copies of a holder's process, and gives the holder's process a minute to return.

mod address;
mod agent;
mod driver;
mod engine;
mod fork;
mod home;
mod launch;
mod lifeline;
pub(crate) mod offline;
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

/// The status of an agent, as [`status`] returns it.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Status {
    /// Its process id.
    pub pid: u32,
    /// Its version of semafor.
    pub version: String,
    /// The folder of its socket.
    pub directory: PathBuf,
    /// How long it has been running.
    pub uptime: Duration,
    /// The number of connected processes, without the one that asks.
    pub clients: usize,
    /// The number of names it knows.
    pub names: usize,
    /// The number of permits held.
    pub held: usize,
    /// The number of waiters.
    pub waiting: usize,
}

/// The result of [`stop`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Stopped {
    /// The agent is about to end.
    Yes,
    /// No agent is running.
    NotRunning,
    /// The agent goes on: permits are held, or there are waiters.
    InUse {
        /// The number of permits held.
        held: usize,
        /// The number of waiters.
        waiting: usize,
    },
}

/// Returns the agent's status, or `None` if no agent is running. Never starts one.
///
/// # Errors
///
/// [`HomeError`] if an agent is running and does not answer.
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

/// Ends the agent, if it has no holders and no waiters, or if `force` is true. With `force`, holders lose their permits.
///
/// # Errors
///
/// [`HomeError`] if an agent is running and does not answer.
pub async fn stop(config: &Config, force: bool) -> Result<Stopped, HomeError> {
    match DriverHandle::new(config.clone()).ask(Request::Stop { force }, ServerStart::Never).await?.pop() {
        Some(Response::Done) => Ok(Stopped::Yes),
        Some(Response::InUse { held, waiting }) => Ok(Stopped::InUse { held, waiting }),
        None => Ok(Stopped::NotRunning),
        Some(other) => Err(driver::unexpected(&other)),
    }
}
