//! Arguments of effects. An effect can be made of anything; what is wrong with it is said where it is yielded.

use pyo3::PyTypeInfo;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBool;

use super::raised::kind_of;

/// What is wrong with an argument. It has no Python object in it, so it can't be part of a circle.
#[derive(Clone)]
pub(crate) enum Complaint {
    Type(String),
    Value(&'static str),
    Misuse(&'static str),
}

pub(crate) type Checked<T> = Result<T, Complaint>;

impl From<&Complaint> for PyErr {
    fn from(complaint: &Complaint) -> Self {
        match complaint {
            Complaint::Type(message) => PyTypeError::new_err(message.clone()),
            Complaint::Value(message) => PyValueError::new_err(*message),
            Complaint::Misuse(message) => PyRuntimeError::new_err(*message),
        }
    }
}

/// A handle, or whatever else has to be of one class exactly.
pub(crate) fn exactly<T: PyTypeInfo>(object: &Bound<'_, PyAny>, what: &str) -> Checked<Py<T>> {
    let found = object.cast_exact::<T>();
    found.map(|found| found.clone().unbind()).map_err(|_| wrong(object, what))
}

pub(crate) fn wrong(object: &Bound<'_, PyAny>, what: &str) -> Complaint {
    Complaint::Type(format!("{what} is needed here, not {}", kind_of(object)))
}

/// A number of permits. `True` is no number, though Python has it otherwise.
pub(crate) fn permits(object: &Bound<'_, PyAny>) -> Checked<u32> {
    const TOO_FEW: Complaint = Complaint::Value("permits must be >= 1");
    const TOO_MANY: Complaint = Complaint::Value("permits must be < 2**32");
    if object.is_instance_of::<PyBool>() {
        return Err(wrong(object, "a number of permits"));
    }
    match object.extract::<i64>() {
        Ok(..=0) => Err(TOO_FEW),
        Ok(permits) => u32::try_from(permits).map_err(|_| TOO_MANY),
        Err(_) if object.is_instance_of::<pyo3::types::PyInt>() => {
            Err(if object.lt(0).unwrap_or(false) { TOO_FEW } else { TOO_MANY })
        }
        Err(_) => Err(wrong(object, "a number of permits")),
    }
}

/// Seconds. Whether they are a span of time is for the scheduler to say.
pub(crate) fn seconds(object: &Bound<'_, PyAny>) -> Checked<f64> {
    object.extract::<f64>().map_err(|_| wrong(object, "a number of seconds"))
}

pub(crate) fn text(object: &Bound<'_, PyAny>, what: &str) -> Checked<String> {
    let text = object.cast::<pyo3::types::PyString>().map_err(|_| wrong(object, what))?;
    Ok(text.to_string_lossy().into_owned())
}
