//! Parses and prints durations.

use std::time::Duration;

/// Parses `30s`, `1h30m`, `250ms`, or a number of seconds.
pub fn any(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let read = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => sum(text),
    };
    read.ok_or_else(|| "expected a duration such as 30s, 5m, 1h30m, 250ms, or a number of seconds".to_owned())
}

/// Adds up durations such as `1h 30m`. humantime alone panics on some that are too long: chronotope/humantime#66.
fn sum(text: &str) -> Option<Duration> {
    let (mut sum, mut rest) = (Duration::ZERO, text);
    loop {
        let unit = rest.find(char::is_alphabetic)?;
        let length = rest[unit..].find(|character: char| !character.is_alphabetic());
        let (first, after) = rest.split_at(length.map_or(rest.len(), |length| unit + length));
        sum = sum.checked_add(humantime::parse_duration(first).ok()?)?;
        rest = after.trim_start();
        if rest.is_empty() {
            return Some(sum);
        }
    }
}

/// The same, longer than zero.
pub fn longer_than_zero(text: &str) -> Result<Duration, String> {
    match any(text)? {
        Duration::ZERO => Err("must be longer than zero".to_owned()),
        duration => Ok(duration),
    }
}

/// Parses the minimum age of files to remove. Needs a unit: a plain 30 could mean days.
pub fn age(text: &str) -> Result<Duration, String> {
    match longer_than_zero(text)? {
        _ if text.trim().parse::<f64>().is_ok() => {
            Err(format!("needs a unit: {0}d for days, or {0}h, {0}m, {0}s", text.trim()))
        }
        age => Ok(age),
    }
}

/// A number of days, fractions allowed.
pub fn days(text: &str) -> Result<Duration, String> {
    let days = text.trim().parse::<f64>().ok();
    let age = days.and_then(|days| Duration::try_from_secs_f64(days * 86_400.0).ok());
    age.ok_or_else(|| "expected a number of days, such as 30 or 0.5".to_owned())
}

/// Prints a duration in short form: `0.4s`, `12s`, `3m05s`, `2h10m`, `4d02h`.
pub fn show(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{:.1}s", duration.as_secs_f64()),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        for (text, millis) in [
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("250ms", 250),
            (" 1 hour 30min 2s5ms", 5_402_005),
            ("1.5h", 5_400_000),
            ("2", 2_000),
            ("0.5", 500),
            ("0", 0),
        ] {
            assert_eq!(any(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_refused() {
        for text in [
            "",
            "abc",
            "-1",
            "inf",
            "NaN",
            "5 parsecs",
            "1e30",
            "1h30",
            "1h 30",
            "18446744073709551615s 1s",
            "18446744073709551615.5s0.5s",
        ] {
            assert!(any(text).is_err(), "{text}");
        }
        assert!(longer_than_zero("0").is_err());
        assert!(age("30").is_err() && age("0").is_err() && age("30d").is_ok());
    }

    #[test]
    fn days_may_be_fractions() {
        assert_eq!(days("0.5"), Ok(Duration::from_secs(43_200)));
        assert_eq!(days("0"), Ok(Duration::ZERO));
        for text in ["", "-1", "NaN", "1d"] {
            assert!(days(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_shown_in_short_form() {
        let shown = [0.04, 9.0, 59.9, 61.0, 3_600.0, 90_000.0].map(|s| show(Duration::from_secs_f64(s)));
        assert_eq!(shown, ["0.0s", "9.0s", "59s", "1m01s", "1h00m", "1d01h"]);
    }
}
