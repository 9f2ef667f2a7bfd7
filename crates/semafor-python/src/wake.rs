//! Wakers that wake tasks and threads of Python.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::Wake;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

use crate::attached;
use crate::call::Work;
use crate::loop_queue::LoopQueue;

/// Sets the result of a future that a task of an event loop awaits.
pub(crate) struct LoopWaker {
    /// Weak: the engine keeps the waker, which must not keep an abandoned task alive.
    woken: Py<PyWeakrefReference>,
    queue: Arc<LoopQueue>,
    work: Weak<Work>,
    has_fired: AtomicBool,
}

impl LoopWaker {
    /// Call it on the thread of the loop.
    pub(crate) fn new(
        event_loop: &Bound<'_, PyAny>,
        woken: &Bound<'_, PyAny>,
        work: &Arc<Work>,
    ) -> PyResult<Self> {
        Ok(Self {
            woken: PyWeakrefReference::new(woken)?.unbind(),
            queue: LoopQueue::of(event_loop)?,
            work: Arc::downgrade(work),
            has_fired: AtomicBool::new(false),
        })
    }

    /// Wakes the future if its loop runs on this thread. Returns whether it does.
    fn wake_if_running_here(&self, py: Python<'_>) -> bool {
        let is_running_here = self.queue.is_running_here(py);
        if is_running_here {
            self.wake_future(py);
        }
        is_running_here
    }

    /// Call it on the thread of the loop.
    fn wake_future(&self, py: Python<'_>) {
        if self.set_result(py).is_err() {
            self.abandon_call();
        }
    }

    fn set_result(&self, py: Python<'_>) -> PyResult<()> {
        let Some(woken) = self.woken.bind(py).upgrade() else { return Ok(()) };
        // It may be cancelled.
        if !woken.call_method0(intern!(py, "done"))?.is_truthy()? {
            woken.call_method1(intern!(py, "set_result"), (py.None(),))?;
        }
        Ok(())
    }

    /// Called if the loop is closed: its task never runs again, so its call must not keep a slot or a place in line.
    fn abandon_call(&self) {
        if let Some(work) = self.work.upgrade() {
            work.abandon();
        }
    }
}

impl Wake for LoopWaker {
    fn wake(self: Arc<Self>) {
        if self.has_fired.swap(true, Ordering::Relaxed) {
            return;
        }
        if attached::is_known() && Python::attach(|py| self.wake_if_running_here(py)) {
            return;
        }
        let this = Arc::clone(&self);
        if !self.queue.push(Box::new(move |py| this.wake_future(py))) {
            self.abandon_call();
        }
    }
}

/// Wakes a thread that waits without an event loop.
#[derive(Default)]
pub(crate) struct ThreadWaker {
    is_woken: Mutex<bool>,
    woken: Condvar,
}

impl ThreadWaker {
    /// Waits until woken, at most for `at_most`. Call it detached from the interpreter.
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
