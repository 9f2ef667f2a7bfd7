//! How long a slot may be held, and what happens when the lease ends.

use semafor::{Loss, NotHeld, ReleaseError, RenewError, Span};

use super::{LONG, SHORT, open, semaphore};
use crate::by_hand::{ByHand, in_line, stats};
use crate::{Home, Spec};

/// At once; and the former holder is notified.
pub async fn an_expired_slot_goes_to_the_next_in_line(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let hung = sem.acquire().ttl(SHORT).await.expect("a slot is free");
    let next = in_line(&sem, sem.acquire()).await;
    let mut lost = ByHand::new(hung.lost());
    let signal = hung.lost_signal();
    assert!(lost.waits() && !hung.is_lost() && !signal.is_lost());
    home.pass(SHORT).await;

    let permit = next.outcome().await.expect("it is served");
    assert!(lost.outcome().await.is_expired());
    assert!(hung.is_lost() && signal.is_lost());
    assert!(hung.lost().await.is_expired(), "asked afterwards, it says the same");
    assert!(!permit.is_lost());
}

/// Even if nothing waits for it.
pub async fn an_expired_slot_is_free_without_waiters(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let id = sem.acquire().ttl(SHORT).await.expect("a slot is free").detach();
    home.pass(SHORT).await;
    assert_eq!(stats(&sem).await.held, 0);
    drop(sem.try_acquire().await.expect("the slot is free"));
    assert!(sem.release(&id).await.expect_err("too late").is_expired());
}

/// The error says that the lease had expired; the new holder keeps the slot.
pub async fn a_late_release_fails_without_effect(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let late = sem.acquire().ttl(SHORT).await.expect("a slot is free");
    let id = late.id();
    let next = in_line(&sem, sem.acquire()).await;
    home.pass(SHORT).await;
    let permit = next.outcome().await.expect("it is served");

    assert!(late.release().await.expect_err("too late").is_expired());
    assert!(sem.release(&id).await.expect_err("still too late").is_expired());
    assert!(!permit.is_lost());
    assert_eq!(stats(&sem).await.held, 1);
    permit.release().await.expect("it was never disturbed");
}

/// The guard of a lost slot releases nothing.
pub async fn a_late_drop_has_no_effect(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let late = sem.acquire().ttl(SHORT).await.expect("a slot is free");
    let next = in_line(&sem, sem.acquire()).await;
    home.pass(SHORT).await;
    let permit = next.outcome().await.expect("it is served");
    drop(late);
    home.pass(SHORT).await; // for a home that releases in the background
    permit.release().await.expect("it was never disturbed");
}

/// The semaphore's `ttl` applies to an acquire that sets none.
pub async fn the_semaphores_own_ttl_is_the_default(home: &impl Home) {
    let sem = open(home, Spec::new("it", 2).ttl(SHORT)).await;
    let by_default = sem.acquire().await.expect("a slot is free");
    let says_otherwise = sem.acquire().ttl(LONG).await.expect("a slot is free");
    assert!(by_default.expires_at().is_some());
    home.pass(SHORT).await;
    assert!(by_default.lost().await.is_expired());
    assert!(!says_otherwise.is_lost());
    assert_eq!(stats(&sem).await.held, 1);
    assert_eq!(by_default.expires_at(), None, "it has expired");
}

/// The time in line does not count.
pub async fn a_lease_starts_with_the_grant(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let held = sem.acquire().await.expect("a slot is free");
    let waiting = in_line(&sem, sem.acquire().ttl(SHORT)).await;
    home.pass(SHORT * 2).await;
    held.release().await.expect("it is held");
    let permit = waiting.outcome().await.expect("it is served");
    assert!(!permit.is_lost());
    assert_eq!(stats(&sem).await.held, 1);
    home.pass(SHORT).await;
    assert!(permit.lost().await.is_expired());
}

/// Beyond the time it would have been lost.
pub async fn renewing_keeps_the_slot(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let permit = sem.acquire().ttl(SHORT).await.expect("a slot is free");
    let mut next = in_line(&sem, sem.acquire()).await;
    permit.renew(LONG).await.expect("it is held");
    home.pass(SHORT * 2).await;
    assert!(!permit.is_lost() && next.waits());
    permit.release().await.expect("it is still held");
    drop(next.outcome().await.expect("it is served"));
}

/// Whatever time was left: a shorter lease ends sooner.
pub async fn renewing_counts_from_now(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let permit = sem.acquire().ttl(LONG).await.expect("a slot is free");
    let next = in_line(&sem, sem.acquire()).await;
    permit.renew(SHORT).await.expect("it is held");
    home.pass(SHORT).await;
    assert!(permit.lost().await.is_expired());
    drop(next.outcome().await.expect("it is served"));
}

/// And a limit can be set again.
pub async fn renewing_without_limit_keeps_the_slot_for_ever(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let permit = sem.acquire().ttl(SHORT).await.expect("a slot is free");
    permit.renew(Span::UNLIMITED).await.expect("it is held");
    assert_eq!(permit.expires_at(), None);
    home.pass(SHORT * 2).await;
    assert!(!permit.is_lost());
    permit.renew(SHORT).await.expect("it is held");
    home.pass(SHORT).await;
    assert!(permit.lost().await.is_expired());
}

