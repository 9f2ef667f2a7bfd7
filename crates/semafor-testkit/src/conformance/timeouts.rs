//! How long a waiter waits.

use std::time::Duration;

use semafor::AcquireError;

use super::{LONG, SHORT, open, semaphore};
use crate::by_hand::{in_line, stats};
use crate::{Home, Spec};

/// It gets an error with the details, and the waiters behind it move up.
pub async fn a_waiter_that_times_out_leaves_the_line(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let held = sem.acquire().await.expect("a slot is free");
    let impatient = in_line(&sem, sem.acquire().timeout(SHORT)).await;
    let mut patient = in_line(&sem, sem.acquire().timeout(LONG)).await;
    home.pass(SHORT).await;

    let error = impatient.outcome().await.expect_err("no slot came free");
    assert!(error.is_timeout(), "{error:?}");
    let AcquireError::TimedOut { waited, held: 1, slots: 1, waiting: 1, .. } = error else {
        panic!("{error:?}");
    };
    assert!(waited >= SHORT, "{waited:?}");
    assert!(patient.waits());
    assert_eq!(stats(&sem).await.waiting, 1);

    held.release().await.expect("it is held");
    drop(patient.outcome().await.expect("the slot is its own"));
}

/// The semaphore's timeout applies to an acquire that sets none.
pub async fn the_semaphores_own_timeout_is_the_default(home: &impl Home) {
    let sem = open(home, Spec::new("it", 1).timeout(SHORT)).await;
    let _held = sem.acquire().await.expect("a slot is free");
    let by_default = in_line(&sem, sem.acquire()).await;
    let mut says_otherwise = in_line(&sem, sem.acquire().timeout(LONG)).await;
    home.pass(SHORT).await;
    assert!(by_default.outcome().await.expect_err("no slot came free").is_timeout());
    assert!(says_otherwise.waits());
    assert_eq!(stats(&sem).await.waiting, 1);
}

/// A timeout of zero takes a free slot or fails; it does not get in line.
pub async fn a_timeout_of_zero_does_not_wait(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let held = sem.acquire().timeout(Duration::ZERO).await.expect("a slot is free");
    let error = sem.acquire().timeout(Duration::ZERO).await.expect_err("it is held");
    assert!(matches!(error, AcquireError::TimedOut { held: 1, slots: 1, waiting: 0, .. }), "{error:?}");
    assert_eq!(stats(&sem).await.waiting, 0);
    held.release().await.expect("it is held");
    drop(sem.acquire().timeout(Duration::ZERO).await.expect("a slot is free again"));
}

/// A first waiter that could not be served yet no longer blocks them.
pub async fn first_waiter_that_times_out_unblocks_the_waiters_behind_it(home: &impl Home) {
    let sem = semaphore(home, 2).await;
    let _held = sem.acquire().await.expect("a slot is free");
    let heavy = in_line(&sem, sem.acquire().weight(2).timeout(SHORT)).await;
    let light = in_line(&sem, sem.acquire()).await;
    home.pass(SHORT).await;
    assert!(heavy.outcome().await.expect_err("one slot is held").is_timeout());
    drop(light.outcome().await.expect("one slot is free"));
}

/// Once served, there is nothing left to time out.
pub async fn a_waiter_that_was_served_does_not_time_out(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let held = sem.acquire().await.expect("a slot is free");
    let waiting = in_line(&sem, sem.acquire().timeout(SHORT)).await;
    held.release().await.expect("it is held");
    let permit = waiting.outcome().await.expect("it is served");
    home.pass(SHORT * 2).await;
    assert!(!permit.is_lost());
    permit.release().await.expect("it is still held");
}
