//! The numbers of external promises that other threads settled. The only part of a run that threads share.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering};

#[derive(Default)]
pub(crate) struct Inbox {
    /// Numbers of promises that were settled, or whose last handle was dropped.
    promises: Mutex<VecDeque<u64>>,
    pushed: Condvar,
    has_any: AtomicBool,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, VecDeque<u64>> {
        // No operation under the lock can leave the queue inconsistent, so a poisoned lock is fine.
        self.promises.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, promise: u64) {
        self.lock().push_back(promise);
        self.has_any.store(true, Ordering::Release);
        self.pushed.notify_one();
    }

    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Acquire)
    }

    /// The next number. Costs one load if there is none.
    #[inline]
    pub(crate) fn take(&self) -> Option<u64> {
        if !self.has_any() {
            return None;
        }
        let mut promises = self.lock();
        let promise = promises.pop_front();
        self.has_any.store(!promises.is_empty(), Ordering::Release);
        promise
    }

    /// Sleeps until there is a number, for so long at most. True if there is one.
    pub(crate) fn wait(&self, longest: Duration) -> bool {
        let start = Instant::now();
        let mut promises = self.lock();
        while promises.is_empty() {
            let left = longest.saturating_sub(start.elapsed());
            if left.is_zero() {
                return false;
            }
            let woken = self.pushed.wait_timeout(promises, left);
            promises = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}
