//! The time: precise, or rough and cheap.
//!
//! - [`Clock::now`]: precise. For waits and expiry; both ends of a wait are read from it.
//! - [`Clock::rough`]: for statistics on the hot path. A precise reading while the process asks rarely; once it asks
//!   more than ten thousand times a second, a value that a ticker thread refreshes every millisecond. Never ahead of
//!   the precise time, but late if the ticker thread gets no processor time: good enough for statistics, not for ending
//!   a lease. (The kernel's coarse clock is no better: we saw it late by more than its own step.)

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use semafor_core::Timestamp;

use super::manual_clock::ManualTime;
use super::ticker;

#[derive(Clone)]
pub(crate) enum Clock {
    System,
    Manual(Arc<ManualTime>),
}

impl Clock {
    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::System => system_now(),
            Self::Manual(time) => time.now(),
        }
    }

    #[inline]
    pub(crate) fn rough(&self) -> Timestamp {
        match self {
            Self::System => ticker::read(),
            Self::Manual(time) => time.rough(),
        }
    }

    /// The same moment on the standard library's clock.
    pub(crate) fn instant(&self, at: Timestamp) -> Option<Instant> {
        match self {
            Self::System => epoch().checked_add(at.since(Timestamp::default())),
            Self::Manual(time) => Instant::now().checked_add(at.since(time.now())),
        }
    }
}

fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

/// Nanoseconds since the first call in this process.
#[inline]
pub(super) fn system_now() -> Timestamp {
    let elapsed = epoch().elapsed();
    Timestamp::from_nanos(elapsed.as_secs() * 1_000_000_000 + u64::from(elapsed.subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_instant_is_the_same_moment() {
        let clock = Clock::System;
        let at = clock.now().after(Duration::from_secs(3600));
        let before = Instant::now() + Duration::from_secs(3590);
        let instant = clock.instant(at).unwrap();
        assert!(instant > before && instant < before + Duration::from_secs(20));
    }
}
