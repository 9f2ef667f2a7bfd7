//! Converts exceptions to errors of the scheduler and back. All waiters of a failed task get the same exception.

use std::fmt;
use std::sync::Arc;

use pyo3::exceptions::{
    PyBaseException, PyException, PyRuntimeError, PyTimeoutError, PyTypeError, PyValueError,
};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use semafor_coop::{self as coop, Error};

use super::outcome::{Caught, OutcomeCell};

/// An exception that a program failed with.
pub(crate) enum Raised {
    Here(Caught),
    /// In the cell of a handle, where the garbage collector can see it.
    Within(Arc<OutcomeCell>),
}

impl Raised {
    /// `None` if the collector has cleared it.
    pub(crate) fn caught(&self, py: Python<'_>) -> Option<Caught> {
        match self {
            Self::Here(caught) => Some(caught.clone_ref(py)),
            Self::Within(cell) => cell.failure(py),
        }
    }
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Python::attach(|py| match self.caught(py) {
            Some(caught) => caught.reraise(py).fmt(f),
            None => f.write_str("an exception"),
        })
    }
}

impl fmt::Debug for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Raised {}

/// The error of a program that ended with this exception, which is in this cell.
pub(crate) fn error_of(py: Python<'_>, caught: &Caught, cell: &Arc<OutcomeCell>) -> Error {
    let exception = caught.exception(py);
    if exception.is_instance(cancelled_class(py)).unwrap_or(false) {
        return Error::TaskCancelled;
    }
    if exception.is_instance(deadlock_class(py)).unwrap_or(false)
        && let Ok(deadlock) = exception.getattr(intern!(py, "_deadlock"))
        && let Ok(deadlock) = deadlock.cast_exact::<Deadlock>()
    {
        return Error::Deadlock(deadlock.get().0.clone());
    }
    if !exception.is_instance_of::<PyException>() {
        return Error::stopping(Raised::Within(cell.clone()));
    }
    Error::new(Raised::Within(cell.clone()))
}

/// The exception to raise for an error of the scheduler.
pub(crate) fn exception_of(py: Python<'_>, error: &Error) -> PyErr {
    if let Some(raised) = error.downcast_ref::<Raised>() {
        return match raised.caught(py) {
            Some(caught) => caught.reraise(py),
            None => {
                PyRuntimeError::new_err("the task or promise failed, and its exception was garbage-collected")
            }
        };
    }
    match error {
        Error::TaskCancelled => cancelled(py),
        Error::TimedOut => PyTimeoutError::new_err(error.to_string()),
        Error::Deadlock(deadlock) => deadlock_error(py, deadlock, |_| None),
        Error::NotDeterministic { .. } => {
            PyErr::from_type(not_deterministic_class(py).clone(), error.to_string())
        }
        Error::ZeroPermits
        | Error::ZeroWeight
        | Error::TooHeavy { .. }
        | Error::InvalidDelay(_)
        | Error::NothingToRace => PyValueError::new_err(error.to_string()),
        error => PyRuntimeError::new_err(error.to_string()),
    }
}

pub(crate) fn cancelled(py: Python<'_>) -> PyErr {
    PyErr::from_type(cancelled_class(py).clone(), "task was cancelled")
}

/// The deadlock of an exception.
#[pyclass(frozen, module = "semafor.effects")]
pub(crate) struct Deadlock(Arc<coop::Deadlock>);

/// `site` returns the line of Python where a task waits.
pub(crate) fn deadlock_error(
    py: Python<'_>,
    deadlock: &Arc<coop::Deadlock>,
    site: impl Fn(&coop::Label) -> Option<String>,
) -> PyErr {
    let make = || {
        let links: Vec<_> = deadlock.links.iter().map(|link| link_of(link, site(&link.task))).collect();
        let exception = deadlock_class(py).call1((deadlock.is_cycle, links))?;
        exception.setattr(intern!(py, "_deadlock"), Bound::new(py, Deadlock(deadlock.clone()))?)?;
        Ok(PyErr::from_value(exception))
    };
    make().unwrap_or_else(|error: PyErr| error)
}

/// A task, what it waits for, and where.
fn link_of(link: &coop::Link, site: Option<String>) -> (String, String, Option<String>) {
    (link.task.to_string(), link.waits_for.clone(), site)
}

/// Makes an exception of an exception object or class.
pub(crate) fn to_exception(error: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    let is_class = |class: &Bound<'_, PyType>| class.is_subclass_of::<PyBaseException>().unwrap_or(false);
    if error.is_instance_of::<PyBaseException>() || error.cast::<PyType>().is_ok_and(is_class) {
        Ok(PyErr::from_value(error.clone()))
    } else {
        Err(PyTypeError::new_err(format!("an exception is needed to fail a promise, not {}", kind_of(error))))
    }
}

/// The name of its class, for error messages.
pub(crate) fn kind_of(object: &Bound<'_, PyAny>) -> String {
    object.get_type().qualname().map_or_else(|_| "an object".into(), |name| name.to_string())
}

fn cancelled_class(py: Python<'_>) -> &Bound<'_, PyType> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    class(py, &CLASS, "TaskCancelledError")
}

fn deadlock_class(py: Python<'_>) -> &Bound<'_, PyType> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    class(py, &CLASS, "SchedulerDeadlockError")
}

fn not_deterministic_class(py: Python<'_>) -> &Bound<'_, PyType> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    class(py, &CLASS, "NotDeterministicError")
}

/// A class of `semafor._errors`. Falls back to `RuntimeError` in a broken package.
fn class<'py>(py: Python<'py>, cell: &'static PyOnceLock<Py<PyType>>, name: &str) -> &'py Bound<'py, PyType> {
    match cell.import(py, "semafor._errors", name) {
        Ok(class) => class,
        Err(_) => cell.get_or_init(py, || py.get_type::<PyRuntimeError>().unbind()).bind(py),
    }
}
