//! Polling by hand, to stop a future wherever a test wants it.
#![allow(dead_code, reason = "not every test file needs all of it")]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use semafor::{ManualClock, Registry};

pub(crate) fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls once and wants the future to go on waiting.
pub(crate) fn pend<F: Future>(future: F) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    assert!(poll(&mut future).is_pending(), "the future was expected to wait");
    future
}

/// The answer of a future that has one.
pub(crate) fn answer<F: Future + ?Sized>(mut future: Pin<Box<F>>) -> F::Output {
    match poll(&mut future) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the future was expected to be ready"),
    }
}

/// The answer of a future that does not wait.
pub(crate) fn now<F: Future>(future: F) -> F::Output {
    answer(Box::pin(future))
}

/// A waker that counts.
#[derive(Default)]
pub(crate) struct Bell(AtomicUsize);

impl Bell {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn rings(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A registry whose time stands still.
pub(crate) fn standing_still() -> (Registry, ManualClock) {
    let clock = ManualClock::new();
    (Registry::builder().clock(&clock).build(), clock)
}

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
