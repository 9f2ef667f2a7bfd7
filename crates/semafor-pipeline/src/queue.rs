//! The queue of items that wait to begin: first in, first out, or the highest rank first.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

/// [`Flow`](crate::flow::Flow) keeps it bounded: it asks the producer for an item only when there is room for it.
pub(crate) enum Queue<T> {
    Fifo(VecDeque<T>),
    Ranked { heap: BinaryHeap<Ranked<T>>, pushed: u64 },
}

impl<T> Queue<T> {
    pub(crate) fn fifo() -> Self {
        Self::Fifo(VecDeque::new())
    }

    pub(crate) fn ranked() -> Self {
        Self::Ranked { heap: BinaryHeap::new(), pushed: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Fifo(items) => items.len(),
            Self::Ranked { heap, .. } => heap.len(),
        }
    }

    /// The rank is a parameter because user code computes it, which must not run under a lock.
    pub(crate) fn push(&mut self, item: T, rank: i64) {
        match self {
            Self::Fifo(items) => items.push_back(item),
            Self::Ranked { heap, pushed } => {
                heap.push(Ranked { place: (rank, Reverse(*pushed)), item });
                *pushed += 1;
            }
        }
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        match self {
            Self::Fifo(items) => items.pop_front(),
            Self::Ranked { heap, .. } => heap.pop().map(|ranked| ranked.item),
        }
    }
}

/// Items of equal rank are first in, first out.
pub(crate) struct Ranked<T> {
    place: (i64, Reverse<u64>),
    item: T,
}

impl<T> Ord for Ranked<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place.cmp(&other.place)
    }
}

impl<T> PartialOrd for Ranked<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Ranked<T> {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
    }
}

impl<T> Eq for Ranked<T> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drained(mut queue: Queue<usize>, ranks: &[i64]) -> Vec<usize> {
        for (item, rank) in ranks.iter().enumerate() {
            queue.push(item, *rank);
        }
        assert_eq!(queue.len(), ranks.len());
        std::iter::from_fn(|| queue.pop()).collect()
    }

    proptest! {
        #[test]
        fn ranked_is_a_stable_sort_and_fifo_ignores_ranks(
            ranks in proptest::collection::vec(-3..3i64, 0..50)
        ) {
            let mut sorted = Vec::from_iter(0..ranks.len());
            prop_assert_eq!(&drained(Queue::fifo(), &ranks), &sorted);
            sorted.sort_by_key(|item| Reverse(ranks[*item]));
            prop_assert_eq!(drained(Queue::ranked(), &ranks), sorted);
        }
    }
}
