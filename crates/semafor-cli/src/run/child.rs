//! The command, once it runs.
//!
//! It ends with us: it is killed when this process dies, whatever of. In a terminal it must not look as if we stood in
//! between, so where it belongs depends on who else is there:
//!
//! - alone in the foreground, it takes our place there, in a group of its own;
//! - with others in the foreground (a pipeline, a script), it shares our group, as it would without us: what is typed reaches
//!   all of them at once, and none of it is passed on a second time;
//! - elsewhere it has a group of its own, and waits for the foreground until it wants to read, as any job does.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_current_process_group, kill_process, kill_process_group, waitpid,
};

use super::process_tree::{self, ProcessTree};
use super::signals::Signals;
use super::system::{self, Disposition};
use super::terminal::{self, Terminal};
use crate::groups::own_group;

pub(super) struct Child {
    pid: Pid,
    tree: ProcessTree,
    placement: Placement,
}

/// Where it belongs.
pub(super) enum Placement {
    OwnGroup(Option<Terminal>),
    OurGroup,
}

impl Placement {
    /// Of a child to be started here. Asked before there is a guardian, who is in our group at first.
    pub(super) fn choose() -> Self {
        match Terminal::controlling() {
            // Given away, the terminal could not be taken back.
            Some(_) if own_group().is_none() => Self::OurGroup,
            Some(terminal)
                if terminal.is_ours() && (terminal::is_piped() || !process_tree::is_alone_in_group()) =>
            {
                Self::OurGroup
            }
            terminal => Self::OwnGroup(terminal),
        }
    }
}

/// What is new about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StateChange {
    Stopped(Signal),
    Ended(ChildExit),
}

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ChildExit {
    Exited(u8),
    Killed(i32),
}

impl Child {
    /// Starts it. From the main thread: when the thread that started it ends, so does the child.
    pub(super) fn spawn(
        mut command: Command,
        mut placement: Placement,
        mut tree: ProcessTree,
        signals: &mut Signals,
    ) -> io::Result<Self> {
        command.env(process_tree::MARK, tree.mark());
        let mut foreground = None;
        if let Placement::OwnGroup(Some(terminal)) = &mut placement
            && terminal.is_ours()
        {
            foreground = Some(terminal.give_to_new_child());
        }
        if let Placement::OwnGroup(_) = placement {
            command.process_group(0);
        }
        let (us, to_ignore_again) = (getpid(), signals.to_ignore_again());
        let before_exec = move || {
            die_with_parent(us);
            if let Some(tty) = &foreground {
                terminal::set_foreground(tty, getpid());
            }
            for signal in to_ignore_again.into_iter().flatten() {
                system::set_disposition(signal, Disposition::Ignore);
            }
            Ok(())
        };
        // SAFETY: between fork and exec this makes system calls, and does not allocate or lock.
        unsafe { command.pre_exec(before_exec) };
        match command.spawn() {
            Ok(child) => {
                let (pid, has_own_group) =
                    (Pid::from_child(&child), matches!(placement, Placement::OwnGroup(_)));
                tree.set_child(pid, has_own_group);
                if has_own_group {
                    // A Ctrl-Z does not reach it by itself. If that can't be changed, it does not.
                    let _ = signals.add_unless_ignored(Signal::TSTP);
                }
                Ok(Self { pid, tree, placement })
            }
            Err(error) => {
                if let Placement::OwnGroup(Some(terminal)) = &mut placement {
                    terminal.take_back();
                }
                Err(error)
            }
        }
    }

    /// It, and all that came from it.
    pub(super) fn tree(&self) -> ProcessTree {
        self.tree
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    pub(super) fn has_own_group(&self) -> bool {
        matches!(self.placement, Placement::OwnGroup(_))
    }

    /// Passes on what was sent to us: what ends, stops or resizes a job goes to all of its group, as from a terminal. The
    /// rest has a meaning only to whom it was sent, and would kill others that do not listen.
    pub(super) fn forward(&self, signal: Signal) {
        let is_for_group = matches!(
            signal,
            Signal::HUP
                | Signal::INT
                | Signal::QUIT
                | Signal::TERM
                | Signal::TSTP
                | Signal::CONT
                | Signal::WINCH
        );
        let _ = match self.placement {
            Placement::OwnGroup(_) if is_for_group => kill_process_group(self.pid, signal),
            // The terminal has sent it to all of our group.
            Placement::OurGroup if is_for_group && !matches!(signal, Signal::HUP | Signal::TERM) => Ok(()),
            _ => kill_process(self.pid, signal),
        };
    }

    /// What is new since it was last asked. After its end there is nothing new.
    pub(super) fn state_change(&mut self) -> Option<StateChange> {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        let (_, status) = waitpid(Some(self.pid), options).ok()??;
        let exit = if let Some(code) = status.exit_status() {
            ChildExit::Exited(u8::try_from(code).unwrap_or(u8::MAX))
        } else if let Some(signal) = status.terminating_signal() {
            ChildExit::Killed(signal)
        } else {
            return status.stopping_signal().and_then(Signal::from_named_raw).map(StateChange::Stopped);
        };
        if let Placement::OwnGroup(Some(terminal)) = &mut self.placement {
            terminal.take_back();
            if let ChildExit::Killed(_) = exit {
                terminal.restore_modes();
            }
        }
        Some(StateChange::Ended(exit))
    }

    /// It was stopped: so is this process then, and with it the job that a shell sees. Returns when that goes on, and
    /// whether the child should, too.
    pub(super) fn stop_this_process_too(&mut self, signal: Signal) -> bool {
        // In our group, the terminal has stopped us as well. Without a terminal there is nobody who would let us go on.
        let Placement::OwnGroup(Some(terminal)) = &mut self.placement else { return false };
        let was_given = terminal.is_given();
        terminal.take_back();
        match signal {
            // It wants the terminal, and can have it: the shell has put us into the foreground since it began.
            Signal::TTIN | Signal::TTOU if !was_given && terminal.is_ours() => {}
            Signal::TTIN | Signal::TTOU | Signal::TSTP => with_default_sigcont(|| {
                system::with_default(signal, || {
                    let _ = kill_current_process_group(signal);
                });
            }),
            // A shell waits for it.
            _ if was_given => with_default_sigcont(|| {
                let _ = kill_process(getpid(), Signal::STOP);
            }),
            // Just the child is to stop.
            _ => return false,
        }
        true
    }

    /// Lets it go on, in the foreground if we are there.
    pub(super) fn resume(&mut self) {
        if let Placement::OwnGroup(Some(terminal)) = &mut self.placement
            && terminal.is_ours()
        {
            terminal.give(self.pid);
        }
        self.forward(Signal::CONT);
    }

    /// Whether what is typed on a terminal reaches it.
    pub(super) fn is_in_foreground(&self) -> bool {
        match &self.placement {
            Placement::OwnGroup(terminal) => terminal.as_ref().is_some_and(Terminal::is_ours),
            Placement::OurGroup => true,
        }
    }
}

/// Stops this process. That it goes on is not heard a second time: the child is told once, because a second time might
/// undo the next Ctrl-Z.
fn with_default_sigcont(stop: impl FnOnce()) {
    system::with_default(Signal::CONT, stop);
}

/// From here on, this process ends when `parent` does. If that was before, it ends now.
#[cfg(target_os = "linux")]
fn die_with_parent(parent: Pid) {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    if rustix::process::getppid() != Some(parent) {
        system::exit_now();
    }
}

/// Left to the guardian.
#[cfg(not(target_os = "linux"))]
fn die_with_parent(_: Pid) {}
