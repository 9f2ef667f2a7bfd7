//! Limit how many do a thing at once: fair, never over-admitting, never leaking a slot, always able to say who holds what.
//!
//! ```
//! use semafor::{Semaphore, secs};
//!
//! # pollster::block_on(async {
//! let sem = Semaphore::memory("images").slots(10).ttl(secs(30)).timeout(secs(5)).build()?;
//!
//! let permit = sem.acquire().await?; // waits in line, five seconds at most
//! println!("slot {} after {:?}", permit.slot(), permit.waited());
//! drop(permit); // the next in line has it now
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! - A [`Semaphore`] is a handle to a name; [`Registry`] is where names live.
//! - [`Semaphore::acquire`] gives a [`Permit`]: a guard with an id, a slot number and a fencing token. It may have a time
//!   to live; [`Permit::lost`] fires when it is lost, and [`Semaphore::run`] stops the work then.
//! - [`Semaphore::stats`], [`holders`](Semaphore::holders) and [`waiters`](Semaphore::waiters) say who holds what.
//!
//! Works under tokio, smol, any other executor, and on plain threads ([`Acquire::blocking`]). Deadlines are watched by a
//! thread of the registry, whatever the runtimes of the holders are doing.
//!
//! Who gets the next slot is decided by [`semafor_core`], a state machine without I/O, clocks or threads.
//!
//! # Features
//!
//! - `local`: semaphores for the processes of a machine, see the module `local`. Unix only.
//! - `redis`: semaphores for a fleet, see the module `redis`; `redis-tls` for `rediss://`.
//! - `serde`: `Serialize` for [`Stats`], [`HolderInfo`], [`WaiterInfo`] and [`PermitId`].
//! - `tokio`: `Semaphore::spawn`, and tokio's task ids for [`Semaphore::release_latest`].
//! - `tokio-util`: `LostSignal::cancellation_token`.
//! - `tracing`: events under the target `semafor`.
//! - `metrics`: `Registry::publish_metrics`.
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
    allow(dead_code, unreachable_pub, reason = "memory is no remote home")
)]
#[allow(missing_docs, reason = "what is public of it is hidden")]
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

/// The client of the remote homes, for semafor's own tests and simulations. Not a part of the interface: it may change with
/// every release.
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

/// The README's examples, as doctests.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
