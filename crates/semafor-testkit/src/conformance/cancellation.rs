//! An acquire that is cancelled before its grant leaves nothing behind.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use semafor::Acquire;

use super::semaphore;
use crate::Home;
use crate::by_hand::{in_line, stats, until};

/// The waiters behind it move up.
pub async fn dropping_a_waiter_leaves_the_line(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let held = sem.acquire().await.expect("a slot is free");
    let first = in_line(&sem, sem.acquire()).await;
    let second = in_line(&sem, sem.acquire()).await;
    let third = in_line(&sem, sem.acquire()).await;
    drop(second);
    until(&sem, |stats| stats.waiting == 2).await;
    drop(first);
    until(&sem, |stats| stats.waiting == 1).await;
    held.release().await.expect("it is held");
    third.outcome().await.expect("it is served").release().await.expect("it is held");
    assert_eq!(stats(&sem).await.held, 0);
}

/// The light waiter's slot was free all the time.
pub async fn dropping_a_heavy_first_waiter_unblocks_the_waiters_behind_it(home: &impl Home) {
    let sem = semaphore(home, 2).await;
    let _held = sem.acquire().await.expect("a slot is free");
    let heavy = in_line(&sem, sem.acquire().weight(2)).await;
    let light = in_line(&sem, sem.acquire()).await;
    drop(heavy);
    drop(light.outcome().await.expect("one slot is free"));
}

/// A slot whose grant was not seen yet goes to the next waiter.
pub async fn dropping_a_granted_waiter_hands_the_slot_on(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let held = sem.acquire().await.expect("a slot is free");
    let first = in_line(&sem, sem.acquire()).await;
    let second = in_line(&sem, sem.acquire()).await;
    held.release().await.expect("it is held");
    assert_eq!(stats(&sem).await.waiting, 1, "the first was served");
    drop(first);
    let permit = second.outcome().await.expect("it is served");
    assert_eq!(stats(&sem).await.held, 1);
    permit.release().await.expect("it is held");
    assert_eq!(stats(&sem).await.held, 0);
}

/// Without waiters, the slot becomes free.
pub async fn dropping_a_granted_waiter_without_a_line_frees_the_slot(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let held = sem.acquire().await.expect("a slot is free");
    let waiting = in_line(&sem, sem.acquire()).await;
    held.release().await.expect("it is held");
    assert_eq!(stats(&sem).await.held, 1, "it was served");
    drop(waiting);
    until(&sem, |stats| stats.held == 0).await;
    drop(sem.try_acquire().await.expect("the slot is free"));
}

/// The request is made at the first poll.
pub async fn an_acquire_that_was_never_polled_takes_nothing(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let never_polled = sem.acquire();
    let held = sem.try_acquire().await.expect("the slot is free");
    assert_eq!(stats(&sem).await.waiting, 0);
    drop(never_polled);
    assert_eq!(stats(&sem).await.held, 1);
    held.release().await.expect("it was never disturbed");
}

/// For a waiter, and for an acquire with a grant that was not seen yet.
pub async fn leave_waits_until_everything_is_released(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let held = sem.acquire().await.expect("a slot is free");
    let mut waiting = sem.acquire();
    assert!(is_pending(&mut waiting).await);
    until(&sem, |stats| stats.waiting == 1).await;
    waiting.leave().await;
    assert_eq!(stats(&sem).await.waiting, 0);

    let mut granted = sem.acquire();
    assert!(is_pending(&mut granted).await);
    until(&sem, |stats| stats.waiting == 1).await;
    held.release().await.expect("it is held");
    until(&sem, |stats| stats.waiting == 0).await;
    granted.leave().await;
    assert_eq!(stats(&sem).await.held, 0);
}

async fn is_pending(acquire: &mut Acquire<'_>) -> bool {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *acquire).poll(cx).is_pending())).await
}
