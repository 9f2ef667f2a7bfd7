//! Something that was asked of the engine, as Python awaits it.
//!
//! Who awaits polls: the answer is made in the thread that needs it, and nothing runs for a task that nobody looks at.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pyo3::BoundObject;
use pyo3::prelude::*;
use pyo3::sync::{MutexExt, PyOnceLock};
use tokio_util::sync::CancellationToken;

use crate::wake::{LoopWaker, ThreadWaker};
use crate::{attached, process};

/// How often a thread that waits looks whether Ctrl-C was pressed.
const SIGNALS: Duration = Duration::from_millis(50);

/// Makes the answer, where there is an interpreter to make it in. Dropping it gives back what it has.
pub(crate) type MakeResult = Box<dyn for<'py> FnOnce(Python<'py>) -> PyResult<Py<PyAny>> + Send>;

type Asked = Pin<Box<dyn Future<Output = MakeResult> + Send>>;

/// An answer of the engine's that is to come. Await it once.
#[pyclass(frozen, module = "semafor._native")]
pub struct Call {
    work: Arc<Work>,
    /// False if the answer may never come: who waits for it may be given up.
    #[pyo3(get)]
    is_sure: bool,
}

pub(crate) struct Work {
    life: u32,
    progress: Mutex<Progress>,
    leave: CancellationToken,
}

enum Progress {
    Asked(Asked),
    Answered(MakeResult),
    Over,
}

impl Call {
    /// `ask` gets a token that is cancelled when the answer is not wanted any more, and is to come to an end then.
    pub(crate) fn new<F>(ask: impl FnOnce(CancellationToken) -> F) -> Self
    where
        F: Future<Output = MakeResult> + Send + 'static,
    {
        let leave = CancellationToken::new();
        let asked = Progress::Asked(Box::pin(ask(leave.clone())));
        let work = Work { life: process::life(), progress: Mutex::new(asked), leave };
        Self { work: Arc::new(work), is_sure: true }
    }

    /// A question that can be dropped at any time.
    pub(crate) fn question<T>(question: impl Future<Output = PyResult<T>> + Send + 'static) -> Self
    where
        T: for<'py> IntoPyObject<'py> + Send + 'static,
    {
        Self::new(
            |leave| async move { leave.run_until_cancelled(question).await.map_or_else(nothing, in_python) },
        )
    }

    pub(crate) fn unsure(self) -> Self {
        Self { is_sure: false, ..self }
    }

    /// For users: as a coroutine, which can be made a task of, and complains if nobody awaits it.
    pub(crate) fn into_coroutine(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        settle(Bound::new(py, self)?)
    }

    pub(crate) fn work(&self) -> &Arc<Work> {
        &self.work
    }
}

/// What a call answers that has nothing to say: `None`.
pub(crate) const DONE: Option<bool> = None;

pub(crate) fn nothing() -> MakeResult {
    in_python(Ok(DONE))
}

pub(crate) fn in_python<T>(answer: PyResult<T>) -> MakeResult
where
    T: for<'py> IntoPyObject<'py> + Send + 'static,
{
    Box::new(move |py| match answer?.into_pyobject(py) {
        Ok(object) => Ok(object.into_any().unbind()),
        Err(error) => Err(error.into()),
    })
}

#[pymethods]
impl Call {
    /// True if there is an answer. Else, `woken` will be done when it pays to ask again.
    fn poll(&self, event_loop: &Bound<'_, PyAny>, woken: &Bound<'_, PyAny>) -> PyResult<bool> {
        let waker = LoopWaker::new(event_loop, woken, &self.work)?;
        Ok(self.work.poll(woken.py(), &Arc::new(waker).into()))
    }

    /// The answer, once.
    fn answer(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match attached::with(py, || self.work.take()) {
            Progress::Answered(answer) => attached::with(py, || answer(py)),
            _ => Err(pyo3::exceptions::PyRuntimeError::new_err(
                "there is no answer: it was not waited for, or taken",
            )),
        }
    }

    /// It is not wanted any more. Wait for its answer all the same: then everything has been given back.
    fn leave(&self, py: Python<'_>) {
        attached::with(py, || self.work.leave.cancel());
    }

    /// Drops it, without waiting for anything.
    fn abandon(&self, py: Python<'_>) {
        attached::with(py, || self.work.abandon());
    }

    /// Waits for the answer on this thread. `interruptible`: on the main thread, where signals arrive.
    fn wait(&self, py: Python<'_>, interruptible: bool) -> PyResult<Py<PyAny>> {
        let thread = Arc::new(ThreadWaker::default());
        let waker = Waker::from(Arc::clone(&thread));
        while !self.work.poll(py, &waker) {
            py.detach(|| thread.wait(interruptible.then_some(SIGNALS)));
            if let Err(interrupt) = py.check_signals() {
                self.leave(py);
                self.work.finish(py, Instant::now() + process::LAST_WAIT);
                return Err(interrupt);
            }
        }
        self.answer(py)
    }

    fn __await__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, PyAny>> {
        settle(slf)?.call_method0("__await__")
    }
}

fn settle(call: Bound<'_, Call>) -> PyResult<Bound<'_, PyAny>> {
    static SETTLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    SETTLE.import(call.py(), "semafor._calls", "settle")?.call1((call,))
}

impl Work {
    fn poll(&self, py: Python<'_>, waker: &Waker) -> bool {
        let mut progress = self.progress.lock_py_attached(py);
        if let Progress::Asked(asked) = &mut *progress {
            match attached::with(py, || asked.as_mut().poll(&mut Context::from_waker(waker))) {
                Poll::Pending => return false,
                Poll::Ready(answer) => *progress = Progress::Answered(answer),
            }
        }
        true
    }

    fn take(&self) -> Progress {
        // Whoever has the lock may need the interpreter to go on.
        let mut progress = match attached::is_here() {
            true => Python::attach(|py| self.progress.lock_py_attached(py)),
            false => self.progress.lock(),
        };
        std::mem::replace(&mut *progress, Progress::Over)
    }

    /// Drops it, from any thread.
    pub(crate) fn abandon(&self) {
        self.give_back(self.take());
    }

    fn give_back(&self, progress: Progress) {
        if self.life != process::life() {
            return std::mem::forget(progress);
        }
        drop(progress);
        // Whatever works for it elsewhere stops.
        self.leave.cancel();
    }

    /// Sees to it that it leaves, and does not wait.
    pub(crate) fn begin_to_leave(&self, py: Python<'_>) {
        self.leave.cancel();
        self.poll(py, Waker::noop());
    }

    /// Sees to it that it leaves; waits until it has, or until then. True if it has.
    pub(crate) fn finish(&self, py: Python<'_>, until: Instant) -> bool {
        self.leave.cancel();
        let thread = Arc::new(ThreadWaker::default());
        let waker = Waker::from(Arc::clone(&thread));
        let mut has_left = self.poll(py, &waker);
        while !has_left {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            py.detach(|| thread.wait(Some(left)));
            has_left = self.poll(py, &waker);
        }
        attached::with(py, || self.abandon());
        has_left
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let progress = std::mem::replace(self.progress.get_mut(), Progress::Over);
        if !matches!(progress, Progress::Over) {
            self.give_back(progress);
        }
    }
}
