//! How a waker of the engine's reaches somebody in Python.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::Wake;
use std::thread::ThreadId;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};
use pyo3::{intern, wrap_pyfunction};

use crate::attached;
use crate::call::Work;
use crate::messenger::Messenger;

/// Ends a future that a task of an event loop awaits.
pub(crate) struct LoopWaker {
    /// Weak: the engine knows the waker, and must not keep a task alive that everybody else has given up.
    woken: Py<PyWeakrefReference>,
    /// Where the loop runs.
    thread: ThreadId,
    messenger: Arc<Messenger>,
    work: Weak<Work>,
    has_fired: AtomicBool,
}

impl LoopWaker {
    /// Call it where the loop runs.
    pub(crate) fn new(
        woken: &Bound<'_, PyAny>,
        messenger: Arc<Messenger>,
        work: &Arc<Work>,
    ) -> PyResult<Self> {
        Ok(Self {
            woken: PyWeakrefReference::new(woken)?.unbind(),
            thread: std::thread::current().id(),
            messenger,
            work: Arc::downgrade(work),
            has_fired: AtomicBool::new(false),
        })
    }

    fn deliver(&self, py: Python<'_>) {
        if self.tell(py).is_err()
            && let Some(work) = self.work.upgrade()
        {
            work.abandon(py);
        }
    }

    /// Fails if the loop is closed: whoever waited there never comes back, and must not keep others from the slot.
    fn tell(&self, py: Python<'_>) -> PyResult<()> {
        let Some(woken) = self.woken.bind(py).upgrade() else { return Ok(()) };
        if std::thread::current().id() == self.thread {
            return wake(&woken);
        }
        let event_loop = woken.call_method0(intern!(py, "get_loop"))?;
        let arguments = (wake_function(py), woken);
        event_loop.call_method1(intern!(py, "call_soon_threadsafe"), arguments).map(drop)
    }
}

impl Wake for LoopWaker {
    fn wake(self: Arc<Self>) {
        if self.has_fired.swap(true, Ordering::Relaxed) {
            return;
        }
        if attached::is_here() {
            Python::attach(|py| self.deliver(py));
        } else {
            let messenger = Arc::clone(&self.messenger);
            messenger.send(Box::new(move |py| attached::with(py, || self.deliver(py))));
        }
    }
}

/// In the loop's own thread.
#[pyfunction]
fn wake(woken: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = woken.py();
    // Cancelled, perhaps.
    if !woken.call_method0(intern!(py, "done"))?.is_truthy()? {
        woken.call_method1(intern!(py, "set_result"), (py.None(),))?;
    }
    Ok(())
}

fn wake_function(py: Python<'_>) -> &Bound<'_, PyAny> {
    static WAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let function = WAKE.get_or_init(py, || match wrap_pyfunction!(wake, py) {
        Ok(function) => function.into_any().unbind(),
        Err(_) => py.None(),
    });
    function.bind(py)
}

/// Lets a thread go on that waits without an event loop.
#[derive(Default)]
pub(crate) struct ThreadWaker {
    is_woken: Mutex<bool>,
    woken: Condvar,
}

impl ThreadWaker {
    /// Waits until woken, for so long at most. Call it without the interpreter.
    pub(crate) fn wait(&self, at_most: Option<Duration>) {
        let mut is_woken = self.is_woken.lock();
        while !*is_woken {
            match at_most {
                None => self.woken.wait(&mut is_woken),
                Some(at_most) => {
                    if self.woken.wait_for(&mut is_woken, at_most).timed_out() {
                        return;
                    }
                }
            }
        }
        *is_woken = false;
    }
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        *self.is_woken.lock() = true;
        self.woken.notify_one();
    }
}
