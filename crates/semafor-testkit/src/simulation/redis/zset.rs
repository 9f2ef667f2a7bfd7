//! A sorted set.

use std::cmp::Ordering;
use std::rc::Rc;

use hashbrown::HashMap;

/// Its clones share the members.
#[derive(Clone, Debug, Default)]
pub(in crate::simulation) struct SortedSet {
    scores: HashMap<Rc<[u8]>, f64>,
    /// In order of scores, then of members. Sets are small, so moving the rest of a vector is cheap.
    order: Vec<(f64, Rc<[u8]>)>,
}

impl SortedSet {
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(in crate::simulation) fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).copied()
    }

    /// Returns the former score.
    pub(super) fn insert(&mut self, member: &[u8], score: f64) -> Option<f64> {
        // Redis does not tell -0 from 0 in its order.
        let score = if score == 0.0 { 0.0 } else { score };
        let Some(known) = self.scores.get_mut(member) else {
            let member: Rc<[u8]> = member.into();
            self.scores.insert(Rc::clone(&member), score);
            let place = self.place(score, &member);
            self.order.insert(place, (score, member));
            return None;
        };
        let before = std::mem::replace(known, score);
        if before != score {
            let place = self.place(before, member);
            let (_, member) = self.order.remove(place);
            let place = self.place(score, &member);
            self.order.insert(place, (score, member));
        }
        Some(before)
    }

    pub(super) fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let score = self.scores.remove(member)?;
        let place = self.place(score, member);
        self.order.remove(place);
        Some(score)
    }

    /// Where a member with that score stands, or would stand.
    fn place(&self, score: f64, member: &[u8]) -> usize {
        self.order.partition_point(|(other, name)| {
            other.total_cmp(&score).then_with(|| (**name).cmp(member)) == Ordering::Less
        })
    }

    /// The members and their scores, in order.
    pub(in crate::simulation) fn entries(&self) -> &[(f64, Rc<[u8]>)] {
        &self.order
    }

    /// Those with a score from here on, in order; or above it.
    pub(in crate::simulation) fn from(&self, lowest: f64, is_included: bool) -> &[(f64, Rc<[u8]>)] {
        &self.order[self.order.partition_point(|(score, _)| is_before(*score, lowest, !is_included))..]
    }

    /// How many entries of a part come up to this score; or below it.
    pub(super) fn up_to(part: &[(f64, Rc<[u8]>)], highest: f64, is_included: bool) -> usize {
        part.partition_point(|(score, _)| is_before(*score, highest, is_included))
    }
}

fn is_before(score: f64, limit: f64, is_included: bool) -> bool {
    score < limit || is_included && score == limit
}
