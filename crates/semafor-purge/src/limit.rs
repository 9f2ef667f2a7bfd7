//! How many directories may be removed.
//!
//! The limit is exact: each removal needs an allowance, and returns it if nothing was removed. A thread that finds none
//! left while removals are in progress waits for their result. So never more directories than the limit are removed,
//! and not fewer if there are enough to remove.

use parking_lot::{Condvar, Mutex};

pub(crate) struct Limit {
    /// `None` means no limit.
    state: Option<Mutex<State>>,
    settled: Condvar,
}

struct State {
    left: u64,
    under_way: u64,
}

/// The right to remove one directory.
#[must_use = "dropping it returns it"]
pub(crate) struct Allowance<'a>(Option<&'a Limit>);

impl Limit {
    pub(crate) fn new(most: Option<u64>) -> Self {
        let state = most.map(|left| Mutex::new(State { left, under_way: 0 }));
        Self { state, settled: Condvar::new() }
    }

    /// An allowance, or `None` if the limit is reached.
    pub(crate) fn take(&self) -> Option<Allowance<'_>> {
        let Some(state) = &self.state else { return Some(Allowance(None)) };
        let mut state = state.lock();
        while state.left == 0 && state.under_way > 0 {
            self.settled.wait(&mut state);
        }
        state.left = state.left.checked_sub(1)?;
        state.under_way += 1;
        Some(Allowance(Some(self)))
    }

    fn settle(&self, returned: u64) {
        if let Some(state) = &self.state {
            let mut state = state.lock();
            state.under_way -= 1;
            state.left += returned;
            drop(state);
            self.settled.notify_all();
        }
    }
}

impl Allowance<'_> {
    /// Called when a directory was removed.
    pub(crate) fn used(mut self) {
        if let Some(limit) = self.0.take() {
            limit.settle(0);
        }
    }
}

impl Drop for Allowance<'_> {
    fn drop(&mut self) {
        if let Some(limit) = self.0.take() {
            limit.settle(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_allowance_is_returned() {
        let limit = Limit::new(Some(2));
        limit.take().expect("one of two").used();
        drop(limit.take().expect("two of two"));
        limit.take().expect("it was returned").used();
        assert!(limit.take().is_none());
    }

    #[test]
    fn last_allowance_is_waited_for() {
        let limit = Limit::new(Some(1));
        let place = limit.take().expect("there is one");
        std::thread::scope(|scope| {
            let other = scope.spawn(|| limit.take().map(Allowance::used).is_some());
            drop(place);
            assert!(other.join().expect("it does not panic"), "it gets the returned allowance");
        });
    }

    #[test]
    fn no_limit_is_never_reached() {
        let limit = Limit::new(None);
        for _ in 0..1000 {
            limit.take().expect("there is no limit").used();
        }
    }
}
