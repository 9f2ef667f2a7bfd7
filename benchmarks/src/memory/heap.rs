//! The memory of a queued waiter.

use std::future::Future;
use std::task::{Context, Waker};

use semafor_benchmarks::Report;
use semafor_testkit::heap::live_bytes;

use super::single::ours;

const WAITERS: usize = 1_000_000;

/// Heap per waiter beyond its future, and the size of the future.
fn queue<F: Future>(acquire: impl Fn() -> F) -> (f64, f64) {
    let mut cx = Context::from_waker(Waker::noop());
    let mut waiting: Vec<_> = (0..WAITERS).map(|_| Box::pin(acquire())).collect();
    let before = live_bytes();
    for next in &mut waiting {
        assert!(next.as_mut().poll(&mut cx).is_pending());
    }
    let heap = (live_bytes() - before) as f64 / WAITERS as f64;
    (heap, size_of::<F>() as f64)
}

pub(super) fn measure(report: &mut Report) {
    let sem = ours(1);
    let _held = sem.try_acquire().blocking();
    let (heap, future) = queue(|| sem.acquire());

    let tokio = tokio::sync::Semaphore::new(1);
    let _held = tokio.try_acquire();
    let async_lock = async_lock::Semaphore::new(1);
    let _held = async_lock.try_acquire();
    let asyncband = asyncband::semaphore::Semaphore::new(1);
    let _held = asyncband.try_acquire(1);
    let peers = [
        ("tokio", queue(|| tokio.acquire())),
        ("async-lock", queue(|| async_lock.acquire())),
        ("asyncband", queue(|| asyncband.acquire(1))),
    ];
    for (peer, (peer_heap, _)) in peers {
        report.add("1,000,000 waiters: heap beyond the future", "bytes", heap, peer, peer_heap);
    }
    for (peer, (peer_heap, peer_future)) in peers {
        report.add(
            "1,000,000 waiters: heap and future",
            "bytes",
            heap + future,
            peer,
            peer_heap + peer_future,
        );
    }
}
