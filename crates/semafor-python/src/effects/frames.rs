//! The stack of generators of a task. `yield program` puts a generator on top.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use pyo3::exceptions::{PyStopIteration, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::iterator::PySendResult;
use pyo3::types::{PyIterator, PyType};
use semafor_coop::Permit;

use super::exceptions::kind_of;
use super::handles::Tables;
use super::program::{Runnable, Started, close, throw};
use super::request::{Entry, Request, Yielded, interpret};

/// The result of a `yield`.
pub(crate) enum Resume {
    Nothing,
    Value(Py<PyAny>),
    Raise(PyErr),
}

/// What a task does next.
pub(crate) enum Step {
    Perform(Request),
    Ended(PyResult<Py<PyAny>>),
}

struct Frame {
    generator: Py<PyIterator>,
    scope: Option<Rc<Scope>>,
    is_shielded: bool,
    /// Released when the frame is dropped.
    _permit: Option<Permit>,
}

/// A handler of the program's own, and the scope around it.
pub(crate) struct Scope {
    class: Py<PyType>,
    handler: Py<PyAny>,
    outer: Option<Rc<Scope>>,
}

/// Scopes may be nested a million deep, so they are dropped in a loop and not recursively.
impl Drop for Scope {
    fn drop(&mut self) {
        let mut next = self.outer.take();
        while let Some(mut scope) = next.and_then(Rc::into_inner) {
            next = scope.outer.take();
        }
    }
}

#[derive(Default)]
pub(crate) struct Frames {
    frames: RefCell<Vec<Frame>>,
    shields: Cell<usize>,
}

impl Frames {
    /// The handlers in scope for the running generator.
    pub(crate) fn scope(&self) -> Option<Rc<Scope>> {
        self.frames.borrow().last().and_then(|frame| frame.scope.clone())
    }

    pub(crate) fn is_shielded(&self) -> bool {
        self.shields.get() > 0
    }

    /// Starts a program on top of the stack. Returns how to resume: with its value or exception if it has already
    /// ended.
    pub(crate) fn enter(
        &self,
        py: Python<'_>,
        runnable: &Runnable,
        scope: Option<Rc<Scope>>,
        is_shielded: bool,
        permit: Option<Permit>,
    ) -> Resume {
        match runnable.start(py) {
            Err(error) => Resume::Raise(error),
            Ok(Started::Over(value)) => Resume::Value(value),
            Ok(Started::Generator(generator)) => {
                self.shields.set(self.shields.get() + usize::from(is_shielded));
                let frame = Frame { generator, scope, is_shielded, _permit: permit };
                self.frames.borrow_mut().push(frame);
                Resume::Nothing
            }
        }
    }

    /// Runs until a program yields an effect, or the last one has ended.
    #[inline]
    pub(crate) fn resume(&self, py: Python<'_>, mut answer: Resume, tables: &Tables) -> Step {
        loop {
            // Nothing is borrowed while Python runs.
            let top = self.frames.borrow().last().map(|frame| frame.generator.clone_ref(py));
            let Some(generator) = top else { return Step::Ended(answer.into_result(py)) };
            let sent = send(generator.bind(py), answer);
            tables.sweep();
            answer = match sent {
                Ok(PySendResult::Next(yielded)) => match interpret(&yielded, tables) {
                    Ok(Yielded::Perform(request)) => return Step::Perform(request),
                    Ok(Yielded::Enter(runnable, how)) => {
                        let (scope, is_shielded) = match how {
                            Entry::Plain => (self.scope(), false),
                            Entry::Shielded => (self.scope(), true),
                            Entry::Handled { class, handler } => {
                                let scope = Scope { class, handler, outer: self.scope() };
                                (Some(Rc::new(scope)), false)
                            }
                        };
                        self.enter(py, &runnable, scope, is_shielded, None)
                    }
                    Ok(Yielded::Handle) => self.handle(&yielded),
                    Err(error) => Resume::Raise(error),
                },
                Ok(PySendResult::Return(value)) => {
                    self.leave();
                    Resume::Value(value.unbind())
                }
                Err(error) => {
                    self.leave();
                    Resume::Raise(error)
                }
            };
        }
    }

    fn leave(&self) {
        let frame = self.frames.borrow_mut().pop();
        if frame.as_ref().is_some_and(|frame| frame.is_shielded) {
            self.shields.set(self.shields.get() - 1);
        }
        drop(frame);
    }

    /// Runs the innermost handler of an effect of the program's own, in the scope around that handler.
    fn handle(&self, effect: &Bound<'_, PyAny>) -> Resume {
        let py = effect.py();
        let mut next = self.scope();
        while let Some(scope) = next {
            let class = scope.class.bind(py);
            if effect.get_type().is(class) || effect.is_instance(class).unwrap_or(false) {
                return match scope.handler.bind(py).call1((effect,)) {
                    Err(error) => Resume::Raise(error),
                    Ok(handled) => match Runnable::of(&handled) {
                        Some(runnable) => self.enter(py, &runnable, scope.outer.clone(), false, None),
                        None => Resume::Value(handled.unbind()),
                    },
                };
            }
            next = scope.outer.clone();
        }
        let message =
            format!("{} is neither an effect nor a program, and has no handler here", kind_of(effect));
        Resume::Raise(PyTypeError::new_err(message))
    }

    /// The line where the program waits: `file.py:12 in worker`.
    pub(crate) fn site(&self, py: Python<'_>) -> Option<String> {
        let generator = self.frames.borrow().last()?.generator.clone_ref(py);
        let mut innermost = generator.into_bound(py).into_any();
        while let Ok(inner) = innermost.getattr(intern!(py, "gi_yieldfrom"))
            && inner.hasattr(intern!(py, "gi_frame")).unwrap_or(false)
        {
            innermost = inner;
        }
        let frame = innermost.getattr(intern!(py, "gi_frame")).ok()?;
        let code = innermost.getattr(intern!(py, "gi_code")).ok()?;
        let file = code.getattr(intern!(py, "co_filename")).ok()?;
        let name = code.getattr(intern!(py, "co_name")).ok()?;
        let line = frame.getattr(intern!(py, "f_lineno")).ok()?;
        Some(format!("{file}:{line} in {name}"))
    }
}

#[inline]
fn send<'py>(generator: &Bound<'py, PyIterator>, answer: Resume) -> PyResult<PySendResult<'py>> {
    let py = generator.py();
    match answer {
        Resume::Nothing => generator.send(py.None().bind(py)),
        Resume::Value(value) => generator.send(value.bind(py)),
        Resume::Raise(error) => match throw(generator, error) {
            Ok(yielded) => Ok(PySendResult::Next(yielded)),
            Err(stop) if stop.is_instance_of::<PyStopIteration>(py) => {
                Ok(PySendResult::Return(stop.value(py).getattr(intern!(py, "value"))?))
            }
            Err(error) => Err(error),
        },
    }
}

impl Resume {
    fn into_result(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Self::Nothing => Ok(py.None()),
            Self::Value(value) => Ok(value),
            Self::Raise(error) => Err(error),
        }
    }
}

/// Closes the generators of an abandoned task, from the top of the stack.
impl Drop for Frames {
    fn drop(&mut self) {
        if self.frames.get_mut().is_empty() {
            return;
        }
        Python::attach(|py| {
            while let Some(frame) = self.frames.get_mut().pop() {
                close(frame.generator.bind(py));
            }
        });
    }
}
