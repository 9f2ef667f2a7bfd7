//! The memory home: semaphores for the tasks and threads of one process.

mod clock;
mod handle;
mod manual_clock;
mod names;
mod notifier;
mod registry;
mod shared_gate;
#[cfg(not(semafor_loom))]
pub(crate) mod short_lock;
mod tag;
mod ticker;
mod timetable;

#[cfg(all(test, semafor_loom))]
mod loom_models;

pub use manual_clock::ManualClock;
pub use registry::{Registry, RegistryBuilder, StatsQuery};

pub(crate) use handle::Handle;
pub(crate) use shared_gate::{Enqueued, SharedGate};
pub(crate) use tag::Tag;

/// Called in a forked child.
pub(crate) fn after_fork() {
    ticker::after_fork();
    registry::after_fork();
}
