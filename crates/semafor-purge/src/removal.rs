//! Removing, and going on with the parent.
//!
//! - `rmdir` is the only test for emptiness. Whatever was believed before, a directory that has something in it stays.
//! - The kernel removes only one entry of a directory at a time. So one thread removes in a directory, and others that
//!   have something to remove there put it on a short list for it and go on, instead of standing in line for the kernel.
//! - Nor does the kernel look up a name while it removes another. Where both take long, looking up one name after each
//!   removal would take as long again. So when the list is full nobody looks at more in that directory until half of it is
//!   done, and then all look up the next names at once.
//! - A directory that is removed is gone when nobody holds it any more. With nobody else there, that is while the kernel
//!   lets no other remove in its parent; and it can take long, on a disk that is told which blocks are free. So where it
//!   does, we hold on to what we remove, and let others let go of it.
//! - What is on the list is pending in its directory, so a directory is not finished before its list is empty.

use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;

use crate::descriptor::Descriptor;
use crate::dry_run;
use crate::error::{is_gone, is_no_directory};
use crate::facts::Facts;
use crate::licence::Refused;
use crate::node::{Node, Unavailable};
use crate::purger::Removed;
use crate::run::Stop;
use crate::walk::{Entry, Job, Worker};

/// How long a list is when it is full. Whoever has looked something up by then still puts it there.
const LONGEST_LIST: usize = 512;
/// How often whoever waits for room in a list looks whether there is a run any more.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
/// How many directories a thread may have found to be not empty, before it stops trying without looking.
const MOST_FAILED: usize = 64;
const OUT_OF_LUCK: i32 = -2;
const TIMED_EVERY: u32 = 32;
/// The same where it keeps one from work that others could do.
const RARELY_TIMED: u32 = 128;
/// So many are handed over at a time.
const HANDFUL: usize = 8;

/// What is to be removed in one directory.
#[derive(Default)]
pub(crate) struct Removals {
    list: Vec<Removal>,
    is_somebody_at_it: bool,
    /// From the time it is until half of it is done.
    is_full: bool,
}

pub(crate) struct Removal {
    what: What,
    /// What part of the whole is decided with it.
    share: u64,
}

enum What {
    /// A file that is old enough.
    File { name: Box<CStr>, facts: Facts },
    /// A directory of which nothing is known but its name.
    Unseen { name: Box<CStr> },
    /// A directory that nobody has looked into.
    Unread { name: Box<CStr>, facts: Facts },
    /// A directory in which all was removed.
    Emptied(Arc<Node>),
}

impl Removal {
    pub(crate) fn file(name: Box<CStr>, facts: Facts, share: u64) -> Self {
        Self { what: What::File { name, facts }, share }
    }

    pub(crate) fn unseen(name: Box<CStr>, share: u64) -> Self {
        Self { what: What::Unseen { name }, share }
    }

    pub(crate) fn unread(name: Box<CStr>, facts: Facts, share: u64) -> Self {
        Self { what: What::Unread { name, facts }, share }
    }

    fn emptied(node: Arc<Node>) -> Self {
        Self { what: What::Emptied(node), share: 0 }
    }

    fn name(&self) -> &CStr {
        match &self.what {
            What::File { name, .. } | What::Unseen { name } | What::Unread { name, .. } => name,
            What::Emptied(node) => &node.name,
        }
    }

    fn facts(&self) -> Option<&Facts> {
        match &self.what {
            What::File { facts, .. } | What::Unread { facts, .. } => Some(facts),
            What::Unseen { .. } => None,
            What::Emptied(node) => Some(&node.facts),
        }
    }

    /// Whether it is tried in the hope that it is empty.
    fn is_a_try(&self) -> bool {
        matches!(self.what, What::Unseen { .. } | What::Unread { .. })
    }
}

impl Node {
    /// Whether it pays to remove what is in it without looking.
    pub(crate) fn is_lucky(&self) -> bool {
        self.luck.load(Ordering::Relaxed) > OUT_OF_LUCK
    }
}

enum Outcome {
    /// It is not there any more.
    Away,
    Stays,
    NotEmpty,
}

