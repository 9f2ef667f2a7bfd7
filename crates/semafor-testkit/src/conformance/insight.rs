//! Statistics, holders and waiters.

use super::{LONG, SHORT, open, semaphore};
use crate::by_hand::{in_line, stats, until};
use crate::{Home, Spec};

/// Slots held, permits that hold them, and the line.
pub async fn stats_count_holders_and_waiters(home: &impl Home) {
    let sem = semaphore(home, 4).await;
    let idle = stats(&sem).await;
    assert_eq!((idle.slots, idle.held, idle.holders, idle.waiting), (4, 0, 0, 0));

    let heavy = sem.acquire().weight(2).await.expect("two slots are free");
    let _light = sem.acquire().await.expect("a slot is free");
    let _first = in_line(&sem, sem.acquire().weight(3)).await;
    let _second = in_line(&sem, sem.acquire()).await;
    home.pass(SHORT).await;
    let busy = stats(&sem).await;
    assert_eq!(&*busy.name, "it");
    assert_eq!((busy.slots, busy.held, busy.holders, busy.waiting), (4, 3, 2, 2));
    assert_eq!((busy.percent(), busy.debt()), (75.0, 0));
    assert!(busy.longest_wait >= SHORT, "{:?}", busy.longest_wait);

    heavy.release().await.expect("it is held");
    let served = stats(&sem).await;
    assert_eq!((served.held, served.holders, served.waiting), (4, 2, 1));
}

/// By slot number, with the id by which each can be released.
pub async fn holders_are_listed_with_their_details(home: &impl Home) {
    let sem = open(home, Spec::new("it", 4).label("by default")).await;
    assert!(sem.holders().await.expect("the home answers").is_empty());
    let plain = sem.acquire().await.expect("a slot is free");
    let special = sem.acquire().weight(2).label("special").ttl(LONG).await.expect("two slots are free");
    home.pass(SHORT).await;

    let holders = sem.holders().await.expect("the home answers");
    let seen: Vec<_> =
        holders.iter().map(|holder| (&holder.id, holder.weight, holder.label.as_deref())).collect();
    let expected = [(&plain.id(), 1, Some("by default")), (&special.id(), 2, Some("special"))];
    assert_eq!(seen, expected);
    assert!(holders.iter().all(|holder| holder.held_for >= SHORT), "{holders:?}");
    assert_eq!(holders[0].expires_in, None);
    assert!(holders[1].expires_in.is_some_and(|left| left <= LONG - SHORT), "{holders:?}");

    sem.release(&holders[0].id).await.expect("an id that is shown is an id that holds");
    assert_eq!(sem.holders().await.expect("the home answers").len(), 1);
}

/// First to last, with their labels.
pub async fn waiters_are_listed_in_order(home: &impl Home) {
    let sem = semaphore(home, 2).await;
    let _held = sem.acquire().weight(2).await.expect("two slots are free");
    assert!(sem.waiters().await.expect("the home answers").is_empty());
    let first = in_line(&sem, sem.acquire().weight(2).label("first")).await;
    let _second = in_line(&sem, sem.acquire().label("second")).await;
    let _third = in_line(&sem, sem.acquire()).await;
    home.pass(SHORT).await;

    let waiters = sem.waiters().await.expect("the home answers");
    let seen: Vec<_> =
        waiters.iter().map(|waiter| (waiter.ahead, waiter.weight, waiter.label.as_deref())).collect();
    assert_eq!(seen, [(0, 2, Some("first")), (1, 1, Some("second")), (2, 1, None)]);
    assert!(waiters.iter().all(|waiter| waiter.waited_for >= SHORT), "{waiters:?}");

    drop(first);
    until(&sem, |stats| stats.waiting == 2).await;
    let waiters = sem.waiters().await.expect("the home answers");
    assert_eq!((waiters[0].ahead, waiters[0].label.as_deref()), (0, Some("second")));
}

/// With no free slot, or with waiters in line.
pub async fn semaphore_is_locked_while_an_acquire_would_wait(home: &impl Home) {
    let sem = semaphore(home, 2).await;
    let one = sem.acquire().await.expect("a slot is free");
    assert_eq!(sem.locked().await, Ok(false));
    let heavy = in_line(&sem, sem.acquire().weight(2)).await;
    assert_eq!(sem.locked().await, Ok(true), "a slot is free, but waited for");
    one.release().await.expect("it is held");
    let both = heavy.outcome().await.expect("it is served");
    assert_eq!(sem.locked().await, Ok(true));
    both.release().await.expect("it is held");
    assert_eq!(sem.locked().await, Ok(false));
}

/// Zero, if a slot was free.
pub async fn a_permit_says_how_long_it_waited(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let held = sem.acquire().await.expect("a slot is free");
    assert!(held.waited().is_zero());
    let waiting = in_line(&sem, sem.acquire()).await;
    home.pass(SHORT).await;
    held.release().await.expect("it is held");
    let waited = waiting.outcome().await.expect("it is served").waited();
    assert!(waited >= SHORT, "{waited:?}");
}
