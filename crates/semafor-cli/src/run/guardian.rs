//! A process that outlives this one for a moment, if this one is killed, and ends what it leaves behind.
//!
//! It is a copy of this process, made right before the child is started, and does nothing but read from a line whose other
//! end only we hold. It is told of the child when there is one, and told to go when the child has ended. When the line ends
//! without that, it kills the child's family first; even one it was not told of, because it knows the mark. Being a copy, it also holds our connection to the home: a home that takes the end of the connection for the end of
//! the holder gives the slot to nobody before all of the family are dead.
//!
//! It has a session of its own and hears no signals, so what is sent to our group or typed on the terminal does not reach it.
//! It lets go of what the user reads and writes. If it dies first, we go on without it.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{Pid, Signal, WaitOptions, setsid, waitpid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use super::process_tree::ProcessTree;
use super::system::{self, Blocked};

/// For what can't be killed right now, because it waits for a disk, say.
const MAX_KILL_ATTEMPTS: u32 = 3_000;
const KILL_INTERVAL: Duration = Duration::from_millis(10);

pub(super) struct Guardian {
    pid: Pid,
    pipe: PipeWriter,
}

impl Guardian {
    /// Sets one over the family of a child that is about to be started.
    pub(super) fn start(tree: ProcessTree) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        // Ours would be heard there, and answered here: the two share what listens.
        let _blocked = Blocked::all();
        // SAFETY: the copy does what is written here, and none of it allocates, locks or prints.
        match unsafe { system::fork() }? {
            Some(pid) => Ok(Self { pid, pipe: writer }),
            None => {
                drop(writer);
                watch(reader, tree);
                system::exit_now()
            }
        }
    }

    /// The child is there.
    pub(super) fn set_child(&self, child: Pid, has_own_group: bool) {
        let child = child.as_raw_nonzero().get();
        self.send(if has_own_group { -child } else { child });
    }

    /// There is nothing left to guard.
    pub(super) fn dismiss(&self) {
        self.send(DISMISS);
    }

    fn send(&self, word: i32) {
        let _ = (&self.pipe).write(&word.to_ne_bytes());
    }
}

/// Waits until it is gone: soon, once it was dismissed.
impl Drop for Guardian {
    fn drop(&mut self) {
        self.dismiss();
        let _ = waitpid(Some(self.pid), WaitOptions::empty());
    }
}

/// What is said on the line, besides process ids as `kill` takes them: negative for a group.
const DISMISS: i32 = 0;

/// What the guardian does, all its life.
fn watch(mut pipe: PipeReader, mut tree: ProcessTree) {
    let _ = setsid();
    redirect_standard_streams();
    let mut word = [0; size_of::<i32>()];
    while pipe.read_exact(&mut word).is_ok() {
        match i32::from_ne_bytes(word) {
            DISMISS => return,
            child => {
                if let Some(pid) = Pid::from_raw(child.saturating_abs()) {
                    tree.set_child(pid, child < 0);
                }
            }
        }
    }
    for _ in 0..MAX_KILL_ATTEMPTS {
        tree.signal(Signal::KILL);
        if tree.is_gone() {
            return;
        }
        std::thread::sleep(KILL_INTERVAL);
    }
}

/// Whoever reads what we print must not have to wait for the guardian.
fn redirect_standard_streams() {
    if let Ok(null) = openat(CWD, c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        let _ = dup2_stdin(&null);
        let _ = dup2_stdout(&null);
        let _ = dup2_stderr(&null);
    }
}
