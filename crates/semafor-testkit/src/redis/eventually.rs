//! Waiting for what another process does.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// After so long, what has not happened is said not to happen. Not a measure of speed.
const NEVER: Duration = Duration::from_secs(60);

/// What `look` finds, as soon as it finds something.
///
/// # Panics
///
/// If it never does.
#[track_caller]
pub(super) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + NEVER;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "it never came to that: {what}");
        sleep(Duration::from_millis(5));
    }
}
