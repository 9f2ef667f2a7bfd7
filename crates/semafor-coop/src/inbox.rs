//! Where other threads leave word that a promise was settled. The one place of a run that threads share.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering};

#[derive(Default)]
pub(crate) struct Inbox {
    /// Numbers of promises that were settled, or lost the last who could.
    letters: Mutex<VecDeque<u64>>,
    arrived: Condvar,
    has_mail: AtomicBool,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, VecDeque<u64>> {
        // Nothing is done under the lock that could leave it half done.
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn post(&self, promise: u64) {
        self.lock().push_back(promise);
        self.has_mail.store(true, Ordering::Release);
        self.arrived.notify_one();
    }

    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::Acquire)
    }

    /// The next letter. Costs one load while there is none.
    #[inline]
    pub(crate) fn take(&self) -> Option<u64> {
        if !self.has_mail() {
            return None;
        }
        let mut letters = self.lock();
        let letter = letters.pop_front();
        self.has_mail.store(!letters.is_empty(), Ordering::Release);
        letter
    }

    /// Sleeps until there is mail, or for so long; true if there is.
    pub(crate) fn wait(&self, longest: Duration) -> bool {
        let start = Instant::now();
        let mut letters = self.lock();
        while letters.is_empty() {
            let left = longest.saturating_sub(start.elapsed());
            if left.is_zero() {
                return false;
            }
            let woken = self.arrived.wait_timeout(letters, left);
            letters = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}
