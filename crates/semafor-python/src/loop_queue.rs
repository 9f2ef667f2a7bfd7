//! Runs callbacks in an event loop, from any thread.
//!
//! The threads of the engine watch deadlines and send heartbeats. They must never wait for the interpreter, because C
//! code can keep its lock for long. So they only queue a callback and write a byte to a socket. The event loop reads
//! the socket and runs the callbacks.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use parking_lot::Mutex;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::{attached, process};

pub(crate) type Callback = Box<dyn for<'py> FnOnce(Python<'py>) + Send>;

/// The callbacks for one event loop.
pub(crate) struct LoopQueue {
    wake_sender: UnixStream,
    pending: Mutex<Pending>,
    loop_address: usize,
    fork_count: u32,
}

#[derive(Default)]
struct Pending {
    callbacks: Vec<Callback>,
    is_closed: bool,
}

/// By the address of the loop. A closed loop has closed its queue, so another loop may get the same address.
static QUEUES: Mutex<Option<HashMap<usize, Weak<LoopQueue>>>> = Mutex::new(None);

impl LoopQueue {
    /// Returns the queue of `event_loop`; opens it if there is none. Call it on the thread of the loop.
    pub(crate) fn of(event_loop: &Bound<'_, PyAny>) -> PyResult<Arc<Self>> {
        let loop_address = event_loop.as_ptr() as usize;
        let known = QUEUES.lock().get_or_insert_default().get(&loop_address).and_then(Weak::upgrade);
        if let Some(queue) = known.filter(|queue| queue.is_open()) {
            return Ok(queue);
        }
        let queue = Self::open(event_loop)?;
        let mut queues = QUEUES.lock();
        let queues = queues.get_or_insert_default();
        queues.retain(|_, queue| queue.strong_count() > 0);
        queues.insert(loop_address, Arc::downgrade(&queue));
        Ok(queue)
    }

    fn open(event_loop: &Bound<'_, PyAny>) -> PyResult<Arc<Self>> {
        let py = event_loop.py();
        let (wake_sender, wake_receiver) = UnixStream::pair()?;
        wake_sender.set_nonblocking(true)?;
        wake_receiver.set_nonblocking(true)?;
        let receiver_fd = wake_receiver.as_raw_fd();
        let (loop_address, fork_count) = (event_loop.as_ptr() as usize, process::fork_count());
        let queue = Arc::new(Self { wake_sender, pending: Mutex::default(), loop_address, fork_count });
        // Only the loop has a reference to the reader: closing the loop drops it.
        let reader = Bound::new(py, Reader { queue: Arc::clone(&queue), wake_receiver })?;
        event_loop.call_method1(intern!(py, "add_reader"), (receiver_fd, reader))?;
        Ok(queue)
    }

    fn is_open(&self) -> bool {
        self.fork_count == process::fork_count() && !self.pending.lock().is_closed
    }

    /// True if the loop runs on this thread now. A loop may move from thread to thread.
    pub(crate) fn is_running_here(&self, py: Python<'_>) -> bool {
        static RUNNING_LOOP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let running = RUNNING_LOOP.import(py, "asyncio", "_get_running_loop").and_then(Bound::call0);
        running.is_ok_and(|event_loop| event_loop.as_ptr() as usize == self.loop_address)
    }

    /// Queues a callback. Returns false if the loop is closed.
    pub(crate) fn push(&self, callback: Callback) -> bool {
        let mut pending = self.pending.lock();
        if pending.is_closed {
            // Not under the lock: the drop may run any code.
            drop(pending);
            drop(callback);
            return false;
        }
        pending.callbacks.push(callback);
        let is_first = pending.callbacks.len() == 1;
        drop(pending);
        if is_first {
            // If the socket is full, the loop is about to read it.
            let _ = (&self.wake_sender).write(&[1]);
        }
        true
    }
}

/// The event loop calls this when the socket is readable.
#[pyclass(frozen, module = "semafor._native")]
struct Reader {
    queue: Arc<LoopQueue>,
    wake_receiver: UnixStream,
}

impl Reader {
    fn run_callbacks(&self, py: Python<'_>, is_last: bool) {
        let callbacks = {
            let mut pending = self.queue.pending.lock();
            pending.is_closed |= is_last;
            std::mem::take(&mut pending.callbacks)
        };
        attached::with(py, || callbacks.into_iter().for_each(|callback| callback(py)));
    }
}

#[pymethods]
impl Reader {
    fn __call__(&self, py: Python<'_>) {
        while (&self.wake_receiver).read(&mut [0; 64]).is_ok_and(|count| count == 64) {}
        self.run_callbacks(py, false);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if self.queue.fork_count == process::fork_count() {
            // Runs the callbacks that are left, and closes the queue. They find that the loop is closed.
            Python::attach(|py| self.run_callbacks(py, true));
        }
    }
}
