//! Parses numbers of slots.

use std::str::FromStr;

/// A number of slots: absolute, or relative to the cores of this machine.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Slots {
    /// So many.
    Exact(u32),
    /// A part of the cores.
    Percent(f64),
    /// So many more, or fewer, than there are cores.
    CoresPlus(i64),
}

impl Slots {
    /// The number of slots for so many cores: at least one.
    pub fn resolve(self, cores: u32) -> u32 {
        let slots = match self {
            Self::Exact(slots) => return slots,
            Self::Percent(percent) => (f64::from(cores) * percent / 100.0).round() as i64,
            Self::CoresPlus(offset) => i64::from(cores).saturating_add(offset),
        };
        u32::try_from(slots.clamp(1, i64::from(u32::MAX))).unwrap_or(u32::MAX)
    }

    /// The number of slots on this machine.
    pub fn on_this_machine(self) -> u32 {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        self.resolve(u32::try_from(cores).unwrap_or(u32::MAX))
    }
}

impl FromStr for Slots {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error = || {
            "expected a number of at least 1, or relative to this machine's cores: 100%, +2, -1".to_owned()
        };
        if let Some(percent) = text.strip_suffix('%') {
            let percent = percent.parse::<f64>().ok().filter(|percent| percent.is_finite() && *percent > 0.0);
            return percent.map(Self::Percent).ok_or_else(error);
        }
        if text.starts_with(['+', '-']) {
            return text.parse().map(Self::CoresPlus).map_err(|_| error());
        }
        match text.parse() {
            Ok(0) | Err(_) => Err(error()),
            Ok(slots) => Ok(Self::Exact(slots)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_may_be_relative_to_cores() {
        for (text, slots) in [("3", 3), ("100%", 8), ("50%", 4), ("1%", 1), ("+2", 10), ("-3", 5), ("-20", 1)]
        {
            assert_eq!(text.parse::<Slots>().map(|slots| slots.resolve(8)), Ok(slots), "{text}");
        }
    }

    #[test]
    fn invalid_numbers_of_slots_are_refused() {
        for text in ["0", "abc", "", "%", "-5%", "0%", "NaN%", "inf%", "1.5", "+x", "99999999999"] {
            assert!(text.parse::<Slots>().is_err(), "{text}");
        }
    }
}
