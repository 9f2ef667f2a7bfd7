//! Where other threads leave word that a promise was settled. The one place of a run that threads share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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

    /// The next letter. Costs one load while there is none.
    #[inline]
    pub(crate) fn take(&self) -> Option<u64> {
        if !self.has_mail.load(Ordering::Acquire) {
            return None;
        }
        let mut letters = self.lock();
        let letter = letters.pop_front();
        self.has_mail.store(!letters.is_empty(), Ordering::Release);
        letter
    }

    /// Sleeps until there is mail, or for so long.
    pub(crate) fn wait(&self, longest: Option<Duration>) {
        let letters = self.lock();
        match longest {
            None => drop(self.arrived.wait_while(letters, |letters| letters.is_empty())),
            Some(longest) => {
                drop(self.arrived.wait_timeout_while(letters, longest, |letters| letters.is_empty()));
            }
        }
    }
}
