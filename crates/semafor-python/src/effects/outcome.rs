//! The outcome of a task or promise, visible to Python's garbage collector.
//!
//! An exception refers to its frames, and these may refer to the handle of the task that failed: a cycle that only the
//! collector can break. So the outcome is in a cell that the Python handle shows to the collector, and that can be
//! cleared. No other handle shows it, because the collector would count it twice.

use parking_lot::Mutex;
use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit, intern};

/// An exception, with its traceback when it was caught.
pub(crate) struct Caught {
    exception: Py<PyBaseException>,
    traceback: Option<Py<PyAny>>,
}

impl Caught {
    pub(crate) fn new(py: Python<'_>, error: PyErr) -> Self {
        let exception = error.into_value(py);
        let traceback = exception.bind(py).getattr(intern!(py, "__traceback__")).ok().map(Bound::unbind);
        Self { exception, traceback }
    }

    /// The same exception to raise again, without the frames that were added meanwhile.
    pub(crate) fn reraise(&self, py: Python<'_>) -> PyErr {
        let exception = self.exception.bind(py);
        if let Some(traceback) = &self.traceback {
            // The traceback comes from this exception, so setting it can't fail.
            let _ = exception.setattr(intern!(py, "__traceback__"), traceback);
        }
        PyErr::from_value(exception.clone().into_any())
    }

    pub(crate) fn exception<'py>(&self, py: Python<'py>) -> &Bound<'py, PyBaseException> {
        self.exception.bind(py)
    }

    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        let traceback = self.traceback.as_ref().map(|traceback| traceback.clone_ref(py));
        Self { exception: self.exception.clone_ref(py), traceback }
    }
}

pub(crate) enum Outcome {
    Value(Py<PyAny>),
    Failure(Caught),
}

#[derive(Default)]
pub(crate) struct OutcomeCell {
    outcome: Mutex<Option<Outcome>>,
}

impl OutcomeCell {
    /// False if there was an outcome before, which is kept.
    pub(crate) fn fill(&self, outcome: Outcome) -> bool {
        let mut cell = self.outcome.lock();
        if cell.is_some() {
            // Dropping a user value runs user code, which must not find the lock taken.
            drop(cell);
            drop(outcome);
            return false;
        }
        *cell = Some(outcome);
        true
    }

    pub(crate) fn value(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        match &*self.outcome.lock() {
            Some(Outcome::Value(value)) => Some(value.clone_ref(py)),
            _ => None,
        }
    }

    pub(crate) fn failure(&self, py: Python<'_>) -> Option<Caught> {
        match &*self.outcome.lock() {
            Some(Outcome::Failure(caught)) => Some(caught.clone_ref(py)),
            _ => None,
        }
    }

    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // No Python code runs under the lock, so the collector never finds it taken.
        let Some(outcome) = self.outcome.try_lock() else { return Ok(()) };
        match &*outcome {
            Some(Outcome::Value(value)) => visit.call(value),
            Some(Outcome::Failure(Caught { exception, traceback })) => {
                visit.call(exception)?;
                visit.call(traceback)
            }
            None => Ok(()),
        }
    }

    pub(crate) fn clear(&self) {
        let outcome = self.outcome.lock().take();
        drop(outcome);
    }
}
