//! One model per race on the inbox, the only part of a run that threads share. Loom runs each through every
//! interleaving.
//!
//! Run by `cargo xtask test`, or alone as CONTRIBUTING.md describes.

use std::sync::Arc;
use std::time::Duration;

use loom::thread;

use crate::external::external;
use crate::inbox::Inbox;

/// A wait in a model ends only by a push: a wait that timed out would mean a lost number.
const EVER: Duration = Duration::MAX;

/// Waits for the next number in the inbox.
fn next_promise(inbox: &Inbox) -> u64 {
    loop {
        if let Some(promise) = inbox.take() {
            return promise;
        }
        assert!(inbox.wait(EVER));
        // The number may be in the queue while `has_any` is not set yet.
        thread::yield_now();
    }
}

#[test]
fn loom_a_push_wakes_the_waiting_thread() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::default());
        let shared = inbox.clone();
        let pusher = thread::spawn(move || shared.push(7));
        assert_eq!(next_promise(&inbox), 7);
        pusher.join().unwrap();
        assert_eq!(inbox.take(), None);
    });
}

#[test]
fn loom_two_pushes_are_both_received() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::default());
        let pushers = [1, 2].map(|promise| {
            let shared = inbox.clone();
            thread::spawn(move || shared.push(promise))
        });
        let mut promises: Vec<_> = inbox.take().into_iter().collect();
        pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
        promises.extend(std::iter::from_fn(|| inbox.take()));
        promises.sort_unstable();
        assert_eq!(promises, [1, 2]);
    });
}

#[test]
fn loom_a_promise_that_is_completed_and_dropped_is_never_orphaned() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::default());
        let (promise, _future, receiver) = external::<u8>(1, 0, inbox.clone());
        let completer = thread::spawn(move || assert!(promise.complete(7)));
        loop {
            assert_eq!(next_promise(&inbox), 0);
            if receiver.receive() {
                break;
            }
            assert!(!receiver.settlement().is_orphaned());
        }
        completer.join().unwrap();
    });
}

#[test]
fn loom_of_two_threads_one_completes_the_promise() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::default());
        let (promise, future, receiver) = external::<u8>(1, 0, inbox.clone());
        let other = promise.clone();
        let rival = thread::spawn(move || other.complete(1));
        let is_first = promise.complete(2);
        assert_eq!(next_promise(&inbox), 0);
        assert!(receiver.receive());
        let value = future.cell.value.get().copied();
        assert_ne!(is_first, rival.join().unwrap());
        assert_eq!(value, Some(if is_first { 2 } else { 1 }));
    });
}

#[test]
fn loom_dropping_the_last_handle_is_received() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::default());
        let (promise, _future, receiver) = external::<u8>(1, 0, inbox.clone());
        let other = promise.clone();
        let rival = thread::spawn(move || drop(other));
        drop(promise);
        assert_eq!(next_promise(&inbox), 0);
        assert!(receiver.settlement().is_orphaned() && !receiver.receive());
        rival.join().unwrap();
    });
}
