//! More slots, or fewer.

use semafor::{AcquireError, ResizeError, ZeroSlots};

use super::semaphore;
use crate::by_hand::{in_line, stats};
use crate::{Home, Spec};

/// As many waiters as there are free slots now.
pub async fn growing_serves_the_line(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let held = sem.acquire().await.expect("a slot is free");
    let first = in_line(&sem, sem.acquire()).await;
    let second = in_line(&sem, sem.acquire()).await;
    let mut third = in_line(&sem, sem.acquire()).await;
    sem.resize(3).await.expect("not to zero");
    let [first, second] =
        [first.outcome().await.expect("it is served"), second.outcome().await.expect("it is served")];
    assert!(third.waits());
    assert_eq!(stats(&sem).await.waiting, 1);
    let mut slots = [held.slot(), first.slot(), second.slot()];
    slots.sort_unstable();
    assert_eq!(slots, [0, 1, 2]);
}

/// Slots above the new number vanish as they are released.
pub async fn after_a_shrink_holders_stay_and_grants_wait(home: &impl Home) {
    let sem = semaphore(home, 3).await;
    let [a, b, c] = [
        sem.acquire().await.expect("a slot is free"),
        sem.acquire().await.expect("a slot is free"),
        sem.acquire().await.expect("a slot is free"),
    ];
    let mut next = in_line(&sem, sem.acquire()).await;
    sem.resize(1).await.expect("not to zero");
    assert!(!a.is_lost() && !b.is_lost() && !c.is_lost());
    let shrunk = stats(&sem).await;
    assert_eq!((shrunk.slots, shrunk.held, shrunk.debt()), (1, 3, 2));

    for (permit, held_after) in [(a, 2), (b, 1)] {
        permit.release().await.expect("it is held");
        assert_eq!(stats(&sem).await.held, held_after);
        assert!(next.waits(), "{held_after} are still held, and there is one slot");
    }
    c.release().await.expect("it is held");
    let permit = next.outcome().await.expect("it is served");
    assert_eq!(permit.slot(), 0, "the only slot there is");
    assert_eq!(sem.try_acquire().await.expect_err("it is held"), AcquireError::Busy);
}

/// No wait could satisfy it now, and it must not block the waiters behind it.
pub async fn shrinking_refuses_waiters_that_became_too_heavy(home: &impl Home) {
    let sem = semaphore(home, 3).await;
    let held = sem.acquire().await.expect("a slot is free");
    let heavy = in_line(&sem, sem.acquire().weight(3)).await;
    let light = in_line(&sem, sem.acquire()).await;
    sem.resize(2).await.expect("not to zero");
    let refused = heavy.outcome().await.expect_err("two are fewer than three");
    assert_eq!(refused, AcquireError::TooHeavy { weight: 3, slots: 2 });
    drop(light.outcome().await.expect("one of two slots is free"));
    held.release().await.expect("it is held");
}

/// The number of slots belongs to the name.
pub async fn a_resize_is_seen_by_all_handles(home: &impl Home) {
    let (here, there) = (semaphore(home, 1).await, semaphore(home, 1).await);
    here.resize(2).await.expect("not to zero");
    assert_eq!(there.slots().await, Ok(2));
    let _held = [there.acquire().await.expect("free"), here.acquire().await.expect("free")];
    semaphore(home, 2).await;
}

/// To stop a semaphore, close it.
pub async fn resizing_to_zero_is_refused(home: &impl Home) {
    let sem = semaphore(home, 2).await;
    assert_eq!(sem.resize(0).await, Err(ResizeError::ZeroSlots(ZeroSlots)));
    assert_eq!(sem.slots().await, Ok(2));
    drop(sem.try_acquire().await.expect("nothing has changed"));
}

/// Whether the home knows the name or not.
pub async fn handle_that_was_never_opened_uses_its_new_number_of_slots(home: &impl Home) {
    for (name, is_known) in [("new", false), ("known", true)] {
        if is_known {
            drop(home.open(Spec::new(name, 1)).await.expect("it can be opened").acquire().await);
        }
        let sem = home.build(Spec::new(name, 1)).expect("a valid name");
        sem.resize(3).await.expect("the home answers");
        sem.acquire().weight(3).await.expect("it has 3 slots").release().await.expect("it is held");
        assert_eq!(sem.slots().await, Ok(3), "{name}");
    }
}
