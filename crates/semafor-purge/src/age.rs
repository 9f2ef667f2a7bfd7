//! Ages are relative to the start of the run, so they do not depend on how long it takes.

use std::time::{Duration, SystemTime};

/// A time stamp of a file system: seconds since 1970, and nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Moment(i64, u32);

impl Moment {
    pub(crate) fn new(seconds: i64, nanoseconds: u32) -> Self {
        Self(seconds, nanoseconds)
    }

    /// The moment `age` before `start`. A file changed before it is older than `age`.
    pub(crate) fn before(start: SystemTime, age: Duration) -> Self {
        let earliest = Self(i64::MIN, 0);
        let Some(moment) = start.checked_sub(age) else { return earliest };
        match moment.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => Self(i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos()),
            Err(before) => {
                let before = before.duration();
                let Ok(seconds) = i64::try_from(before.as_secs()) else { return earliest };
                match before.subsec_nanos() {
                    0 => Self(-seconds, 0),
                    nanos => Self(-seconds - 1, 1_000_000_000 - nanos),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_may_reach_back_before_1970() {
        let start = SystemTime::UNIX_EPOCH + Duration::from_millis(10_250);
        assert_eq!(Moment::before(start, Duration::from_secs(3)), Moment(7, 250_000_000));
        assert_eq!(Moment::before(start, Duration::from_secs(11)), Moment(-1, 250_000_000));
        assert_eq!(Moment::before(start, Duration::MAX), Moment(i64::MIN, 0));
        assert!(
            Moment::before(start, Duration::from_secs(11)) < Moment::before(start, Duration::from_secs(3))
        );
    }
}
