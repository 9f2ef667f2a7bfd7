//! A list that mostly has one entry, which needs no memory of its own then.

use std::collections::VecDeque;

use crate::effort;

pub(crate) struct Few<T> {
    first: Option<T>,
    /// Never empty.
    #[allow(clippy::box_collection, reason = "rarely there, and there are two such lists in every task")]
    more: Option<Box<VecDeque<T>>>,
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self { first: None, more: None }
    }
}

impl<T> Few<T> {
    #[inline(always)]
    pub(crate) fn push(&mut self, entry: T) {
        if self.first.is_none() {
            self.first = Some(entry);
        } else {
            self.push_more(entry);
        }
    }

    #[inline(never)]
    fn push_more(&mut self, entry: T) {
        self.more.get_or_insert_default().push_back(entry);
    }

    /// Takes out the last entry that is meant.
    #[inline(always)]
    pub(crate) fn take_last(&mut self, is_meant: impl Fn(&T) -> bool) -> Option<T> {
        if self.more.is_some() {
            return self.take_last_of_several(is_meant);
        }
        if is_meant(self.first.as_ref()?) { self.first.take() } else { None }
    }

    #[inline(never)]
    fn take_last_of_several(&mut self, is_meant: impl Fn(&T) -> bool) -> Option<T> {
        let is_meant = counted(is_meant);
        match self.more.as_ref()?.iter().rposition(&is_meant) {
            Some(place) => self.take_of_more(place),
            None if self.first.as_ref().is_some_and(&is_meant) => self.take_first_entry(),
            None => None,
        }
    }

    /// Takes out the first entry that is meant. Quick if that is one of the oldest.
    pub(crate) fn take_first(&mut self, is_meant: impl Fn(&T) -> bool) -> Option<T> {
        let is_meant = counted(is_meant);
        if self.first.as_ref().is_some_and(&is_meant) {
            return self.take_first_entry();
        }
        let place = self.more.as_ref()?.iter().position(&is_meant)?;
        self.take_of_more(place)
    }

    fn take_first_entry(&mut self) -> Option<T> {
        let next = if self.more.is_some() { self.take_of_more(0) } else { None };
        std::mem::replace(&mut self.first, next)
    }

    fn take_of_more(&mut self, place: usize) -> Option<T> {
        let more = self.more.as_mut()?;
        let taken = more.remove(place);
        if more.is_empty() {
            self.more = None;
        }
        taken
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn first(&self) -> Option<&T> {
        self.first.as_ref()
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(self.more.iter().flat_map(|more| more.iter()))
    }
}

fn counted<T>(is_meant: impl Fn(&T) -> bool) -> impl Fn(&T) -> bool {
    move |entry| {
        effort::count(1);
        is_meant(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_that_is_meant_is_taken_and_the_order_stays() {
        let mut few = Few::default();
        for entry in [1, 2, 3, 4, 5] {
            few.push(entry);
        }
        assert_eq!(few.take_last(|entry| entry % 2 == 0), Some(4));
        assert_eq!(few.take_last(|entry| *entry == 1), Some(1));
        assert_eq!(few.take_last(|entry| *entry == 9), None);
        assert_eq!(few.iter().copied().collect::<Vec<_>>(), [2, 3, 5]);
        for expected in [5, 3, 2] {
            assert_eq!(few.take_last(|_| true), Some(expected));
        }
        assert!(few.is_empty() && few.take_last(|_| true).is_none());
    }

    #[test]
    fn the_first_that_is_meant_is_taken_and_the_order_stays() {
        let mut few = Few::default();
        for entry in [1, 2, 3, 4, 5] {
            few.push(entry);
        }
        assert_eq!(few.take_first(|entry| entry % 2 == 0), Some(2));
        assert_eq!(few.take_first(|entry| *entry == 9), None);
        for expected in [1, 3, 4, 5] {
            assert_eq!(few.take_first(|_| true), Some(expected));
        }
        assert!(few.is_empty() && few.take_first(|_| true).is_none());
    }
}
