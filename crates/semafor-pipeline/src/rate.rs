//! A limit per second, first come, first served.
//!
//! Each turn has a time: one interval after the turn before, but not further in the past than the burst allows to catch
//! up. A caller takes the next turn at once and then waits until its time. So callers cannot overtake each other, and
//! no lock is held during the wait.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, SystemClock};

/// Lets so many callers pass per second. Clones share the turns: one rate for several pipelines.
///
/// It is a token bucket: after a pause, it lets a [burst](Self::burst) pass.
///
/// ```
/// use semafor_pipeline::Rate;
///
/// let rate = Rate::per_second(1000);
/// for _ in 0..3 {
///     rate.wait(); // on a thread; in a task, `rate.ready().await`
/// }
/// ```
#[derive(Clone)]
pub struct Rate {
    turns: Arc<Mutex<Turns>>,
    clock: Arc<dyn Clock>,
}

impl Rate {
    /// At most `n` per second; 0: unlimited. The burst is a hundredth of a second's worth, at least one.
    pub fn per_second(n: u32) -> Self {
        let turns = Turns::new(n, (n / 100).max(1));
        Self { turns: Arc::new(Mutex::new(turns)), clock: Arc::new(SystemClock) }
    }

    /// How many may pass at once after a pause; at least one.
    pub fn burst(self, burst: u32) -> Self {
        let turns = Turns::new(self.turns.lock().per_second, burst.max(1));
        Self { turns: Arc::new(Mutex::new(turns)), ..self }
    }

    /// Uses this clock instead of [`SystemClock`].
    pub fn clock(self, clock: impl Clock + 'static) -> Self {
        let Turns { per_second, burst, .. } = *self.turns.lock();
        Self { turns: Arc::new(Mutex::new(Turns::new(per_second, burst))), clock: Arc::new(clock) }
    }

    /// Waits for a turn, blocking this thread.
    pub fn wait(&self) {
        pollster::block_on(self.ready());
    }

    /// Waits for a turn. Works under any executor.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits returns the turn, unless a later caller already has the next one. Then the
    /// turn passes unused.
    ///
    /// ```
    /// # use semafor_pipeline::Rate;
    /// # pollster::block_on(async {
    /// let rate = Rate::per_second(50).burst(2);
    /// rate.ready().await;
    /// # });
    /// ```
    pub async fn ready(&self) {
        let now = self.clock.now();
        let at = self.turns.lock().take(now);
        if at > now {
            let mut turn = Turn { rate: self, at, used: false };
            self.clock.delay(at - now).await;
            turn.used = true;
        }
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let turns = self.turns.lock();
        f.debug_struct("Rate")
            .field("per_second", &turns.per_second)
            .field("burst", &turns.burst)
            .finish_non_exhaustive()
    }
}

/// A turn whose time has not come yet.
struct Turn<'a> {
    rate: &'a Rate,
    at: Duration,
    used: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.used {
            self.rate.turns.lock().return_turn(self.at);
        }
    }
}

/// Hands out the times of the turns.
#[derive(Debug)]
struct Turns {
    per_second: u32,
    burst: u32,
    /// When the next turn is due. In the past after a pause; then up to a burst may catch up.
    next: Option<Duration>,
}

impl Turns {
    fn new(per_second: u32, burst: u32) -> Self {
        Self { per_second, burst, next: None }
    }

    fn interval(&self) -> Duration {
        match self.per_second {
            0 => Duration::ZERO,
            n => Duration::from_secs(1) / n,
        }
    }

    /// The time of the next turn: `now` or later.
    fn take(&mut self, now: Duration) -> Duration {
        let catch_up = self.interval() * (self.burst - 1);
        let earliest = now.saturating_sub(catch_up);
        // A clock that has just started is smaller than the time of a burst: then there is less to catch up.
        let due = self.next.map_or(earliest, |next| next.max(earliest));
        self.next = Some(due + self.interval());
        due.max(now)
    }

    /// Returns the turn at `at`, which was not used.
    fn return_turn(&mut self, at: Duration) {
        if self.next == Some(at + self.interval()) {
            self.next = Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn secs(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn turns_are_an_interval_apart() {
        let mut turns = Turns::new(4, 1);
        let times: Vec<_> = (0..5).map(|_| turns.take(secs(7)).as_millis()).collect();
        assert_eq!(times, [7000, 7250, 7500, 7750, 8000]);
    }

    #[test]
    fn after_a_pause_only_a_burst_passes_at_once() {
        let mut turns = Turns::new(10, 3);
        turns.take(secs(1));
        let times: Vec<_> = (0..5).map(|_| turns.take(secs(60)).as_millis()).collect();
        assert_eq!(times, [60_000, 60_000, 60_000, 60_100, 60_200]);
    }

    #[test]
    fn a_returned_turn_is_the_next_one_unless_later_turns_were_taken() {
        let mut turns = Turns::new(1, 1);
        let (_now, second, third) = (turns.take(secs(5)), turns.take(secs(5)), turns.take(secs(5)));
        turns.return_turn(second);
        assert_eq!(turns.take(secs(5)), secs(8), "the third turn keeps its time");
        turns.return_turn(secs(8));
        assert_eq!(turns.take(secs(5)), secs(8));
        assert_eq!(third, secs(7));
    }

    #[test]
    fn zero_means_unlimited() {
        let mut turns = Turns::new(0, 1);
        assert!((0..1000).all(|_| turns.take(secs(3)) == secs(3)));
    }

    proptest! {
        #[test]
        fn no_window_of_time_has_more_turns_than_rate_and_burst_allow(
            per_second in 1..50u32,
            burst in 1..10u32,
            pauses in proptest::collection::vec(0..400u64, 1..200),
        ) {
            let (mut turns, mut now, mut times) = (Turns::new(per_second, burst), secs(3600), Vec::new());
            for pause in pauses {
                now += Duration::from_millis(pause);
                let at = turns.take(now);
                prop_assert!(at >= now);
                times.push(at);
                now = at;
            }
            prop_assert!(times.is_sorted());
            for (first, from) in times.iter().enumerate() {
                for (last, to) in times.iter().enumerate().skip(first) {
                    let allowed = (*to - *from).as_secs_f64() * f64::from(per_second) + f64::from(burst);
                    prop_assert!((last - first) as f64 <= allowed + 1e-6);
                }
            }
        }
    }
}
