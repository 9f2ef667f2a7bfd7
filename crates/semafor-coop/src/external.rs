//! Promises that other threads complete.

use std::cell::OnceCell;
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};

use crate::eventual::{Settlement, Source, ValueCell};
use crate::inbox::Inbox;
use crate::sync::{AtomicUsize, Mutex, Ordering};
use crate::{Error, Eventual, Result};

/// A promise that any thread may complete: how other threads reach a run. Created by
/// [`CreateExternalPromise`](crate::CreateExternalPromise), together with the [`Eventual`] to wait for.
///
/// The first completion counts, and later ones are ignored. While all tasks wait, the thread of the run sleeps. If the
/// last clone is dropped without completing the promise, its waiters get a [deadlock](Error::Deadlock).
pub struct ExternalPromise<T: Send> {
    shared: Arc<External<T>>,
}

struct External<T> {
    number: u64,
    inbox: Arc<Inbox>,
    outcome: Mutex<Slot<T>>,
    writers: Arc<AtomicUsize>,
}

enum Slot<T> {
    Open,
    Filled(Result<T>),
    Taken,
}

impl<T: Send> ExternalPromise<T> {
    /// Completes it. False if it was completed before.
    pub fn complete(&self, value: T) -> bool {
        self.fill(Ok(value))
    }

    /// Fails it. False if it was completed before.
    pub fn fail(&self, error: Error) -> bool {
        self.fill(Err(error))
    }

    fn fill(&self, outcome: Result<T>) -> bool {
        let mut slot = self.shared.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*slot, Slot::Open) {
            return false;
        }
        *slot = Slot::Filled(outcome);
        drop(slot);
        // Counts as one more writer, so that the promise is not orphaned before the run receives the value.
        self.shared.writers.fetch_add(1, Ordering::Relaxed);
        self.shared.inbox.push(self.shared.number);
        true
    }
}

impl<T: Send> Clone for ExternalPromise<T> {
    fn clone(&self) -> Self {
        self.shared.writers.fetch_add(1, Ordering::Relaxed);
        Self { shared: self.shared.clone() }
    }
}

impl<T: Send> Drop for ExternalPromise<T> {
    fn drop(&mut self) {
        if self.shared.writers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.inbox.push(self.shared.number);
        }
    }
}

impl<T: Send> fmt::Debug for ExternalPromise<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExternalPromise({})", self.shared.number)
    }
}

/// The run's side of an external promise, without the type of its value.
pub(crate) trait ExternalCell {
    /// Takes over the value or the error. False if the promise is not completed.
    fn receive(&self) -> bool;

    fn settlement(&self) -> &Settlement;
}

struct Receiver<T> {
    shared: Arc<External<T>>,
    cell: Rc<ValueCell<T>>,
}

impl<T> ExternalCell for Receiver<T> {
    fn receive(&self) -> bool {
        let mut slot = self.shared.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*slot, Slot::Filled(_)) {
            return false;
        }
        let Slot::Filled(outcome) = std::mem::replace(&mut *slot, Slot::Taken) else { return false };
        drop(slot);
        // Neither was set before, because the slot is filled only once.
        match outcome {
            Ok(value) => drop(self.cell.value.set(value)),
            Err(error) => drop(self.cell.settlement.failure.set(error)),
        }
        true
    }

    fn settlement(&self) -> &Settlement {
        &self.cell.settlement
    }
}

/// Makes the promise, the value to wait for, and the run's side.
pub(crate) fn external<T: Send + 'static>(
    run: u64,
    number: u64,
    inbox: Arc<Inbox>,
) -> (ExternalPromise<T>, Eventual<T>, Rc<dyn ExternalCell>) {
    let writers = Arc::new(AtomicUsize::new(1));
    let settlement = Settlement::new(run, number, Source::External(writers.clone()));
    let cell = Rc::new(ValueCell { settlement, value: OnceCell::new() });
    let shared = Arc::new(External { number, inbox, outcome: Mutex::new(Slot::Open), writers });
    let receiver = Rc::new(Receiver { shared: shared.clone(), cell: cell.clone() });
    (ExternalPromise { shared }, Eventual { cell }, receiver)
}
