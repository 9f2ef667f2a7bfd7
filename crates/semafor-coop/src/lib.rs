//! A deterministic scheduler with semaphore effects.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod clock;
mod context;
mod deadlock;
mod effect;
mod effects;
mod error;
mod eventual;
mod external;
mod inbox;
mod performing;
mod random;
mod ready;
mod recording;
mod report;
mod runtime;
mod schedule;
mod scheduler;
mod semaphore;
mod state;
mod tasks;

pub use clock::{Clock, Span};
pub use context::Ctx;
pub use deadlock::{Deadlock, Deadlocks, Link};
pub use effect::{Effect, Perform};
pub use effects::*;
pub use error::{Error, Failure, Result};
pub use eventual::{Awaitable, Eventual, Task};
pub use external::ExternalPromise;
pub use recording::Recording;
pub use report::{Abandoned, LogLine, Outcome, Report, Unobserved, Unreleased};
pub use runtime::{Running, Runtime, run};
pub use schedule::{ParseTraceError, Schedule, Trace};
pub use semaphore::{Permit, Semaphore};
pub use tasks::{Label, Priority};
