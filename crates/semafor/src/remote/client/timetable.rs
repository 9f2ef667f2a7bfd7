use std::collections::BTreeSet;
use std::hash::Hash;

use super::HashMap;
use crate::remote::clock::Instant;

/// When each entry is due. An entry has at most one time.
#[derive(Debug)]
pub(crate) struct Timetable<D> {
    order: BTreeSet<(Instant, D)>,
    times: HashMap<D, Instant>,
}

impl<D> Default for Timetable<D> {
    fn default() -> Self {
        Self { order: BTreeSet::new(), times: HashMap::default() }
    }
}

impl<D: Clone + Ord + Hash> Timetable<D> {
    /// Makes `what` due at `when`, instead of its former time.
    pub(crate) fn set(&mut self, what: D, when: Option<Instant>) {
        if self.times.get(&what).copied() == when {
            return;
        }
        let before = match when {
            Some(when) => self.times.insert(what.clone(), when),
            None => self.times.remove(&what),
        };
        if let Some(before) = before {
            self.order.remove(&(before, what.clone()));
        }
        if let Some(when) = when {
            self.order.insert((when, what));
        }
    }

    pub(crate) fn time_of(&self, what: &D) -> Option<Instant> {
        self.times.get(what).copied()
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.order.first().map(|(when, _)| *when)
    }

    /// Takes out the earliest entry that is due.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<D> {
        let (when, _) = self.order.first()?;
        if *when > now {
            return None;
        }
        let (_, what) = self.order.pop_first()?;
        self.times.remove(&what);
        Some(what)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &D> {
        self.times.keys()
    }
}
