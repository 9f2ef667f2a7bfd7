//! The terminal, and whose turn it is to use it.
//!
//! A group of processes is in the foreground: keys reach it, and it alone may read. A child with a group of its own is put
//! there in our place, and we go back there when it stops or ends: the shell that waits for us must find us where it left us.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::process::{Pid, Signal};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

use super::system::Blocked;
use crate::groups::own_group;

pub(super) struct Terminal {
    tty: Arc<OwnedFd>,
    /// How it was set when the child got it, to be put right after a child that was killed.
    modes: Option<Termios>,
    is_given: bool,
}

impl Terminal {
    /// The one that controls this process, wherever its output goes.
    pub(super) fn controlling() -> Option<Self> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let tty = openat(CWD, c"/dev/tty", flags, Mode::empty()).ok()?;
        Some(Self { tty: Arc::new(tty), modes: None, is_given: false })
    }

    /// Whether our group is in the foreground.
    pub(super) fn is_ours(&self) -> bool {
        tcgetpgrp(&*self.tty).is_ok_and(|group| Some(group) == own_group())
    }

    pub(super) fn is_given(&self) -> bool {
        self.is_given
    }

    /// For a child that puts itself there, before it begins.
    pub(super) fn give_to_new_child(&mut self) -> Arc<OwnedFd> {
        self.is_given = true;
        self.modes = tcgetattr(&*self.tty).ok();
        Arc::clone(&self.tty)
    }

    /// Puts the child's group there, in our place.
    pub(super) fn give(&mut self, group: Pid) {
        self.is_given = true;
        set_foreground(&self.tty, group);
    }

    /// Back into the foreground, if the child is there in our place.
    pub(super) fn take_back(&mut self) {
        if std::mem::take(&mut self.is_given)
            && let Some(group) = own_group()
        {
            set_foreground(&self.tty, group);
        }
    }

    /// After a child that had no chance to do it.
    pub(super) fn restore_modes(&self) {
        if let Some(modes) = &self.modes
            && self.is_ours()
        {
            let _ = tcsetattr(&*self.tty, OptionalActions::Drain, modes);
        }
    }
}

/// Puts a group into the foreground. Async-signal-safe.
pub(super) fn set_foreground(tty: &OwnedFd, group: Pid) {
    // Who is not there itself is stopped for trying, unless it does not hear of it.
    let _blocked = Blocked::one(Signal::TTOU);
    let _ = tcsetpgrp(tty, group);
}

/// Whether this process reads from another one's output, or another one from its: it is part of a pipeline then, even if the
/// shell has not started the rest of it yet.
pub(super) fn is_piped() -> bool {
    let is_pipe =
        |file| fstat(file).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
    is_pipe(rustix::stdio::stdin()) || is_pipe(rustix::stdio::stdout())
}
