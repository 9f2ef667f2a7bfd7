//! Blocks a thread on a future, at most until the run is cancelled.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use tokio_util::sync::CancellationToken;

/// The result, or `None` if the run was cancelled first.
pub(crate) fn run_unless_cancelled<T>(
    cancelled: &CancellationToken,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    let mut cancelled = pin!(cancelled.cancelled());
    pollster::block_on(poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => cancelled.as_mut().poll(cx).map(|()| None),
    }))
}
