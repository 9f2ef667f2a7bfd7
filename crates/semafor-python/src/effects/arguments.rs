//! Arguments of effects. Any object is accepted when an effect is created; errors are raised where it is yielded.

use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyString};
use pyo3::{Borrowed, PyTypeInfo};

use super::exceptions::kind_of;

/// The error of an argument. It contains no Python object, so it can't be part of a reference cycle.
#[derive(Clone)]
pub(crate) enum ArgumentError {
    Type(String),
    Value(&'static str),
    Misuse(&'static str),
}

pub(crate) type Checked<T> = Result<T, ArgumentError>;

impl From<&ArgumentError> for PyErr {
    fn from(error: &ArgumentError) -> Self {
        match error {
            ArgumentError::Type(message) => PyTypeError::new_err(message.clone()),
            ArgumentError::Value(message) => PyValueError::new_err(*message),
            ArgumentError::Misuse(message) => PyRuntimeError::new_err(*message),
        }
    }
}

/// An object that must be of exactly this class.
pub(crate) fn exact<T: PyTypeInfo>(object: &Bound<'_, PyAny>, what: &str) -> Checked<Py<T>> {
    let found = object.cast_exact::<T>();
    found.map(|found| found.clone().unbind()).map_err(|_| type_error(object, what))
}

pub(crate) fn type_error(object: &Bound<'_, PyAny>, what: &str) -> ArgumentError {
    ArgumentError::Type(format!("{what} is needed here, not {}", kind_of(object)))
}

/// A number of permits. `True` is refused, although it is an `int` in Python.
pub(crate) struct Permits(pub(crate) Checked<u32>);

impl Permits {
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> Self {
        const TOO_FEW: ArgumentError = ArgumentError::Value("permits must be >= 1");
        const TOO_MANY: ArgumentError = ArgumentError::Value("permits must be < 2**32");
        let is_int = object.is_instance_of::<PyInt>();
        Self(match object.extract::<i64>() {
            _ if object.is_instance_of::<PyBool>() => Err(type_error(object, "a number of permits")),
            Ok(..=0) => Err(TOO_FEW),
            Ok(permits) => u32::try_from(permits).map_err(|_| TOO_MANY),
            Err(_) if is_int && object.lt(0).unwrap_or(false) => Err(TOO_FEW),
            Err(_) if is_int => Err(TOO_MANY),
            Err(_) => Err(type_error(object, "a number of permits")),
        })
    }
}

impl FromPyObject<'_, '_> for Permits {
    type Error = std::convert::Infallible;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> Result<Self, Self::Error> {
        Ok(Self::of(&object))
    }
}

/// Seconds. The scheduler checks their range.
pub(crate) fn seconds(object: &Bound<'_, PyAny>) -> Checked<f64> {
    object.extract::<f64>().map_err(|_| type_error(object, "a number of seconds"))
}

pub(crate) fn text(object: &Bound<'_, PyAny>, what: &str) -> Checked<String> {
    let text = object.cast::<PyString>().map_err(|_| type_error(object, what))?;
    Ok(text.to_string_lossy().into_owned())
}
