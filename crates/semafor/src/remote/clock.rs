//! A clock that goes on while the machine is suspended, as the server's clock does: a client must not rely on a lease
//! that has ended. And the server's clock in relation to it.
//!
//! On Linux this is `CLOCK_BOOTTIME`. Elsewhere it is the clock of [`std::time::Instant`], which may stop during a
//! suspend.

use std::ops::Add;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A point in time, like [`std::time::Instant`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Instant(Duration);

impl Instant {
    pub fn now() -> Self {
        let now = since_boot();
        #[cfg(test)]
        let now = now + Duration::from_nanos(tests::SUSPENDED_NANOS.load(Ordering::SeqCst));
        Self(now)
    }

    /// This long after the clock's origin: for tests, which set the clock.
    pub fn at(since_origin: Duration) -> Self {
        Self(since_origin)
    }

    /// The time since the clock's origin.
    pub fn since_origin(&self) -> Duration {
        self.0
    }

    pub fn elapsed(&self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }

    pub fn saturating_duration_since(&self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    pub fn checked_add(&self, span: Duration) -> Option<Self> {
        self.0.checked_add(span).map(Self)
    }

    pub fn checked_sub(&self, span: Duration) -> Option<Self> {
        self.0.checked_sub(span).map(Self)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }
}

/// Always converts to the same point in time, unless the machine is suspended in between.
impl From<Instant> for std::time::Instant {
    fn from(instant: Instant) -> Self {
        static START: OnceLock<(std::time::Instant, Instant)> = OnceLock::new();
        /// How long the other clock has been stopped since `START`.
        static STOPPED_NANOS: AtomicU64 = AtomicU64::new(0);
        let (theirs, ours) = *START.get_or_init(|| (Self::now(), Instant::now()));
        let (before, here, after) = (Self::now(), Instant::now(), Self::now());
        let stopped = Duration::from_nanos(STOPPED_NANOS.load(Ordering::Relaxed));
        let found = here.0.saturating_sub(ours.0).saturating_sub(before - theirs);
        let (jitter, is_close) = (Duration::from_millis(10), after - before < Duration::from_millis(1));
        let stopped = if is_close && found.abs_diff(stopped) > jitter {
            STOPPED_NANOS.store(found.as_nanos().try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
            found
        } else {
            stopped
        };
        let shift = ours.0.saturating_add(stopped);
        let then = match instant.0.checked_sub(shift) {
            Some(later) => theirs.checked_add(later),
            None => theirs.checked_sub(shift - instant.0),
        };
        then.unwrap_or(before)
    }
}

impl From<Instant> for tokio::time::Instant {
    fn from(instant: Instant) -> Self {
        Self::from_std(instant.into())
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn since_boot() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.try_into().unwrap_or(0), now.tv_nsec.try_into().unwrap_or(0))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn since_boot() -> Duration {
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    // An offset, so that times before the start can be expressed.
    Duration::from_secs(1 << 32) + START.get_or_init(std::time::Instant::now).elapsed()
}

/// How much faster the server's clock may run: clocks that are kept in step by NTP differ by at most 500 millionths.
const DRIFT: f64 = 0.0005;

/// The server's clock in relation to ours, from one reply.
#[derive(Clone, Copy, Debug)]
pub struct ServerClock {
    now: f64,
    sent: Instant,
    received: Instant,
}

impl ServerClock {
    /// The server's clock showed `now`, in seconds, between the sending of the request and the arrival of the reply.
    pub fn new(now: f64, sent: Instant, received: Instant) -> Self {
        Self { now, sent, received }
    }

    /// The same for a message that the server published at `then` on its clock, and that arrived at `now`.
    ///
    /// `None` if that would be later than now: then the server's clock was set forward since this reply, and the
    /// message says nothing about time.
    pub fn at_message(&self, then: f64, now: Instant) -> Option<Self> {
        let sent = self.earliest(then)?;
        (sent <= now).then_some(Self { now: then, sent, received: now })
    }

    pub fn now(&self) -> f64 {
        self.now
    }

    /// When the request was sent: the server cannot have replied before.
    pub fn sent(&self) -> Instant {
        self.sent
    }

    /// True if the server gave this reply before the other one. Its clock may have been set back in between, so a
    /// request that was sent after the other reply had arrived is newer, whatever the clock said.
    pub fn is_before(&self, other: &Self) -> bool {
        self.sent < other.received && self.now < other.now
    }

    /// The earliest time on our clock when the server's clock shows `then`. The two clocks may run at different speeds.
    pub fn earliest(&self, then: f64) -> Option<Instant> {
        let span = then - self.now;
        shifted(self.sent, span - span.abs() * DRIFT)
    }

    /// The latest time on our clock when the server's clock shows `then`.
    pub fn latest(&self, then: f64) -> Option<Instant> {
        shifted(self.received, then - self.now)
    }
}

/// The shortest time on our clock in which the server's clock may have gone on by `span`.
pub(crate) fn shortest(span: Duration) -> Duration {
    span.saturating_sub(span.mul_f64(DRIFT))
}

fn shifted(instant: Instant, seconds: f64) -> Option<Instant> {
    let span = Duration::try_from_secs_f64(seconds.abs()).unwrap_or(Duration::ZERO);
    if seconds < 0.0 { instant.checked_sub(span) } else { instant.checked_add(span) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// How long the machine has been suspended, as simulated by tests.
    pub(crate) static SUSPENDED_NANOS: AtomicU64 = AtomicU64::new(0);

    /// For tests that simulate a suspend, and tests that must not be disturbed by it.
    pub(crate) static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

    /// Found by the simulation: a slow clock let a holder rely on a lease that had ended on the server.
    #[test]
    fn lease_ends_before_it_does_on_a_clock_that_runs_faster() {
        let sent = Instant::at(Duration::from_secs(5_000));
        let clock = ServerClock::new(100.0, sent, sent + Duration::from_millis(1));
        let end = clock.earliest(1_100.0).expect("it can be shown");
        assert_eq!(end, sent + Duration::from_millis(999_500));
        assert_eq!(shortest(Duration::from_secs(1_000)), Duration::from_millis(999_500));
        // A past time may be longer ago than it seems.
        assert!(clock.earliest(0.0).expect("it can be shown") < Instant::at(Duration::from_secs(4_900)));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn clock_goes_on_while_the_machine_is_suspended() {
        let uptime = std::fs::read_to_string("/proc/uptime").expect("/proc/uptime exists on Linux");
        let uptime: f64 = uptime.split(' ').next().unwrap().parse().expect("seconds since the start");
        assert!(
            (since_boot().as_secs_f64() - uptime).abs() < 30.0,
            "the clock must count from the start of the machine"
        );
    }

    /// Otherwise a holder would rely on its slot for too long after the server's clock was set forward.
    #[test]
    fn message_from_the_future_is_ignored_for_time() {
        let now = Instant::now();
        let known = ServerClock::new(1_000.0, now, now);
        assert!(known.at_message(1_060.0, now).is_none(), "the clock was set forward by a minute");
        let message = known.at_message(1_000.0, now).expect("it was published when the reply was given");
        assert_eq!(message.sent(), now);
        assert!(
            known.at_message(940.0, now).is_some(),
            "an old message, or a clock that was set back: both are safe"
        );
    }

    #[tokio::test]
    async fn points_in_time_convert_to_other_clocks() {
        let _turn = ONE_AT_A_TIME.lock().await;
        let span = Duration::from_secs(100);
        let (now, here) = (std::time::Instant::now(), Instant::now());
        let later = std::time::Instant::from(here + span);
        let earlier = std::time::Instant::from(here.checked_sub(span).unwrap());
        assert!(later >= now + span && earlier <= std::time::Instant::now() - span + Duration::from_secs(30));
        assert!(later - earlier >= span * 2 - Duration::from_secs(30));
        assert_eq!(later, std::time::Instant::from(here + span), "the conversion must be stable");
        // The other clock does not count suspended time.
        SUSPENDED_NANOS.store(50_000_000_000, Ordering::SeqCst);
        // The conversion ignores a measurement that was interrupted, and measures again the next time.
        let by_now = (0..1000).map(|_| std::time::Instant::from(here + span));
        let sooner = by_now.min().expect("one of a thousand");
        SUSPENDED_NANOS.store(0, Ordering::SeqCst);
        let shift = later - sooner;
        assert!(shift.abs_diff(Duration::from_secs(50)) < Duration::from_secs(1), "{shift:?}");
    }
}
