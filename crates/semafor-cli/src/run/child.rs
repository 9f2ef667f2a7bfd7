//! The running command.
//!
//! It never outlives us: it is killed when this process dies for any reason. In a terminal it must behave as if started
//! without us, so its process group depends on the other processes there:
//!
//! - if we are alone in the foreground, it gets its own group and takes our place in the foreground;
//! - if others are with us in the foreground (a pipeline, a script), it stays in our group: the terminal sends its
//!   signals to the whole group, and we do not forward them a second time;
//! - in the background or without a terminal, it gets its own group. It stays in the background until it reads from the
//!   terminal, as any job does.

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

/// The process group of the command.
pub(super) enum Placement {
    OwnGroup(Option<Terminal>),
    OurGroup,
}

impl Placement {
    /// Must run before the guardian is started, which is in our group at first.
    pub(super) fn choose() -> Self {
        match Terminal::controlling() {
            // Without a group that has a pid here, we could not take the terminal back.
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

/// A change of the child's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StateChange {
    Stopped(Signal),
    Ended(ChildExit),
}

/// How the child ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ChildExit {
    Exited(u8),
    Killed(i32),
}

impl Child {
    /// Starts the command. Must run on the main thread: the child is killed when the thread that started it ends.
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
        // SAFETY: between fork and exec this only makes system calls; it does not allocate or lock.
        unsafe { command.pre_exec(before_exec) };
        match command.spawn() {
            Ok(child) => {
                let (pid, has_own_group) =
                    (Pid::from_child(&child), matches!(placement, Placement::OwnGroup(_)));
                tree.set_child(pid, has_own_group);
                if has_own_group {
                    // Ctrl-Z does not reach another group, so forward it. Without the listener it is not forwarded.
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

    /// The child and all its descendants.
    pub(super) fn tree(&self) -> ProcessTree {
        self.tree
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    pub(super) fn has_own_group(&self) -> bool {
        matches!(self.placement, Placement::OwnGroup(_))
    }

    /// Forwards a signal that was sent to us. Signals that end, stop, continue or resize a job go to its whole group,
    /// as from a terminal. Other signals go only to the child: they would kill processes that do not handle them.
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
            // The terminal has sent it to our whole group already.
            Placement::OurGroup if is_for_group && !matches!(signal, Signal::HUP | Signal::TERM) => Ok(()),
            _ => kill_process(self.pid, signal),
        };
    }

    /// The change since the last call. `None` if nothing changed, and always after the end.
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

    /// Called when the child was stopped. Stops this process as well, so that the shell sees a stopped job. Returns
    /// when this process continues: true if the child must be continued, too.
    pub(super) fn stop_this_process_too(&mut self, signal: Signal) -> bool {
        // In our group, the terminal stops us as well. Without a terminal, no shell would continue us.
        let Placement::OwnGroup(Some(terminal)) = &mut self.placement else { return false };
        let was_given = terminal.is_given();
        terminal.take_back();
        match signal {
            // The child needs the terminal and can have it: the shell has moved us to the foreground meanwhile.
            Signal::TTIN | Signal::TTOU if !was_given && terminal.is_ours() => {}
            Signal::TTIN | Signal::TTOU | Signal::TSTP => with_default_sigcont(|| {
                system::with_default(signal, || {
                    let _ = kill_current_process_group(signal);
                });
            }),
            // The child was in the foreground, so a shell waits for this job.
            _ if was_given => with_default_sigcont(|| {
                let _ = kill_process(getpid(), Signal::STOP);
            }),
            // Only the child was meant to stop.
            _ => return false,
        }
        true
    }

    /// Continues the child, in the foreground if we are there.
    pub(super) fn resume(&mut self) {
        if let Placement::OwnGroup(Some(terminal)) = &mut self.placement
            && terminal.is_ours()
        {
            terminal.give(self.pid);
        }
        self.forward(Signal::CONT);
    }

    /// True if keys typed on the terminal reach the child.
    pub(super) fn is_in_foreground(&self) -> bool {
        match &self.placement {
            Placement::OwnGroup(terminal) => terminal.as_ref().is_some_and(Terminal::is_ours),
            Placement::OurGroup => true,
        }
    }
}

/// Stops this process with the default action for SIGCONT, so that the signal that continues us is not also forwarded
/// to the child: a second SIGCONT might undo the next Ctrl-Z.
fn with_default_sigcont(stop: impl FnOnce()) {
    system::with_default(Signal::CONT, stop);
}

/// From now on, this process is killed when `parent` ends. If `parent` has ended already, exits now.
#[cfg(target_os = "linux")]
fn die_with_parent(parent: Pid) {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    if rustix::process::getppid() != Some(parent) {
        system::exit_now();
    }
}

/// Other systems have no such signal; the guardian kills the command.
#[cfg(not(target_os = "linux"))]
fn die_with_parent(_: Pid) {}
