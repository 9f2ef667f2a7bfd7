//! Arguments of effects. Any object is accepted when an effect is created; errors are raised where it is yielded.

use std::borrow::Cow;
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyString};
use pyo3::{Borrowed, PyTypeInfo};

use super::exceptions::kind_of;

/// The error of an argument. It contains no Python object, so it can't be part of a reference cycle.
#[derive(Clone)]
pub(crate) enum ArgumentError {
    Type(String),
    Value(Cow<'static, str>),
    Misuse(&'static str),
}

pub(crate) type Checked<T> = Result<T, ArgumentError>;

impl From<&ArgumentError> for PyErr {
    fn from(error: &ArgumentError) -> Self {
        match error {
            ArgumentError::Type(message) => PyTypeError::new_err(message.clone()),
            ArgumentError::Value(message) => PyValueError::new_err(message.clone().into_owned()),
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
    /// `argument`: its name, for the error.
    pub(crate) fn of(object: &Bound<'_, PyAny>, argument: &str) -> Self {
        let too_few = || ArgumentError::Value(format!("{argument} must be >= 1").into());
        let too_many = || ArgumentError::Value(format!("{argument} must be < 2**32").into());
        let is_int = object.is_instance_of::<PyInt>();
        Self(match object.extract::<i64>() {
            _ if object.is_instance_of::<PyBool>() => Err(type_error(object, "a number of permits")),
            Ok(..=0) => Err(too_few()),
            Ok(permits) => u32::try_from(permits).map_err(|_| too_many()),
            Err(_) if is_int && object.lt(0).unwrap_or(false) => Err(too_few()),
            Err(_) if is_int => Err(too_many()),
            Err(_) => Err(type_error(object, "a number of permits")),
        })
    }
}

impl FromPyObject<'_, '_> for Permits {
    type Error = std::convert::Infallible;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> Result<Self, Self::Error> {
        Ok(Self::of(&object, "permits"))
    }
}

/// Seconds. The scheduler checks their range.
pub(crate) fn seconds(object: &Bound<'_, PyAny>) -> Checked<f64> {
    object.extract::<f64>().map_err(|_| type_error(object, "a number of seconds"))
}

/// A timeout in seconds.
pub(crate) fn timeout(object: &Bound<'_, PyAny>) -> Checked<f64> {
    let timeout = seconds(object)?;
    match Duration::try_from_secs_f64(timeout) {
        Ok(_) => Ok(timeout),
        Err(_) => {
            let message = format!("timeout must be a number of seconds >= 0, got {timeout}");
            Err(ArgumentError::Value(message.into()))
        }
    }
}

pub(crate) fn text(object: &Bound<'_, PyAny>, what: &str) -> Checked<String> {
    let text = object.cast::<PyString>().map_err(|_| type_error(object, what))?;
    Ok(text.to_string_lossy().into_owned())
}
