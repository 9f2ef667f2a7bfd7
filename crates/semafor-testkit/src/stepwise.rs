//! For tests without a runtime: futures are polled step by step, and the clock moves only when the test moves it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use semafor::{ManualClock, Registry};

/// Polls once.
pub fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// A future that was polled once, and is pending.
///
/// # Panics
///
/// If it does not wait.
#[track_caller]
pub fn pend<F: Future>(future: F) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    assert!(poll(&mut future).is_pending(), "the future was expected to wait");
    future
}

/// The output of a future that is ready.
///
/// # Panics
///
/// If it still waits.
#[track_caller]
pub fn answer<F: Future + ?Sized>(mut future: Pin<Box<F>>) -> F::Output {
    match poll(&mut future) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the future was expected to be ready"),
    }
}

/// The output of a future that is ready at the first poll.
///
/// # Panics
///
/// If it waits.
#[track_caller]
pub fn now<F: Future>(future: F) -> F::Output {
    answer(Box::pin(future))
}

/// A waker that counts how often it was woken.
#[derive(Default)]
pub struct Bell(AtomicUsize);

impl Bell {
    /// A waker that was not woken yet.
    #[allow(clippy::new_ret_no_self, reason = "a waker is shared")]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// How often it was woken.
    pub fn rings(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A registry whose clock stands still.
pub fn standing_still() -> (Registry, ManualClock) {
    let clock = ManualClock::new();
    (Registry::builder().clock(&clock).build(), clock)
}

/// So many seconds.
pub fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
