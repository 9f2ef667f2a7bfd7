//! A list that allocates only for more than one entry.

use std::collections::VecDeque;

use crate::visits;

pub(crate) struct SmallList<T> {
    first: Option<T>,
    /// Never empty.
    #[allow(clippy::box_collection, reason = "rarely there, and there are two such lists in every task")]
    more: Option<Box<VecDeque<T>>>,
}

impl<T> Default for SmallList<T> {
    fn default() -> Self {
        Self { first: None, more: None }
    }
}

impl<T> SmallList<T> {
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

    /// Takes out the last entry that matches.
    #[inline(always)]
    pub(crate) fn take_last(&mut self, is_match: impl Fn(&T) -> bool) -> Option<T> {
        if self.more.is_some() {
            return self.take_last_slow(is_match);
        }
        if is_match(self.first.as_ref()?) { self.first.take() } else { None }
    }

    #[inline(never)]
    fn take_last_slow(&mut self, is_match: impl Fn(&T) -> bool) -> Option<T> {
        let is_match = counted(is_match);
        match self.more.as_ref()?.iter().rposition(&is_match) {
            Some(place) => self.take_more_at(place),
            None if self.first.as_ref().is_some_and(&is_match) => self.take_first_entry(),
            None => None,
        }
    }

    /// Takes out the first entry that matches. Fast if that is one of the oldest.
    pub(crate) fn take_first(&mut self, is_match: impl Fn(&T) -> bool) -> Option<T> {
        let is_match = counted(is_match);
        if self.first.as_ref().is_some_and(&is_match) {
            return self.take_first_entry();
        }
        let place = self.more.as_ref()?.iter().position(&is_match)?;
        self.take_more_at(place)
    }

    fn take_first_entry(&mut self) -> Option<T> {
        let next = if self.more.is_some() { self.take_more_at(0) } else { None };
        std::mem::replace(&mut self.first, next)
    }

    fn take_more_at(&mut self, place: usize) -> Option<T> {
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

fn counted<T>(is_match: impl Fn(&T) -> bool) -> impl Fn(&T) -> bool {
    move |entry| {
        visits::count(1);
        is_match(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take_last_takes_the_last_match_and_keeps_the_order() {
        let mut list = SmallList::default();
        for entry in [1, 2, 3, 4, 5] {
            list.push(entry);
        }
        assert_eq!(list.take_last(|entry| entry % 2 == 0), Some(4));
        assert_eq!(list.take_last(|entry| *entry == 1), Some(1));
        assert_eq!(list.take_last(|entry| *entry == 9), None);
        assert_eq!(list.iter().copied().collect::<Vec<_>>(), [2, 3, 5]);
        for expected in [5, 3, 2] {
            assert_eq!(list.take_last(|_| true), Some(expected));
        }
        assert!(list.is_empty() && list.take_last(|_| true).is_none());
    }

    #[test]
    fn take_first_takes_the_first_match_and_keeps_the_order() {
        let mut list = SmallList::default();
        for entry in [1, 2, 3, 4, 5] {
            list.push(entry);
        }
        assert_eq!(list.take_first(|entry| entry % 2 == 0), Some(2));
        assert_eq!(list.take_first(|entry| *entry == 9), None);
        for expected in [1, 3, 4, 5] {
            assert_eq!(list.take_first(|_| true), Some(expected));
        }
        assert!(list.is_empty() && list.take_first(|_| true).is_none());
    }
}
