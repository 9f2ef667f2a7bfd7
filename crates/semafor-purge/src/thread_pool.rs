//! The threads, and how many of them there are.
//!
//! The calling thread watches; the others work. It starts with few threads, because on a local disk more threads than
//! cores only block each other. While jobs are queued and the cores are idle because all threads wait for the file
//! system, the number of threads is doubled. When memory is short, it is halved.

use std::num::NonZero;
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use semafor_pipeline::{Level, MemoryGuard};

use crate::progress::Progress;
use crate::purger::OnProgress;
use crate::run::{Run, Stop};
use crate::walk::{StopsOnPanic, Worker};

/// How often to check whether there are too few or too many threads.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// The same once the maximum is reached.
const SLOW_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Below this load of the cores, more threads are useful.
const BUSY_SHARE: f64 = 0.6;
/// Enough for the calls of a fleet semaphore. All other data of a thread is on the heap.
const STACK: usize = 512 * 1024;

pub(crate) struct ThreadPool<'scope, 'env> {
    run: &'scope Run<'env>,
    scope: &'scope Scope<'scope, 'env>,
    max_threads: usize,
    threads: usize,
    /// How many of them may work: fewer than there are when memory is short.
    allowed: usize,
    is_tight: bool,
    cores: usize,
    last_load: Load,
}

/// Elapsed time, and the CPU time of this process.
#[derive(Clone, Copy)]
struct Load {
    at: Instant,
    worked: Duration,
}

impl Load {
    fn now() -> Self {
        let worked = clock_gettime(ClockId::ProcessCPUTime);
        Self { at: Instant::now(), worked: worked.try_into().unwrap_or_default() }
    }

    /// How many cores were busy since `before`.
    fn since(self, before: Self) -> f64 {
        let passed = (self.at - before.at).as_secs_f64();
        self.worked.saturating_sub(before.worked).as_secs_f64() / passed.max(1e-9)
    }
}

impl<'scope, 'env> ThreadPool<'scope, 'env> {
    pub(crate) fn new(
        run: &'scope Run<'env>,
        scope: &'scope Scope<'scope, 'env>,
        max_threads: usize,
    ) -> Self {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let last_load = Load::now();
        let mut pool = Self {
            run,
            scope,
            max_threads,
            threads: 0,
            allowed: max_threads,
            is_tight: false,
            cores,
            last_load,
        };
        pool.grow_to((2 * cores).min(max_threads));
        pool
    }

    /// Watches until the run is over.
    pub(crate) fn watch(
        &mut self,
        memory: &MemoryGuard,
        cancelled: &tokio_util::sync::CancellationToken,
        on_progress: &mut Option<OnProgress<'_>>,
    ) {
        let _stop_on_panic = StopsOnPanic(self.run);
        let began = Instant::now();
        let mut last_report = began;
        loop {
            let pause = if self.threads < self.max_threads { CHECK_INTERVAL } else { SLOW_CHECK_INTERVAL };
            if self.run.queue.is_closed_within(pause) {
                return;
            }
            if cancelled.is_cancelled() {
                self.run.stop(Stop::Cancelled);
            }
            self.check_memory(memory);
            self.run.file_system.classify();
            self.scale();
            if let Some((every, on_progress)) = on_progress
                && last_report.elapsed() >= *every
            {
                last_report = Instant::now();
                on_progress(&self.progress(memory, began.elapsed()));
            }
        }
    }

    fn grow_to(&mut self, threads: usize) {
        while self.threads < threads {
            let run = self.run;
            let thread = thread::Builder::new().name("purge".to_owned()).stack_size(STACK);
            if thread.spawn_scoped(self.scope, move || Worker::new(run).work()).is_err() {
                // The system allows no more threads.
                self.max_threads = self.threads;
                break;
            }
            self.threads += 1;
        }
    }

    fn scale(&mut self) {
        let now = Load::now();
        let busy = now.since(self.last_load);
        self.last_load = now;
        let demand = self.run.queue.demand();
        let is_waiting = busy < BUSY_SHARE * self.cores.min(self.threads) as f64;
        if !self.is_tight
            && self.threads < self.max_threads
            && demand.queued > 0
            && demand.sleeping == 0
            && is_waiting
        {
            self.grow_to((2 * self.threads).min(self.max_threads));
        }
    }

    /// Halves the working threads when memory is short, and doubles them when it is fine again.
    fn check_memory(&mut self, memory: &MemoryGuard) {
        match memory.level() {
            Level::Critical => self.run.stop(Stop::Breaker),
            Level::Tight if !self.is_tight || self.allowed > 1 => {
                self.is_tight = true;
                self.run.counters.backpressure_events.add(1);
                self.allowed = (self.allowed.min(self.threads) / 2).max(1);
                self.run.queue.allow(self.allowed);
            }
            Level::Tight => {}
            Level::Fine if self.is_tight => {
                self.allowed = (2 * self.allowed).min(self.max_threads);
                self.is_tight = self.allowed < self.threads;
                if !self.is_tight {
                    self.allowed = self.max_threads;
                }
                self.run.queue.allow(self.allowed);
            }
            Level::Fine => {}
        }
    }

    fn progress(&self, memory: &MemoryGuard, elapsed: Duration) -> Progress {
        let (counters, demand) = (&self.run.counters, self.run.queue.demand());
        Progress {
            dirs_scanned: counters.dirs_scanned.get(),
            dirs_removed: counters.dirs_removed.get(),
            files_scanned: counters.files_scanned.get(),
            files_removed: counters.files_removed.get(),
            bytes_freed: counters.bytes_freed.get(),
            dirs_changed: counters.dirs_changed.get(),
            files_changed: counters.files_changed.get(),
            errors: counters.errors(),
            fraction: counters.decided_fraction(),
            queued: demand.queued,
            working: demand.working,
            memory_bytes: memory.now(),
            elapsed,
        }
    }
}