impl Worker<'_> {
    /// Removes something from a directory, and that one from its own if it is empty then, and so on.
    pub(crate) fn remove(&mut self, mut parent: Arc<Node>, mut removal: Removal) {
        while self.remove_in(&parent, removal) {
            match self.rise(parent) {
                Some(next) => (parent, removal) = next,
                None => return,
            }
        }
    }

    /// One entry of a directory is decided.
    pub(crate) fn settle(&mut self, node: Arc<Node>, is_kept: bool) {
        if is_kept {
            node.keep();
        }
        if node.settle()
            && let Some((parent, removal)) = self.rise(node)
        {
            self.remove(parent, removal);
        }
    }

    /// All in this directory is decided. Finds the next one above that can be removed.
    fn rise(&mut self, mut node: Arc<Node>) -> Option<(Arc<Node>, Removal)> {
        loop {
            node.leave();
            let Some(parent) = node.parent().cloned() else {
                self.run.queue.close();
                return None;
            };
            if !node.is_kept() {
                return Some((parent, Removal::emptied(node)));
            }
            parent.keep();
            if !parent.settle() {
                return None;
            }
            node = parent;
        }
    }

    /// Waits while there is enough to remove in a directory, before more of it is looked at.
    pub(crate) fn await_room(&mut self, parent: &Node) {
        let mut removals = parent.removals.lock();
        if removals.is_full {
            // Who is at it may need it.
            self.licence.give_back();
        }
        while removals.is_full && !self.run.queue.is_closed() {
            parent.room.wait_for(&mut removals, BETWEEN_LOOKS);
        }
    }

    /// Removes it, or leaves that to who is at it already. True if the directory is finished with it.
    fn remove_in(&mut self, parent: &Arc<Node>, removal: Removal) -> bool {
        let mut removals = parent.removals.lock();
        if removals.is_somebody_at_it {
            removals.list.push(removal);
            removals.is_full |= removals.list.len() >= LONGEST_LIST;
            return false;
        }
        removals.is_somebody_at_it = true;
        drop(removals);
        let directory = parent.directory();
        let mut next = removal;
        let mut is_finished;
        loop {
            is_finished = self.remove_one(parent, &directory, next);
            let mut removals = parent.removals.lock();
            match removals.list.pop() {
                Some(removal) => next = removal,
                None => {
                    removals.is_somebody_at_it = false;
                    break;
                }
            }
            if removals.is_full && removals.list.len() <= LONGEST_LIST / 2 {
                removals.is_full = false;
                parent.room.notify_all();
            }
        }
        self.licence.lapse();
        is_finished
    }

    /// True if the directory is finished with it.
    fn remove_one(
        &mut self,
        parent: &Arc<Node>,
        directory: &Result<Arc<Descriptor>, Unavailable>,
        removal: Removal,
    ) -> bool {
        let outcome = match directory {
            Ok(directory) => self.try_to_remove(parent, directory, &removal),
            Err(Unavailable::Gone) => Outcome::Away,
            Err(Unavailable::Moved) => Outcome::Stays,
            Err(Unavailable::Error(errno)) => {
                self.run.error(|| self.path(parent, &removal), *errno);
                Outcome::Stays
            }
        };
        let share = removal.share;
        match outcome {
            Outcome::Away => {}
            Outcome::Stays => parent.keep(),
            Outcome::NotEmpty => match removal.what {
                What::Unseen { name } => {
                    self.look_into(parent, Job::Judge(Entry::tried(parent, name, share)));
                    return false;
                }
                What::Unread { name, facts } => {
                    let node = Node::of_entry(parent, name, facts, share);
                    self.look_into(parent, Job::Enter(Arc::new(node)));
                    return false;
                }
                // Entries can be skipped if others are removed while a directory is read. Once: else it could go on
                // for as long as somebody fills it.
                What::Emptied(node) if !node.was_read_twice.swap(true, Ordering::Relaxed) => {
                    node.expect_again();
                    self.look_into(parent, Job::Enter(node));
                    return false;
                }
                What::Emptied(_) | What::File { .. } => parent.keep(),
            },
        }
        self.run.tally.decided.add(share);
        parent.settle()
    }

    fn look_into(&mut self, parent: &Node, job: Job) {
        self.not_empty.push(job);
        if !self.run.descriptors.are_scarce() {
            self.run.queue.offer(&mut self.not_empty);
        }
        if self.not_empty.len() > MOST_FAILED {
            parent.luck.store(i32::MIN / 2, Ordering::Relaxed);
        }
    }

    fn try_to_remove(&mut self, parent: &Arc<Node>, directory: &Descriptor, removal: &Removal) -> Outcome {
        if self.run.is_stopped() {
            return Outcome::Stays;
        }
        let run = self.run;
        let is_file = matches!(removal.what, What::File { .. });
        if !run.rules.is_dry_run {
            match self.licence.obtain(&run.cancelled) {
                Ok(()) => {}
                Err(Refused::Cancelled) => {
                    run.stop(Stop::Cancelled);
                    return Outcome::Stays;
                }
                Err(Refused::Error(error)) => {
                    run.fleet_error(&error);
                    return Outcome::Stays;
                }
            }
        }
        let place = if is_file { None } else { Some(run.limit.take()) };
        let place = match place {
            Some(None) => {
                run.stop(Stop::Limit);
                return Outcome::Stays;
            }
            Some(place) => place,
            None => None,
        };
        let flags = if is_file { AtFlags::empty() } else { AtFlags::REMOVEDIR };
        let answer = if run.rules.is_dry_run {
            removal
                .facts()
                .map_or(Ok(()), |facts| dry_run::would_remove(&run.rules, parent, directory, facts))
        } else if run.pace() {
            self.unlink(directory, removal.name(), flags)
        } else {
            run.stop(Stop::Cancelled);
            return Outcome::Stays;
        };
        if removal.is_a_try() {
            parent.luck.fetch_add(if answer.is_ok() { 1 } else { -1 }, Ordering::Relaxed);
        }
        match answer {
            Ok(()) => {
                if let Some(place) = place {
                    place.used();
                }
                self.count(parent, removal, is_file);
                Outcome::Away
            }
            Err(errno) if is_gone(errno) => Outcome::Away,
            Err(Errno::NOTEMPTY | Errno::EXIST) => Outcome::NotEmpty,
            // Perhaps a mount point.
            Err(Errno::BUSY) if removal.facts().is_none() => Outcome::NotEmpty,
            // It was swapped for something else.
            Err(errno) if is_no_directory(errno) => Outcome::Stays,
            Err(Errno::ISDIR) if is_file => Outcome::Stays,
            Err(errno) => {
                run.error(|| self.path(parent, removal), errno);
                Outcome::Stays
            }
        }
    }

    /// Every now and then, looks how long it takes.
    fn unlink(&mut self, directory: &Descriptor, name: &CStr, flags: AtFlags) -> Result<(), Errno> {
        let run = self.run;
        let is_heavy = run.file_system.is_heavy();
        let is_timed = self.tries.is_multiple_of(if is_heavy { RARELY_TIMED } else { TIMED_EVERY });
        self.tries = self.tries.wrapping_add(1);
        let is_held = flags == AtFlags::REMOVEDIR
            && (is_timed || is_heavy && !run.deletions.are_short())
            && !run.descriptors.are_scarce();
        // What can't be held can be removed all the same.
        let held = if is_held { directory.hold(name).ok() } else { None };
        let began = is_timed.then(Instant::now);
        let answer = unlinkat(directory, name, flags);
        if let Some(began) = began {
            let removed = Instant::now();
            drop(held);
            let forgetting = if answer.is_ok() { removed.elapsed() } else { Duration::ZERO };
            run.file_system.note(removed - began, forgetting);
        } else if let (Ok(()), Some(held)) = (answer, held) {
            self.hand_over(held);
        }
        answer
    }

    fn hand_over(&mut self, removed: Arc<Descriptor>) {
        self.removed.push(Job::Forget(removed));
        if self.removed.len() >= HANDFUL {
            self.run.queue.offer(&mut self.removed);
            // There are enough who are busy with it.
            self.removed.clear();
        }
    }

    fn count(&self, parent: &Node, removal: &Removal, is_file: bool) {
        let tally = &self.run.tally;
        if is_file {
            tally.files_removed.add(1);
            tally.bytes_freed.add(removal.facts().map_or(0, |facts| facts.size));
        } else {
            tally.dirs_removed.add(1);
        }
        let what = if is_file { Removed::File } else { Removed::Directory };
        self.run.removed(|| self.path(parent, removal), what);
    }

    fn path(&self, parent: &Node, removal: &Removal) -> PathBuf {
        match &removal.what {
            What::Emptied(node) => node.path(),
            What::File { name, .. } | What::Unseen { name } | What::Unread { name, .. } => {
                parent.path().join(std::ffi::OsStr::from_bytes(name.to_bytes()))
            }
        }
    }
}
