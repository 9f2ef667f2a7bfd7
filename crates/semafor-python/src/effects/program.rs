//! Programs: made by `@do`, which can be run many times, or a generator, which can be run once.

use pyo3::exceptions::PyRuntimeWarning;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyIterator, PyTuple, PyType};
use pyo3::{PyTraverseError, PyVisit, intern};

use super::arguments::{ArgumentError, Checked};
use super::exceptions::kind_of;

/// A generator function and its arguments. It can be run, spawned or yielded many times, and starts from the beginning
/// each time.
#[pyclass(frozen, generic, module = "semafor.effects", weakref)]
pub struct Program {
    function: Py<PyAny>,
    args: Py<PyTuple>,
    kwargs: Option<Py<PyDict>>,
}

#[pymethods]
impl Program {
    #[new]
    #[pyo3(signature = (function, args, kwargs))]
    fn new(function: Py<PyAny>, args: Py<PyTuple>, kwargs: &Bound<'_, PyDict>) -> Self {
        Self { function, args, kwargs: (!kwargs.is_empty()).then(|| kwargs.clone().unbind()) }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let name = self.function.bind(py).getattr(intern!(py, "__qualname__"))?;
        Ok(format!("<program {name}>"))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.function)?;
        visit.call(&self.args)?;
        visit.call(&self.kwargs)
    }
}

/// A program or a generator that can be started.
pub(crate) enum Runnable {
    Program(Py<Program>),
    Generator(Py<PyIterator>),
}

/// A program that has been started.
pub(crate) enum Started {
    Generator(Py<PyIterator>),
    /// The function has no `yield`, and has returned this.
    Over(Py<PyAny>),
}

impl Runnable {
    /// `None` if the object can't be run.
    #[inline]
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> Option<Self> {
        let generator = || generator(object).map(|generator| Self::Generator(generator.clone().unbind()));
        Self::of_program(object).or_else(generator)
    }

    #[inline]
    pub(crate) fn of_program(object: &Bound<'_, PyAny>) -> Option<Self> {
        object.cast_exact::<Program>().ok().map(|program| Self::Program(program.clone().unbind()))
    }

    pub(crate) fn checked(object: &Bound<'_, PyAny>) -> Checked<Self> {
        Self::of(object).ok_or_else(|| not_a_program(object))
    }

    pub(crate) fn start(&self, py: Python<'_>) -> PyResult<Started> {
        let program = match self {
            Self::Program(program) => program.get(),
            Self::Generator(generator) => return Ok(Started::Generator(generator.clone_ref(py))),
        };
        let kwargs = program.kwargs.as_ref().map(|kwargs| kwargs.bind(py));
        let made = program.function.bind(py).call(program.args.bind(py).clone(), kwargs)?;
        Ok(match generator(&made) {
            Some(generator) => Started::Generator(generator.clone().unbind()),
            None => Started::Over(made.unbind()),
        })
    }

    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Program(program) => Self::Program(program.clone_ref(py)),
            Self::Generator(generator) => Self::Generator(generator.clone_ref(py)),
        }
    }

    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Program(program) => visit.call(program),
            Self::Generator(generator) => visit.call(generator),
        }
    }

    /// False if it can be run only once.
    pub(crate) fn is_reusable(&self) -> bool {
        matches!(self, Self::Program(_))
    }
}

/// A Python generator, or another object of `collections.abc.Generator`.
#[inline]
fn generator<'a, 'py>(object: &'a Bound<'py, PyAny>) -> Option<&'a Bound<'py, PyIterator>> {
    static GENERATOR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static ABSTRACT: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = object.py();
    let is_plain =
        GENERATOR.import(py, "types", "GeneratorType").is_ok_and(|class| object.get_type().is(class));
    let is_like = || {
        ABSTRACT
            .import(py, "collections.abc", "Generator")
            .is_ok_and(|class| object.is_instance(class).unwrap_or(false))
    };
    if is_plain || is_like() { object.cast::<PyIterator>().ok() } else { None }
}

/// How often an abandoned program may yield before it is left unfinished.
const MAX_YIELDS_IN_CLOSE: usize = 100;

/// Closes an abandoned generator: its cleanup runs, and each effect in it is refused.
pub(crate) fn close(generator: &Bound<'_, PyIterator>) {
    let py = generator.py();
    for _ in 0..MAX_YIELDS_IN_CLOSE {
        let exit = pyo3::exceptions::PyGeneratorExit::new_err(());
        let Err(error) = throw(generator, exit) else { continue };
        let is_exit = error.is_instance_of::<pyo3::exceptions::PyGeneratorExit>(py)
            || error.is_instance_of::<pyo3::exceptions::PyStopIteration>(py);
        if !is_exit {
            error.write_unraisable(py, Some(generator));
        }
        return;
    }
    let message = c"an abandoned program kept yielding in its cleanup, and was left unfinished";
    if let Err(error) = PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), message, 1) {
        error.write_unraisable(py, Some(generator));
    }
}

/// Raises an exception in the generator. Returns what it yields then; if it returns, the error is a `StopIteration`.
pub(crate) fn throw<'py>(generator: &Bound<'py, PyIterator>, error: PyErr) -> PyResult<Bound<'py, PyAny>> {
    let py = generator.py();
    generator.call_method1(intern!(py, "throw"), (error.into_value(py),))
}

fn not_a_program(object: &Bound<'_, PyAny>) -> ArgumentError {
    let kind = kind_of(object);
    ArgumentError::Type(format!(
        "a program is needed, not {kind}: decorate its function with @do, and call it"
    ))
}
