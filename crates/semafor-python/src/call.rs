//! A call to the engine, which Python awaits.
//!
//! The awaiting task polls the call. So the result is made on the thread that needs it, and nothing runs for a task that
//! was abandoned.

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

/// How often a waiting thread checks for Ctrl-C.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Makes the Python object of the result, on an attached thread. Dropping it releases the slot of the result, if any.
pub(crate) type MakeResult = Box<dyn for<'py> FnOnce(Python<'py>) -> PyResult<Py<PyAny>> + Send>;

type CallFuture = Pin<Box<dyn Future<Output = MakeResult> + Send>>;

/// A call to the engine. Await it once.
#[pyclass(frozen, module = "semafor._native")]
pub struct Call {
    work: Arc<Work>,
    /// False if the call may wait forever: the event loop then need not keep a task alive that awaits it.
    #[pyo3(get)]
    surely_ends: bool,
}

pub(crate) struct Work {
    fork_count: u32,
    state: Mutex<State>,
    cancel_token: CancellationToken,
}

enum State {
    Running(CallFuture),
    Finished(MakeResult),
    Taken,
}

impl Call {
    /// `start` gets a token. When it is cancelled, the future must clean up and end.
    pub(crate) fn new<F>(start: impl FnOnce(CancellationToken) -> F) -> Self
    where
        F: Future<Output = MakeResult> + Send + 'static,
    {
        let cancel_token = CancellationToken::new();
        let state = State::Running(Box::pin(start(cancel_token.clone())));
        let work = Work { fork_count: process::fork_count(), state: Mutex::new(state), cancel_token };
        Self { work: Arc::new(work), surely_ends: true }
    }

    /// A call whose future may be dropped at any time.
    pub(crate) fn drop_on_cancel<T>(future: impl Future<Output = PyResult<T>> + Send + 'static) -> Self
    where
        T: for<'py> IntoPyObject<'py> + Send + 'static,
    {
        Self::new(|cancel_token| async move {
            cancel_token.run_until_cancelled(future).await.map_or_else(make_none, make_result)
        })
    }

    pub(crate) fn may_never_end(self) -> Self {
        Self { surely_ends: false, ..self }
    }

    /// A coroutine for users: asyncio can make a task of it, and Python warns if it is never awaited.
    pub(crate) fn into_coroutine(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        await_call(Bound::new(py, self)?)
    }

    pub(crate) fn work(&self) -> &Arc<Work> {
        &self.work
    }
}

/// The result of a call that returns nothing.
pub(crate) const NONE: Option<bool> = None;

pub(crate) fn make_none() -> MakeResult {
    make_result(Ok(NONE))
}

pub(crate) fn make_result<T>(result: PyResult<T>) -> MakeResult
where
    T: for<'py> IntoPyObject<'py> + Send + 'static,
{
    Box::new(move |py| match result?.into_pyobject(py) {
        Ok(object) => Ok(object.into_any().unbind()),
        Err(error) => Err(error.into()),
    })
}

#[pymethods]
impl Call {
    /// Returns true if the call has ended. If not, the future `woken` is done when it is time to poll again.
    fn poll(&self, event_loop: &Bound<'_, PyAny>, woken: &Bound<'_, PyAny>) -> PyResult<bool> {
        let waker = LoopWaker::new(event_loop, woken, &self.work)?;
        Ok(self.work.poll(woken.py(), &Arc::new(waker).into()))
    }

    /// Returns the result. Works once.
    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match attached::with(py, || self.work.take()) {
            State::Finished(make) => attached::with(py, || make(py)),
            _ => Err(pyo3::exceptions::PyRuntimeError::new_err(
                "this call has no result: it has not ended yet, or its result was already taken",
            )),
        }
    }

    /// Cancels the call. Still wait for its result: then it has left the line and released its slot.
    fn cancel(&self, py: Python<'_>) {
        attached::with(py, || self.work.cancel_token.cancel());
    }

    /// Drops the call without waiting. What it holds is released in the background.
    fn abandon(&self, py: Python<'_>) {
        attached::with(py, || self.work.abandon());
    }

    /// Blocks this thread until the call ends. `interruptible`: this is the main thread, which receives signals.
    fn wait(&self, py: Python<'_>, interruptible: bool) -> PyResult<Py<PyAny>> {
        let thread = Arc::new(ThreadWaker::default());
        let waker = Waker::from(Arc::clone(&thread));
        while !self.work.poll(py, &waker) {
            py.detach(|| thread.wait(interruptible.then_some(SIGNAL_CHECK_INTERVAL)));
            if let Err(interrupt) = py.check_signals() {
                self.cancel(py);
                self.work.cancel_and_wait(py, Instant::now() + process::EXIT_TIMEOUT);
                return Err(interrupt);
            }
        }
        self.result(py)
    }

    fn __await__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, PyAny>> {
        await_call(slf)?.call_method0("__await__")
    }
}

fn await_call(call: Bound<'_, Call>) -> PyResult<Bound<'_, PyAny>> {
    static AWAIT_CALL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    AWAIT_CALL.import(call.py(), "semafor._calls", "await_call")?.call1((call,))
}

impl Work {
    fn poll(&self, py: Python<'_>, waker: &Waker) -> bool {
        let mut state = self.state.lock_py_attached(py);
        if let State::Running(future) = &mut *state {
            match attached::with(py, || future.as_mut().poll(&mut Context::from_waker(waker))) {
                Poll::Pending => return false,
                Poll::Ready(result) => *state = State::Finished(result),
            }
        }
        true
    }

    fn take(&self) -> State {
        // The thread that has the lock may need the interpreter to continue.
        let mut state = match attached::is_known() {
            true => Python::attach(|py| self.state.lock_py_attached(py)),
            false => self.state.lock(),
        };
        std::mem::replace(&mut *state, State::Taken)
    }

    /// Drops the call, on any thread.
    pub(crate) fn abandon(&self) {
        self.discard(self.take());
    }

    fn discard(&self, state: State) {
        if self.fork_count != process::fork_count() {
            return std::mem::forget(state);
        }
        drop(state);
        // Stops threads that work for the call.
        self.cancel_token.cancel();
    }

    /// Cancels the call without waiting.
    pub(crate) fn begin_cancel(&self, py: Python<'_>) {
        self.cancel_token.cancel();
        self.poll(py, Waker::noop());
    }

    /// Cancels the call and waits until it has ended, at most until `until`. Returns true if it has ended.
    pub(crate) fn cancel_and_wait(&self, py: Python<'_>, until: Instant) -> bool {
        self.cancel_token.cancel();
        let thread = Arc::new(ThreadWaker::default());
        let waker = Waker::from(Arc::clone(&thread));
        let mut has_ended = self.poll(py, &waker);
        while !has_ended {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            py.detach(|| thread.wait(Some(left)));
            has_ended = self.poll(py, &waker);
        }
        attached::with(py, || self.abandon());
        has_ended
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let state = std::mem::replace(self.state.get_mut(), State::Taken);
        if !matches!(state, State::Taken) {
            self.discard(state);
        }
    }
}
