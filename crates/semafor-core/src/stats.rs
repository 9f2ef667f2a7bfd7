use std::time::Duration;

use crate::Histogram;

/// Counts since the gate was made.
///
/// Every grant ends exactly once, so at any time
/// `granted = released + expired + evicted + handed_on + (held now)`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Totals {
    /// Grants, at once or after a wait.
    pub granted: u64,
    /// Grants ended by their holder.
    pub released: u64,
    /// Requests that had to wait.
    pub queued: u64,
    /// Grants ended by their time to live.
    pub expired: u64,
    /// Grants taken away.
    pub evicted: u64,
    /// Grants to a waiter that had left before it looked; the slot went to the next in line.
    pub handed_on: u64,
    /// Waiters that timed out.
    pub timed_out: u64,
    /// Waiters that left the line.
    pub cancelled: u64,
    /// Requests refused: busy, impossible, line full, closed. Waiters turned away by a close or a shrink count too.
    pub refused: u64,
}

/// A snapshot of a gate.
#[derive(Clone, Default, PartialEq, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// How much weight may be held.
    pub slots: u32,
    /// How much weight is held; above `slots` only while a shrink is being worked off.
    pub held: u32,
    /// How many permits hold it.
    pub holders: usize,
    /// How many stand in line.
    pub waiting: usize,
    /// How long the first in line has been waiting.
    pub longest_wait: Duration,
    /// Counts since the gate was made.
    pub totals: Totals,
    /// How long those who had to wait waited for their grant.
    pub waits: Histogram,
    /// How long slots were held.
    pub holds: Histogram,
}

impl Stats {
    /// Weight held beyond the slots, after a shrink. It only ever falls until the next shrink.
    pub fn debt(&self) -> u32 {
        self.held.saturating_sub(self.slots)
    }

    /// Utilisation in percent; above 100 only while there is debt.
    pub fn percent(&self) -> f64 {
        f64::from(self.held) * 100.0 / f64::from(self.slots)
    }
}
