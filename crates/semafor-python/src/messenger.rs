//! The one thread of ours that waits for the interpreter.
//!
//! Those who wake somebody in Python keep deadlines and heartbeats, and must not stand still because some C code does not
//! let go of the interpreter. They leave a letter here.

use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use pyo3::Python;

pub(crate) type Letter = Box<dyn for<'py> FnOnce(Python<'py>) + Send>;

#[derive(Default)]
pub(crate) struct Messenger {
    post: Mutex<Post>,
    arrived: Condvar,
}

#[derive(Default)]
struct Post {
    letters: Vec<Letter>,
    /// Started with the first letter.
    thread: Option<JoinHandle<()>>,
    is_closed: bool,
}

impl Messenger {
    /// Has the letter read by the interpreter, soon. After [`close`](Self::close), nobody reads it.
    pub(crate) fn send(self: &Arc<Self>, letter: Letter) {
        let mut post = self.post.lock();
        if post.is_closed {
            // Not under the lock: it may hold anything.
            drop(post);
            return drop(letter);
        }
        post.letters.push(letter);
        if post.thread.is_none() {
            let this = Arc::clone(self);
            let thread = std::thread::Builder::new().name("semafor-messenger".into());
            post.thread = thread.spawn(move || this.deliver()).ok();
        }
        drop(post);
        self.arrived.notify_one();
    }

    /// From now on nothing of ours waits for the interpreter. Call it without.
    pub(crate) fn close(&self) {
        let thread = {
            let mut post = self.post.lock();
            post.is_closed = true;
            post.thread.take()
        };
        self.arrived.notify_one();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    fn deliver(&self) {
        while let Some(letters) = self.next() {
            // `None`: the interpreter is gone, and nobody is left to be told anything.
            let _ = Python::try_attach(|py| letters.into_iter().for_each(|letter| letter(py)));
        }
    }

    fn next(&self) -> Option<Vec<Letter>> {
        let mut post = self.post.lock();
        while post.letters.is_empty() && !post.is_closed {
            self.arrived.wait(&mut post);
        }
        if post.is_closed { None } else { Some(std::mem::take(&mut post.letters)) }
    }
}
