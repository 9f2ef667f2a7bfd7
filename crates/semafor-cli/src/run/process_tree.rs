//! The child and all that came from it, as far as they are to end with it.
//!
//! To it belong, of the processes in our session: those of the child's group; those that carry its mark in their environment,
//! which is inherited by all and survives the death of their parents (`timeout` makes a group of its own, and so does a shell
//! for each of its jobs); and whoever descends from one of these. Who has made a session of its own (`setsid`, a daemon) has
//! left the family on purpose.
//!
//! Nothing here allocates or locks: it also runs in the guardian, which is a copy of a process with several threads.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rustix::process::{
    Pid, Signal, getpid, kill_process, kill_process_group, test_kill_process, test_kill_process_group,
};

use super::processes::{self, Process};
use crate::groups::{own_group, own_session, session_of};

/// The variable by which the child's processes are told from others.
pub(super) const MARK: &str = "SEMAFOR_RUN";
const MARK_LEN: usize = 96;

#[derive(Clone, Copy)]
pub(super) struct ProcessTree {
    /// `None` before it is born.
    child: Option<Pid>,
    /// The child's own group, unless it shares ours.
    group: Option<Pid>,
    /// Ours.
    session: Option<Pid>,
    mark: Mark,
}

/// As it stands in an environment.
#[derive(Clone, Copy)]
struct Mark {
    bytes: [u8; MARK_LEN],
    len: usize,
}

impl ProcessTree {
    /// Of a child that is about to be started, with a mark that no other has.
    pub(super) fn new() -> Self {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let mark = Mark::new(&format!("{}.{}", getpid().as_raw_nonzero(), now.as_nanos()));
        Self { child: None, group: None, session: own_session(), mark }
    }

    /// The child is there, in a group of its own or in ours.
    pub(super) fn set_child(&mut self, child: Pid, has_own_group: bool) {
        self.child = Some(child);
        self.group = has_own_group.then_some(child);
    }

    /// What the child has to find in its environment under [`MARK`].
    pub(super) fn mark(&self) -> &OsStr {
        OsStr::from_bytes(&self.mark.as_bytes()[MARK.len() + 1..self.mark.len - 1])
    }

    /// Sends a signal to all of it.
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

    /// Whether nobody is left who runs.
    pub(super) fn is_gone(&self) -> bool {
        let mut is_gone = true;
        self.visit(&mut |_| is_gone = false);
        is_gone
    }
}

/// One of our session.
#[derive(Clone, Copy)]
struct Candidate {
    process: Process,
    is_member: bool,
}

/// So many of a session are looked at. The others are, once these have ended.
const MAX_CANDIDATES: usize = 2048;

/// One of the family.
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

/// Whether nobody else is in our group.
pub(super) fn is_alone_in_group() -> bool {
    let (us, group) = (getpid(), own_group());
    let mut others = false;
    let known = processes::each(|process| others |= process.group == group && process.pid != us);
    known.is_some() && !others
}

impl ProcessTree {
    fn visit(&self, callback: &mut dyn FnMut(Member)) {
        let us = getpid();
        // Started from a script, the child may have made its own.
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
            candidates[index].as_mut().expect("the next heir is there").is_member = true;
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

/// One that does not count as family, while its parent does.
fn next_child_of_member(candidates: &[Option<Candidate>]) -> Option<usize> {
    let is_member =
        |pid| candidates.iter().flatten().any(|other| other.is_member && Some(other.process.pid) == pid);
    candidates.iter().position(|one| one.is_some_and(|one| !one.is_member && is_member(one.process.parent)))
}

impl ProcessTree {
    /// Where there is nothing to look at.
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

    /// Groups of their own, a parent that is gone, an empty environment: they belong to it. The one who left does not.
    #[test]
    fn all_descendants_of_the_child_are_killed() {
        let mut tree = ProcessTree::new();
        let script = "set -m; sleep 60 & (sleep 60 &) & env -i sleep 60 & setsid sleep 2 & wait; sleep 60";
        let mut bash = Command::new("bash");
        let mut child = bash.args(["-c", script]).env(MARK, tree.mark()).process_group(0).spawn().unwrap();
        until("all are found by their marks", || count(&tree) == 4);
        tree.set_child(Pid::from_child(&child), true);
        until("the shell and its three", || count(&tree) == 4);

        tree.signal(Signal::KILL);
        child.wait().unwrap();
        until("they are gone", || tree.is_gone());
    }
}
