//! What a queued waiter costs in memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::future::Future;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::task::{Context, Waker};

use semafor_benchmarks::Report;

use super::single::ours;

const WAITERS: usize = 1_000_000;

static LIVE: AtomicIsize = AtomicIsize::new(0);

/// The system's allocator, counting.
pub(super) struct Counting;

// SAFETY: passes every call through to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as promised by our caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as promised by our caller.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Heap per waiter beyond its future, and the size of the future.
fn queue<F: Future>(acquire: impl Fn() -> F) -> (f64, f64) {
    let mut cx = Context::from_waker(Waker::noop());
    let waiting: Vec<_> = (0..WAITERS).map(|_| Box::pin(acquire())).collect();
    let mut waiting = waiting;
    let before = LIVE.load(Ordering::Relaxed);
    for next in &mut waiting {
        assert!(next.as_mut().poll(&mut cx).is_pending());
    }
    let heap = (LIVE.load(Ordering::Relaxed) - before) as f64 / WAITERS as f64;
    (heap, size_of::<F>() as f64)
}

pub(super) fn measure(report: &mut Report) {
    let sem = ours(1);
    let _held = sem.try_acquire();
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
