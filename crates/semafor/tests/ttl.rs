//! A lease ends on time even if the holder's runtime is blocked or gone.

use std::sync::{Arc, mpsc};
use std::task::{Context, Wake, Waker};

use semafor::{AcquireError, ManualClock, Registry, Span, secs};
use semafor_testkit::stepwise::{answer, now, pend, poll, seconds, standing_still};

#[test]
fn lease_ends_although_the_holders_runtime_is_gone() {
    let sem = Registry::new().named("orphaned").slots(1).ttl(secs(0.05)).build().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let id = runtime.block_on(async { sem.acquire().await.unwrap().detach() });
    drop(runtime);

    let permit = sem.acquire().timeout(secs(30)).blocking().expect("the registry's driver ended the lease");
    assert_ne!(permit.id(), id);
}

#[test]
fn lease_ends_although_the_holders_runtime_is_blocked() {
    let sem = Registry::new().named("blocked").slots(1).ttl(secs(0.05)).build().unwrap();
    let (unblock, blocked) = mpsc::channel::<()>();
    let (holding, is_held) = mpsc::channel();
    let busy = std::thread::spawn({
        let sem = sem.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let permit = sem.acquire().await.unwrap();
                holding.send(()).unwrap();
                blocked.recv().unwrap();
                permit.release().await
            })
        }
    });
    is_held.recv().unwrap();
    drop(sem.acquire().timeout(secs(30)).blocking().expect("the registry's driver ended the lease"));
    unblock.send(()).unwrap();
    assert!(busy.join().unwrap().unwrap_err().is_expired());
}

#[test]
fn waiter_times_out_without_any_runtime() {
    let sem = Registry::new().named("taken").slots(1).build().unwrap();
    let _held = sem.try_acquire().blocking().unwrap();
    let error = sem.acquire().timeout(secs(0.05)).blocking().unwrap_err();
    assert!(error.is_timeout());
    assert!(error.to_string().contains("1 of 1 slots held"), "{error}");
}

#[test]
fn expiry_hands_the_slot_to_the_first_waiter() {
    let (registry, clock) = standing_still();
    let sem = registry.named("one").slots(1).ttl(secs(5)).build().unwrap();
    let held = now(sem.acquire()).unwrap();
    let (first, mut second) = (pend(sem.acquire()), pend(sem.acquire()));
    clock.advance(seconds(5));
    let first = answer(first).unwrap();
    assert!(held.is_lost() && !first.is_lost());
    assert!(poll(&mut second).is_pending());
    assert!(now(held.release()).unwrap_err().is_expired(), "a late release fails");
    assert!(!first.is_lost(), "and has no effect");
}

#[test]
fn leases_of_one_chain_follow_each_other() {
    let (registry, clock) = standing_still();
    let sem = registry.named("chain").slots(1).ttl(secs(3)).build().unwrap();
    let _first = now(sem.acquire()).unwrap();
    let (second, third) = (pend(sem.acquire()), pend(sem.acquire()));
    clock.advance(seconds(8));
    assert!(!answer(third).unwrap().is_lost(), "granted at 6, it lasts until 9");
    assert!(
        matches!(answer(second), Err(AcquireError::Lost(_))),
        "it held the slot from 3 to 6 and was not polled"
    );
}

#[test]
fn a_renewed_permit_outlives_its_first_ttl_and_a_permanent_one_all() {
    let (registry, clock) = standing_still();
    let sem = registry.named("renewed").slots(1).ttl(secs(10)).build().unwrap();
    let permit = now(sem.acquire()).unwrap();
    clock.advance(seconds(9));
    now(permit.renew(secs(10))).unwrap();
    clock.advance(seconds(9));
    assert!(!permit.is_lost());
    now(permit.renew(Span::UNLIMITED)).unwrap();
    assert_eq!(permit.expires_at(), None);
    clock.advance(seconds(1_000_000));
    assert!(!permit.is_lost());
}

#[test]
fn a_lost_permit_cannot_be_renewed() {
    let (registry, clock) = standing_still();
    let sem = registry.named("late").slots(1).ttl(secs(1)).build().unwrap();
    let permit = now(sem.acquire()).unwrap();
    clock.advance(seconds(1));
    let error = now(permit.renew(secs(5))).unwrap_err();
    assert_eq!(error.to_string(), "this permit lost its slot: its time to live ran out");
}

#[test]
fn many_leases_with_different_ttls_end_each_at_its_own_time() {
    let (registry, clock) = standing_still();
    let sem = registry.named("mixed").slots(50).build().unwrap();
    let permits: Vec<_> =
        (1..=50u64).map(|n| now(sem.acquire().ttl(seconds(n * 37 % 50 + 1))).unwrap()).collect();
    for passed in 1..=50 {
        clock.advance(seconds(1));
        let live = permits.iter().filter(|permit| !permit.is_lost()).count();
        assert_eq!(live as u64, 50 - passed);
    }
}

#[test]
fn leases_end_on_time_under_a_high_rate_of_acquires() {
    let sem = Registry::new().named("hurry").slots(2).build().unwrap();
    let short = sem.acquire().ttl(secs(0.05)).now().blocking().unwrap();
    while !short.is_lost() {
        drop(sem.acquire().ttl(secs(30)).now().blocking().unwrap());
    }
    assert_eq!(now(sem.stats()).unwrap().held, 0);
}

#[test]
fn clock_advanced_by_a_waker_does_not_run_backwards() {
    struct AdvanceOnWake(ManualClock);
    impl Wake for AdvanceOnWake {
        fn wake(self: Arc<Self>) {
            self.0.advance(seconds(100));
        }
    }

    let (registry, clock) = standing_still();
    let sem = registry.named("hasty").slots(1).ttl(secs(5)).build().unwrap();
    let _held = now(sem.acquire()).unwrap();
    let mut waiting = Box::pin(sem.acquire());
    let waker = Waker::from(Arc::new(AdvanceOnWake(clock.clone())));
    assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    clock.advance(seconds(6));
    assert!(matches!(answer(waiting), Err(AcquireError::Lost(_))), "granted at 5, it is 105 by now");
}

#[test]
fn clock_advanced_to_its_end_ends_every_lease_and_stops() {
    let (registry, clock) = standing_still();
    let sem = registry.named("leased").slots(2).build().unwrap();
    let leased = now(sem.acquire().ttl(secs(5))).unwrap();
    let kept = now(sem.acquire()).unwrap();
    drop(registry.named("idle").slots(1).build().unwrap());
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        clock.advance(std::time::Duration::MAX);
        clock.advance(std::time::Duration::MAX);
        done.send(()).unwrap();
    });
    is_done.recv_timeout(seconds(60)).expect("it returns");
    assert!(leased.is_lost() && !kept.is_lost());
    assert_eq!(registry.len(), 1, "the idle name was dropped");
    let last = now(sem.acquire().ttl(secs(5))).unwrap();
    assert!(!last.is_lost(), "no time is left in which its lease could end");
}
