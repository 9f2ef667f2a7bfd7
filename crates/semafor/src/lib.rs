//! Named semaphores: limit how many tasks, processes or machines do a thing at once. First come, first served; never
//! more holders than slots; no slot is leaked; holders and waiters can be listed.
//!
//! ```
//! use semafor::{Semaphore, secs};
//!
//! # pollster::block_on(async {
//! let sem = Semaphore::memory("images").slots(10).ttl(secs(30)).timeout(secs(5)).build()?;
//!
//! let permit = sem.acquire().await?; // waits in line, five seconds at most
//! println!("slot {} after {:?}", permit.slot(), permit.waited());
//! drop(permit); // the first waiter in line gets the slot
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! - A [`Semaphore`] is a handle to a name; a [`Registry`] holds the names.
//! - [`Semaphore::acquire`] returns a [`Permit`]: a guard with an id, a slot number and a fencing token. It may have a
//!   lease (`ttl`). When the slot is lost, [`Permit::lost`] returns and [`Semaphore::run`] stops its work.
//! - [`Semaphore::stats`], [`holders`](Semaphore::holders) and [`waiters`](Semaphore::waiters) show what is held and waiting.
//! - `Home::connect` opens a home that several processes share: the agent of this machine, or a Redis. Its semaphores
//!   have the same methods. (Features `local` and `redis`.)
//!
//! Works under tokio, smol, any other executor, and on plain threads ([`Acquire::blocking`]). A thread of the registry
//! watches the deadlines, so a lease ends on time even if the holder's runtime is blocked or gone.
//!
//! [`semafor_core`] decides which request gets the next slot. It is a state machine without I/O, clocks or threads.
//!
//! # Features
//!
//! None is on by default.
//!
//! - `local`: semaphores for the processes of one machine, see the module `local`. Unix only. Includes `tokio`.
//! - `redis`: semaphores for many machines, see the module `redis`. Includes `tokio`.
//! - `redis-tls`: `rediss://` URLs. Includes `redis`.
//! - `serde`: `Serialize` for [`Stats`], [`HolderInfo`], [`WaiterInfo`] and [`PermitId`].
//! - `tokio`: `Semaphore::spawn`, and tokio's task ids for [`Semaphore::release_latest`].
//! - `tokio-util`: `LostSignal::cancellation_token`.
//! - `tracing`: events under the target `semafor`.
//! - `metrics`: `Registry::publish_metrics`, for semaphores in memory.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod acquire;
mod catch_panic;
mod error;
mod fork;
#[cfg(any(feature = "local", feature = "redis"))]
mod home;
#[cfg(feature = "local")]
#[cfg_attr(docsrs, doc(cfg(feature = "local")))]
pub mod local;
mod lost_signal;
mod memory;
mod observe;
mod options;
mod permit;
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
pub mod redis;
#[cfg_attr(
    not(any(feature = "local", feature = "redis")),
    allow(dead_code, unreachable_pub, reason = "memory is not a remote home")
)]
#[allow(missing_docs, reason = "its public items are hidden")]
mod remote;
mod semaphore;
#[cfg(feature = "serde")]
mod serialize;
mod span;
mod stats;
mod sync;
pub mod task;

pub use acquire::Acquire;
pub use error::{
    AcquireError, BuildError, HomeError, HomeErrorKind, InvalidDuration, ParsePermitIdError, ReleaseError,
    RenewError, ResizeError, RunError,
};
pub use fork::after_fork;
#[cfg(any(feature = "local", feature = "redis"))]
#[cfg_attr(docsrs, doc(cfg(any(feature = "local", feature = "redis"))))]
pub use home::Home;
pub use lost_signal::LostSignal;
pub use memory::{ManualClock, Registry, RegistryBuilder, StatsQuery};
pub use options::{Builder, MAX_NAME_LEN};
pub use permit::{Permit, PermitId};
pub use semafor_core::{Histogram, Loss, NotHeld, Totals, ZeroSlots};
pub use semaphore::Semaphore;
pub use span::{Span, secs};
pub use stats::{HolderInfo, Stats, WaiterInfo};

/// The client of the remote homes, for semafor's own tests and simulations. Not part of the public API: it may change
/// with every release.
#[cfg(any(feature = "local", feature = "redis"))]
#[doc(hidden)]
pub mod __client {
    pub use crate::remote::call::*;
    pub use crate::remote::client::*;
    pub use crate::remote::clock::{Instant, ServerClock};
    pub use crate::remote::target::Target;
    pub use crate::remote::{AcquireRequest, Wait};
    pub use crate::task::TaskKey;

    pub fn unreachable(message: &str) -> crate::HomeError {
        crate::HomeError::new(crate::HomeErrorKind::Unreachable, message)
    }
}

/// The Redis engine without a connection, for semafor's own simulations and fuzzing. Not part of the public API.
#[cfg(feature = "redis")]
#[doc(hidden)]
pub mod __redis {
    pub use crate::redis::offline::{OfflineEngine, ScriptCall};
}

/// A connection to an agent without an agent, for fuzzing. Not a part of the interface.
#[cfg(feature = "local")]
#[doc(hidden)]
pub mod __local {
    pub use crate::local::offline::OfflineAgent;
}
