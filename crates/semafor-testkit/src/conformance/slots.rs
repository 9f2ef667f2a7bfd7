//! The numbers on a permit.

use std::collections::HashSet;

use super::semaphore;
use crate::Home;
use crate::by_hand::in_line;

/// So they can index a fixed set of things.
pub async fn slot_numbers_start_at_zero_and_are_not_shared(home: &impl Home) {
    let (here, there) = (semaphore(home, 4).await, semaphore(home, 4).await);
    let held = [
        here.acquire().await.expect("a slot is free"),
        there.acquire().await.expect("a slot is free"),
        here.acquire().await.expect("a slot is free"),
        there.acquire().await.expect("a slot is free"),
    ];
    let mut slots: Vec<_> = held.iter().map(semafor::Permit::slot).collect();
    slots.sort_unstable();
    assert_eq!(slots, [0, 1, 2, 3]);
}

/// By an acquire that finds a free slot, and by a waiter that is handed one.
pub async fn a_freed_slot_number_is_used_again(home: &impl Home) {
    let sem = semaphore(home, 3).await;
    let mut held = [
        sem.acquire().await.expect("a slot is free"),
        sem.acquire().await.expect("a slot is free"),
        sem.acquire().await.expect("a slot is free"),
    ];
    for permit in &mut held {
        let freed = permit.slot();
        let waiting = in_line(&sem, sem.acquire()).await;
        sem.release(&permit.id()).await.expect("it is held");
        *permit = waiting.outcome().await.expect("it is served");
        assert_eq!(permit.slot(), freed, "from the line");

        sem.release(&permit.id()).await.expect("it is held");
        *permit = sem.try_acquire().await.expect("a slot is free");
        assert_eq!(permit.slot(), freed, "from the pool");
    }
}

/// So the numbers in use stay small, and a particular one can be waited for.
pub async fn a_grant_gets_the_lowest_free_number(home: &impl Home) {
    let sem = semaphore(home, 4).await;
    let mut held = Vec::new();
    for number in 0..4 {
        held.push(sem.acquire().await.expect("a slot is free"));
        assert_eq!(held[number as usize].slot(), number);
    }
    // Freed in another order than they were granted.
    for number in [3, 0, 2] {
        let at = held.iter().position(|permit| permit.slot() == number).expect("it is held");
        held.swap_remove(at).release().await.expect("it is held");
    }
    for number in [0, 2, 3] {
        let next = sem.acquire().await.expect("a slot is free");
        assert_eq!(next.slot(), number);
        held.push(next);
    }
}

/// However many other holders there are, and however the number of slots changes.
pub async fn a_slot_number_is_reserved_for_its_holder(home: &impl Home) {
    let sem = semaphore(home, 3).await;
    let low = sem.acquire().await.expect("a slot is free");
    let kept = sem.acquire().await.expect("a slot is free");
    low.release().await.expect("it is held");
    sem.resize(1).await.expect("the home answers");
    sem.resize(4).await.expect("the home answers");
    for _ in 0..3 {
        let others = [
            sem.acquire().await.expect("a slot is free"),
            sem.acquire().await.expect("a slot is free"),
            sem.acquire().await.expect("a slot is free"),
        ];
        let mut numbers: Vec<_> = others.iter().map(semafor::Permit::slot).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 2, 3], "1 is held");
        for other in others {
            other.release().await.expect("it is held");
        }
    }
    assert_eq!(kept.slot(), 1);
}

/// Through any handle, at once or after a wait.
pub async fn fencing_tokens_grow_with_every_grant(home: &impl Home) {
    let (here, there) = (semaphore(home, 1).await, semaphore(home, 1).await);
    let mut newest = here.acquire().await.expect("a slot is free");
    for round in 0..6 {
        let asks = if round % 2 == 0 { &there } else { &here };
        let waiting = in_line(asks, asks.acquire()).await;
        let before = newest.fencing_token();
        newest.release().await.expect("it is held");
        newest = waiting.outcome().await.expect("it is served");
        assert!(newest.fencing_token() > before, "{} after {before}", newest.fencing_token());
    }
    let before = newest.fencing_token();
    newest.release().await.expect("it is held");
    let after = there.try_acquire().await.expect("a slot is free").fencing_token();
    assert!(after > before, "{after} after {before}");
}

/// The tokens that a resource has seen belong to the name.
pub async fn fencing_tokens_grow_beyond_a_close(home: &impl Home) {
    let old = semaphore(home, 1).await;
    let mut before = 0;
    for _ in 0..3 {
        let permit = old.acquire().await.expect("a slot is free");
        before = permit.fencing_token();
        permit.release().await.expect("it is held");
    }
    old.close().await.expect("the home answers");
    let new = semaphore(home, 1).await;
    let after = new.acquire().await.expect("a slot is free").fencing_token();
    assert!(after > before, "{after} after {before}");
}

/// Not on the same slot, and not as text.
pub async fn ids_are_not_used_again(home: &impl Home) {
    let sem = semaphore(home, 2).await;
    let mut seen = HashSet::new();
    for _ in 0..20 {
        let permit = sem.acquire().await.expect("a slot is free");
        assert!(seen.insert(permit.id().to_string()), "{} was seen before", permit.id());
        permit.release().await.expect("it is held");
    }
}