/// For holders by id.
pub async fn renewing_by_id_works_from_another_handle(home: &impl Home) {
    let (here, there) = (semaphore(home, 1).await, semaphore(home, 1).await);
    let id = here.acquire().ttl(SHORT).await.expect("a slot is free").detach();
    there.renew(&id, LONG).await.expect("it is held");
    home.pass(SHORT * 2).await;
    here.release(&id).await.expect("it is still held");
}

/// A lost slot stays lost.
pub async fn lost_slot_cannot_be_renewed(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let permit = sem.acquire().ttl(SHORT).await.expect("a slot is free");
    home.pass(SHORT).await;
    let too_late = RenewError::NotHeld(NotHeld::Lost(Loss::Expired));
    assert_eq!(permit.renew(LONG).await.expect_err("too late"), too_late);
    assert_eq!(sem.renew(&permit.id(), LONG).await.expect_err("too late"), too_late);
    assert!(permit.is_lost());
    drop(sem.try_acquire().await.expect("the slot is free"));
}

/// The id is enough.
pub async fn evicted_holder_is_notified_and_the_next_waiter_served(home: &impl Home) {
    let (here, there) = (semaphore(home, 1).await, semaphore(home, 1).await);
    let evicted = here.acquire().await.expect("a slot is free");
    let next = in_line(&here, here.acquire()).await;
    let mut lost = ByHand::new(evicted.lost());
    assert!(lost.waits());
    there.evict(&evicted.id()).await.expect("it is held");

    let why = NotHeld::Lost(Loss::Evicted);
    assert_eq!(lost.outcome().await, why);
    let permit = next.outcome().await.expect("it is served");
    assert_eq!(there.evict(&evicted.id()).await, Err(ReleaseError::NotHeld(why)), "not twice");
    assert_eq!(evicted.release().await, Err(ReleaseError::NotHeld(why)));
    permit.release().await.expect("it was never disturbed");
}

/// It is notified at once, and the next waiter is served when it has released the slot.
pub async fn evicted_holder_with_grace_keeps_its_slot_until_it_releases_it(home: &impl Home) {
    let sem = home.open(Spec::new("it", 1).grace(LONG)).await.expect("it can be opened");
    let evicted = sem.acquire().await.expect("a slot is free");
    let mut next = in_line(&sem, sem.acquire()).await;
    sem.evict(&evicted.id()).await.expect("it is held");
    assert_eq!(evicted.lost().await, NotHeld::Lost(Loss::Evicted));
    assert!(evicted.is_lost());
    let too_late = RenewError::NotHeld(NotHeld::Lost(Loss::Evicted));
    assert_eq!(evicted.renew(LONG).await.expect_err("it has to leave"), too_late);
    assert!(next.waits());
    assert_eq!(stats(&sem).await.held, 1);
    drop(evicted);
    drop(next.outcome().await.expect("it is served"));
}

/// It keeps the slot no longer than that.
pub async fn evicted_holder_loses_its_slot_after_its_grace(home: &impl Home) {
    let sem = home.open(Spec::new("it", 1).grace(SHORT)).await.expect("it can be opened");
    let evicted = sem.acquire().await.expect("a slot is free");
    let next = in_line(&sem, sem.acquire()).await;
    sem.evict(&evicted.id()).await.expect("it is held");
    home.pass(SHORT).await;
    let permit = next.outcome().await.expect("it is served");
    assert!(evicted.is_lost());
    drop(evicted);
    assert_eq!(stats(&sem).await.held, 1);
    permit.release().await.expect("it was never disturbed");
}

/// Even if it lost the slot because its grace ended.
pub async fn an_evicted_holder_whose_grace_is_over_counts_as_evicted(home: &impl Home) {
    let sem = home.open(Spec::new("it", 1).grace(SHORT)).await.expect("it can be opened");
    let evicted = sem.acquire().await.expect("a slot is free");
    let next = in_line(&sem, sem.acquire()).await;
    sem.evict(&evicted.id()).await.expect("it is held");
    let why = NotHeld::Lost(Loss::Evicted);
    assert_eq!(evicted.lost().await, why);
    home.pass(SHORT).await;
    let permit = next.outcome().await.expect("it is served");
    assert_eq!(evicted.why_not_held(), Some(why));
    assert_eq!(sem.release(&evicted.id()).await, Err(ReleaseError::NotHeld(why)));
    let totals = stats(&sem).await.totals;
    assert_eq!((totals.evicted, totals.expired), (1, 0));
    assert_eq!(evicted.release().await, Err(ReleaseError::NotHeld(why)));
    permit.release().await.expect("it was never disturbed");
}

/// For callers that cannot wait.
pub async fn evicting_again_does_not_wait_for_the_grace(home: &impl Home) {
    let sem = home.open(Spec::new("it", 1).grace(LONG)).await.expect("it can be opened");
    let evicted = sem.acquire().await.expect("a slot is free");
    let next = in_line(&sem, sem.acquire()).await;
    sem.evict(&evicted.id()).await.expect("it is held");
    sem.evict(&evicted.id()).await.expect("it is still held");
    drop(next.outcome().await.expect("it is served"));
}
