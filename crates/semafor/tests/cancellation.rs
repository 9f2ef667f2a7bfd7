//! A future dropped at any await point leaks neither a slot nor a place in line.

use std::pin::pin;
use std::task::{Context, RawWaker, RawWakerVTable, Waker};

use semafor::{ManualClock, Permit, Registry, Semaphore, secs};
use semafor_testkit::stepwise::{Bell, answer, now, pend, poll, seconds, standing_still};

fn one_slot() -> (Semaphore, ManualClock, Registry) {
    let (registry, clock) = standing_still();
    (registry.named("one").slots(1).build().unwrap(), clock, registry)
}

fn assert_idle(sem: &Semaphore) {
    let stats = now(sem.stats()).unwrap();
    assert_eq!((stats.held, stats.waiting), (0, 0));
    drop(sem.try_acquire().blocking().expect("all slots are free"));
}

#[test]
fn acquire_dropped_before_its_first_poll_has_no_effect() {
    let (sem, ..) = one_slot();
    drop(sem.acquire());
    assert_eq!(now(sem.stats()).unwrap().totals.granted, 0);
    assert_idle(&sem);
}

#[test]
fn an_acquire_dropped_in_line_leaves_it() {
    let (sem, ..) = one_slot();
    let held = now(sem.acquire()).unwrap();
    let (first, second, third) = (pend(sem.acquire()), pend(sem.acquire()), pend(sem.acquire()));
    drop(second);
    assert_eq!(now(sem.stats()).unwrap().waiting, 2);
    drop(held);
    drop(answer(first).unwrap());
    drop(answer(third).unwrap());
    assert_idle(&sem);
}

#[test]
fn acquire_dropped_after_an_unseen_grant_hands_the_slot_to_the_next_waiter() {
    let (sem, ..) = one_slot();
    let held = now(sem.acquire()).unwrap();
    let granted = pend(sem.acquire());
    let bell = Bell::new();
    let mut next = Box::pin(sem.acquire());
    let waker = Waker::from(bell.clone());
    assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(held);
    assert_eq!(bell.rings(), 0);
    drop(granted);
    assert_eq!(bell.rings(), 1);
    drop(answer(next).unwrap());
    assert_eq!(now(sem.stats()).unwrap().totals.handed_on, 1);
    assert_idle(&sem);
}

#[test]
fn an_acquire_dropped_after_it_timed_out_leaves_nothing_behind() {
    let (sem, clock, _registry) = one_slot();
    let held = now(sem.acquire()).unwrap();
    let waiting = pend(sem.acquire().timeout(secs(1)));
    clock.advance(seconds(1));
    drop(waiting);
    drop(held);
    assert_idle(&sem);
}

#[test]
fn an_acquire_dropped_after_a_close_leaves_nothing_behind() {
    let (sem, ..) = one_slot();
    let held = now(sem.acquire()).unwrap();
    let waiting = pend(sem.acquire());
    now(sem.close()).unwrap();
    drop(waiting);
    drop(held);
    assert_eq!(now(sem.stats()).unwrap().held, 0);
}

#[test]
fn heavy_first_waiter_that_leaves_unblocks_the_waiters_behind_it() {
    let (registry, _) = standing_still();
    let sem = registry.named("two").slots(2).build().unwrap();
    let one = now(sem.acquire()).unwrap();
    let heavy = pend(sem.acquire().weight(2));
    let light = pend(sem.acquire());
    drop(heavy);
    drop(answer(light).unwrap());
    drop(one);
    assert_idle(&sem);
}

#[test]
fn run_dropped_at_any_await_point_releases_everything() {
    let (sem, ..) = one_slot();
    let dropped_unpolled = sem.run(async {});
    drop(dropped_unpolled);

    let held = now(sem.acquire()).unwrap();
    let dropped_in_line = pend(sem.run(async {}));
    drop(dropped_in_line);
    let dropped_when_granted = pend(sem.run(async {}));
    drop(held);
    drop(dropped_when_granted);

    let dropped_at_work = pend(sem.run(std::future::pending::<()>()));
    assert_eq!(now(sem.stats()).unwrap().held, 1);
    drop(dropped_at_work);
    assert_idle(&sem);
}

#[test]
fn lost_can_be_dropped_and_awaited_again() {
    let (sem, clock, _registry) = one_slot();
    let permit = now(sem.acquire().ttl(secs(1))).unwrap();
    drop(pend(permit.lost()));
    let again = pend(permit.lost());
    clock.advance(seconds(1));
    assert!(answer(again).is_expired());
    assert!(now(permit.lost()).is_expired(), "and again, after the loss");
}

