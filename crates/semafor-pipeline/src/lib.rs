//! Works through any number of items in bounded memory. A producer gives items, a bounded queue holds a few of them,
//! workers process them while holding a slot of a semaphore, and a closure sees each result.
//!
//! ```text
//! producer ──▶ bounded queue ──▶ workers, each holding a slot ──▶ results
//!    ▲        (limit + buffer)          (limit)                (as they come)
//!    └── is asked for an item when the queue has room for it
//! ```
//!
//! Near a memory limit the pipeline uses fewer slots, and it stops cleanly before the limit is reached.
//!
//! ```
//! use semafor_pipeline::{CancellationToken, MemoryGuard, Pipeline, Rate, StoppedBy};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let stop = CancellationToken::new(); // cancel it on Ctrl-C
//! let mut bytes = 0;
//! let outcome = Pipeline::new(8) // eight at once
//!     .buffer(100)
//!     .memory(MemoryGuard::new(512 * 1024 * 1024))
//!     .rate(Rate::per_second(50_000))
//!     .cancelled_by(stop.clone())
//!     .run_each(
//!         (0..1000).map(|n| format!("file-{n}")),
//!         async |name| if name.ends_with("-13") { Err("unlucky") } else { Ok(name.len()) },
//!         |result| bytes += result.unwrap_or(0),
//!     )
//!     .await;
//! assert_eq!(outcome.stopped_by, StoppedBy::Completed);
//! assert_eq!((outcome.metrics.done, outcome.metrics.failed), (999, 1));
//! # });
//! ```
//!
//! - [`Pipeline`] is the builder. [`run`](Pipeline::run) works in tasks, [`run_blocking`](Pipeline::run_blocking) on
//!   threads. With [`run_each`](Pipeline::run_each) and [`run_blocking_each`](Pipeline::run_blocking_each), a closure
//!   sees each result.
//! - [`Outcome`] says why it ended, the first failure, and the items that were not begun. [`Live`] reads the
//!   [`Metrics`] while it runs.
//! - [`MemoryGuard`] and [`Rate`] work without a pipeline, too.
//!
//! # Memory
//!
//! At most `limit` items are in progress and at most `limit + buffer` wait, so memory is
//! `limit × memory of a worker + (limit + buffer) × size of an item`, whatever the number of items. A worker is started
//! when an item waits and no idle worker can take it. There is no queue of results: a slow result closure holds up the
//! workers, and they hold up the producer.
//!
//! # Slots
//!
//! Every item in progress holds a slot of a [`semafor::Semaphore`]: of the pipeline's own ([`Pipeline::new`]), or of
//! one that is shared ([`Pipeline::with`]) with other pipelines, other programs of the machine, or a fleet.
//!
//! - If a slot is **lost** during the work (lease expired, evicted, or the home was unreachable for too long), a task
//!   is dropped where it awaits; a thread runs to its end. Either way the item fails with [`Failure::Lost`], and the
//!   others continue.
//! - If **no slot can be acquired** (the semaphore is closed, its home is unreachable, or its timeout is over), the
//!   pipeline stops with [`Failure::NoSlot`], and waiting items are not begun.
//!
//! # What it promises, where it is built, which test holds it
//!
//! Tests are in `tests`, or unit tests in the module named.
//!
//! | promise | built in | tested in |
//! |---|---|---|
//! | The semaphore limits operations at once | `workers`: a permit per item | `exactly_once`, `shared_slots`, `fleet` |
//! | Workers are started on demand | `flow`: wake or start a worker | `backpressure`: `workers_are_started_on_demand` |
//! | Memory does not grow with the number of items | `flow` | `flat_memory`: ten million items in a release build |
//! | The queue holds `limit + 100` | [`Pipeline::buffer`] | `backpressure`, `exactly_once` |
//! | One worker per slot, each waits for its slot | `workers`, `flow`: claim, then slot, then item | `shared_slots` |
//! | The producer waits if the queue is full | `flow`: `has_room` | `backpressure`: three kinds of producers |
//! | Every result is seen | `workers`: a closure, no unbounded queue | `exactly_once`, `stopping` |
//! | The queue costs little more than its items | `queue` | `flat_memory`: 100 items of 1 kB, below 512 KiB in all |
//! | Stops at 95 % of the memory limit | [`MemoryGuard::critical_at`], [`StoppedBy::Breaker`] | `memory`, `stopping` |
//! | Fewer slots and no buffer at 85 % | [`MemoryGuard::tight_at`], `width` | `memory`, `narrowing` |
//! | Limit of the number of items | [`Pipeline::max_items`] | `stopping` |
//! | Items per second | [`Rate`], [`Pipeline::rate`] | `rate`, `stopping` |
//! | All slots are used while there is work | `flow`: every claim wakes the next worker | `backpressure`: `all_slots…` |
//! | A slow item occupies one slot and nothing else | `flow` | `backpressure`, `stopping` |
//! | Number of slots by memory and by latency | `width`, `latency` | `narrowing`, unit tests |
//! | Highest rank first | [`Pipeline::priority`], `queue` | `order` |
//! | An item may be a batch | any type is an item | `backpressure`: `an_item_may_be_a_batch_of_related_ones` |
//! | A panic fails its item, or reaches the caller | `workers` | `panics`, `stopping` |
//! | Metrics: queue depth, slots in use, width | [`Metrics`] | `backpressure`, `narrowing`, `stopping` |
//!
//! [`Metrics::utilisation`] and [`Metrics::memory_per_worker`] are computed from these numbers and have no test of
//! their own.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod cgroup;
mod clock;
mod flow;
mod items;
mod latency;
mod memory_guard;
mod memory_source;
mod metrics;
mod outcome;
mod pipeline;
mod queue;
mod rate;
mod width;
mod workers;

pub use clock::{Clock, Delay, SystemClock};
pub use items::{Items, Produced, produced};
pub use memory_guard::{Level, MemoryGuard};
pub use memory_source::{ContainerMemory, MemorySource, SystemMemory};
pub use metrics::{Live, Memory, Metrics};
pub use outcome::{Failure, OnError, Outcome, StoppedBy};
pub use pipeline::Pipeline;
pub use rate::Rate;
/// The token of [`tokio_util`] 0.7, which is a part of this crate's public interface. See [`Pipeline::cancelled_by`].
pub use tokio_util::sync::CancellationToken;
