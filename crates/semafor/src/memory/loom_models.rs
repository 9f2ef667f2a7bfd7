//! One model per race on a gate: loom runs each through every interleaving. `tests/registry.rs` and the stress test
//! cover the opening and dropping of names, which also takes the registry's locks.
//!
//! Run by `cargo xtask test`; CONTRIBUTING.md says how to run them alone.

use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use loom::future::block_on;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::{AcquireError, ManualClock, Permit, Registry, Semaphore, secs};

type Waiting = Pin<Box<dyn Future<Output = Result<Permit<'static>, AcquireError>> + Send>>;

fn open(slots: u32) -> (Semaphore, ManualClock) {
    let clock = ManualClock::new();
    let registry = Registry::builder().clock(&clock).build();
    (registry.named("modelled").slots(slots).build().unwrap(), clock)
}

fn hold(sem: &Semaphore) -> Permit<'static> {
    sem.try_acquire().blocking().unwrap().into_owned()
}

/// An acquire that has joined the line.
fn wait_in_line(sem: &Semaphore) -> Waiting {
    let sem = sem.clone();
    let mut waiting: Waiting = Box::pin(async move { sem.acquire().await.map(Permit::into_owned) });
    assert!(poll(&mut waiting, Waker::noop()).is_pending());
    waiting
}

fn poll(waiting: &mut Waiting, waker: &Waker) -> Poll<Result<Permit<'static>, AcquireError>> {
    waiting.as_mut().poll(&mut Context::from_waker(waker))
}

/// Every slot was released, exactly once.
fn assert_all_free(sem: &Semaphore) {
    let stats = block_on(sem.stats()).unwrap();
    assert_eq!((stats.held, stats.holders, stats.waiting), (0, 0, 0));
    let totals = &stats.totals;
    let ended = totals.released + totals.expired + totals.evicted + totals.handed_on;
    assert_eq!(totals.granted, ended);
    let all = block_on(sem.slots()).unwrap();
    drop(sem.acquire().weight(all).now().blocking().unwrap());
}

#[test]
fn loom_release_against_cancel() {
    loom::model(|| {
        let (sem, _) = open(1);
        let held = hold(&sem);
        let waiting = wait_in_line(&sem);
        let releaser = thread::spawn(move || drop(held));
        drop(waiting);
        releaser.join().unwrap();
        assert_all_free(&sem);
    });
}

#[test]
fn loom_grant_against_drop_of_a_pending_future_passes_the_slot_to_the_next() {
    loom::model(|| {
        let (sem, _) = open(1);
        let held = hold(&sem);
        let (first, second) = (wait_in_line(&sem), wait_in_line(&sem));
        let releaser = thread::spawn(move || drop(held));
        let leaver = thread::spawn(move || drop(first));
        drop(block_on(second).unwrap());
        releaser.join().unwrap();
        leaver.join().unwrap();
        assert_all_free(&sem);
    });
}

#[test]
fn loom_grant_against_a_poll_with_another_waker_wakes_the_new_one() {
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    loom::model(|| {
        let (sem, _) = open(1);
        let held = hold(&sem);
        let mut waiting = wait_in_line(&sem);
        let releaser = thread::spawn(move || drop(held));
        let count = std::sync::Arc::new(Count(AtomicUsize::new(0)));
        let answer = poll(&mut waiting, &Waker::from(count.clone()));
        releaser.join().unwrap();
        if answer.is_pending() {
            assert_eq!(count.0.load(Ordering::SeqCst), 1, "the grant woke the waker of the last poll");
            assert!(poll(&mut waiting, Waker::noop()).is_ready());
        }
        drop((answer, waiting));
        assert_all_free(&sem);
    });
}

#[test]
fn loom_expiry_against_release_has_one_winner() {
    loom::model(|| {
        let (sem, clock) = open(1);
        let held = sem.acquire().ttl(secs(1)).now().blocking().unwrap().into_owned();
        let waiting = wait_in_line(&sem);
        let time = thread::spawn(move || clock.advance(Duration::from_secs(1)));
        let released = block_on(held.release());
        time.join().unwrap();
        let totals = block_on(sem.stats()).unwrap().totals;
        match released {
            Ok(()) => assert_eq!((totals.released, totals.expired), (1, 0)),
            Err(error) => {
                assert!(error.is_expired());
                assert_eq!((totals.released, totals.expired), (0, 1));
            }
        }
        drop(block_on(waiting).unwrap());
        assert_all_free(&sem);
    });
}

