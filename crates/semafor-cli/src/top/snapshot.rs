//! The data of the home that is shown.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use semafor::{Histogram, HolderInfo, Stats, Totals, WaiterInfo};

use crate::plain::plain;

/// An answer of the home.
#[derive(Default)]
pub(super) struct Snapshot {
    /// All semaphores, or the one whose detail is shown.
    pub(super) names: Vec<SemaphoreRow>,
    /// Its holders and waiters, if a detail is shown.
    pub(super) participants: Option<Participants>,
}

/// The numbers of one semaphore.
#[derive(Clone, Default)]
pub(super) struct SemaphoreRow {
    /// As the home has it. Must be made safe before it is shown.
    pub(super) name: Arc<str>,
    pub(super) held: u32,
    pub(super) slots: u32,
    pub(super) waiting: usize,
    pub(super) longest_wait: Duration,
    pub(super) waits: Option<Percentiles>,
    pub(super) holds: Option<Percentiles>,
    pub(super) totals: Totals,
    /// The home can't read its numbers, because its key has another type.
    pub(super) is_broken: bool,
    /// Unknown after the first snapshot.
    pub(super) grants_per_second: Option<f64>,
}

/// Percentiles of wait or hold times.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Percentiles {
    pub(super) p50: Duration,
    pub(super) p99: Duration,
}

/// The holders and waiters of a semaphore.
#[derive(Clone, Default)]
pub(super) struct Participants {
    pub(super) holders: Vec<Participant>,
    pub(super) waiters: Vec<Participant>,
}

/// A holder or waiter. All its text is safe to show.
#[derive(Clone, Default)]
pub(super) struct Participant {
    /// The slot of a holder, or the place in line of a waiter.
    pub(super) number: Option<u64>,
    /// How long it has held its slot, or waited.
    pub(super) since: Duration,
    pub(super) expires_in: Option<Duration>,
    pub(super) weight: u32,
    pub(super) host: String,
    pub(super) pid: Option<u32>,
    pub(super) label: String,
    pub(super) command: String,
    /// Empty for a waiter.
    pub(super) id: String,
}

impl SemaphoreRow {
    pub(super) fn percent(&self) -> f64 {
        if self.slots == 0 { 0.0 } else { f64::from(self.held) * 100.0 / f64::from(self.slots) }
    }
}

impl From<&Stats> for SemaphoreRow {
    fn from(stats: &Stats) -> Self {
        Self {
            name: Arc::clone(&stats.name),
            held: stats.held,
            slots: stats.slots,
            waiting: stats.waiting,
            longest_wait: stats.longest_wait,
            waits: Percentiles::of(&stats.waits),
            holds: Percentiles::of(&stats.holds),
            totals: stats.totals,
            is_broken: stats.error.is_some(),
            grants_per_second: None,
        }
    }
}

impl Percentiles {
    fn of(times: &Histogram) -> Option<Self> {
        (times.count() > 0).then(|| Self { p50: times.quantile(0.5), p99: times.quantile(0.99) })
    }
}

impl From<&HolderInfo> for Participant {
    fn from(holder: &HolderInfo) -> Self {
        Self {
            number: holder.slot.map(u64::from),
            since: holder.held_for,
            expires_in: holder.expires_in,
            weight: holder.weight,
            host: shown(&holder.host),
            pid: holder.pid,
            label: shown(&holder.label),
            command: shown(&holder.command),
            id: plain(&holder.id.to_string()).into_owned(),
        }
    }
}

impl From<&WaiterInfo> for Participant {
    fn from(waiter: &WaiterInfo) -> Self {
        Self {
            number: Some(waiter.ahead as u64 + 1),
            since: waiter.waited_for,
            expires_in: None,
            weight: waiter.weight,
            host: shown(&waiter.host),
            pid: waiter.pid,
            label: shown(&waiter.label),
            command: shown(&waiter.command),
            id: String::new(),
        }
    }
}

fn shown(text: &Option<Arc<str>>) -> String {
    text.as_deref().map(plain).unwrap_or_default().into_owned()
}

/// The time and the number of grants at the last snapshot of each name.
#[derive(Default)]
pub(super) struct Grants(HashMap<Arc<str>, (Instant, u64)>);

impl Grants {
    /// Sets the grants per second since the previous snapshot.
    pub(super) fn compare(&mut self, snapshot: &mut Snapshot, now: Instant) {
        if snapshot.participants.is_none() {
            self.0.retain(|name, _| snapshot.names.iter().any(|seen| seen.name == *name));
        }
        for seen in &mut snapshot.names {
            let granted = seen.totals.granted;
            let before = self.0.insert(Arc::clone(&seen.name), (now, granted));
            seen.grants_per_second = before.and_then(|(then, before)| {
                let seconds = now.saturating_duration_since(then).as_secs_f64();
                // A name that was not in use meanwhile counts from zero again.
                let grants = granted.checked_sub(before)?;
                (seconds > 0.0).then(|| grants as f64 / seconds)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(name: &str, granted: u64) -> Snapshot {
        let mut totals = Totals::default();
        totals.granted = granted;
        Snapshot {
            names: vec![SemaphoreRow { name: name.into(), totals, ..SemaphoreRow::default() }],
            participants: None,
        }
    }

    #[test]
    fn grant_rate_is_computed_between_snapshots() {
        let (mut grants, start) = (Grants::default(), Instant::now());
        let mut rate = |name, granted, seconds| {
            let mut snapshot = snapshot(name, granted);
            grants.compare(&mut snapshot, start + Duration::from_secs(seconds));
            snapshot.names[0].grants_per_second
        };
        assert_eq!(rate("images", 100, 0), None, "there is no earlier snapshot");
        assert_eq!(rate("images", 110, 2), Some(5.0));
        assert_eq!(rate("images", 110, 3), Some(0.0));
        assert_eq!(rate("images", 3, 4), None, "it counts from zero again");
        assert_eq!(rate("other", 9, 5), None);
        assert_eq!(rate("images", 5, 6), None, "names no longer in use are forgotten");
    }

    #[test]
    fn zero_slots_are_zero_percent() {
        assert_eq!(SemaphoreRow::default().percent(), 0.0);
    }
}
