//! What time it is, at three prices.
//!
//! - [`Clock::now`]: precise. For whatever waits, and for short leases.
//! - [`Clock::lease_start`]: the kernel's coarse clock where there is one, rounded up so that no lease ends early.
//! - [`Clock::rough`]: for statistics on the hot path. A precise reading while the process asks rarely; once it asks
//!   more than ten thousand times a second, a value that a ticker thread refreshes every millisecond. The ticker
//!   stops when it is not needed.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use semafor_core::Timestamp;

use super::manual_clock::Hands;
use super::ticker;

/// A lease at least this long starts by the coarse clock.
const LONG_LEASE: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(crate) enum Clock {
    System,
    Manual(Arc<Hands>),
}

impl Clock {
    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::System => system_now(),
            Self::Manual(hands) => hands.now(),
        }
    }

    #[inline]
    pub(crate) fn rough(&self) -> Timestamp {
        match self {
            Self::System => ticker::read(),
            Self::Manual(hands) => hands.now(),
        }
    }

    #[inline]
    pub(crate) fn lease_start(&self, ttl: Duration) -> Timestamp {
        match self {
            Self::System if ttl >= LONG_LEASE => coarse_now(),
            _ => self.now(),
        }
    }

    /// The same moment on the standard library's clock.
    pub(crate) fn instant(&self, at: Timestamp) -> Option<Instant> {
        let now = self.now();
        let ahead = Instant::now().checked_add(at.since(now))?;
        ahead.checked_sub(now.since(at))
    }
}

struct Epoch {
    instant: Instant,
    #[cfg(target_os = "linux")]
    monotonic_nanos: u64,
    #[cfg(target_os = "linux")]
    coarse_step_nanos: u64,
}

fn epoch() -> &'static Epoch {
    static EPOCH: OnceLock<Epoch> = OnceLock::new();
    EPOCH.get_or_init(|| Epoch {
        instant: Instant::now(),
        #[cfg(target_os = "linux")]
        monotonic_nanos: linux::nanos(rustix::time::ClockId::Monotonic),
        #[cfg(target_os = "linux")]
        coarse_step_nanos: linux::coarse_step_nanos(),
    })
}

/// Nanoseconds since the process first asked.
pub(super) fn system_now() -> Timestamp {
    let elapsed = epoch().instant.elapsed();
    Timestamp::from_nanos(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
}

/// The coarse clock, one step ahead: at or after the precise time, by a few milliseconds at most.
#[cfg(target_os = "linux")]
fn coarse_now() -> Timestamp {
    let epoch = epoch();
    let coarse = linux::nanos(rustix::time::ClockId::MonotonicCoarse) + epoch.coarse_step_nanos;
    Timestamp::from_nanos(coarse.saturating_sub(epoch.monotonic_nanos))
}

#[cfg(not(target_os = "linux"))]
fn coarse_now() -> Timestamp {
    system_now()
}

#[cfg(target_os = "linux")]
mod linux {
    use rustix::time::Timespec;
    use rustix::time::{ClockId, clock_getres, clock_gettime};

    #[inline]
    pub(super) fn nanos(clock: ClockId) -> u64 {
        to_nanos(clock_gettime(clock))
    }

    pub(super) fn coarse_step_nanos() -> u64 {
        to_nanos(clock_getres(ClockId::MonotonicCoarse))
    }

    #[inline]
    fn to_nanos(time: Timespec) -> u64 {
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_never_starts_before_the_call() {
        for _ in 0..1_000 {
            let before = Clock::System.now();
            assert!(Clock::System.lease_start(LONG_LEASE) >= before);
            assert!(Clock::System.lease_start(Duration::from_millis(1)) >= before);
        }
    }

    #[test]
    fn an_instant_is_the_same_moment() {
        let clock = Clock::System;
        let at = clock.now().after(Duration::from_secs(3600));
        let before = Instant::now() + Duration::from_secs(3590);
        let instant = clock.instant(at).unwrap();
        assert!(instant > before && instant < before + Duration::from_secs(20));
    }
}