#[test]
fn loom_end_of_grace_against_release_has_one_winner() {
    loom::model(|| {
        let clock = ManualClock::new();
        let registry = Registry::builder().clock(&clock).build();
        let sem = registry.named("modelled").slots(1).grace(Duration::from_secs(1)).build().unwrap();
        let held = hold(&sem);
        block_on(sem.evict(&held.id())).unwrap();
        let time = thread::spawn(move || clock.advance(Duration::from_secs(1)));
        let released = block_on(held.release());
        time.join().unwrap();
        let totals = block_on(sem.stats()).unwrap().totals;
        assert_eq!((totals.released, totals.evicted), if released.is_ok() { (1, 0) } else { (0, 1) });
        assert_all_free(&sem);
    });
}

#[test]
fn loom_timeout_against_grant_has_one_winner() {
    loom::model(|| {
        let (sem, clock) = open(1);
        let held = hold(&sem);
        let waiting_sem = sem.clone();
        let mut waiting: Waiting =
            Box::pin(async move { waiting_sem.acquire().timeout(secs(1)).await.map(Permit::into_owned) });
        assert!(poll(&mut waiting, Waker::noop()).is_pending());
        let time = thread::spawn(move || clock.advance(Duration::from_secs(1)));
        drop(held);
        time.join().unwrap();
        match block_on(waiting) {
            Ok(permit) => drop(permit),
            Err(error) => assert!(error.is_timeout()),
        }
        assert_all_free(&sem);
    });
}

#[test]
fn loom_growing_against_acquire_grants_the_new_slot() {
    loom::model(|| {
        let (sem, _) = open(1);
        let _held = hold(&sem);
        let resized = sem.clone();
        let grower = thread::spawn(move || block_on(resized.resize(2)).unwrap());
        let second = block_on(sem.acquire()).unwrap();
        assert_eq!(second.slot(), 1);
        grower.join().unwrap();
    });
}

#[test]
fn loom_shrinking_against_acquire_never_over_admits() {
    loom::model(|| {
        let (sem, _) = open(2);
        let held = hold(&sem);
        let resized = sem.clone();
        let shrinker = thread::spawn(move || block_on(resized.resize(1)).unwrap());
        let second = sem.try_acquire().blocking().map(Permit::into_owned);
        shrinker.join().unwrap();
        let stats = block_on(sem.stats()).unwrap();
        assert_eq!(stats.debt(), u32::from(second.is_ok()));
        assert!(sem.try_acquire().blocking().is_err(), "one slot, and it is held");
        drop((held, second));
        assert_all_free(&sem);
    });
}

#[test]
fn loom_close_against_acquire_turns_the_waiter_away() {
    loom::model(|| {
        let (sem, _) = open(1);
        let _held = hold(&sem);
        let closed = sem.clone();
        let closer = thread::spawn(move || block_on(closed.close()).unwrap());
        assert!(block_on(sem.acquire()).unwrap_err().is_closed());
        closer.join().unwrap();
    });
}

#[test]
fn loom_close_and_release_against_acquire_have_one_winner() {
    loom::model(|| {
        let (sem, _) = open(1);
        let held = hold(&sem);
        let closed = sem.clone();
        let closer = thread::spawn(move || block_on(closed.close()).unwrap());
        let releaser = thread::spawn(move || drop(held));
        match block_on(sem.acquire()) {
            Ok(permit) => drop(permit),
            Err(error) => assert!(error.is_closed()),
        }
        closer.join().unwrap();
        releaser.join().unwrap();
        let stats = block_on(sem.stats()).unwrap();
        assert_eq!((stats.held, stats.waiting), (0, 0));
    });
}

#[test]
fn loom_two_contenders_never_hold_the_slot_together() {
    loom::model(|| {
        let (sem, _) = open(1);
        let inside = Arc::new(AtomicUsize::new(0));
        let contend = |sem: Semaphore, inside: Arc<AtomicUsize>| {
            let permit = block_on(sem.acquire()).unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
            inside.fetch_sub(1, Ordering::SeqCst);
            drop(permit);
        };
        let other = thread::spawn({
            let (sem, inside) = (sem.clone(), inside.clone());
            move || contend(sem, inside)
        });
        contend(sem.clone(), inside);
        other.join().unwrap();
        assert_all_free(&sem);
    });
}
