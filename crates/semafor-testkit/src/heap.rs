//! Counts the heap in use, in the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, Ordering};

static LIVE: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    static OWN_LIVE: Cell<isize> = const { Cell::new(0) };
    static OWN_PEAK: Cell<isize> = const { Cell::new(0) };
    static OWN_ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator with counters. A program sets it as its `#[global_allocator]`.
pub struct Counting;

// SAFETY: passes every call through to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        let live = OWN_LIVE.get() + layout.size() as isize;
        OWN_LIVE.set(live);
        OWN_PEAK.set(OWN_PEAK.get().max(live));
        OWN_ALLOCATIONS.set(OWN_ALLOCATIONS.get() + 1);
        // SAFETY: as promised by our caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        OWN_LIVE.set(OWN_LIVE.get() - layout.size() as isize);
        // SAFETY: as promised by our caller.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Bytes in use. Zero in a program without the [`Counting`] allocator.
pub fn live_bytes() -> isize {
    LIVE.load(Ordering::Relaxed)
}

/// Bytes that this thread has allocated minus those it has freed. Other threads, such as those of libtest, do not
/// count.
pub fn own_live_bytes() -> isize {
    OWN_LIVE.get()
}

/// How often this thread has allocated.
pub fn own_allocations() -> usize {
    OWN_ALLOCATIONS.get()
}

/// The result of `work`, and how many bytes more than before it this thread had in use at some moment.
pub fn own_peak<R>(work: impl FnOnce() -> R) -> (R, usize) {
    let before = OWN_LIVE.get();
    OWN_PEAK.set(before);
    let result = work();
    (result, usize::try_from(OWN_PEAK.get() - before).unwrap_or(0))
}
