//! Scales the number of slots by latency: more while items do not take longer, fewer once they do.
//!
//! Additive increase, multiplicative decrease, as in TCP. Latency is compared with the lowest latency of the last one
//! or two windows, because the normal latency changes over time. There is no clock: the time is an argument.

use std::time::Duration;

/// A round has at least so many items, so that a single slow item does not change the width.
const MIN_ROUND: u32 = 8;
/// The floor is the lowest latency of this window and the one before.
const WINDOW: Duration = Duration::from_secs(30);
/// After a round that took too long, the width is reduced to so many percent.
const DECREASE: u64 = 70;

pub(crate) struct LatencyScale {
    limit: u32,
    tolerance: f64,
    width: u32,
    /// The width doubles until the first round that took too long.
    is_starting: bool,
    floor: Floor,
    round: Round,
}

#[derive(Default)]
struct Round {
    items: u32,
    total: Duration,
}

/// The lowest mean latency of a round, in this window and in the one before.
struct Floor {
    this: Duration,
    last: Duration,
    since: Duration,
}

impl LatencyScale {
    pub(crate) fn new(limit: u32, tolerance: f64) -> Self {
        Self {
            limit,
            tolerance: tolerance.max(1.0),
            width: 1,
            is_starting: true,
            floor: Floor { this: Duration::MAX, last: Duration::MAX, since: Duration::ZERO },
            round: Round::default(),
        }
    }

    /// How many slots to use.
    pub(crate) fn width(&self) -> u32 {
        self.width
    }

    /// Records how long an item took.
    pub(crate) fn observe(&mut self, took: Duration, now: Duration) {
        self.round.items += 1;
        self.round.total = self.round.total.saturating_add(took);
        if self.round.items < self.width.max(MIN_ROUND) {
            return;
        }
        let Round { items, total } = std::mem::take(&mut self.round);
        let mean = total / items;
        let floor = self.floor.lowered_to(mean, now);
        if mean.as_secs_f64() > floor.as_secs_f64() * self.tolerance {
            self.is_starting = false;
            self.width = ((u64::from(self.width) * DECREASE / 100) as u32).max(1);
        } else {
            let more = if self.is_starting { self.width } else { 1 };
            self.width = self.width.saturating_add(more).min(self.limit);
        }
    }
}

impl Floor {
    fn lowered_to(&mut self, mean: Duration, now: Duration) -> Duration {
        if now.saturating_sub(self.since) >= WINDOW {
            (self.last, self.this, self.since) = (self.this, Duration::MAX, now);
        }
        self.this = self.this.min(mean);
        self.this.min(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs items that take `takes(width)` milliseconds, and returns the width after each round.
    fn widths(
        scale: &mut LatencyScale,
        clock: &mut Duration,
        rounds: u32,
        takes: impl Fn(u32) -> f64,
    ) -> Vec<u32> {
        let mut widths = Vec::new();
        for _ in 0..rounds {
            let (width, took) = (scale.width(), Duration::from_secs_f64(takes(scale.width()) / 1000.0));
            for _ in 0..width.max(MIN_ROUND) {
                *clock += took / width;
                scale.observe(took, *clock);
            }
            widths.push(scale.width());
        }
        widths
    }

    /// The latency of a server with so many cores: further requests only wait.
    fn cores(cores: u32) -> impl Fn(u32) -> f64 {
        move |width| 10.0 * f64::from(width).max(f64::from(cores)) / f64::from(cores)
    }

    #[test]
    fn it_doubles_up_to_the_limit_while_latency_stays_constant() {
        let (mut scale, mut clock) = (LatencyScale::new(100, 2.0), Duration::ZERO);
        assert_eq!(widths(&mut scale, &mut clock, 8, |_| 10.0), [2, 4, 8, 16, 32, 64, 100, 100]);
    }

    #[test]
    fn it_settles_near_the_number_the_server_can_process_at_once() {
        let (mut scale, mut clock) = (LatencyScale::new(1000, 2.0), Duration::ZERO);
        widths(&mut scale, &mut clock, 20, cores(16));
        for width in widths(&mut scale, &mut clock, 100, cores(16)) {
            assert!(
                (16..=34).contains(&width),
                "expected all cores busy and few requests waiting, width: {width}"
            );
        }
    }

    #[test]
    fn the_width_never_falls_below_one() {
        let (mut scale, mut clock) = (LatencyScale::new(8, 1.5), Duration::ZERO);
        widths(&mut scale, &mut clock, 3, |_| 1.0);
        assert_eq!(widths(&mut scale, &mut clock, 6, |_| 1000.0), [5, 3, 2, 1, 1, 1]);
    }

    #[test]
    fn the_floor_is_learned_again_when_everything_becomes_slower() {
        let (mut scale, mut clock) = (LatencyScale::new(64, 2.0), Duration::ZERO);
        widths(&mut scale, &mut clock, 10, |_| 1.0);
        assert_eq!(scale.width(), 64);
        // Everything becomes slower and stays so. Two windows later that is the floor.
        while clock < WINDOW * 3 {
            widths(&mut scale, &mut clock, 1, |_| 50.0);
        }
        widths(&mut scale, &mut clock, 70, |_| 50.0);
        assert_eq!(scale.width(), 64);
    }

    #[test]
    fn a_single_slow_item_does_not_change_the_width() {
        let (mut scale, ms) = (LatencyScale::new(8, 2.0), Duration::from_millis);
        for item in 0..800u64 {
            let took = if item % 50 == 49 { 8 } else { 2 };
            scale.observe(ms(took), ms(item * 2));
        }
        assert_eq!(scale.width(), 8);
    }
}
