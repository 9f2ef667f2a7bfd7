//! How the engine reaches an event loop: it leaves a letter there, and rings.
//!
//! Who rings keeps deadlines and heartbeats, and must not stand still because some C code does not let go of the interpreter.
//! So nothing of ours ever waits for the interpreter: ringing is writing a byte that the loop listens for, and the letters
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

pub(crate) type Letter = Box<dyn for<'py> FnOnce(Python<'py>) + Send>;

/// That of one event loop.
pub(crate) struct Bell {
    rope: UnixStream,
    post: Mutex<Post>,
    /// Of the loop.
    address: usize,
    life: u32,
}

#[derive(Default)]
struct Post {
    letters: Vec<Letter>,
    is_closed: bool,
}

/// By the address of the loop. A loop that is gone has closed its bell, so an address that is used again does no harm.
static BELLS: Mutex<Option<HashMap<usize, Weak<Bell>>>> = Mutex::new(None);

impl Bell {
    /// That of `event_loop`, hung up if need be. Call it where the loop runs.
    pub(crate) fn of(event_loop: &Bound<'_, PyAny>) -> PyResult<Arc<Self>> {
        let address = event_loop.as_ptr() as usize;
        let known = BELLS.lock().get_or_insert_default().get(&address).and_then(Weak::upgrade);
        if let Some(bell) = known.filter(|bell| bell.is_of_use()) {
            return Ok(bell);
        }
        let bell = Self::hang_up(event_loop)?;
        let mut bells = BELLS.lock();
        let bells = bells.get_or_insert_default();
        bells.retain(|_, bell| bell.strong_count() > 0);
        bells.insert(address, Arc::downgrade(&bell));
        Ok(bell)
    }

    fn hang_up(event_loop: &Bound<'_, PyAny>) -> PyResult<Arc<Self>> {
        let py = event_loop.py();
        let (rope, clapper) = UnixStream::pair()?;
        rope.set_nonblocking(true)?;
        clapper.set_nonblocking(true)?;
        let listened_to = clapper.as_raw_fd();
        let (address, life) = (event_loop.as_ptr() as usize, process::life());
        let bell = Arc::new(Self { rope, post: Mutex::default(), address, life });
        // Only the loop has it: when the loop is closed, it goes.
        let ear = Bound::new(py, Ear { bell: Arc::clone(&bell), clapper })?;
        event_loop.call_method1(intern!(py, "add_reader"), (listened_to, ear))?;
        Ok(bell)
    }

    fn is_of_use(&self) -> bool {
        self.life == process::life() && !self.post.lock().is_closed
    }

    /// True in whatever the loop is running right now. A loop may move from thread to thread.
    pub(crate) fn is_here(&self, py: Python<'_>) -> bool {
        static RUNNING_LOOP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let running = RUNNING_LOOP.import(py, "asyncio", "_get_running_loop").and_then(Bound::call0);
        running.is_ok_and(|event_loop| event_loop.as_ptr() as usize == self.address)
    }

    /// Has the loop read the letter. False if the loop is closed.
    pub(crate) fn ring(&self, letter: Letter) -> bool {
        let mut post = self.post.lock();
        if post.is_closed {
            // Not under the lock: it may hold anything.
            drop(post);
            drop(letter);
            return false;
        }
        post.letters.push(letter);
        let is_first = post.letters.len() == 1;
        drop(post);
        if is_first {
            // If it is full, it rings already.
            let _ = (&self.rope).write(&[1]);
        }
        true
    }
}

/// What an event loop calls when its bell rings.
#[pyclass(frozen, module = "semafor._native")]
struct Ear {
    bell: Arc<Bell>,
    clapper: UnixStream,
}

impl Ear {
    fn read(&self, py: Python<'_>, is_last: bool) {
        let letters = {
            let mut post = self.bell.post.lock();
            post.is_closed |= is_last;
            std::mem::take(&mut post.letters)
        };
        attached::with(py, || letters.into_iter().for_each(|letter| letter(py)));
    }
}

#[pymethods]
impl Ear {
    fn __call__(&self, py: Python<'_>) {
        while (&self.clapper).read(&mut [0; 64]).is_ok_and(|count| count == 64) {}
        self.read(py, false);
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        if self.bell.life == process::life() {
            // Whoever has got a letter learns that nobody is there any more.
            Python::attach(|py| self.read(py, true));
        }
    }
}
