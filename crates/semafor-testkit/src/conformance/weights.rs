//! Several slots at once.

use semafor::{AcquireError, Semaphore};

use super::semaphore;
use crate::Home;
use crate::by_hand::{in_line, stats};

/// All of them, and all of them are released.
pub async fn a_weight_takes_that_many_slots(home: &impl Home) {
    let sem = semaphore(home, 3).await;
    let heavy = sem.acquire().weight(2).await.expect("two slots are free");
    assert_eq!(stats(&sem).await.held, 2);
    assert_eq!(sem.acquire().weight(2).now().await.expect_err("one is free"), AcquireError::Busy);
    let light = sem.acquire().await.expect("one is free");
    heavy.release().await.expect("it is held");
    assert_eq!(stats(&sem).await.held, 1);
    light.release().await.expect("it is held");
    drop(sem.acquire().weight(3).now().await.expect("all are free"));
}

/// Otherwise light requests could starve it.
pub async fn heavy_first_waiter_blocks_the_waiters_behind_it(home: &impl Home) {
    let sem = semaphore(home, 3).await;
    let [one, two] = [sem.acquire().await.expect("free"), sem.acquire().await.expect("free")];
    let mut heavy = in_line(&sem, sem.acquire().weight(3)).await;
    let mut light = in_line(&sem, sem.acquire()).await;
    assert!(heavy.waits() && light.waits(), "a slot is free, and the head cannot use it yet");

    one.release().await.expect("it is held");
    assert_eq!(stats(&sem).await.waiting, 2);
    assert!(heavy.waits() && light.waits(), "two slots are free, and the head needs three");

    two.release().await.expect("it is held");
    let all = heavy.outcome().await.expect("all slots are free");
    assert!(light.waits(), "the head has taken all");
    all.release().await.expect("it is held");
    drop(light.outcome().await.expect("it is served"));
}

/// No wait could satisfy it.
pub async fn a_weight_above_the_slots_fails_at_once(home: &impl Home) {
    let sem = semaphore(home, 2).await;
    let _held = sem.acquire().await.expect("a slot is free");
    let impossible = AcquireError::TooHeavy { weight: 3, slots: 2 };
    assert_eq!(sem.acquire().weight(3).await.expect_err("there are two"), impossible);
    assert_eq!(sem.acquire().weight(3).now().await.expect_err("there are two"), impossible);
    nothing_was_taken(&sem).await;
}

/// It asks for nothing.
pub async fn a_weight_of_zero_fails_at_once(home: &impl Home) {
    let sem = semaphore(home, 2).await;
    let _held = sem.acquire().await.expect("a slot is free");
    assert_eq!(sem.acquire().weight(0).await.expect_err("zero"), AcquireError::ZeroWeight);
    assert_eq!(sem.acquire().weight(0).now().await.expect_err("zero"), AcquireError::ZeroWeight);
    nothing_was_taken(&sem).await;
}

async fn nothing_was_taken(sem: &Semaphore) {
    let stats = stats(sem).await;
    assert_eq!((stats.held, stats.holders, stats.waiting), (1, 1, 0));
    drop(sem.try_acquire().await.expect("the other slot is still free"));
}
