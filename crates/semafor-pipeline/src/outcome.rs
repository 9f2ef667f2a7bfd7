//! How a pipeline ended.

use semafor::{AcquireError, NotHeld};

use crate::metrics::Metrics;

/// Why a pipeline ended, the first failure, the items that were not begun, and the metrics.
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "it says whether all items were done"]
pub struct Outcome<T, E> {
    /// Why it ended.
    pub stopped_by: StoppedBy,
    /// The first failure. The closure of [`run_each`](crate::Pipeline::run_each) sees all of them.
    pub first_failure: Option<Failure<E>>,
    /// Items that were taken from the producer and not begun, in the order in which they would have been begun. At most
    /// as many as the queue holds; empty if the pipeline was not stopped early.
    pub not_begun: Vec<T>,
    /// The metrics at the end.
    pub metrics: Metrics,
}

impl<T, E> Outcome<T, E> {
    /// True if the producer came to its end and every item succeeded.
    pub fn is_clean(&self) -> bool {
        self.stopped_by == StoppedBy::Completed && self.metrics.failed == 0
    }
}

/// Why a pipeline ended. Items that had begun are finished first, except async work that loses its slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum StoppedBy {
    /// The producer has no more items.
    Completed,
    /// [`max_items`](crate::Pipeline::max_items) were taken; the producer was not asked whether there are more.
    ItemLimit,
    /// The circuit breaker: memory was [critical](crate::Level::Critical).
    Breaker,
    /// The token of [`cancelled_by`](crate::Pipeline::cancelled_by) was cancelled.
    Cancelled,
    /// An item failed and [`OnError::Stop`] is set, or no slot could be acquired ([`Failure::NoSlot`]).
    Error,
}

/// What to do when an item fails.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum OnError {
    /// Count it, and continue with the others.
    #[default]
    Continue,
    /// Begin nothing more, and finish the items in progress.
    Stop,
}

/// Why an item failed, or why the pipeline could not go on.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure<E> {
    /// The work returned this error.
    #[error("{0}")]
    Failed(E),
    /// The work panicked with this message; only this item fails.
    #[error("panicked: {0}")]
    Panicked(String),
    /// The slot was lost during the work: lease ended, evicted, or the home was unreachable for too long. The others
    /// continue. Async work is dropped where it awaits; if it does not await any more, it ends normally and does not get
    /// this failure. A thread runs to its end, and its result is dropped.
    #[error("lost its slot: {0}")]
    Lost(NotHeld),
    /// No slot could be acquired: the semaphore is closed, its home is unreachable, or its timeout is over. The
    /// pipeline stops; waiting items are not begun.
    #[error("no slot: {0}")]
    NoSlot(AcquireError),
}
