//! The state machine behind the crate `semafor`: slots, a line of waiters and deadlines, as plain data.
//!
//! Nothing here performs I/O, reads a clock, starts a thread or wakes a task. The time is an argument; the payload of a
//! waiter is a type parameter; what must happen afterwards (wake waiters, notify holders that lost their slot) is
//! written into [`Effects`]. A *home* (memory, a local agent, a cooperative scheduler) keeps a [`Gate`] behind its own
//! lock, and carries out the effects after it has released the lock. On Redis, Lua scripts decide; random tests compare
//! them with this crate.
//!
//! One file, `gate.rs`, decides which request gets the next slot. See [`Gate`].
//!
//! ```
//! use semafor_core::{Acquired, Claim, Effects, Gate, Request, Timestamp};
//!
//! let mut gate: Gate<&str, ()> = Gate::new(1, 1).unwrap();
//! let mut effects = Effects::default();
//! let now = Timestamp::from_nanos(0);
//!
//! let first = gate.try_acquire(&Request::default(), (), now).unwrap();
//! let Ok(Acquired::Queued(ticket)) =
//!     gate.acquire(&Request::default(), "second", (), now, &mut effects)
//! else {
//!     panic!("one slot, and it is taken")
//! };
//!
//! gate.release(first, now, &mut effects).unwrap();
//! assert_eq!(effects.wake.as_slice(), ["second"]);
//! assert!(matches!(gate.claim(ticket), Claim::Granted { .. }));
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod deadlines;
mod endings;
mod free_numbers;
mod gate;
mod histogram;
mod id;
mod line;
mod opening;
mod slots;
mod stats;
mod time;

pub use endings::{Loss, NotHeld};
pub use gate::{Acquired, Cancelled, Claim, Effects, Evicted, Gate, Lost, Refusal, Request, ZeroSlots};
pub use histogram::Histogram;
pub use id::{ParsePermitIdError, PermitId, Ticket};
pub use line::Waiter;
pub use opening::{OpenRefusal, Opened, Opening};
pub use slots::Holder;
pub use stats::{Stats, Totals};
pub use time::Timestamp;
