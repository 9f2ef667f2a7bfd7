//! The clock of a test: a script's time is the value of the key `clock`. So no test sleeps, and deadlines are exact to
//! the tick. A tick is 1/64 s, which is exact as a float, in six decimals and in nanoseconds.

use std::time::Duration;

use semafor_core::Timestamp;

/// Replaces `lua/clock.lua` in the scripts.
pub(super) const CLOCK: &str =
    "local SECONDS, MICROS = string.match(redis.call('GET', 'clock'), '^(%d+)%.(%d+)$')";

pub(super) const TICKS_PER_SECOND: u64 = 64;
pub(super) const NANOS_PER_TICK: u64 = 1_000_000_000 / TICKS_PER_SECOND;
pub(super) const START: u64 = 1_700_000_000 * TICKS_PER_SECOND;
/// The time for a waiter to confirm its grant: `GRACE` of the prelude.
pub(super) const GRACE: u64 = 10 * TICKS_PER_SECOND;
/// A heartbeat that never comes due.
pub(super) const FOREVER: u64 = 1_000_000 * TICKS_PER_SECOND;

pub(super) fn seconds(ticks: u64) -> String {
    (ticks as f64 / TICKS_PER_SECOND as f64).to_string()
}

pub(super) fn ticks(seconds: f64) -> u64 {
    let ticks = seconds * TICKS_PER_SECOND as f64;
    assert_eq!(ticks.fract(), 0.0, "{seconds} s is on no tick");
    ticks as u64
}

pub(super) fn time(ticks: u64) -> Timestamp {
    Timestamp::from_nanos(ticks * NANOS_PER_TICK)
}

pub(super) fn span(ticks: u64) -> Duration {
    Duration::from_nanos(ticks * NANOS_PER_TICK)
}
