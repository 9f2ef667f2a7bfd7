//! Waiting for what another process does.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// After so long, what has not happened is said not to happen. Not a measure of speed.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// What `look` finds, as soon as it finds something.
///
/// # Panics
///
/// If it never does.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIME_LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "it never came to that: {what}");
        sleep(Duration::from_millis(5));
    }
}

/// The same for a test that is a task: others go on meanwhile.
///
/// # Panics
///
/// If it never finds anything.
#[track_caller]
pub fn until_seen<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> impl Future<Output = T> {
    let caller = std::panic::Location::caller();
    async move {
        let deadline = Instant::now() + TIME_LIMIT;
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(Instant::now() < deadline, "{caller}: it never came to that: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
