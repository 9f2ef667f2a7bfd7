//! A set of slot numbers with fast access to the lowest.
//!
//! The first 64 numbers are bits of one word, because most semaphores have no more slots. The others are in a tree of
//! such words: a bit in the lowest level stands for a number; a bit in any other level means that the word below it is
//! not zero. So each operation reads one word per level, and there are at most six levels.

const BITS: usize = u64::BITS as usize;

#[derive(Default)]
pub(crate) struct FreeNumbers {
    low: u64,
    /// The numbers from 64 on, less 64.
    high: Tree,
}

#[derive(Default)]
struct Tree {
    root: u64,
    /// The levels under the root, from the top down. A level grows as words are needed.
    below: Vec<Vec<u64>>,
}

impl FreeNumbers {
    /// Takes the lowest number out of the set.
    #[inline(always)]
    pub(crate) fn pop_lowest(&mut self) -> Option<u32> {
        if self.low == 0 {
            return self.high.pop_lowest().map(|number| number + u64::BITS);
        }
        let lowest = self.low.trailing_zeros();
        self.low &= self.low - 1;
        Some(lowest)
    }

    #[inline(always)]
    pub(crate) fn insert(&mut self, number: u32) {
        match number.checked_sub(u64::BITS) {
            None => self.low |= 1 << number,
            Some(number) => self.high.insert(number),
        }
    }

    /// Removes a number if it is in the set.
    pub(crate) fn remove(&mut self, number: u32) {
        match number.checked_sub(u64::BITS) {
            None => self.low &= !(1 << number),
            Some(number) => self.high.remove(number),
        }
    }

    /// Removes all numbers from `end` on.
    pub(crate) fn truncate(&mut self, end: u32) {
        let lowest_first = std::iter::from_fn(|| self.pop_lowest());
        let kept: Vec<u32> = lowest_first.take_while(|number| *number < end).collect();
        *self = Self::default();
        kept.into_iter().for_each(|number| self.insert(number));
    }
}

impl Tree {
    #[inline(never)]
    fn pop_lowest(&mut self) -> Option<u32> {
        if self.root == 0 {
            return None;
        }
        let mut lowest = self.root.trailing_zeros();
        for level in &self.below {
            lowest = lowest * u64::BITS + level[lowest as usize].trailing_zeros();
        }
        self.remove(lowest);
        Some(lowest)
    }

    #[inline(never)]
    fn insert(&mut self, number: u32) {
        while u64::from(number) >> (BITS.trailing_zeros() as usize * (self.below.len() + 1)) != 0 {
            self.below.insert(0, vec![self.root]);
            self.root = u64::from(self.root != 0);
        }
        let mut at = number as usize;
        for level in self.below.iter_mut().rev() {
            let (word, bit) = (at / BITS, 1 << (at % BITS));
            if level.len() <= word {
                level.resize(word + 1, 0);
            }
            let before = level[word];
            level[word] = before | bit;
            if before != 0 {
                return;
            }
            at = word;
        }
        self.root |= 1 << at;
    }

    fn remove(&mut self, number: u32) {
        let mut at = number as usize;
        for level in self.below.iter_mut().rev() {
            let Some(word) = level.get_mut(at / BITS) else { return };
            *word &= !(1 << (at % BITS));
            if *word != 0 {
                return;
            }
            at /= BITS;
        }
        if at < BITS {
            self.root &= !(1 << at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Insert(u32),
        Remove(u32),
        PopLowest,
        Truncate(u32),
    }

    fn number() -> impl Strategy<Value = u32> {
        prop_oneof![0..4u32, 60..70u32, 4_090..4_100u32, 262_140..262_150u32, Just(u32::MAX / 1_000)]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => number().prop_map(Step::Insert),
            2 => number().prop_map(Step::Remove),
            3 => Just(Step::PopLowest),
            1 => number().prop_map(Step::Truncate),
        ]
    }

    proptest! {
        #[test]
        fn behaves_like_a_sorted_set(steps in prop::collection::vec(step(), 0..60)) {
            let (mut numbers, mut model) = (FreeNumbers::default(), BTreeSet::new());
            for step in steps {
                match step {
                    Step::Insert(number) => {
                        numbers.insert(number);
                        model.insert(number);
                    }
                    Step::Remove(number) => {
                        numbers.remove(number);
                        model.remove(&number);
                    }
                    Step::PopLowest => prop_assert_eq!(numbers.pop_lowest(), model.pop_first()),
                    Step::Truncate(end) => {
                        numbers.truncate(end);
                        model.split_off(&end);
                    }
                }
            }
            let left: Vec<_> = std::iter::from_fn(|| numbers.pop_lowest()).collect();
            prop_assert!(left.into_iter().eq(model));
        }
    }
}
