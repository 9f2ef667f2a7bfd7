//! Python exceptions for the errors of the engine.

use pyo3::exceptions::{PyConnectionError, PyPermissionError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use semafor::{AcquireError, BuildError, HomeError, HomeErrorKind, ReleaseError, RenewError, ResizeError};

use crate::opened::Opened;

pub(crate) fn acquire(opened: &Opened, error: &AcquireError) -> PyErr {
    match error {
        AcquireError::Home(error) => home(error),
        AcquireError::Open(error) => build(error),
        AcquireError::TooHeavy { .. } | AcquireError::ZeroWeight | AcquireError::InvalidDuration(_) => {
            PyValueError::new_err(error.to_string())
        }
        error if error.is_timeout() || error.is_busy() => semafor_exception(
            "AcquireTimeoutError",
            format!("semaphore {:?}: {error}", opened.semaphore().name()),
        ),
        error => PyRuntimeError::new_err(error.to_string()),
    }
}

pub(crate) fn build(error: &BuildError) -> PyErr {
    match error {
        BuildError::Home(error) => home(error),
        BuildError::Closed { .. } => PyRuntimeError::new_err(error.to_string()),
        error => PyValueError::new_err(error.to_string()),
    }
}

pub(crate) fn home(error: &HomeError) -> PyErr {
    // The library names the option of the command.
    let message = error.to_string().replace("--url local:/some/folder", "the argument `directory`");
    match error.kind() {
        HomeErrorKind::InvalidUrl => PyValueError::new_err(message),
        HomeErrorKind::Unreachable => PyConnectionError::new_err(message),
        HomeErrorKind::AccessDenied => PyPermissionError::new_err(message),
        _ => PyRuntimeError::new_err(message),
    }
}

pub(crate) fn renew(error: &RenewError) -> PyErr {
    match error {
        RenewError::Home(error) => home(error),
        RenewError::NotHeld(why) => semafor_exception("NotHeldError", why.to_string()),
        error => PyValueError::new_err(error.to_string()),
    }
}

pub(crate) fn not_held(message: &str) -> PyErr {
    semafor_exception("NotHeldError", message.to_owned())
}

pub(crate) fn release(error: &ReleaseError) -> PyErr {
    match error {
        ReleaseError::Home(error) => home(error),
        error => semafor_exception("NotHeldError", error.to_string()),
    }
}

pub(crate) fn resize(error: &ResizeError) -> PyErr {
    match error {
        ResizeError::Home(error) => home(error),
        error => PyValueError::new_err(error.to_string()),
    }
}

/// An exception of `semafor._errors`.
fn semafor_exception(name: &'static str, message: String) -> PyErr {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let made = Python::attach(|py| {
        let module = MODULE.get_or_try_init(py, || py.import("semafor._errors").map(Bound::unbind))?;
        let exception = module.bind(py).getattr(name)?.call1((message,))?;
        PyResult::Ok(PyErr::from_value(exception))
    });
    made.unwrap_or_else(|error| error)
}
