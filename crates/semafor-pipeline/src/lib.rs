//! Work through any number of items in bounded memory.
//!
//! ```text
//! producer ──▶ bounded queue ──▶ workers, each holding a slot ──▶ results
//!    ▲        (limit + buffer)          (limit)                (as they come)
//!    └── is asked for an item when there is room for it
//! ```
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
//! - [`Pipeline`] is the builder. [`run`](Pipeline::run) works in tasks, [`run_blocking`](Pipeline::run_blocking) on threads;
//!   [`run_each`](Pipeline::run_each) and [`run_blocking_each`](Pipeline::run_blocking_each) show every result to a
//!   closure, which may add them up.
//! - [`Outcome`] says why it ended, what failed first, and what was not begun; [`Live`] shows the [`Metrics`] on the way.
//! - [`MemoryGuard`] and [`Rate`] are of use by themselves, too.
//!
//! # What bounds memory
//!
//! At most `limit` items are worked on and at most `limit + buffer` wait, however many there are: memory is
//! `limit × memory of a worker + (limit + buffer) × size of an item`. A worker is started when there is an item for it and
//! nobody to take it. There is no queue of results: whoever is slow to look at them holds up the workers, and they hold up
//! the producer.
//!
//! # The limit is a semaphore
//!
//! Every item holds a slot of a [`semafor::Semaphore`] while it is worked on: of its own ([`Pipeline::new`]), or of any
//! other ([`Pipeline::with`]), whose slots it then shares with whoever uses them: other pipelines, other programs of the
//! machine, a fleet. What happens when
//!
//! - a slot is **lost** on the way (time to live, eviction, a home out of touch): a task is dropped where it awaits, a thread
//!   runs to its end; either way the item is a failed one, [`Failure::Lost`], and the others go on;
//! - **no slot is to be had** (closed, its home does not answer, `max_acquire_time` is over): the pipeline stops with
//!   [`Failure::NoSlot`], and what waits is not begun.
//!
//! # Where each promise of the seed is kept
//!
//! The seed is `seeds/semaphore-batching.md`. What is about directories is the business of `semafor-purge`, and marked so.
//!
//! | the seed | built in | tested in |
//! |---|---|---|
//! | Semaphore limits concurrent operations | `workers`: a permit per item | `exactly_once`, `shared_slots`, `fleet` |
//! | Tasks created on demand, not all upfront | `flow`: wake or hire | `backpressure`: `workers_are_started_on_demand` |
//! | Memory bounded by the limit, not by batch size or total | `flow`: bound | `flat_memory`: ten million items |
//! | Queue of `limit + 100` | [`Pipeline::buffer`], 100 by default | `backpressure`, `exactly_once` |
//! | Workers: one per slot, each waits for its slot | `workers`, `flow`: claim, then slot, then item | `shared_slots` |
//! | Producer blocks if the queue is full | `flow`: `has_room` | `backpressure`, three producers |
//! | Results | a closure in place of the seed's unbounded queue | `exactly_once`, `stopping` |
//! | Memory formula, ~0.1 MB per worker | above; [`Metrics::memory_per_worker`] | `flat_memory` |
//! | First pass and cascading deletion | `semafor-purge` | `semafor-purge` |
//! | Circuit breaker at 95 % | [`MemoryGuard::critical_at`], [`StoppedBy::Breaker`] | `memory`, `stopping` |
//! | Back-pressure at 85 %: fewer slots, no buffer; workers go on | [`MemoryGuard::tight_at`], `width` | `memory`, `narrowing` |
//! | Limit of the number of items (`max_empty_dirs_to_delete`) | [`Pipeline::max_items`]; its flag: `semafor-purge` | `stopping` |
//! | Rate limit, per second | [`Rate`], [`Pipeline::rate`] | `rate`, `stopping` |
//! | `max_concurrency_deletion`, `memory_limit_mb` | [`Pipeline::new`], [`MemoryGuard::new`]; their flags: `semafor-purge` | as above |
//! | Uses all slots, no idle workers | `flow`: every claim passes the call on | `backpressure`: `all_slots_are_used…` |
//! | Memory stays constant, whatever the number | `flow` | `flat_memory` |
//! | At most `limit` operations at once | the semaphore | `exactly_once`, `shared_slots` |
//! | Handles slow operations gracefully | a slow item holds one slot and nothing else | `backpressure`, `stopping` |
//! | Future 1: worker scaling by memory pressure | `width`; by latency, too: [`Pipeline::scale_by_latency`], `latency` | `narrowing`, unit tests |
//! | Future 2: priority queue, deeper first | [`Pipeline::priority`], `queue` | `order` |
//! | Future 3: batches of related items | an item may be a batch; one remover per parent: `semafor-purge` | `backpressure`: `an_item_may_be_a_batch…` |
//! | Future 4: metrics | [`Metrics`]: depth, [utilisation](Metrics::utilisation), memory per worker | `backpressure`, `narrowing`, `stopping` |
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
/// That of [`tokio_util`], whose 0.7 is a part of the interface of this crate. See [`Pipeline::cancelled_by`].
pub use tokio_util::sync::CancellationToken;
