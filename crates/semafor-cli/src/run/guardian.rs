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

use super::family::Family;
use super::system::{self, Blocked};

/// For what can't be killed right now, because it waits for a disk, say.
const LOOKS: u32 = 3_000;
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

pub(super) struct Guardian {
    pid: Pid,
    line: PipeWriter,
}

impl Guardian {
    /// Sets one over the family of a child that is about to be started.
    pub(super) fn over(family: Family) -> io::Result<Self> {
        let (theirs, line) = io::pipe()?;
        // Ours would be heard there, and answered here: the two share what listens.
        let _quiet = Blocked::all();
        // SAFETY: the copy does what is written here, and none of it allocates, locks or prints.
        match unsafe { system::fork() }? {
            Some(pid) => Ok(Self { pid, line }),
            None => {
                drop(line);
                watch(theirs, family);
                system::leave()
            }
        }
    }

    /// The child is there.
    pub(super) fn entrust(&self, child: Pid, has_own_group: bool) {
        let child = child.as_raw_nonzero().get();
        self.tell(if has_own_group { -child } else { child });
    }

    /// There is nothing left to guard.
    pub(super) fn dismiss(&self) {
        self.tell(GO);
    }

    fn tell(&self, word: i32) {
        let _ = (&self.line).write(&word.to_ne_bytes());
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
const GO: i32 = 0;

/// What the guardian does, all its life.
fn watch(mut line: PipeReader, mut family: Family) {
    let _ = setsid();
    let_go_of_the_users_files();
    let mut word = [0; size_of::<i32>()];
    while line.read_exact(&mut word).is_ok() {
        match i32::from_ne_bytes(word) {
            GO => return,
            child => {
                if let Some(pid) = Pid::from_raw(child.saturating_abs()) {
                    family.welcome(pid, child < 0);
                }
            }
        }
    }
    for _ in 0..LOOKS {
        family.signal(Signal::KILL);
        if family.is_gone() {
            return;
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

/// Whoever reads what we print must not have to wait for the guardian.
fn let_go_of_the_users_files() {
    if let Ok(nothing) = openat(CWD, c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        let _ = dup2_stdin(&nothing);
        let _ = dup2_stdout(&nothing);
        let _ = dup2_stderr(&nothing);
    }
}
