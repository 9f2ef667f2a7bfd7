use std::time::Duration;

use crate::error::{InvalidDuration, MeantAs};

/// A length of time as users write it: a [`Duration`], [`secs`], or [`Span::UNLIMITED`].
///
/// Its range is checked where it is used, so that the error can name the parameter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Span(Written);

#[derive(Clone, Copy, PartialEq, Debug)]
enum Written {
    Duration(Duration),
    Unlimited,
    NotADuration(f64),
}

/// Seconds, whole or fractional.
///
/// ```
/// use std::time::Duration;
/// use semafor::{Semaphore, secs, Span};
///
/// assert_eq!(secs(1.5), Span::from(Duration::from_millis(1500)));
///
/// let error = Semaphore::memory("images").slots(1).ttl(secs(-3)).build().unwrap_err();
/// assert_eq!(error.to_string(), "ttl must be longer than zero seconds, got -3");
/// ```
pub fn secs(seconds: impl Into<f64>) -> Span {
    let seconds = seconds.into();
    Span(match Duration::try_from_secs_f64(seconds) {
        Ok(duration) => Written::Duration(duration),
        Err(_) if seconds > 0.0 => Written::Unlimited,
        Err(_) => Written::NotADuration(seconds),
    })
}

/// The longest time that is sent to a home outside of this process: 68 years.
pub(crate) const LONGEST: Duration = Duration::from_secs(2_147_483_637);

impl Span {
    /// No limit: hold, or wait, for as long as it takes.
    pub const UNLIMITED: Self = Self(Written::Unlimited);

    /// As a `ttl`: longer than zero, or `None` for no limit.
    pub(crate) fn to_ttl(self) -> Result<Option<Duration>, InvalidDuration> {
        match self.to_timeout(MeantAs::Ttl)? {
            Some(Duration::ZERO) => Err(InvalidDuration { meant_as: MeantAs::Ttl, seconds: 0.0 }),
            ttl => Ok(ttl),
        }
    }

    /// As an interval between heartbeats: longer than zero, and at most [`LONGEST`].
    pub(crate) fn to_heartbeat(self) -> Result<Duration, InvalidDuration> {
        match self.to_timeout(MeantAs::HeartbeatMaxInterval)? {
            Some(Duration::ZERO) => {
                Err(InvalidDuration { meant_as: MeantAs::HeartbeatMaxInterval, seconds: 0.0 })
            }
            interval => Ok(interval.unwrap_or(LONGEST).min(LONGEST)),
        }
    }

    /// As a timeout: zero means not to wait at all, `None` no limit.
    pub(crate) fn to_timeout(self, meant_as: MeantAs) -> Result<Option<Duration>, InvalidDuration> {
        match self.0 {
            Written::Duration(timeout) => Ok(Some(timeout)),
            Written::Unlimited => Ok(None),
            Written::NotADuration(seconds) => Err(InvalidDuration { meant_as, seconds }),
        }
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self(Written::Duration(duration))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_names_the_invalid_duration() {
        for (seconds, named) in [(-1.0, "-1"), (f64::NAN, "NaN"), (f64::NEG_INFINITY, "-inf"), (0.0, "0")] {
            let error = secs(seconds).to_ttl().unwrap_err().to_string();
            assert_eq!(error, format!("ttl must be longer than zero seconds, got {named}"));
        }
        let error = secs(f64::NAN).to_timeout(MeantAs::Timeout).unwrap_err().to_string();
        assert_eq!(error, "timeout must be zero seconds or longer, got NaN");
    }

    #[test]
    fn durations_too_long_to_count_are_unlimited() {
        assert_eq!(secs(f64::INFINITY), Span::UNLIMITED);
        assert_eq!(secs(1e300), Span::UNLIMITED);
        assert_eq!(secs(0).to_timeout(MeantAs::Timeout), Ok(Some(Duration::ZERO)));
    }
}
