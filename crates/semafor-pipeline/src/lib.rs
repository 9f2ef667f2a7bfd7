//! Works through any number of items in bounded memory. A producer gives items, a bounded queue holds a few of them,
//! workers process them, each while it holds a slot of a semaphore, and a closure sees each result.
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
//! - [`Pipeline`] is the builder. [`run`](Pipeline::run) does all work in the calling task, concurrently;
//!   [`run_blocking`](Pipeline::run_blocking) uses threads. With [`run_each`](Pipeline::run_each) and
//!   [`run_blocking_each`](Pipeline::run_blocking_each), a closure sees each result.
//! - [`Outcome`] says why the pipeline ended. It has the first failure, the items that were not begun, and the
//!   [`Metrics`], which [`Live`] reads while the pipeline runs.
//! - [`MemoryGuard`] and [`Rate`] work without a pipeline, too.
//!
//! # Memory
//!
//! At most `limit` items are in progress and at most `limit + buffer` wait, so memory is
//! `limit × memory of a worker + (limit + buffer) × size of an item`, whatever the number of items. A worker is started
//! when an item waits and no idle worker can take it. There is no queue of results: a slow result closure delays the
//! workers, and they delay the producer.
//!
//! # Slots
//!
//! Every item in progress holds a slot of a [`semafor::Semaphore`]: of the pipeline's own ([`Pipeline::new`]), or of
//! one that is shared ([`Pipeline::with`]) with other pipelines, other programs of the machine, or a fleet.
//!
//! - If a slot is **lost** during the work (lease ended, evicted, or the home was unreachable for too long), the item
//!   fails with [`Failure::Lost`], and the others continue. Async work is dropped where it awaits; if it does not await
//!   any more, it ends normally and its result counts. A thread runs to its end, and its result is dropped.
//! - If **no slot can be acquired** (the semaphore is closed, its home is unreachable, or its timeout is over), the
//!   pipeline stops with [`Failure::NoSlot`], and waiting items are not begun.
//!
//! # Promises, code and tests
//!
//! The second column names modules of `src`, the third one files of `tests`, with the test's name where that helps.
//!
//! | promise | built in | tested in |
//! |---|---|---|
//! | The semaphore limits operations at once | `workers`: a permit per item | `exactly_once`, `shared_slots`, `fleet` |
//! | Workers are started on demand | `flow`: wake or start a worker | `backpressure`: `workers_are_started_on_demand` |
//! | Memory does not grow with the number of items | `flow` | `flat_memory`: ten million items in a release build, 300,000 otherwise |
//! | The queue holds `limit + 100` by default | [`Pipeline::buffer`] | `backpressure`, `exactly_once` |
//! | At most one worker per slot; it waits for its slot before it takes an item | `workers`, `flow`: claim, then slot, then item | `shared_slots` |
//! | The producer waits if the queue is full | `flow`: `has_room` | `backpressure`: three kinds of producers |
//! | Every result is seen | `workers`: a closure, no unbounded queue | `exactly_once`, `stopping` |
//! | The queue costs little more than its items | `queue` | `flat_memory`: 100 items of 1 kB, below 512 KiB in all |
//! | Stops at 95 % of the memory limit | [`MemoryGuard::critical_at`], [`StoppedBy::Breaker`] | `memory`, `stopping` |
//! | Fewer slots and no buffer at 85 % | [`MemoryGuard::tight_at`], `width` | `memory`, `narrowing` |
//! | Limit of the number of items | [`Pipeline::max_items`] | `stopping` |
//! | Items per second | [`Rate`], [`Pipeline::rate`] | `rate`, `stopping` |
//! | All slots are used while items wait | `flow`: every claim wakes the next worker | `backpressure`: `all_slots…` |
//! | A slow item occupies one slot and nothing else | `flow` | `backpressure`, `stopping` |
//! | Number of slots by memory and by latency | `width`, `latency` | `narrowing`, unit tests in these modules |
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
