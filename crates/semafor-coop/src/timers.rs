//! Timers. Setting and unsetting allocate nothing once there has been room for as many.
//!
//! A heap by time that keeps entries of timers that were unset for a while. The first entry always belongs to a timer
//! that is set, and the heap has at most 64 entries more than twice the timers that are set.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use semafor_core::Timestamp;

use crate::semaphore::SemaphoreCell;
use crate::tasks::TaskKey;

pub(crate) enum Timer {
    Wake(TaskKey),
    /// The timeout of a waiter ends.
    Expire(Rc<SemaphoreCell>),
}

/// When a timer fires, and its order among timers of the same time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct TimerKey {
    pub(crate) at: Timestamp,
    pub(crate) number: u64,
    slot: u32,
}

pub(crate) struct Timers<T = Timer> {
    heap: BinaryHeap<Reverse<TimerKey>>,
    /// By slot, each with the number of its timer.
    slots: Vec<Option<(u64, T)>>,
    free: Vec<u32>,
    numbers: u64,
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), slots: Vec::new(), free: Vec::new(), numbers: 0 }
    }
}

impl<T> Timers<T> {
    pub(crate) fn set(&mut self, at: Timestamp, timer: T) -> TimerKey {
        let number = self.numbers;
        self.numbers += 1;
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                self.slots.len() as u32 - 1
            }
        };
        self.slots[slot as usize] = Some((number, timer));
        let key = TimerKey { at, number, slot };
        self.heap.push(Reverse(key));
        key
    }

    /// Unsets a timer and returns it, if it is still set.
    pub(crate) fn take(&mut self, key: TimerKey) -> Option<T> {
        let slot = self.slots.get_mut(key.slot as usize)?;
        let (_, timer) = slot.take_if(|(number, _)| *number == key.number)?;
        self.free.push(key.slot);
        self.remove_unset_entries();
        Some(timer)
    }

    /// The timer that fires next.
    #[inline]
    pub(crate) fn first(&self) -> Option<TimerKey> {
        self.heap.peek().map(|first| first.0)
    }

    /// The timers that are due, in order.
    pub(crate) fn due(&self, now: Timestamp) -> Vec<TimerKey> {
        if self.first().is_none_or(|first| first.at > now) {
            return Vec::new();
        }
        let keys = self.heap.iter().map(|entry| entry.0);
        let mut due: Vec<_> = keys.filter(|key| key.at <= now && is_set(&self.slots, *key)).collect();
        due.sort_unstable();
        due
    }

    pub(crate) fn clear(&mut self) {
        self.heap.clear();
        self.slots.clear();
        self.free.clear();
        self.numbers = 0;
    }

    fn remove_unset_entries(&mut self) {
        const SLACK: usize = 64;
        while self.first().is_some_and(|first| !is_set(&self.slots, first)) {
            self.heap.pop();
        }
        let set = self.slots.len() - self.free.len();
        if self.heap.len() > 2 * set + SLACK {
            let slots = &self.slots;
            self.heap.retain(|entry| is_set(slots, entry.0));
        }
    }
}

fn is_set<T>(slots: &[Option<(u64, T)>], key: TimerKey) -> bool {
    slots[key.slot as usize].as_ref().is_some_and(|(number, _)| *number == key.number)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_behave_like_a_sorted_map(steps in proptest::collection::vec((0..20u64, 0..4u8), 0..400)) {
            let mut timers = Timers::default();
            let mut model = BTreeMap::new();
            for (number, step) in steps {
                let at = Timestamp::from_nanos(number);
                if step < 2 {
                    let key = timers.set(at, number);
                    model.insert(key, number);
                } else {
                    let nth = number as usize % model.len().max(1);
                    let key = model.keys().nth(if step == 2 { 0 } else { nth }).copied();
                    let Some(key) = key else { continue };
                    prop_assert_eq!(timers.take(key), model.remove(&key));
                    prop_assert_eq!(timers.take(key), None);
                }
                prop_assert_eq!(timers.first(), model.keys().next().copied());
                let due: Vec<_> = model.keys().copied().filter(|key| key.at <= at).collect();
                prop_assert_eq!(timers.due(at), due);
                prop_assert!(timers.heap.len() <= 2 * model.len() + 65);
            }
        }
    }
}
