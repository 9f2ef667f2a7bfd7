//! Removing, and going on with the parent.
//!
//! - `rmdir` is the only test for emptiness. Whatever was believed before, a directory that has something in it stays.
//! - The kernel removes only one entry of a directory at a time. So one thread removes in a directory, and others that
//!   have something to remove there put it on a short list for it and go on, instead of standing in line for the kernel.
//! - Nor does the kernel look up a name while it removes another. Where both take long, looking up one name after each
//!   removal would take as long again. So when the list is full, no thread looks up names in that directory until half
//!   of it is done, and then all look up the next names at once.
//! - The kernel frees a removed directory when its last descriptor is closed. Without a descriptor it does so during
//!   the removal, while no other thread can remove in the parent; and on a disk that is told which blocks are free, it
//!   can take long. So where it does, we keep the directory open while we remove it, and another thread closes it.
//! - Between the look at an entry and its removal there may be a long wait: on the list, for a slot, for the rate. So right
//!   before its removal it is looked at again, in the directory in which it is removed, and what was changed, replaced or
//!   moved meanwhile stays. A gap remains between that look and the removal: the kernel can't be asked to remove a name
//!   only if it still is the name of a certain file. For an empty directory whose age does not matter, only its place
//!   counts: after a wait, we check whether the directory it is in was moved.
//! - What is on the list is pending in its directory, so a directory is not finished before its list is empty.

use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;

use crate::age::Moment;
use crate::descriptor::Descriptor;
use crate::dry_run;
use crate::error::{is_gone, is_no_directory};
use crate::facts::Facts;
use crate::licence::Refused;
use crate::limit::Allowance;
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
/// What was on the list no longer than this has not waited.
const BRIEF: Duration = Duration::from_millis(10);

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
    /// Since when it is on the list, if it is.
    listed: Option<Instant>,
}

enum What {
    /// A file that is old enough.
    File { name: Box<CStr>, facts: Facts },
    /// A directory of which nothing is known but its name.
    Unseen { name: Box<CStr> },
    /// A directory that nobody has looked into.
    Unread { name: Box<CStr>, facts: Facts },
    /// A directory in which all was removed, and when it was last changed by then, if its age matters.
    Emptied { node: Arc<Node>, modified: Option<Moment> },
}

impl Removal {
    pub(crate) fn file(name: Box<CStr>, facts: Facts, share: u64) -> Self {
        Self { what: What::File { name, facts }, share, listed: None }
    }

    pub(crate) fn unseen(name: Box<CStr>, share: u64) -> Self {
        Self { what: What::Unseen { name }, share, listed: None }
    }

    pub(crate) fn unread(name: Box<CStr>, facts: Facts, share: u64) -> Self {
        Self { what: What::Unread { name, facts }, share, listed: None }
    }

    fn emptied(node: Arc<Node>, modified: Option<Moment>) -> Self {
        Self { what: What::Emptied { node, modified }, share: 0, listed: None }
    }

    fn name(&self) -> &CStr {
        match &self.what {
            What::File { name, .. } | What::Unseen { name } | What::Unread { name, .. } => name,
            What::Emptied { node, .. } => &node.name,
        }
    }

    fn facts(&self) -> Option<&Facts> {
        match &self.what {
            What::File { facts, .. } | What::Unread { facts, .. } => Some(facts),
            What::Unseen { .. } => None,
            What::Emptied { node, .. } => Some(&node.facts),
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

impl<'r> Worker<'r> {
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
                let modified = self.modified(&parent, &node);
                return Some((parent, Removal::emptied(node, modified)));
            }
            parent.keep();
            if !parent.settle() {
                return None;
            }
            node = parent;
        }
    }

