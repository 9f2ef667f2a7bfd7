//! Futures polled by hand.
//!
//! A future here is polled when the test asks for it, and after that only when its waker was called: a home that
//! forgets to wake a waiter fails, although another poll would have found the slot.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use semafor::{Acquire, Semaphore, Stats};
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::timeout;

/// A test that waits longer than this has failed. Not a measure of speed.
const TIME_LIMIT: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 10_000 });

/// A future that is polled by hand.
#[must_use = "it is not polled by itself"]
pub struct ByHand<F: Future> {
    future: Pin<Box<F>>,
    woken: Arc<Woken>,
}

#[derive(Default)]
struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl<F: Future> ByHand<F> {
    /// Takes a future that was not polled yet.
    pub fn new(future: F) -> Self {
        Self { future: Box::pin(future), woken: Arc::default() }
    }

    /// Polls once.
    pub fn poll(&mut self) -> Poll<F::Output> {
        let waker = Waker::from(Arc::clone(&self.woken));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// Polls once and returns whether it is pending.
    pub fn waits(&mut self) -> bool {
        self.poll().is_pending()
    }

    /// The output of a pending future: polls it only when it was woken.
    ///
    /// # Panics
    ///
    /// If it does not complete.
    #[track_caller]
    pub fn outcome(mut self) -> impl Future<Output = F::Output> {
        let caller = std::panic::Location::caller();
        async move {
            let settled = timeout(TIME_LIMIT, async {
                loop {
                    self.woken.0.notified().await;
                    if let Poll::Ready(outcome) = self.poll() {
                        return outcome;
                    }
                }
            });
            settled.await.unwrap_or_else(|_| panic!("{caller}: it is still pending and was not woken"))
        }
    }
}

/// Puts `acquire` at the end of the line of `semaphore`.
///
/// # Panics
///
/// If it does not have to wait.
#[track_caller]
pub fn in_line<'a>(
    semaphore: &'a Semaphore,
    acquire: Acquire<'a>,
) -> impl Future<Output = ByHand<Acquire<'a>>> {
    let caller = std::panic::Location::caller();
    async move {
        let before = stats(semaphore).await.waiting;
        let mut acquire = ByHand::new(acquire);
        let joined = timeout(TIME_LIMIT, async {
            loop {
                if let Poll::Ready(outcome) = acquire.poll() {
                    panic!("{caller}: it should wait in line, not get {outcome:?}");
                }
                if stats(semaphore).await.waiting > before {
                    return;
                }
                yield_now().await;
            }
        });
        assert!(joined.await.is_ok(), "{caller}: it never got in line");
        acquire
    }
}

/// Returns as soon as the semaphore's numbers are as wanted.
///
/// For what a home may do in the background, such as releasing dropped permits.
///
/// # Panics
///
/// If they never are.
#[track_caller]
pub fn until(semaphore: &Semaphore, wanted: impl Fn(&Stats) -> bool) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let reached = timeout(TIME_LIMIT, async {
            while !wanted(&stats(semaphore).await) {
                yield_now().await;
            }
        });
        if reached.await.is_err() {
            panic!("{caller}: this never happened; the numbers are {:?}", stats(semaphore).await);
        }
    }
}

/// The semaphore's numbers.
pub(crate) async fn stats(semaphore: &Semaphore) -> Stats {
    semaphore.stats().await.expect("the home answers")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    fn run<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test)
    }

    #[test]
    #[should_panic(expected = "was not woken")]
    fn ready_future_that_was_not_woken_is_not_polled() {
        let mut asked = 0;
        let mut ready_when_asked_again = ByHand::new(poll_fn(move |_| {
            asked += 1;
            if asked > 1 { Poll::Ready(()) } else { Poll::Pending }
        }));
        assert!(ready_when_asked_again.waits());
        run(ready_when_asked_again.outcome());
    }

    #[test]
    fn woken_future_is_polled() {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let mut receiving = ByHand::new(receiver);
        assert!(receiving.waits());
        sender.send(7).unwrap();
        assert_eq!(run(receiving.outcome()), Ok(7));
    }

    #[test]
    #[should_panic(expected = "it should wait in line")]
    fn granted_acquire_is_not_in_line() {
        let semaphore = Semaphore::memory("granted_acquire_is_not_in_line").slots(1).build().unwrap();
        let _ = run(in_line(&semaphore, semaphore.acquire()));
    }

    #[test]
    #[should_panic(expected = "this never happened")]
    fn until_panics_after_the_time_limit() {
        let semaphore = Semaphore::memory("what_never_happens").slots(1).build().unwrap();
        run(until(&semaphore, |stats| stats.held == 1));
    }
}
