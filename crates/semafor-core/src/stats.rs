use std::time::Duration;

use crate::Histogram;

/// Counts since the gate was created.
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
    /// Grants whose lease ended.
    pub expired: u64,
    /// Grants that were evicted.
    pub evicted: u64,
    /// Grants to a waiter that left before it claimed the slot, which then went to the next waiter.
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
    /// How many slots there are.
    pub slots: u32,
    /// How many slots are held; above `slots` only after a shrink, until enough slots are released.
    pub held: u32,
    /// How many permits hold them.
    pub holders: usize,
    /// How many waiters are in line.
    pub waiting: usize,
    /// How long the first in line has been waiting.
    pub longest_wait: Duration,
    /// Counts since the gate was created.
    pub totals: Totals,
    /// How long requests waited in line until their grant.
    pub waits: Histogram,
    /// How long slots were held.
    pub holds: Histogram,
}

impl Stats {
    /// How many more slots are held than there are, after a shrink. It only falls until the next shrink.
    pub fn debt(&self) -> u32 {
        self.held.saturating_sub(self.slots)
    }

    /// Utilisation in percent; above 100 only while there is debt.
    pub fn percent(&self) -> f64 {
        f64::from(self.held) * 100.0 / f64::from(self.slots)
    }
}
