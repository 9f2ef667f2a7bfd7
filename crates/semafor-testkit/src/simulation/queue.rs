//! What is planned, in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Time;

/// Things that happen at the same time happen in the order in which they were planned.
pub(super) struct Queue<T> {
    /// When, in which order, and where it is. The things themselves are large, and stay where they are.
    order: BinaryHeap<Reverse<(Time, u64, usize)>>,
    planned: u64,
    things: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        Self { order: BinaryHeap::new(), planned: 0, things: Vec::new(), free: Vec::new() }
    }

    pub(super) fn push(&mut self, at: Time, thing: T) {
        self.planned += 1;
        let place = self.free.pop().unwrap_or(self.things.len());
        if place == self.things.len() {
            self.things.push(None);
        }
        self.things[place] = Some(thing);
        self.order.push(Reverse((at, self.planned, place)));
    }

    pub(super) fn pop(&mut self) -> Option<(Time, T)> {
        let Reverse((at, _, place)) = self.order.pop()?;
        self.free.push(place);
        Some((at, self.things[place].take()?))
    }
}
