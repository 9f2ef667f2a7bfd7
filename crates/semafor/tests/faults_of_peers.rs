//! Faults measured in other semaphores, each as a test that fails on the faulty behaviour.
//!
//! Overtaking the line is in `fairness.rs`; leases that do not end when their runtime is gone are in `ttl.rs`.

use semafor::{AcquireError, Registry};
use semafor_testkit::stepwise::{answer, now, pend, standing_still};

/// In asyncio-advanced-semaphores the slot number is a count: two live holders both had number 2.
#[test]
fn no_two_live_holders_ever_share_a_slot_number() {
    let (registry, _) = standing_still();
    let sem = registry.named("three").slots(3).build().unwrap();
    let (zero, one, two) =
        (now(sem.acquire()).unwrap(), now(sem.acquire()).unwrap(), now(sem.acquire()).unwrap());
    assert_eq!([zero.slot(), one.slot(), two.slot()], [0, 1, 2]);
    drop(zero);
    let again = now(sem.acquire()).unwrap();
    assert_eq!(again.slot(), 0, "not 2, as a count would have it");
    drop((one, two));
}

/// In asyncio-advanced-semaphores 4,000 new names took 14 s, because each scans all earlier names: 200,000 would take
/// nine hours.
#[test]
fn opening_a_name_does_not_scan_other_names() {
    let registry = Registry::new();
    let handles: Vec<_> =
        (0..200_000).map(|n| registry.named(format!("name {n}")).slots(1).build().unwrap()).collect();
    assert_eq!(registry.len(), 200_000);
    drop(handles);
}

/// deadpool: with two of two held, `resize(0)` and `resize(2)` granted two more.
#[test]
fn shrinking_and_growing_back_grants_nothing() {
    let (registry, _) = standing_still();
    let sem = registry.named("two").slots(2).build().unwrap();
    let held = [now(sem.acquire()).unwrap(), now(sem.acquire()).unwrap()];
    now(sem.resize(1)).unwrap();
    assert_eq!(now(sem.stats()).unwrap().debt(), 1);
    now(sem.resize(2)).unwrap();
    assert_eq!(sem.try_acquire().blocking().unwrap_err(), AcquireError::Busy);
    let [first, second] = held;
    drop(first);
    let third = sem.try_acquire().blocking().unwrap();
    assert_eq!(sem.try_acquire().blocking().unwrap_err(), AcquireError::Busy);
    drop((second, third));
}

/// tokio: `acquire_many(5)` on two permits takes both, and every later request waits for ever.
#[test]
fn request_for_more_than_all_slots_fails_at_once_and_takes_nothing() {
    let (registry, _) = standing_still();
    let sem = registry.named("two").slots(2).build().unwrap();
    let error = now(sem.acquire().weight(5)).unwrap_err();
    assert_eq!(error, AcquireError::TooHeavy { weight: 5, slots: 2 });
    assert_eq!(error.to_string(), "weight 5 can never be acquired from 2 slots");
    let both = sem.acquire().weight(2).now().blocking().unwrap();
    let waiting = pend(sem.acquire());
    assert!(now(sem.acquire().weight(5)).is_err(), "also while others wait");
    drop(both);
    drop(answer(waiting).unwrap());
}
