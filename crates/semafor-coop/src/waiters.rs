//! The waiters of a value that is not settled yet, in order of arrival.
//!
//! Entries are numbered, and stay in order of their numbers. So a waiter that leaves is found by a binary search. Its
//! entry is cleared, and cleared entries are removed once they are more than half of the list. Leaving takes O(log n),
//! and on average moves one other entry.

use std::rc::Rc;

use smallvec::SmallVec;

use crate::Priority;
use crate::eventual::Group;
use crate::tasks::TaskKey;
use crate::visits;

pub(crate) enum Waiter {
    /// With the priority it resumes with, if not its own.
    Task(TaskKey, Option<Priority>),
    /// A gather or race, and the index of the member in it.
    Member(Rc<Group>, usize),
}

impl Waiter {
    pub(crate) fn task(&self) -> TaskKey {
        match self {
            Self::Task(task, _) => *task,
            Self::Member(group, _) => group.task,
        }
    }
}

/// The number of an entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct EntryNumber(u64);

struct Entry {
    place: EntryNumber,
    /// `None` if the waiter has left.
    waiter: Option<Waiter>,
}

#[derive(Default)]
pub(crate) struct Waiters {
    entries: SmallVec<[Entry; 1]>,
    next: EntryNumber,
    /// How many of the entries are cleared.
    cleared: usize,
}

impl Waiters {
    pub(crate) fn push(&mut self, waiter: Waiter) -> EntryNumber {
        let place = self.next;
        self.next.0 += 1;
        self.entries.push(Entry { place, waiter: Some(waiter) });
        place
    }

    /// Takes a waiter out. `None` if it has left already.
    pub(crate) fn remove(&mut self, place: EntryNumber) -> Option<Waiter> {
        let search = |entry: &Entry| {
            visits::count(1);
            entry.place.cmp(&place)
        };
        let found = self.entries.binary_search_by(search).ok()?;
        let waiter = self.entries[found].waiter.take()?;
        self.cleared += 1;
        if 2 * self.cleared > self.entries.len() {
            visits::count(self.entries.len());
            self.entries.retain(|entry| entry.waiter.is_some());
            self.cleared = 0;
        }
        Some(waiter)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.len() == self.cleared
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiter> {
        self.entries.iter().filter_map(|entry| entry.waiter.as_ref())
    }

    pub(crate) fn into_waiters(self) -> impl Iterator<Item = Waiter> {
        self.entries.into_iter().filter_map(|entry| entry.waiter)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers(waiters: &Waiters) -> Vec<Option<Priority>> {
        let priority = |waiter: &Waiter| match waiter {
            Waiter::Task(_, priority) => *priority,
            Waiter::Member(..) => None,
        };
        waiters.iter().map(priority).collect()
    }

    proptest! {
        #[test]
        fn they_behave_like_a_list(steps in proptest::collection::vec((0..4u8, any::<usize>()), 0..200)) {
            let mut waiters = Waiters::default();
            let mut model = Vec::new();
            for (step, number) in steps {
                if step < 2 {
                    let priority = [None, Some(Priority::Idle), Some(Priority::High)][number % 3];
                    model.push((waiters.push(Waiter::Task(TaskKey::NONE, priority)), priority));
                } else if !model.is_empty() {
                    let (place, _) = model.remove(number % model.len());
                    prop_assert!(waiters.remove(place).is_some());
                    prop_assert!(waiters.remove(place).is_none());
                }
                let expected: Vec<_> = model.iter().map(|(_, priority)| *priority).collect();
                prop_assert_eq!(numbers(&waiters), expected);
                prop_assert_eq!(waiters.is_empty(), model.is_empty());
                prop_assert!(waiters.entries.len() <= 2 * model.len() + 1);
            }
            prop_assert_eq!(waiters.into_waiters().count(), model.len());
        }
    }
}
