//! The child and its descendants: the processes that must end with it.
//!
//! Members are processes of our session that are in the child's group, or have the child's mark in their environment,
//! or descend from a member. The mark is inherited, so it also finds processes in other groups (`timeout` and the jobs
//! of a shell have their own) whose parents have ended. A process with its own session (`setsid`, a daemon) is no
//! member: it has detached on purpose.
//!
//! Nothing here allocates or locks, because it also runs in the guardian, a fork of a process with several threads.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rustix::process::{
    Pid, Signal, getpid, kill_process, kill_process_group, test_kill_process, test_kill_process_group,
};

use super::processes::{self, Process};
use crate::groups::{own_group, own_session, session_of};

/// The environment variable with the mark.
pub(super) const MARK: &str = "SEMAFOR_RUN";
const MARK_LEN: usize = 96;

#[derive(Clone, Copy)]
pub(super) struct ProcessTree {
    /// `None` before it is started.
    child: Option<Pid>,
    /// The child's own group, unless it shares ours.
    group: Option<Pid>,
    /// Our session.
    session: Option<Pid>,
    mark: Mark,
}

/// The variable with its value, as bytes of an environment: `SEMAFOR_RUN=value\0`.
#[derive(Clone, Copy)]
struct Mark {
    bytes: [u8; MARK_LEN],
    len: usize,
}

impl ProcessTree {
    /// The tree of a child that is about to be started, with a unique mark.
    pub(super) fn new() -> Self {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let mark = Mark::new(&format!("{}.{}", getpid().as_raw_nonzero(), now.as_nanos()));
        Self { child: None, group: None, session: own_session(), mark }
    }

    /// Sets the started child, which has its own group or is in ours.
    pub(super) fn set_child(&mut self, child: Pid, has_own_group: bool) {
        self.child = Some(child);
        self.group = has_own_group.then_some(child);
    }

    /// The value of the variable [`MARK`] for the child.
    pub(super) fn mark(&self) -> &OsStr {
        OsStr::from_bytes(&self.mark.as_bytes()[MARK.len() + 1..self.mark.len - 1])
    }

    /// Sends a signal to all members.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, signal);
        }
        self.visit(&mut |member| {
            if self.group.is_none() || member.group != self.group {
                let _ = kill_process(member.pid, signal);
            }
        });
    }

    /// True if no member is running.
    pub(super) fn is_gone(&self) -> bool {
        let mut is_gone = true;
        self.visit(&mut |_| is_gone = false);
        is_gone
    }
}

/// A process of our session.
#[derive(Clone, Copy)]
struct Candidate {
    process: Process,
    is_member: bool,
}

/// How many processes of the session are checked at a time. Callers repeat the check until none is left.
const MAX_CANDIDATES: usize = 2048;

/// A process that belongs to the tree.
struct Member {
    pid: Pid,
    group: Option<Pid>,
}

impl Mark {
    fn new(value: &str) -> Self {
        let mut mark = Self { bytes: [0; MARK_LEN], len: 0 };
        for part in [MARK, "=", value, "\0"] {
            let room = &mut mark.bytes[mark.len..];
            let len = part.len().min(room.len());
            room[..len].copy_from_slice(&part.as_bytes()[..len]);
            mark.len += len;
        }
        mark
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// True if we are the only process of our group. False if that is unknown.
pub(super) fn is_alone_in_group() -> bool {
    let (us, group) = (getpid(), own_group());
    let mut others = false;
    let known = processes::each(|process| others |= process.group == group && process.pid != us);
    known.is_some() && !others
}

impl ProcessTree {
    fn visit(&self, callback: &mut dyn FnMut(Member)) {
        let us = getpid();
        // The child may have created its own session.
        let sessions = [self.session, self.child.and_then(session_of).unwrap_or(self.session)];
        let mut candidates = [None; MAX_CANDIDATES];
        let mut count = 0;
        let listed = processes::each(|process| {
            let is_candidate = sessions.contains(&process.session);
            if is_candidate && process.pid != us && !process.is_dead && count < MAX_CANDIDATES {
                candidates[count] = Some(Candidate { process, is_member: self.is_direct_member(&process) });
                count += 1;
            }
        });
        if listed.is_none() {
            return self.visit_group(callback);
        }
        let candidates = &mut candidates[..count];
        while let Some(index) = next_child_of_member(candidates) {
            candidates[index].as_mut().expect("the index is of an entry").is_member = true;
        }
        for member in candidates.iter().flatten().filter(|one| one.is_member) {
            callback(Member { pid: member.process.pid, group: member.process.group });
        }
    }

    fn is_direct_member(&self, process: &Process) -> bool {
        Some(process.pid) == self.child
            || self.group.is_some() && process.group == self.group
            || processes::has_in_environment(process.pid, self.mark.as_bytes())
    }
}

/// The next process that is not a member yet although its parent is.
fn next_child_of_member(candidates: &[Option<Candidate>]) -> Option<usize> {
    let is_member =
        |pid| candidates.iter().flatten().any(|other| other.is_member && Some(other.process.pid) == pid);
    candidates.iter().position(|one| one.is_some_and(|one| !one.is_member && is_member(one.process.parent)))
}

impl ProcessTree {
    /// Used where processes can't be listed.
    fn visit_group(&self, callback: &mut dyn FnMut(Member)) {
        let Some(child) = self.child else { return };
        let is_there = match self.group {
            Some(group) => test_kill_process_group(group).is_ok(),
            None => test_kill_process(child).is_ok(),
        };
        if is_there {
            callback(Member { pid: child, group: self.group });
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use std::time::Duration;

    use super::*;

    fn count(tree: &ProcessTree) -> usize {
        let mut count = 0;
        tree.visit(&mut |_| count += 1);
        count
    }

    fn until(what: &str, is_so: impl Fn() -> bool) {
        for _ in 0..500 {
            if is_so() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("not in time: {what}");
    }

    /// Processes with their own group, without a parent or without an environment are members. One with its own session
    /// is not.
    #[test]
    fn all_descendants_of_the_child_are_killed() {
        let mut tree = ProcessTree::new();
        let script = "set -m; sleep 60 & (sleep 60 &) & env -i sleep 60 & setsid sleep 2 & wait; sleep 60";
        let mut bash = Command::new("bash");
        let mut child = bash.args(["-c", script]).env(MARK, tree.mark()).process_group(0).spawn().unwrap();
        until("all are found by the mark", || count(&tree) == 4);
        tree.set_child(Pid::from_child(&child), true);
        until("the shell and its three children are found", || count(&tree) == 4);

        tree.signal(Signal::KILL);
        child.wait().unwrap();
        until("all are gone", || tree.is_gone());
    }
}
