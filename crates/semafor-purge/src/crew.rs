//! The threads, and how many of them there are.
//!
//! One thread watches, the one that called; the others work. There are few at first: on a local disk more than there are
//! cores only get in each other's way. As long as there is work that waits, and the cores have nothing to do because
//! everybody waits for the file system, their number is doubled. When memory is short it is halved.

use std::num::NonZero;
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use semafor_pipeline::{Level, MemoryGuard};

use crate::progress::Progress;
use crate::purger::OnProgress;
use crate::run::{Run, Stop};
use crate::walk::{StopsOnPanic, Worker};

/// How often it is looked whether there are too few threads, or too many.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);
/// The same once there are as many as there may be.
const BETWEEN_LATER_LOOKS: Duration = Duration::from_millis(50);
/// Cores that do less than this have time for more threads.
const BUSY: f64 = 0.6;
/// What a thread needs is on the heap, but for what it calls in the semaphore of a fleet.
const STACK: usize = 512 * 1024;

pub(crate) struct Crew<'scope, 'env> {
    run: &'scope Run<'env>,
    scope: &'scope Scope<'scope, 'env>,
    most: usize,
    threads: usize,
    /// How many of them may work. Less than there are when memory is short.
    allowed: usize,
    is_tight: bool,
    cores: usize,
    seen: Load,
}

/// Time that has passed, for all and for this process.
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

    /// How many cores were busy since then.
    fn since(self, before: Self) -> f64 {
        let passed = (self.at - before.at).as_secs_f64();
        self.worked.saturating_sub(before.worked).as_secs_f64() / passed.max(1e-9)
    }
}

impl<'scope, 'env> Crew<'scope, 'env> {
    pub(crate) fn new(run: &'scope Run<'env>, scope: &'scope Scope<'scope, 'env>, most: usize) -> Self {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let seen = Load::now();
        let mut crew = Self { run, scope, most, threads: 0, allowed: most, is_tight: false, cores, seen };
        crew.grow_to((2 * cores).min(most));
        crew
    }

    /// Stands by until the run is over.
    pub(crate) fn watch(
        &mut self,
        memory: &MemoryGuard,
        cancelled: &tokio_util::sync::CancellationToken,
        tell: &mut Option<OnProgress<'_>>,
    ) {
        let _stops = StopsOnPanic(self.run);
        let began = Instant::now();
        let mut told = began;
        loop {
            let pause = if self.threads < self.most { BETWEEN_LOOKS } else { BETWEEN_LATER_LOOKS };
            if self.run.queue.is_closed_within(pause) {
                return;
            }
            if cancelled.is_cancelled() {
                self.run.stop(Stop::Cancelled);
            }
            self.mind(memory);
            self.run.file_system.judge();
            self.scale();
            if let Some((every, tell)) = tell
                && told.elapsed() >= *every
            {
                told = Instant::now();
                tell(&self.progress(memory, began.elapsed()));
            }
        }
    }

    fn grow_to(&mut self, threads: usize) {
        while self.threads < threads {
            let run = self.run;
            let thread = thread::Builder::new().name("purge".to_owned()).stack_size(STACK);
            if thread.spawn_scoped(self.scope, move || Worker::new(run).work()).is_err() {
                // As many as the system allows.
                self.most = self.threads;
                break;
            }
            self.threads += 1;
        }
    }

    fn scale(&mut self) {
        let now = Load::now();
        let busy = now.since(self.seen);
        self.seen = now;
        let demand = self.run.queue.demand();
        let is_waiting = busy < BUSY * self.cores.min(self.threads) as f64;
        if !self.is_tight
            && self.threads < self.most
            && demand.queued > 0
            && demand.sleeping == 0
            && is_waiting
        {
            self.grow_to((2 * self.threads).min(self.most));
        }
    }

    /// Narrows when memory is short, and widens again when it is not.
    fn mind(&mut self, memory: &MemoryGuard) {
        match memory.level() {
            Level::Critical => self.run.stop(Stop::Breaker),
            Level::Tight if !self.is_tight || self.allowed > 1 => {
                self.is_tight = true;
                self.run.tally.backpressure_events.add(1);
                self.allowed = (self.allowed.min(self.threads) / 2).max(1);
                self.run.queue.allow(self.allowed);
            }
            Level::Tight => {}
            Level::Fine if self.is_tight => {
                self.allowed = (2 * self.allowed).min(self.most);
                self.is_tight = self.allowed < self.threads;
                if !self.is_tight {
                    self.allowed = self.most;
                }
                self.run.queue.allow(self.allowed);
            }
            Level::Fine => {}
        }
    }

    fn progress(&self, memory: &MemoryGuard, elapsed: Duration) -> Progress {
        let (tally, demand) = (&self.run.tally, self.run.queue.demand());
        Progress {
            dirs_scanned: tally.dirs_scanned.get(),
            dirs_removed: tally.dirs_removed.get(),
            files_scanned: tally.files_scanned.get(),
            files_removed: tally.files_removed.get(),
            bytes_freed: tally.bytes_freed.get(),
            dirs_changed: tally.dirs_changed.get(),
            files_changed: tally.files_changed.get(),
            errors: tally.errors(),
            fraction: tally.decided_fraction(),
            queued: demand.queued,
            working: demand.working,
            memory_bytes: memory.now(),
            elapsed,
        }
    }
}
