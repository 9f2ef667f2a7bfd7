//! Which semaphore a name opens.

use semafor::BuildError;

use super::{open, semaphore};
use crate::by_hand::{in_line, stats};
use crate::{Home, Spec};

/// All handles of a name share its slots.
pub async fn a_name_is_one_semaphore(home: &impl Home) {
    let (a, b) = (semaphore(home, 2).await, semaphore(home, 2).await);
    let _one = a.acquire().await.expect("a slot is free");
    let _two = b.acquire().await.expect("a slot is free");
    assert!(a.try_acquire().await.is_err(), "the other handle has taken the second slot");
    assert!(b.clone().try_acquire().await.is_err(), "a clone is no other semaphore");
    assert_eq!(stats(&a).await.held, 2);
    assert_eq!((a.name(), b.name()), ("it", "it"));
}

/// Another name has slots of its own.
pub async fn different_names_are_different_semaphores(home: &impl Home) {
    let a = open(home, Spec::new("a", 1)).await;
    let b = open(home, Spec::new("b", 1)).await;
    let _held = a.acquire().await.expect("a slot is free");
    assert_eq!(stats(&b).await.held, 0);
    assert!(b.try_acquire().await.is_ok());
}

/// The error says how many slots there are and how many were asked for; nothing changes.
pub async fn another_number_of_slots_for_a_live_name_is_an_error_with_both_numbers(home: &impl Home) {
    let sem = semaphore(home, 3).await;
    let _held = sem.acquire().await.expect("a slot is free");
    let error = home.open(Spec::new("it", 57)).await.expect_err("3 is not 57");
    assert!(
        matches!(&error, BuildError::SlotsMismatch { name, live: 3, asked: 57 } if name == "it"),
        "{error:?}"
    );
    let said = error.to_string();
    assert!(said.contains("\"it\"") && said.contains('3') && said.contains("57"), "{said}");
    assert_eq!(sem.slots().await, Ok(3));
}

/// Without holders and waiters, the last opener sets the number of slots.
pub async fn an_idle_name_takes_a_new_number_of_slots(home: &impl Home) {
    let before = semaphore(home, 3).await;
    before.acquire().await.expect("a slot is free").release().await.expect("it is held");
    let after = semaphore(home, 1).await;
    assert_eq!((before.slots().await, after.slots().await), (Ok(1), Ok(1)));
    let _held = before.acquire().await.expect("a slot is free");
    assert!(after.try_acquire().await.is_err());
}

/// No acquire could ever be granted.
pub async fn zero_slots_are_refused(home: &impl Home) {
    let error = home.open(Spec::new("it", 0)).await.expect_err("zero");
    assert!(matches!(error, BuildError::ZeroSlots(_)), "{error:?}");
    let sem = semaphore(home, 2).await;
    assert!(home.open(Spec::new("it", 0)).await.is_err(), "not for a known name either");
    assert_eq!(sem.slots().await, Ok(2));
}

/// The number of slots need not be known to use a name that exists.
pub async fn a_name_in_use_is_opened_without_a_number_of_slots(home: &impl Home) {
    let known = semaphore(home, 3).await;
    let _held = known.acquire().await.expect("a slot is free");
    let other = open(home, Spec::without_slots("it")).await;
    assert_eq!(other.slots().await, Ok(3));
    let _two =
        [other.acquire().await.expect("a slot is free"), other.acquire().await.expect("a slot is free")];
    assert!(known.try_acquire().await.is_err(), "all three are held");
}

/// No number is invented.
pub async fn a_new_name_without_a_number_of_slots_is_refused(home: &impl Home) {
    let error = home.open(Spec::without_slots("it")).await.expect_err("it does not exist");
    assert!(matches!(&error, BuildError::SlotsNotSet { name } if name == "it"), "{error:?}");
    let sem = semaphore(home, 2).await;
    assert_eq!(sem.slots().await, Ok(2), "the refused attempt changed nothing");
}

/// A waiter is enough: it relies on the number of slots as a holder does.
pub async fn a_name_with_a_line_keeps_its_number_of_slots(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let held = sem.acquire().await.expect("a slot is free");
    let waiting = in_line(&sem, sem.acquire()).await;
    let error = home.open(Spec::new("it", 2)).await.expect_err("1 is not 2");
    assert!(matches!(&error, BuildError::SlotsMismatch { live: 1, asked: 2, .. }), "{error:?}");
    held.release().await.expect("it is held");
    waiting.outcome().await.expect("it is served").release().await.expect("it is held");
    let after = semaphore(home, 2).await;
    assert_eq!(after.slots().await, Ok(2), "idle again, it takes the new number");
}

/// Closing ends the use of a name, but the home keeps its number of slots.
pub async fn a_closed_name_that_is_opened_without_a_number_keeps_its_number(home: &impl Home) {
    let old = semaphore(home, 3).await;
    drop(old.acquire().await.expect("a slot is free"));
    old.close().await.expect("the home answers");
    let new = open(home, Spec::without_slots("it")).await;
    assert_eq!((new.is_closed().await, new.slots().await), (Ok(false), Ok(3)));
}
