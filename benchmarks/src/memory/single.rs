//! One thread: the cost of a call without contention, and of a handoff.

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Waker};

use semafor::{Registry, Semaphore, secs};
use semafor_benchmarks::{Report, nanos_per};

const CYCLES: usize = 300_000;
pub(super) const SLOTS: u32 = 10;

pub(super) fn ours(slots: u32) -> Semaphore {
    Registry::new().named("bench").slots(slots).build().expect("valid options")
}

pub(super) fn leased() -> Semaphore {
    Registry::new().named("bench").slots(SLOTS).ttl(secs(30)).build().expect("valid options")
}

/// Runs a future on tokio's current-thread runtime, which suits all contestants.
fn on_tokio(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(work);
}

macro_rules! cycle {
    ($acquire:expr) => {
        Box::new(|| {
            let mut nanos = 0.0;
            on_tokio(async {
                nanos = {
                    let start = std::time::Instant::now();
                    for _ in 0..CYCLES {
                        black_box(&$acquire.await);
                    }
                    start.elapsed().as_nanos() as f64 / CYCLES as f64
                };
            });
            nanos
        })
    };
}

pub(super) fn uncontended(sem: &Semaphore) -> Box<dyn FnMut() -> f64 + '_> {
    cycle!(sem.acquire())
}

macro_rules! attempt {
    ($acquire:expr) => {
        Box::new(|| {
            nanos_per(CYCLES, || {
                for _ in 0..CYCLES {
                    black_box(&$acquire);
                }
            })
        })
    };
}

/// One holder, one waiter, polled by hand: release until the waiter has the slot.
macro_rules! handoff {
    ($acquire:expr, $take:expr) => {
        Box::new(|| {
            let mut cx = Context::from_waker(Waker::noop());
            let mut held = Some($take);
            nanos_per(CYCLES, || {
                for _ in 0..CYCLES {
                    let mut next = pin!($acquire);
                    assert!(next.as_mut().poll(&mut cx).is_pending());
                    drop(held.take());
                    let std::task::Poll::Ready(permit) = next.as_mut().poll(&mut cx) else {
                        unreachable!("the slot was handed over")
                    };
                    held = Some(permit);
                }
            })
        })
    };
}

/// Many waiters join the line and leave it again, in the same order.
macro_rules! cancel_storm {
    ($acquire:expr, $take:expr) => {
        Box::new(|| {
            const WAITERS: usize = 20_000;
            let mut cx = Context::from_waker(Waker::noop());
            let _held = $take;
            nanos_per(WAITERS, || {
                let mut waiting = Vec::with_capacity(WAITERS);
                for _ in 0..WAITERS {
                    let mut next = Box::pin($acquire);
                    assert!(next.as_mut().poll(&mut cx).is_pending());
                    waiting.push(next);
                }
                drop(waiting);
            })
        })
    };
}

pub(super) fn measure(report: &mut Report, rounds: usize) {
    let (sem, leased) = (ours(SLOTS), leased());
    let tokio = tokio::sync::Semaphore::new(SLOTS as usize);
    let async_lock = async_lock::Semaphore::new(SLOTS as usize);
    let asyncband = asyncband::semaphore::Semaphore::new(SLOTS as usize);

    report.compare(
        "uncontended acquire+release",
        "ns",
        rounds,
        vec![
            ("ours", uncontended(&sem)),
            ("tokio", cycle!(tokio.acquire())),
            ("async-lock", cycle!(async_lock.acquire())),
            ("asyncband", cycle!(asyncband.acquire(1))),
        ],
    );
    report.compare(
        "uncontended acquire+release with TTL",
        "ns",
        rounds,
        vec![
            ("ours", uncontended(&leased)),
            ("tokio (has no TTL)", cycle!(tokio.acquire())),
            ("asyncband (has no TTL)", cycle!(asyncband.acquire(1))),
        ],
    );
    report.compare(
        "try acquire+release",
        "ns",
        rounds,
        vec![
            ("ours", attempt!(sem.try_acquire().blocking())),
            ("tokio", attempt!(tokio.try_acquire())),
            ("async-lock", attempt!(async_lock.try_acquire())),
            ("asyncband", attempt!(asyncband.try_acquire(1))),
        ],
    );

    let sem = ours(1);
    let tokio = tokio::sync::Semaphore::new(1);
    let async_lock = async_lock::Semaphore::new(1);
    let asyncband = asyncband::semaphore::Semaphore::new(1);
    report.compare(
        "handoff to a queued waiter",
        "ns",
        rounds,
        vec![
            ("ours", handoff!(sem.acquire(), sem.try_acquire().blocking())),
            ("tokio", handoff!(tokio.acquire(), tokio.try_acquire().map_err(|_| unreachable!()))),
            ("asyncband", handoff!(asyncband.acquire(1), asyncband.try_acquire(1).expect("free"))),
        ],
    );
    report.compare(
        "cancel storm, per waiter",
        "ns",
        rounds,
        vec![
            ("ours", cancel_storm!(sem.acquire(), sem.try_acquire().blocking())),
            ("tokio", cancel_storm!(tokio.acquire(), tokio.try_acquire())),
            ("async-lock", cancel_storm!(async_lock.acquire(), async_lock.try_acquire())),
            ("asyncband", cancel_storm!(asyncband.acquire(1), asyncband.try_acquire(1))),
        ],
    );
}
