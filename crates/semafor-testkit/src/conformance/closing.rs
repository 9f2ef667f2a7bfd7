//! The end of a semaphore.

use semafor::{AcquireError, BuildError};

use super::semaphore;
use crate::by_hand::{in_line, stats};
use crate::{Home, Spec};

/// All waiters, at once.
pub async fn closing_refuses_all_waiters(home: &impl Home) {
    let (here, there) = (semaphore(home, 1).await, semaphore(home, 1).await);
    let _held = here.acquire().await.expect("a slot is free");
    let first = in_line(&here, here.acquire()).await;
    let second = in_line(&there, there.acquire()).await;
    assert_eq!(here.is_closed().await, Ok(false));
    there.close().await.expect("the home answers");
    assert_eq!(here.is_closed().await, Ok(true));
    assert_eq!(stats(&here).await.waiting, 0);
    assert_eq!(first.outcome().await.expect_err("closed"), AcquireError::Closed);
    assert!(second.outcome().await.expect_err("closed").is_closed());
}

/// With and without waiting, with and without free slots.
pub async fn closed_semaphore_refuses_new_requests(home: &impl Home) {
    let sem = semaphore(home, 2).await;
    let held = sem.acquire().await.expect("a slot is free");
    sem.close().await.expect("the home answers");
    assert_eq!(sem.acquire().await.expect_err("closed"), AcquireError::Closed);
    assert_eq!(sem.try_acquire().await.expect_err("closed"), AcquireError::Closed);
    held.release().await.expect("it is held");
    assert_eq!(sem.acquire().await.expect_err("closed"), AcquireError::Closed);
    assert_eq!(sem.locked().await, Ok(true));
}

/// They finish their work and release the slots.
pub async fn holders_keep_their_slots_when_it_is_closed(home: &impl Home) {
    let sem = semaphore(home, 2).await;
    let held = sem.acquire().await.expect("a slot is free");
    let detached = sem.acquire().await.expect("a slot is free").detach();
    sem.close().await.expect("the home answers");
    assert!(!held.is_lost());
    assert_eq!(stats(&sem).await.held, 2);
    held.release().await.expect("it is held");
    sem.release(&detached).await.expect("it is held");
    assert_eq!(stats(&sem).await.held, 0);
}

/// Not earlier: old and new holders together could be more than the slots.
pub async fn closed_name_opens_anew_once_all_slots_are_released(home: &impl Home) {
    let old = semaphore(home, 1).await;
    let held = old.acquire().await.expect("a slot is free");
    old.close().await.expect("the home answers");
    let error = home.open(Spec::new("it", 1)).await.expect_err("a slot is still held");
    assert!(matches!(&error, BuildError::Closed { name, held: 1 } if name == "it"), "{error:?}");

    held.release().await.expect("it is held");
    let new = semaphore(home, 3).await;
    assert_eq!((new.is_closed().await, new.slots().await), (Ok(false), Ok(3)));
    drop(new.acquire().await.expect("a slot is free"));
}

/// Whether the home knows the name or not.
pub async fn handle_that_was_never_opened_closes_the_name_for_good(home: &impl Home) {
    for (name, is_known) in [("new", false), ("known", true)] {
        if is_known {
            drop(home.open(Spec::new(name, 1)).await.expect("it can be opened").acquire().await);
        }
        let old = home.build(Spec::new(name, 1)).expect("a valid name");
        old.close().await.expect("the home answers");
        for _ in 0..2 {
            assert_eq!(old.acquire().await.map(drop), Err(AcquireError::Closed), "{name}");
        }
        assert_eq!(old.is_closed().await, Ok(true));
        let new = home.open(Spec::new(name, 1)).await.expect("it can be opened again");
        drop(new.acquire().await.expect("a slot is free"));
        assert_eq!(old.acquire().await.map(drop), Err(AcquireError::Closed), "{name}");
    }
}
