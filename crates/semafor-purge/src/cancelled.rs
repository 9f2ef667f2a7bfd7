//! Waiting on a thread for what may take long, but not beyond the end of the run.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use tokio_util::sync::CancellationToken;

/// What came of it; none if the run was over before.
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
