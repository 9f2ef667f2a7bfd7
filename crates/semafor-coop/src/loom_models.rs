//! One model per race on the inbox, the one place of a run that threads share: loom runs each through every interleaving.
//!
//! Run by `cargo xtask test`, or on its own as CONTRIBUTING.md says.

use std::sync::Arc;
use std::time::Duration;

use loom::thread;

use crate::external::external;
use crate::inbox::Inbox;

/// In a model nothing is ever late, so a wait that returned for that reason would be a lost letter.
const EVER: Duration = Duration::MAX;

/// The number of the next letter, however long it takes.
fn next_letter(inbox: &Inbox) -> u64 {
    loop {
        if let Some(letter) = inbox.take() {
            return letter;
        }
        assert!(inbox.wait(EVER));
        // The letter may be there, and not yet announced.
        thread::yield_now();
    }
}

#[test]
fn loom_a_letter_wakes_who_waits() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::default());
        let theirs = inbox.clone();
        let poster = thread::spawn(move || theirs.post(7));
        assert_eq!(next_letter(&inbox), 7);
        poster.join().unwrap();
        assert_eq!(inbox.take(), None);
    });
}

#[test]
fn loom_of_two_letters_none_is_lost() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::default());
        let posters = [1, 2].map(|letter| {
            let theirs = inbox.clone();
            thread::spawn(move || theirs.post(letter))
        });
        let mut letters: Vec<_> = inbox.take().into_iter().collect();
        posters.into_iter().for_each(|poster| poster.join().unwrap());
        letters.extend(std::iter::from_fn(|| inbox.take()));
        letters.sort_unstable();
        assert_eq!(letters, [1, 2]);
    });
}

#[test]
fn loom_a_promise_that_is_completed_and_dropped_is_never_taken_for_abandoned() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::default());
        let (promise, _future, receiver) = external::<u8>(1, 0, inbox.clone());
        let completer = thread::spawn(move || assert!(promise.complete(7)));
        loop {
            assert_eq!(next_letter(&inbox), 0);
            if receiver.receive() {
                break;
            }
            assert!(!receiver.settlement().is_orphaned());
        }
        completer.join().unwrap();
    });
}

#[test]
fn loom_of_two_who_complete_a_promise_one_does() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::default());
        let (promise, future, receiver) = external::<u8>(1, 0, inbox.clone());
        let other = promise.clone();
        let rival = thread::spawn(move || other.complete(1));
        let is_first = promise.complete(2);
        assert_eq!(next_letter(&inbox), 0);
        assert!(receiver.receive());
        let value = future.cell.value.get().copied();
        assert_ne!(is_first, rival.join().unwrap());
        assert_eq!(value, Some(if is_first { 2 } else { 1 }));
    });
}

#[test]
fn loom_when_the_last_handle_goes_there_is_a_letter_about_it() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::default());
        let (promise, _future, receiver) = external::<u8>(1, 0, inbox.clone());
        let other = promise.clone();
        let rival = thread::spawn(move || drop(other));
        drop(promise);
        assert_eq!(next_letter(&inbox), 0);
        assert!(receiver.settlement().is_orphaned() && !receiver.receive());
        rival.join().unwrap();
    });
}