    /// When a directory in which all is decided was last changed, if its age matters. If that was by others, before the
    /// purge, it is known already.
    fn modified(&self, parent: &Node, node: &Node) -> Option<Moment> {
        let rules = &self.run.rules;
        if rules.is_dry_run || !rules.minds_age_of_directories() {
            return None;
        }
        let mut modified = node.facts.modified;
        if node.has_lost_entries.load(Ordering::Relaxed)
            && let Ok(directory) = parent.directory()
            && let Ok(now) = Facts::at_now(&*directory, &node.name)
            && now.identity == node.facts.identity
        {
            modified = now.modified;
        }
        Some(modified)
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
    fn remove_in(&mut self, parent: &Arc<Node>, mut removal: Removal) -> bool {
        let mut removals = parent.removals.lock();
        if removals.is_somebody_at_it {
            removal.listed = Some(Instant::now());
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
            Err(Unavailable::Moved) => {
                if matches!(removal.what, What::File { .. }) {
                    self.run.tally.files_changed.add(1);
                }
                Outcome::Stays
            }
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
                What::Emptied { node, .. } if !node.was_read_twice.swap(true, Ordering::Relaxed) => {
                    node.expect_again();
                    self.look_into(parent, Job::Enter(node));
                    return false;
                }
                What::Emptied { .. } | What::File { .. } => parent.keep(),
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
        let mut has_waited =
            run.rate.is_some() || removal.listed.is_some_and(|since| since.elapsed() > BRIEF);
        let Some(mut place) = self.admission(is_file, &mut has_waited) else { return Outcome::Stays };
        let flags = if is_file { AtFlags::empty() } else { AtFlags::REMOVEDIR };
        let answer = if run.rules.is_dry_run {
            removal
                .facts()
                .map_or(Ok(()), |facts| dry_run::would_remove(&run.rules, parent, directory, facts))
        } else {
            if !run.pace() {
                run.stop(Stop::Cancelled);
                return Outcome::Stays;
            }
            if self.licence.is_lost() {
                // A thread that has a slot may wait for this place, and we are about to wait for a slot.
                drop(place);
                match self.admission(is_file, &mut has_waited) {
                    Some(again) => place = again,
                    None => return Outcome::Stays,
                }
            }
            match self.is_as_decided(parent, directory, removal, has_waited) {
                Ok(true) => self.unlink(directory, removal.name(), flags),
                Ok(false) => {
                    let tally = &run.tally;
                    (if is_file { &tally.files_changed } else { &tally.dirs_changed }).add(1);
                    return Outcome::Stays;
                }
                Err(errno) => Err(errno),
            }
        };
        if removal.is_a_try() {
            parent.luck.fetch_add(if answer.is_ok() { 1 } else { -1 }, Ordering::Relaxed);
        }
        match answer {
            Ok(()) => {
                if let Some(place) = place {
                    place.used();
                }
                parent.has_lost_entries.store(true, Ordering::Relaxed);
                self.count(parent, removal, is_file);
                Outcome::Away
            }
            Err(errno) if is_gone(errno) => {
                parent.has_lost_entries.store(true, Ordering::Relaxed);
                Outcome::Away
            }
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

    /// A slot, and for a directory a place within the limit. `None` if it can't be had: then the run is stopped.
    fn admission(&mut self, is_file: bool, has_waited: &mut bool) -> Option<Option<Allowance<'r>>> {
        let run = self.run;
        if !run.rules.is_dry_run {
            match self.licence.obtain(&run.cancelled) {
                Ok(waited) => *has_waited |= waited,
                Err(Refused::Cancelled) => {
                    run.stop(Stop::Cancelled);
                    return None;
                }
                Err(Refused::Error(error)) => {
                    run.fleet_error(&error);
                    return None;
                }
            }
        }
        if is_file {
            return Some(None);
        }
        let place = run.limit.take();
        if place.is_none() {
            run.stop(Stop::Limit);
        }
        place.map(Some)
    }

    /// Whether what has the name now is what was to be removed, in a directory that is where it was. An empty directory is,
    /// whichever it is, unless its age matters; but not in place of the root, which is in a directory that is not ours.
    fn is_as_decided(
        &self,
        parent: &Node,
        directory: &Descriptor,
        removal: &Removal,
        has_waited: bool,
    ) -> Result<bool, Errno> {
        let minds_age = self.run.rules.minds_age_of_directories();
        if !self.is_in_place(parent, directory, removal, has_waited)? {
            // Unless there is nothing left to stay: others may have removed both.
            return Facts::at(directory, removal.name()).map(|_| false);
        }
        match &removal.what {
            What::File { name, facts } => is_still(directory, name, facts),
            What::Unread { name, facts } if minds_age => {
                let now = Facts::at_now(directory, name)?;
                Ok(now.identity == facts.identity && now.modified == facts.modified)
            }
            What::Emptied { node, modified } if minds_age || node.depth == 0 => {
                let now = Facts::at_now(directory, &node.name)?;
                let is_unchanged = modified.is_none_or(|modified| now.modified == modified);
                Ok(now.identity == node.facts.identity && is_unchanged)
            }
            What::Unseen { .. } | What::Unread { .. } | What::Emptied { .. } => Ok(true),
        }
    }

    fn is_in_place(
        &self,
        parent: &Node,
        directory: &Descriptor,
        removal: &Removal,
        has_waited: bool,
    ) -> Result<bool, Errno> {
        let location = &self.run.location;
        match &removal.what {
            // Of the directory that the root is in, only the path of the root is known.
            What::Emptied { node, .. } if node.depth == 0 => location.has(node, directory),
            What::File { .. } => location.has(parent, directory),
            _ if has_waited => location.has(parent, directory),
            _ => Ok(true),
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
            What::Emptied { node, .. } => node.path(),
            What::File { name, .. } | What::Unseen { name } | What::Unread { name, .. } => {
                parent.path().join(std::ffi::OsStr::from_bytes(name.to_bytes()))
            }
        }
    }
}

/// Whether the file of this name is the one it was, with the content it had.
fn is_still(directory: &Descriptor, name: &CStr, before: &Facts) -> Result<bool, Errno> {
    let now = Facts::at_now(directory, name)?;
    if now.is_unchanged_since(before) {
        return Ok(true);
    }
    if !now.has_only_lost_names_since(before) {
        return Ok(false);
    }
    // It may be this name that it has lost, on another machine: then a network file system has it in its cache.
    Facts::of_now(directory)?;
    Ok(Facts::at_now(directory, name)?.has_only_lost_names_since(before))
}
