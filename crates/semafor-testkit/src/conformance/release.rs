//! How a slot is released.

use semafor::{Loss, NotHeld, ReleaseError, task};

use super::{LONG, SHORT, open, semaphore};
use crate::by_hand::{ByHand, in_line, stats, until};
use crate::{Home, Spec};

/// With waiters and without.
pub async fn dropping_a_permit_releases_the_slot(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let held = sem.acquire().await.expect("a slot is free");
    let next = in_line(&sem, sem.acquire()).await;
    drop(held);
    let owned = next.outcome().await.expect("it is served").into_owned();
    assert_eq!(stats(&sem).await.held, 1, "moving a permit releases nothing");
    drop(owned);
    until(&sem, |stats| stats.held == 0).await;
}

/// The id and the name are enough.
pub async fn releasing_by_id_works_from_another_handle(home: &impl Home) {
    let (here, there) = (semaphore(home, 1).await, semaphore(home, 1).await);
    let id = here.acquire().await.expect("a slot is free").detach();
    let next = in_line(&here, here.acquire()).await;
    let passed_on = id.to_string().parse().expect("an id is text both ways");
    assert_eq!(passed_on, id);
    there.release(&passed_on).await.expect("it is held");
    drop(next.outcome().await.expect("it is served"));
}

/// Otherwise it would count on a slot that another holder has by now.
pub async fn guard_is_notified_when_its_id_is_released(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let guard = sem.acquire().await.expect("a slot is free");
    let mut lost = ByHand::new(guard.lost());
    assert!(lost.waits());
    sem.release(&guard.id()).await.expect("it is held");
    let next = sem.try_acquire().await.expect("the slot is free");
    assert_eq!(lost.outcome().await, NotHeld::Released);
    assert!(guard.is_lost());
    drop(guard);
    home.pass(SHORT).await; // for a home that releases in the background
    next.release().await.expect("it was never disturbed");
}

/// However often it is repeated, and even if the slot has a new holder by then.
pub async fn a_second_release_says_released_and_frees_nothing(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let id = sem.acquire().await.expect("a slot is free").detach();
    sem.release(&id).await.expect("it is held");
    let again = Err(ReleaseError::NotHeld(NotHeld::Released));
    assert_eq!(sem.release(&id).await, again);

    let other = sem.acquire().await.expect("a slot is free");
    let mut next = in_line(&sem, sem.acquire()).await;
    assert_eq!(sem.release(&id).await, again);
    assert_eq!(sem.evict(&id).await, again);
    assert!(!other.is_lost() && next.waits());
    assert_eq!(stats(&sem).await.held, 1);
    other.release().await.expect("it was never disturbed");
}

/// Even if both hold the same slot number under the same token.
pub async fn an_id_of_another_semaphore_is_refused_and_changes_nothing(home: &impl Home) {
    let a = open(home, Spec::new("a", 1)).await;
    let b = open(home, Spec::new("b", 1)).await;
    let ours = a.acquire().await.expect("a slot is free");
    let theirs = b.acquire().await.expect("a slot is free");
    let mut next = in_line(&a, a.acquire()).await;

    let unknown = Err(ReleaseError::NotHeld(NotHeld::Unknown));
    assert_eq!(a.release(&theirs.id()).await, unknown);
    assert_eq!(a.evict(&theirs.id()).await, unknown);
    assert_eq!(a.renew(&theirs.id(), LONG).await, Err(NotHeld::Unknown.into()));

    assert!(!ours.is_lost() && !theirs.is_lost() && next.waits());
    assert_eq!((stats(&a).await.held, stats(&b).await.held), (1, 1));
    ours.release().await.expect("it was never disturbed");
    let theirs = theirs.detach();
    assert_eq!(a.release(&theirs).await, unknown);
    assert_eq!(stats(&b).await.held, 1);
    b.release(&theirs).await.expect("it was never disturbed");
}

/// There is no guard that could release it.
pub async fn a_detached_permit_is_held_until_released(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let id = sem.acquire().await.expect("a slot is free").detach();
    let mut next = in_line(&sem, sem.acquire()).await;
    assert_eq!(stats(&sem).await.held, 1);
    assert!(next.waits());
    sem.release(&id).await.expect("it is held");
    drop(next.outcome().await.expect("it is served"));
}

/// Last in, first out, and an error when there is none left.
pub async fn release_latest_releases_in_reverse_order(home: &impl Home) {
    let sem = semaphore(home, 3).await;
    task::scope(async {
        assert_eq!(sem.release_latest().await, Err(ReleaseError::NothingDetached));
        let mut nested = Vec::new();
        for _ in 0..3 {
            nested.push(sem.acquire().await.expect("a slot is free").detach());
        }
        while let Some(latest) = nested.pop() {
            assert_eq!(sem.release_latest().await, Ok(latest));
            assert_eq!(stats(&sem).await.held as usize, nested.len());
        }
        assert_eq!(sem.release_latest().await, Err(ReleaseError::NothingDetached));
    })
    .await;
}

/// Not a permit of another task, and not one with a guard.
pub async fn release_latest_releases_only_permits_of_the_task(home: &impl Home) {
    let sem = semaphore(home, 3).await;
    task::scope(async {
        let ours = sem.acquire().await.expect("a slot is free").detach();
        let _guarded = sem.acquire().await.expect("a slot is free");
        task::scope(async {
            assert_eq!(sem.release_latest().await, Err(ReleaseError::NothingDetached));
            let theirs = sem.acquire().await.expect("a slot is free").detach();
            assert_eq!(sem.release_latest().await, Ok(theirs));
        })
        .await;
        assert_eq!(sem.release_latest().await, Ok(ours));
        assert_eq!(sem.release_latest().await, Err(ReleaseError::NothingDetached));
    })
    .await;
}

/// Released by id or lost: the permit before it is released instead.
pub async fn release_latest_skips_ended_permits(home: &impl Home) {
    let sem = semaphore(home, 3).await;
    task::scope(async {
        let [first, second, third] = [
            sem.acquire().await.expect("a slot is free").detach(),
            sem.acquire().await.expect("a slot is free").detach(),
            sem.acquire().await.expect("a slot is free").detach(),
        ];
        sem.release(&second).await.expect("it is held");
        sem.evict(&third).await.expect("it is held");
        assert_eq!(sem.release_latest().await, Ok(first));
        let evicted = ReleaseError::NotHeld(NotHeld::Lost(Loss::Evicted));
        assert_eq!(sem.release(&third).await, Err(evicted));
    })
    .await;
}
