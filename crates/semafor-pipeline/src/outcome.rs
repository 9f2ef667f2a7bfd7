//! How a pipeline ended.

use semafor::{AcquireError, NotHeld};

use crate::metrics::Metrics;

/// What became of all items.
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "it says whether all items were done"]
pub struct Outcome<T, E> {
    /// Why it ended.
    pub stopped_by: StoppedBy,
    /// The first failure of all. The others were told to those who wanted to see each result.
    pub first_failure: Option<Failure<E>>,
    /// What was in the queue and was not begun, in the order in which it would have been. At most as many as the queue
    /// holds; empty if all went well.
    pub not_begun: Vec<T>,
    /// What it looked like at the end.
    pub metrics: Metrics,
}

impl<T, E> Outcome<T, E> {
    /// True if there was an end of the items, and every one of them succeeded.
    pub fn is_clean(&self) -> bool {
        self.stopped_by == StoppedBy::Completed && self.metrics.failed == 0
    }
}

/// Why a pipeline ended. What had begun was finished in any case.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum StoppedBy {
    /// There were no more items.
    Completed,
    /// As many items were taken as [`max_items`](crate::Pipeline::max_items) allows. Nobody asked whether there were more.
    ItemLimit,
    /// The circuit breaker: memory was [critical](crate::Level::Critical).
    Breaker,
    /// The token it was given was cancelled.
    Cancelled,
    /// An item failed and [`OnError::Stop`] was asked for, or no slot was to be had ([`Failure::NoSlot`]).
    Error,
}

/// What to do when an item fails.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum OnError {
    /// Count it, and go on with the others.
    #[default]
    Continue,
    /// Begin nothing more, and finish what has begun.
    Stop,
}

/// Why there is no result.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure<E> {
    /// The work said so.
    #[error("{0}")]
    Failed(E),
    /// The work panicked, with this message.
    #[error("panicked: {0}")]
    Panicked(String),
    /// The slot was lost while the item was worked on. A task was dropped where it awaited; a thread ran to its end, and what
    /// it returned is not counted on.
    #[error("lost its slot: {0}")]
    Lost(NotHeld),
    /// No slot is to be had: the semaphore is closed, its home is out of reach, or the time it allows for waiting is over. This
    /// is about the pipeline, not about an item; it stops.
    #[error("no slot: {0}")]
    NoSlot(AcquireError),
}
