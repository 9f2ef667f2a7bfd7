//! A process that kills the command if this process is killed.
//!
//! It is a fork of this process, made right before the child is started, and only reads from a pipe whose other end
//! only we hold. We send it the child's pid, and dismiss it when the child has ended. If the pipe closes before that,
//! it kills the child's process tree, which it finds by the mark even without the pid. As a fork it also holds our
//! connection to the agent, which releases the slot when the connection closes: so the slot is released only when the
//! tree is dead.
//!
//! It has its own session and blocks all signals, so signals to our group and from the terminal do not reach it. It
//! does not hold stdin, stdout and stderr. If it dies first, the command continues without it.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{Pid, Signal, WaitOptions, setsid, waitpid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use super::process_tree::ProcessTree;
use super::system::{self, Blocked};

/// Repeats the kill for a process that can't die yet, for example because it waits for a disk.
const MAX_KILL_ATTEMPTS: u32 = 3_000;
const KILL_INTERVAL: Duration = Duration::from_millis(10);

pub(super) struct Guardian {
    pid: Pid,
    pipe: PipeWriter,
}

impl Guardian {
    /// Starts the guardian of a child that is about to be started.
    pub(super) fn start(tree: ProcessTree) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        // The fork shares our signal pipe: a signal there would be handled here.
        let _blocked = Blocked::all();
        // SAFETY: the fork only runs `watch` and exits; neither allocates, locks or prints.
        match unsafe { system::fork() }? {
            Some(pid) => Ok(Self { pid, pipe: writer }),
            None => {
                drop(writer);
                watch(reader, tree);
                system::exit_now()
            }
        }
    }

    /// Sends the pid of the started child.
    pub(super) fn set_child(&self, child: Pid, has_own_group: bool) {
        let child = child.as_raw_nonzero().get();
        self.send(if has_own_group { -child } else { child });
    }

    /// Ends the guardian without killing anything.
    pub(super) fn dismiss(&self) {
        self.send(DISMISS);
    }

    fn send(&self, word: i32) {
        let _ = (&self.pipe).write(&word.to_ne_bytes());
    }
}

/// Dismisses the guardian and waits for its end.
impl Drop for Guardian {
    fn drop(&mut self) {
        self.dismiss();
        let _ = waitpid(Some(self.pid), WaitOptions::empty());
    }
}

/// The message that dismisses the guardian. All others are pids as in `kill`: negative for a group.
const DISMISS: i32 = 0;

/// The main function of the guardian.
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

/// A reader of our output must not wait for the guardian to end.
fn redirect_standard_streams() {
    if let Ok(null) = openat(CWD, c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        let _ = dup2_stdin(&null);
        let _ = dup2_stdout(&null);
        let _ = dup2_stderr(&null);
    }
}
