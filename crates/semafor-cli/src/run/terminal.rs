//! The terminal and its foreground process group.
//!
//! Only the foreground group receives keys and may read. A child with its own group takes our place there. When it
//! stops or ends, we take the foreground back, because the shell that waits for us expects us there.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::process::{Pid, Signal};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

use super::system::Blocked;
use crate::groups::own_group;

pub(super) struct Terminal {
    tty: Arc<OwnedFd>,
    /// The modes when the child got the terminal, restored after a child that was killed.
    modes: Option<Termios>,
    is_given: bool,
}

impl Terminal {
    /// The controlling terminal of this process, wherever its output goes.
    pub(super) fn controlling() -> Option<Self> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let tty = openat(CWD, c"/dev/tty", flags, Mode::empty()).ok()?;
        Some(Self { tty: Arc::new(tty), modes: None, is_given: false })
    }

    /// True if our group is in the foreground.
    pub(super) fn is_ours(&self) -> bool {
        tcgetpgrp(&*self.tty).is_ok_and(|group| Some(group) == own_group())
    }

    pub(super) fn is_given(&self) -> bool {
        self.is_given
    }

    /// For a new child, which moves itself to the foreground before exec.
    pub(super) fn give_to_new_child(&mut self) -> Arc<OwnedFd> {
        self.is_given = true;
        self.modes = tcgetattr(&*self.tty).ok();
        Arc::clone(&self.tty)
    }

    /// Moves the child's group to the foreground.
    pub(super) fn give(&mut self, group: Pid) {
        self.is_given = true;
        set_foreground(&self.tty, group);
    }

    /// Moves our group back to the foreground, if the child had it.
    pub(super) fn take_back(&mut self) {
        if std::mem::take(&mut self.is_given)
            && let Some(group) = own_group()
        {
            set_foreground(&self.tty, group);
        }
    }

    /// Restores the modes after a child that was killed and could not do so.
    pub(super) fn restore_modes(&self) {
        if let Some(modes) = &self.modes
            && self.is_ours()
        {
            let _ = tcsetattr(&*self.tty, OptionalActions::Drain, modes);
        }
    }
}

/// Moves a group to the foreground. Async-signal-safe.
pub(super) fn set_foreground(tty: &OwnedFd, group: Pid) {
    // A background process that does this gets SIGTTOU, which would stop it.
    let _blocked = Blocked::one(Signal::TTOU);
    let _ = tcsetpgrp(tty, group);
}

/// True if stdin or stdout is a pipe. Then this process is part of a pipeline, even if the shell has not started the
/// other processes yet.
pub(super) fn is_piped() -> bool {
    let is_pipe =
        |file| fstat(file).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
    is_pipe(rustix::stdio::stdin()) || is_pipe(rustix::stdio::stdout())
}
