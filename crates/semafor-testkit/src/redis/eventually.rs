//! Waits for what another process does.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// A test that waits longer than this has failed. Not a measure of speed.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Calls `look` until it returns something.
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
        assert!(Instant::now() < deadline, "this never happened: {what}");
        sleep(Duration::from_millis(5));
    }
}

/// The same for a test that is a task: other tasks run meanwhile.
///
/// # Panics
///
/// If `look` never returns anything.
#[track_caller]
pub fn until_seen<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> impl Future<Output = T> {
    let caller = std::panic::Location::caller();
    async move {
        let deadline = Instant::now() + TIME_LIMIT;
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(Instant::now() < deadline, "{caller}: this never happened: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
