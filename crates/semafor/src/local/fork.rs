//! Connections and lifelines of this process, which a forked child has to close.

use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::driver;
use super::lifeline::Lifeline;

static CONNECTIONS: Mutex<Vec<Weak<UnixStream>>> = Mutex::new(Vec::new());
static LIFELINES: Mutex<Vec<Weak<File>>> = Mutex::new(Vec::new());

pub(super) fn register_lifeline(lifeline: &Lifeline) {
    register(&LIFELINES, lifeline.file());
}

pub(super) fn register_connection(stream: &Arc<UnixStream>) {
    register(&CONNECTIONS, stream);
}

fn register<T>(all: &Mutex<Vec<Weak<T>>>, new: &Arc<T>) {
    let mut all = all.lock();
    all.retain(|known| known.strong_count() > 0);
    all.push(Arc::downgrade(new));
}

/// Closes the connections and lifelines of the parent: as long as any process has them open, the parent counts as
/// alive.
pub(crate) fn after_fork() {
    driver::after_fork();
    let Ok(dev_null) = File::open("/dev/null") else { return };
    // If another thread of the parent held the lock during the fork, they stay open.
    if let Some(mut connections) = CONNECTIONS.try_lock() {
        connections
            .drain(..)
            .filter_map(|stream| stream.upgrade())
            .for_each(|stream| replace(&*stream, &dev_null));
    }
    if let Some(mut lifelines) = LIFELINES.try_lock() {
        lifelines.drain(..).filter_map(|file| file.upgrade()).for_each(|file| replace(&*file, &dev_null));
    }
}

/// Makes the descriptor of `file` refer to `other`, under its old number.
fn replace(file: &impl AsRawFd, other: &File) {
    // SAFETY: the descriptor is open as long as `file` exists. Its owner keeps it; from now on it refers to `other`.
    let mut descriptor = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(file.as_raw_fd()) });
    // If this fails, the file stays open.
    let _ = rustix::io::dup2(other, &mut descriptor);
}
