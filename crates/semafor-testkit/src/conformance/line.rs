//! The order of the line.

use semafor::AcquireError;

use super::{open, semaphore};
use crate::by_hand::{in_line, stats, until};
use crate::history::{Grant, Recorder};
use crate::{Home, Spec};

/// The line is served in the order of arrival, not of polling.
pub async fn first_come_first_served(home: &impl Home) {
    let sem = semaphore(home, 2).await;
    let recorder = Recorder::new();
    let held = [sem.acquire().await.expect("free"), sem.acquire().await.expect("free")];
    let mut waiting = Vec::new();
    for _ in 0..6 {
        let mut contestant = recorder.contestant();
        contestant.asks();
        let acquire = in_line(&sem, sem.acquire()).await;
        contestant.is_in_line();
        waiting.push((contestant, acquire));
    }
    for permit in held {
        permit.release().await.expect("it is held");
    }
    while waiting.len() >= 2 {
        // Two waiters are granted. The second is polled first.
        let (second, first) = (waiting.remove(1), waiting.remove(0));
        assert_eq!(stats(&sem).await.waiting, waiting.len());
        assert!(waiting.iter_mut().all(|(_, acquire)| acquire.waits()));
        let mut served = Vec::new();
        for (mut contestant, acquire) in [second, first] {
            let permit = acquire.outcome().await.expect("it is served");
            contestant.got(Grant::of(&permit, 1));
            served.push((contestant, permit));
        }
        for (mut contestant, permit) in served {
            contestant.ends(permit.id());
            permit.release().await.expect("it is held");
        }
    }
    recorder.history().check(2).unwrap_or_else(|contradiction| panic!("{contradiction}"));
}

/// It takes a free slot, or fails.
pub async fn try_acquire_does_not_wait(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let held = sem.try_acquire().await.expect("a slot is free");
    assert_eq!(sem.try_acquire().await.expect_err("it is held"), AcquireError::Busy);
    let stats = stats(&sem).await;
    assert_eq!((stats.held, stats.waiting), (1, 0), "it did not get in line");
    held.release().await.expect("it is held");
    assert!(sem.try_acquire().await.is_ok());
}

/// A free slot with waiters is not for later acquires.
pub async fn try_acquire_does_not_overtake_the_line(home: &impl Home) {
    let sem = semaphore(home, 2).await;
    let held = sem.acquire().await.expect("a slot is free");
    let mut head = in_line(&sem, sem.acquire().weight(2)).await;
    assert_eq!(sem.try_acquire().await.expect_err("the line is first"), AcquireError::Busy);
    let no_wait = sem.acquire().timeout(std::time::Duration::ZERO).await;
    assert!(no_wait.expect_err("the line is first").is_timeout());
    assert!(head.waits());
    held.release().await.expect("it is held");
    drop(head.outcome().await.expect("both slots are free"));
}

/// It is handed over in the same step, and is never free in between.
pub async fn freed_slot_belongs_to_the_first_waiter_before_it_is_polled(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let held = sem.acquire().await.expect("a slot is free");
    let next = in_line(&sem, sem.acquire()).await;
    held.release().await.expect("it is held");
    let stats = stats(&sem).await;
    assert_eq!((stats.held, stats.waiting), (1, 0));
    assert_eq!(sem.try_acquire().await.expect_err("it is the next in line's"), AcquireError::Busy);
    let mut newcomer = in_line(&sem, sem.acquire()).await;
    let permit = next.outcome().await.expect("it was served");
    assert!(newcomer.waits());
    permit.release().await.expect("it is held");
    drop(newcomer.outcome().await.expect("it is served"));
}

/// An acquire that finds `max_waiting` in line is refused at once.
pub async fn full_line_refuses_requests(home: &impl Home) {
    let sem = open(home, Spec::new("it", 1).max_waiting(2)).await;
    let held = sem.acquire().await.expect("a slot is free");
    let first = in_line(&sem, sem.acquire()).await;
    let second = in_line(&sem, sem.acquire()).await;
    let refused = sem.acquire().await.expect_err("the line is full");
    assert_eq!(refused, AcquireError::LineFull { limit: 2 });
    assert_eq!(stats(&sem).await.waiting, 2);

    held.release().await.expect("it is held");
    drop(first.outcome().await.expect("it is served"));
    drop(second.outcome().await.expect("it is served"));
}

/// A line with a bound takes new waiters again when one has left or was served.
pub async fn a_place_in_line_is_free_again_once_left(home: &impl Home) {
    let sem = open(home, Spec::new("it", 1).max_waiting(1)).await;
    let held = sem.acquire().await.expect("a slot is free");
    drop(in_line(&sem, sem.acquire()).await);
    until(&sem, |stats| stats.waiting == 0).await;
    let next = in_line(&sem, sem.acquire()).await;
    held.release().await.expect("it is held");
    let _after_it = in_line(&sem, sem.acquire()).await;
    drop(next.outcome().await.expect("it is served"));
}
