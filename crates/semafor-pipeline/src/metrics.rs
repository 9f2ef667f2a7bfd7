//! The metrics of a pipeline, while it runs and afterwards.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use semafor::Histogram;

use crate::memory_guard::MemoryGuard;

/// The metrics of one pipeline.
///
/// While the pipeline runs, the numbers may be of slightly different moments: an item may have left the queue and not
/// yet be counted in a slot.
#[derive(Clone, Default, PartialEq, Debug)]
#[non_exhaustive]
pub struct Metrics {
    /// Items that wait in the queue.
    pub queue_depth: u64,
    /// The most items that ever waited there.
    pub max_queue_depth: u64,
    /// Slots in use: items in progress.
    pub slots_in_use: u64,
    /// The most slots that ever were in use.
    pub max_slots_in_use: u64,
    /// The number of slots the pipeline currently lets itself use, by memory and latency.
    pub width: u64,
    /// Workers that were started. A worker is started when an item waits and no idle worker can take it.
    pub workers: u64,
    /// Items that succeeded.
    pub done: u64,
    /// Items that failed, panicked, or lost their slot.
    pub failed: u64,
    /// Items that were taken from the producer and not begun. 0 until the end.
    pub not_begun: u64,
    /// How often the producer had to wait for room in the queue.
    pub backpressure_events: u64,
    /// How often memory became tight.
    pub narrowings: u64,
    /// How long items took, from the slot to the result.
    pub latency: Histogram,
    /// Memory of the process, if there is a [`MemoryGuard`].
    pub memory: Option<Memory>,
}

/// Memory of the process, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Memory {
    /// At the start of the run.
    pub at_start: u64,
    /// Now, or at the end.
    pub now: u64,
    /// The most that was seen.
    pub peak: u64,
}

impl Metrics {
    /// Slots in use by [`width`](Self::width). Above 1 while items that began with a larger width are still in
    /// progress.
    pub fn utilisation(&self) -> f64 {
        match self.width {
            0 => 0.0,
            width => self.slots_in_use as f64 / width as f64,
        }
    }

    /// The growth of the process from the start to its peak, in bytes, per worker. `None` without a guard or a worker.
    pub fn memory_per_worker(&self) -> Option<u64> {
        let memory = self.memory?;
        memory.peak.saturating_sub(memory.at_start).checked_div(self.workers)
    }
}

/// Reads the [`Metrics`] of a pipeline from another thread or task, while it runs.
#[derive(Clone, Debug)]
pub struct Live(pub(crate) Arc<Meter>);

impl Live {
    /// The metrics now.
    pub fn metrics(&self) -> Metrics {
        self.0.read()
    }
}

/// Relaxed atomics are enough: gauges are set under the lock of the flow, counters only add up.
#[derive(Default, Debug)]
pub(crate) struct Meter {
    pub(crate) queue_depth: Gauge,
    pub(crate) slots_in_use: Gauge,
    pub(crate) width: Gauge,
    pub(crate) workers: Gauge,
    pub(crate) done: Gauge,
    pub(crate) failed: Gauge,
    pub(crate) not_begun: Gauge,
    pub(crate) backpressure_events: Gauge,
    pub(crate) narrowings: Gauge,
    pub(crate) guard: OnceLock<MemoryGuard>,
    memory_at_start: Gauge,
    latency: Mutex<Histogram>,
}

impl Meter {
    pub(crate) fn start(&self) {
        if let Some(guard) = self.guard.get() {
            self.memory_at_start.set(guard.now());
        }
    }

    pub(crate) fn took(&self, span: Duration) {
        self.latency.lock().record(span);
    }

    pub(crate) fn read(&self) -> Metrics {
        let memory = |guard: &MemoryGuard| Memory {
            at_start: self.memory_at_start.get(),
            now: guard.now(),
            peak: guard.peak(),
        };
        Metrics {
            queue_depth: self.queue_depth.get(),
            max_queue_depth: self.queue_depth.max(),
            slots_in_use: self.slots_in_use.get(),
            max_slots_in_use: self.slots_in_use.max(),
            width: self.width.get(),
            workers: self.workers.get(),
            done: self.done.get(),
            failed: self.failed.get(),
            not_begun: self.not_begun.get(),
            backpressure_events: self.backpressure_events.get(),
            narrowings: self.narrowings.get(),
            latency: self.latency.lock().clone(),
            memory: self.guard.get().map(memory),
        }
    }
}

/// A number, and its highest value so far.
#[derive(Default, Debug)]
pub(crate) struct Gauge {
    now: AtomicU64,
    max: AtomicU64,
}

impl Gauge {
    pub(crate) fn set(&self, value: u64) {
        self.now.store(value, Ordering::Relaxed);
        self.max.fetch_max(value, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) {
        self.now.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }
}
