//! A list that mostly has one entry, which needs no memory of its own then.

pub(crate) struct Few<T> {
    first: Option<T>,
    /// Never empty.
    #[allow(clippy::box_collection, reason = "rarely there, and there are two such lists in every task")]
    more: Option<Box<Vec<T>>>,
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
            self.more.get_or_insert_default().push(entry);
        }
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
        let more = self.more.as_mut()?;
        let taken = match more.iter().rposition(&is_meant) {
            Some(place) => more.remove(place),
            None => {
                let first = self.first.take_if(|first| is_meant(first))?;
                self.first = Some(more.remove(0));
                first
            }
        };
        if more.is_empty() {
            self.more = None;
        }
        Some(taken)
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
}
