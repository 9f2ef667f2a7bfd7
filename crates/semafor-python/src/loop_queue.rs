//! How the engine reaches an event loop: it leaves a callback there, and rings.
//!
//! Who rings keeps deadlines and heartbeats, and must not stand still because some C code does not let go of the interpreter.
//! So nothing of ours ever waits for the interpreter: ringing is writing a byte that the loop listens for, and the callbacks
//! are read when the loop gets round to it.

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

/// That of one event loop.
pub(crate) struct LoopQueue {
    wake_sender: UnixStream,
    pending: Mutex<Pending>,
    /// Of the loop.
    loop_address: usize,
    fork_count: u32,
}

#[derive(Default)]
struct Pending {
    callbacks: Vec<Callback>,
    is_closed: bool,
}

/// By the loop_address of the loop. A loop that is gone has closed its queue, so an loop_address that is used again does no harm.
static QUEUES: Mutex<Option<HashMap<usize, Weak<LoopQueue>>>> = Mutex::new(None);

impl LoopQueue {
    /// That of `event_loop`, hung up if need be. Call it where the loop runs.
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
        // Only the loop has it: when the loop is closed, it goes.
        let reader = Bound::new(py, Reader { queue: Arc::clone(&queue), wake_receiver })?;
        event_loop.call_method1(intern!(py, "add_reader"), (receiver_fd, reader))?;
        Ok(queue)
    }

    fn is_open(&self) -> bool {
        self.fork_count == process::fork_count() && !self.pending.lock().is_closed
    }

    /// True in whatever the loop is running right now. A loop may move from thread to thread.
    pub(crate) fn is_running_here(&self, py: Python<'_>) -> bool {
        static RUNNING_LOOP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let running = RUNNING_LOOP.import(py, "asyncio", "_get_running_loop").and_then(Bound::call0);
        running.is_ok_and(|event_loop| event_loop.as_ptr() as usize == self.loop_address)
    }

    /// Has the loop read the callback. False if the loop is closed.
    pub(crate) fn push(&self, callback: Callback) -> bool {
        let mut pending = self.pending.lock();
        if pending.is_closed {
            // Not under the lock: it may hold anything.
            drop(pending);
            drop(callback);
            return false;
        }
        pending.callbacks.push(callback);
        let is_first = pending.callbacks.len() == 1;
        drop(pending);
        if is_first {
            // If it is full, it rings already.
            let _ = (&self.wake_sender).write(&[1]);
        }
        true
    }
}

/// What an event loop calls when its queue rings.
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
            // Whoever has got a callback learns that nobody is there any more.
            Python::attach(|py| self.run_callbacks(py, true));
        }
    }
}