#[test]
fn a_release_that_is_never_polled_releases_all_the_same() {
    let (sem, ..) = one_slot();
    let permit = now(sem.acquire()).unwrap();
    drop(permit.release());
    assert_idle(&sem);
}

#[test]
fn owned_permit_releases_its_slot_wherever_it_is_dropped() {
    let (sem, ..) = one_slot();
    let permit: Permit<'static> = now(sem.acquire()).unwrap().into_owned();
    let panicked = std::thread::spawn(move || {
        let _permit = permit;
        panic!("the holder fails");
    })
    .join();
    assert!(panicked.is_err());
    assert_idle(&sem);
}

#[test]
fn waker_of_the_last_poll_is_woken() {
    let (sem, ..) = one_slot();
    let held = now(sem.acquire()).unwrap();
    let mut waiting = pin!(sem.acquire());
    let (old, new) = (Bell::new(), Bell::new());
    for bell in [&old, &new] {
        let waker = Waker::from(bell.clone());
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    drop(held);
    assert_eq!((old.rings(), new.rings()), (0, 1));
}

#[test]
fn a_waker_that_panics_does_not_affect_others() {
    struct Panics;
    impl std::task::Wake for Panics {
        fn wake(self: std::sync::Arc<Self>) {
            panic!("a faulty runtime");
        }
    }

    let (sem, ..) = one_slot();
    let held = now(sem.acquire()).unwrap();
    let mut faulty = Box::pin(sem.acquire());
    let waker = Waker::from(std::sync::Arc::new(Panics));
    assert!(faulty.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let bell = Bell::new();
    let mut sound = Box::pin(sem.acquire());
    let waker = Waker::from(bell.clone());
    assert!(sound.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());

    now(sem.resize(3)).expect("the panic of the waker is not passed on");
    assert_eq!(bell.rings(), 1);
    drop((poll(&mut sound), poll(&mut faulty), held));
    drop((sound, faulty));
    assert_eq!(now(sem.stats()).unwrap().held, 0);
}

/// A waker that reads the semaphore when it is cloned, woken or dropped. Under the semaphore's lock it would deadlock.
fn inspecting_waker(sem: &'static Semaphore) -> Waker {
    fn look(data: *const ()) {
        // SAFETY: the pointer is to a semaphore that lives for ever.
        let sem = unsafe { &*data.cast::<Semaphore>() };
        now(sem.stats()).unwrap();
    }
    fn clone(data: *const ()) -> RawWaker {
        look(data);
        RawWaker::new(data, &VTABLE)
    }
    static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, look, look, look);
    let data = std::ptr::from_ref(sem).cast();
    // SAFETY: nothing is owned, so nothing can be freed too early or twice, and semaphores may be used by any thread.
    unsafe { Waker::from_raw(clone(data)) }
}

#[test]
fn wakers_are_cloned_woken_and_dropped_outside_the_lock() {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let sem = Registry::new().named("curious").slots(1).max_waiting(3).build().unwrap();
        let sem: &Semaphore = Box::leak(Box::new(sem));
        let waker = inspecting_waker(sem);
        let ask = |timeout: f64| {
            let mut acquire = Box::pin(sem.acquire().timeout(secs(timeout)));
            let _ = acquire.as_mut().poll(&mut Context::from_waker(&waker));
            acquire
        };
        let held = sem.try_acquire().blocking().unwrap();
        let mut line = vec![ask(100.0), ask(0.001), ask(100.0)];
        drop(ask(100.0)); // refused: the line is full
        for waiting in &mut line {
            // The second of them may have timed out by now.
            if waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                let _ = waiting.as_mut().poll(&mut Context::from_waker(&waker));
            }
        }
        drop(line.pop());
        drop(held);
        now(sem.resize(5)).unwrap();
        drop(ask(100.0)); // granted at once
        now(sem.close()).unwrap();
        drop(ask(100.0)); // refused: closed
        drop(line);
        done.send(()).unwrap();
    });
    is_done.recv_timeout(seconds(60)).expect("nothing ran under the lock");
}

#[test]
fn million_waiters_that_leave_free_their_memory_and_places() {
    let (sem, ..) = one_slot();
    let held = now(sem.acquire()).unwrap();
    let waiting: Vec<_> = (0..1_000_000).map(|_| pend(sem.acquire())).collect();
    assert_eq!(now(sem.stats()).unwrap().waiting, 1_000_000);
    drop(waiting);
    drop(held);
    assert_eq!(now(sem.stats()).unwrap().totals.cancelled, 1_000_000);
    assert_idle(&sem);
}
