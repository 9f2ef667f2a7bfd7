//! A sorted set.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    score: f64,
    member: Vec<u8>,
}

impl Eq for Entry {}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then_with(|| self.member.cmp(&other.member))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SortedSet {
    scores: HashMap<Vec<u8>, f64>,
    order: BTreeSet<Entry>,
}

impl SortedSet {
    pub(super) fn len(&self) -> usize {
        self.scores.len()
    }

    pub(super) fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).copied()
    }

    /// Returns the former score.
    pub(super) fn insert(&mut self, member: &[u8], score: f64) -> Option<f64> {
        // Redis does not tell -0 from 0 in its order.
        let score = if score == 0.0 { 0.0 } else { score };
        let before = self.remove(member);
        self.scores.insert(member.to_vec(), score);
        self.order.insert(Entry { score, member: member.to_vec() });
        before
    }

    pub(super) fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let score = self.scores.remove(member)?;
        self.order.remove(&Entry { score, member: member.to_vec() });
        Some(score)
    }

    /// In order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], f64)> {
        self.order.iter().map(|entry| (&*entry.member, entry.score))
    }

    /// Those with a score from here on, in order.
    pub(super) fn at_least(&self, lowest: f64) -> impl Iterator<Item = (&[u8], f64)> {
        let start = Entry { score: if lowest == 0.0 { 0.0 } else { lowest }, member: Vec::new() };
        let entries = self.order.range((Bound::Included(start), Bound::Unbounded));
        entries.map(|entry| (&*entry.member, entry.score))
    }
}
