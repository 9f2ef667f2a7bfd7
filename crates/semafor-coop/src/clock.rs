use std::time::{Duration, Instant};

use semafor_core::Timestamp;

use crate::inbox::Inbox;
use crate::{Error, Result};

/// The clock of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Clock {
    /// Stands still while a task can run, and jumps to the next timer when none can. A day of delays takes no time.
    #[default]
    Virtual,
    /// Real time.
    Real,
}

/// A clock that was started.
pub(crate) enum Time {
    Virtual,
    Real(Instant),
}

impl Time {
    pub(crate) fn start(clock: Clock) -> Self {
        match clock {
            Clock::Virtual => Self::Virtual,
            Clock::Real => Self::Real(Instant::now()),
        }
    }

    /// The time of a real clock; `None` if time is virtual.
    #[inline]
    pub(crate) fn read(&self) -> Option<Timestamp> {
        match self {
            Self::Virtual => None,
            Self::Real(start) => Some(Timestamp::default().after(start.elapsed())),
        }
    }
}

/// No task of a run can continue before some time has passed or another thread has completed a promise.
#[must_use = "the run continues once it has been waited for"]
pub struct Lull<'r> {
    pub(crate) inbox: &'r Inbox,
    pub(crate) longest: Duration,
}

impl Lull<'_> {
    /// Waits on this thread until a task may be able to continue.
    pub fn wait(&self) {
        self.inbox.wait(self.longest);
    }

    /// Does the same, for so long at most. If no task can continue by then, there will be another lull.
    pub fn wait_at_most(&self, longest: Duration) {
        self.inbox.wait(self.longest.min(longest));
    }
}

/// A span of time: a [`Duration`], or seconds. Seconds that are negative, infinite or not a number are an error where
/// the effect is awaited.
#[derive(Clone, Copy, Debug)]
pub struct Span(std::result::Result<Duration, f64>);

impl Span {
    pub(crate) fn get(self) -> Result<Duration> {
        self.0.map_err(Error::InvalidDelay)
    }
}

impl From<Duration> for Span {
    fn from(span: Duration) -> Self {
        Self(Ok(span))
    }
}

impl From<f64> for Span {
    fn from(seconds: f64) -> Self {
        Self(Duration::try_from_secs_f64(seconds).map_err(|_| seconds))
    }
}
