//! First come, first served. In other libraries we measured that a new request right after a release overtook the line,
//! and that a holder that kept acquiring got 740 grants while the one waiter got 1.

use std::cell::RefCell;

use semafor::Semaphore;
use semafor_testkit::stepwise::{answer, now, pend, poll, seconds, standing_still};

#[test]
fn a_newcomer_right_after_a_release_queues_behind_the_line() {
    let (registry, _) = standing_still();
    let sem = registry.named("one").slots(1).build().unwrap();
    let order = RefCell::new(Vec::new());
    let take = |name| {
        let (sem, order) = (&sem, &order);
        async move {
            let permit = sem.acquire().await.unwrap();
            order.borrow_mut().push(name);
            permit
        }
    };

    let held = now(sem.acquire()).unwrap();
    let line = [pend(take("0")), pend(take("1")), pend(take("2"))];
    drop(held);
    let newcomer = pend(take("newcomer"));
    for waiter in line {
        drop(answer(waiter));
    }
    drop(answer(newcomer));
    assert_eq!(*order.borrow(), ["0", "1", "2", "newcomer"]);
}

#[test]
fn a_holder_that_comes_back_at_once_takes_turns_with_the_waiter() {
    let (registry, _) = standing_still();
    let sem = registry.named("one").slots(1).build().unwrap();
    let mut grants = [0, 0];
    let mut held = now(sem.acquire()).unwrap();
    let mut waiting = pend(sem.acquire());
    for turn in 0..1_000 {
        grants[turn % 2] += 1;
        let again = {
            drop(held);
            pend(sem.acquire())
        };
        held = answer(waiting).unwrap();
        waiting = again;
    }
    assert_eq!(grants, [500, 500]);
    drop((held, waiting));
}

#[test]
fn try_acquire_does_not_overtake_the_line_even_when_a_slot_is_free() {
    let (registry, _) = standing_still();
    let sem = registry.named("three").slots(3).build().unwrap();
    let two = now(sem.acquire().weight(2)).unwrap();
    let mut heavy = pend(sem.acquire().weight(3));
    assert!(sem.try_acquire().blocking().unwrap_err().is_busy(), "one slot is free, but not for a newcomer");
    drop(two);
    assert!(poll(&mut heavy).is_ready());
}

#[test]
fn a_granted_future_that_is_not_polled_holds_its_slot_no_longer_than_its_ttl() {
    let (registry, clock) = standing_still();
    let sem: Semaphore = registry.named("one").slots(1).ttl(seconds(10)).build().unwrap();
    let held = now(sem.acquire()).unwrap();
    let forgotten = pend(sem.acquire());
    let mut next = pend(sem.acquire());
    drop(held);
    assert!(poll(&mut next).is_pending(), "the slot went to the future that is not polled");
    clock.advance(seconds(10));
    let permit = answer(next).unwrap();
    let error = answer(forgotten).unwrap_err();
    assert!(error.to_string().contains("time to live ran out"), "{error}");
    drop(permit);
}
