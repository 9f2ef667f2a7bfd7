//! A clock and a memory source that a test sets, and a wait with a deadline.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use semafor_pipeline::{Clock, Delay, MemoryGuard};

/// A number that a test sets. As a clock it shows milliseconds, and each delay moves it forward at once.
#[derive(Clone, Default)]
pub(crate) struct Dial(Arc<AtomicU64>);

impl Dial {
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::SeqCst);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Clock for Dial {
    fn now(&self) -> Duration {
        Duration::from_millis(self.get())
    }

    fn delay(&self, span: Duration) -> Delay {
        let (dial, until) = (self.clone(), (self.now() + span).as_millis() as u64);
        Box::pin(async move {
            dial.0.fetch_max(until, Ordering::SeqCst);
        })
    }
}

/// A guard with a limit of 1000 bytes that reads on every call, and the number it reads.
pub(crate) fn watched() -> (MemoryGuard, Dial) {
    let used = Dial::default();
    let source = used.clone();
    let guard = MemoryGuard::new(1000).sample_every(Duration::ZERO).source(move || source.get());
    (guard, used)
}

/// Waits until the condition is true; panics after a minute.
#[track_caller]
pub(crate) fn until(is_true: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_true() {
        assert!(Instant::now() < deadline, "the condition was not true within 60 s");
        std::thread::yield_now();
    }
}
