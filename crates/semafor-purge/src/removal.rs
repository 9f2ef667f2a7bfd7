//! Removes entries, and continues with the parent.
//!
//! - Only `rmdir` decides whether a directory is empty. A directory with content stays.
//! - The kernel removes only one entry of a directory at a time. So one thread removes in a directory. Other threads
//!   put their removals there on a short list and continue, instead of waiting for the kernel.
//! - The kernel also looks up no name in a directory while it removes another. If both are slow, one lookup after each
//!   removal would double the time. So when the list is full, no thread looks up names in that directory until half of
//!   the list is done, and then all threads look up the next names at once.
//! - The kernel frees a removed directory when its last descriptor is closed. Without a descriptor it does so during
//!   the removal, while no other thread can remove in the parent; and on a disk with discard (TRIM) this can be slow.
//!   So on such a file system, we keep the directory open while we remove it, and another thread closes it.
//! - Between the check of an entry and its removal there may be a long wait: on the list, for a slot, for the rate. So
//!   it is checked again right before its removal, in the directory in which it is removed. An entry that was changed,
//!   replaced or moved meanwhile stays. A gap remains between that check and the removal: the kernel has no call that
//!   removes a name only if it still belongs to a given file. For an empty directory whose age does not matter, only
//!   its place counts: after a wait, we check whether its parent was moved.
//! - A removal on the list is pending in its directory, so a directory is not finished before its list is empty.

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
use crate::error::{is_gone, is_not_a_directory};
use crate::limit::Allowance;
use crate::metadata::Metadata;
use crate::node::{Node, Unavailable};
use crate::purger::Removed;
use crate::removal_slot::Refused;
use crate::run::Stop;
use crate::walk::{Entry, Job, Worker};

/// The length of a full list. Threads that have looked up a name already still add to it.
const FULL_LIST: usize = 512;
/// How often a thread that waits for room in a list checks whether the run has ended.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// After so many directories that were not empty, a thread checks directories before it tries to remove them.
const MAX_FAILED_TRIES: usize = 64;
const MIN_TRY_SCORE: i32 = -2;
/// One of so many removals is timed.
const TIMING_INTERVAL: u32 = 32;
/// The same if timing is expensive, because a timed removal is not handed over to another thread.
const RARE_TIMING_INTERVAL: u32 = 128;
/// How many removed directories are handed over at a time.
const HAND_OVER_BATCH: usize = 8;
/// A removal that was on the list for a shorter time has not waited.
const SHORT_WAIT: Duration = Duration::from_millis(10);

/// The removals in one directory.
#[derive(Default)]
pub(crate) struct Removals {
    list: Vec<Removal>,
    has_remover: bool,
    /// True from when the list is full until half of it is done.
    is_full: bool,
}

pub(crate) struct Removal {
    target: Target,
    /// The share of the whole tree that is decided with it.
    share: u64,
    /// When it was put on the list.
    listed: Option<Instant>,
}

enum Target {
    /// A file that is old enough.
    File { name: Box<CStr>, metadata: Metadata },
    /// A directory of which only the name is known.
    Unseen { name: Box<CStr> },
    /// A directory that was not read.
    Unread { name: Box<CStr>, metadata: Metadata },
    /// A directory whose entries were all removed, and its last change at that time, if its age matters.
    Emptied { node: Arc<Node>, modified: Option<Moment> },
}

impl Removal {
    pub(crate) fn file(name: Box<CStr>, metadata: Metadata, share: u64) -> Self {
        Self { target: Target::File { name, metadata }, share, listed: None }
    }

    pub(crate) fn unseen(name: Box<CStr>, share: u64) -> Self {
        Self { target: Target::Unseen { name }, share, listed: None }
    }

    pub(crate) fn unread(name: Box<CStr>, metadata: Metadata, share: u64) -> Self {
        Self { target: Target::Unread { name, metadata }, share, listed: None }
    }

    fn emptied(node: Arc<Node>, modified: Option<Moment>) -> Self {
        Self { target: Target::Emptied { node, modified }, share: 0, listed: None }
    }

    fn name(&self) -> &CStr {
        match &self.target {
            Target::File { name, .. } | Target::Unseen { name } | Target::Unread { name, .. } => name,
            Target::Emptied { node, .. } => &node.name,
        }
    }

    fn metadata(&self) -> Option<&Metadata> {
        match &self.target {
            Target::File { metadata, .. } | Target::Unread { metadata, .. } => Some(metadata),
            Target::Unseen { .. } => None,
            Target::Emptied { node, .. } => Some(&node.metadata),
        }
    }

    /// True for a directory that may not be empty.
    fn is_attempt(&self) -> bool {
        matches!(self.target, Target::Unseen { .. } | Target::Unread { .. })
    }
}

impl Node {
    /// True if it is worth trying to remove entries without checking them first.
    pub(crate) fn is_worth_trying(&self) -> bool {
        self.try_score.load(Ordering::Relaxed) > MIN_TRY_SCORE
    }
}

enum Outcome {
    /// It no longer exists.
    Gone,
    Stays,
    NotEmpty,
}

impl<'r> Worker<'r> {
    /// Removes an entry, then its directory if that is empty now, and so on upwards.
    pub(crate) fn remove(&mut self, mut parent: Arc<Node>, mut removal: Removal) {
        while self.remove_in(&parent, removal) {
            match self.next_removable_ancestor(parent) {
                Some(next) => (parent, removal) = next,
                None => return,
            }
        }
    }

    /// Called when one entry of a directory is decided.
    pub(crate) fn settle(&mut self, node: Arc<Node>, is_kept: bool) {
        if is_kept {
            node.keep();
        }
        if node.settle()
            && let Some((parent, removal)) = self.next_removable_ancestor(node)
        {
            self.remove(parent, removal);
        }
    }

    /// Called when all entries of a directory are decided. Finds the next directory upwards that can be removed.
    fn next_removable_ancestor(&mut self, mut node: Arc<Node>) -> Option<(Arc<Node>, Removal)> {
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

    /// When a directory whose entries are all decided was last changed, if its age matters. Read again only if the
    /// purge may have changed the directory itself.
    fn modified(&self, parent: &Node, node: &Node) -> Option<Moment> {
        let rules = &self.run.rules;
        if rules.is_dry_run || !rules.checks_directory_age() {
            return None;
        }
        let mut modified = node.metadata.modified;
        if node.has_lost_entries.load(Ordering::Relaxed)
            && let Ok(directory) = parent.directory()
            && let Ok(now) = Metadata::at_now(&*directory, &node.name)
            && now.identity == node.metadata.identity
        {
            modified = now.modified;
        }
        Some(modified)
    }

    /// Waits while the list of a directory is full, before more of its entries are checked.
    pub(crate) fn wait_for_room(&mut self, parent: &Node) {
        let mut removals = parent.removals.lock();
        if removals.is_full {
            // The thread that removes there may need it.
            self.slot.release();
        }
        while removals.is_full && !self.run.queue.is_closed() {
            parent.room.wait_for(&mut removals, STOP_CHECK_INTERVAL);
        }
    }

    /// Removes the entry, or leaves it to the thread that already removes there. True if that finished the directory.
    fn remove_in(&mut self, parent: &Arc<Node>, mut removal: Removal) -> bool {
        let mut removals = parent.removals.lock();
        if removals.has_remover {
            removal.listed = Some(Instant::now());
            removals.list.push(removal);
            removals.is_full |= removals.list.len() >= FULL_LIST;
            return false;
        }
        removals.has_remover = true;
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
                    removals.has_remover = false;
                    break;
                }
            }
            if removals.is_full && removals.list.len() <= FULL_LIST / 2 {
                removals.is_full = false;
                parent.room.notify_all();
            }
        }
        self.slot.release_if_contended();
        is_finished
    }

    /// True if that finished the directory.
    fn remove_one(
        &mut self,
        parent: &Arc<Node>,
        directory: &Result<Arc<Descriptor>, Unavailable>,
        removal: Removal,
    ) -> bool {
        let outcome = match directory {
            Ok(directory) => self.try_to_remove(parent, directory, &removal),
            Err(Unavailable::Gone) => Outcome::Gone,
            Err(Unavailable::Moved) => {
                if matches!(removal.target, Target::File { .. }) {
                    self.run.counters.files_changed.add(1);
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
            Outcome::Gone => {}
            Outcome::Stays => parent.keep(),
            Outcome::NotEmpty => match removal.target {
                Target::Unseen { name } => {
                    self.queue_not_empty(parent, Job::Check(Entry::tried(parent, name, share)));
                    return false;
                }
                Target::Unread { name, metadata } => {
                    let node = Node::of_entry(parent, name, metadata, share);
                    self.queue_not_empty(parent, Job::Enter(Arc::new(node)));
                    return false;
                }
                // Entries can be skipped if others are removed while a directory is read, so read it again. Only once:
                // otherwise a process that keeps filling it would keep us here.
                Target::Emptied { node, .. } if !node.was_read_twice.swap(true, Ordering::Relaxed) => {
                    node.reset_pending();
                    self.queue_not_empty(parent, Job::Enter(node));
                    return false;
                }
                Target::Emptied { .. } | Target::File { .. } => parent.keep(),
            },
        }
        self.run.counters.decided.add(share);
        parent.settle()
    }

    fn queue_not_empty(&mut self, parent: &Node, job: Job) {
        self.not_empty.push(job);
        if !self.run.descriptors.are_scarce() {
            self.run.queue.offer(&mut self.not_empty);
        }
        if self.not_empty.len() > MAX_FAILED_TRIES {
            parent.try_score.store(i32::MIN / 2, Ordering::Relaxed);
        }
    }

    fn try_to_remove(&mut self, parent: &Arc<Node>, directory: &Descriptor, removal: &Removal) -> Outcome {
        if self.run.is_stopped() {
            return Outcome::Stays;
        }
        let run = self.run;
        let is_file = matches!(removal.target, Target::File { .. });
        let mut has_waited =
            run.rate.is_some() || removal.listed.is_some_and(|since| since.elapsed() > SHORT_WAIT);
        let Some(mut allowance) = self.acquire_slot_and_allowance(is_file, &mut has_waited) else {
            return Outcome::Stays;
        };
        let flags = if is_file { AtFlags::empty() } else { AtFlags::REMOVEDIR };
        let answer = if run.rules.is_dry_run {
            removal
                .metadata()
                .map_or(Ok(()), |metadata| dry_run::would_remove(&run.rules, parent, directory, metadata))
        } else {
            if !run.pace() {
                run.stop(Stop::Cancelled);
                return Outcome::Stays;
            }
            if self.slot.is_lost() {
                // A thread with a slot may wait for this allowance, while we are about to wait for a slot.
                drop(allowance);
                match self.acquire_slot_and_allowance(is_file, &mut has_waited) {
                    Some(new) => allowance = new,
                    None => return Outcome::Stays,
                }
            }
            match self.is_unchanged(parent, directory, removal, has_waited) {
                Ok(true) => self.unlink(directory, removal.name(), flags),
                Ok(false) => {
                    let counters = &run.counters;
                    (if is_file { &counters.files_changed } else { &counters.dirs_changed }).add(1);
                    return Outcome::Stays;
                }
                Err(errno) => Err(errno),
            }
        };
        if removal.is_attempt() {
            parent.try_score.fetch_add(if answer.is_ok() { 1 } else { -1 }, Ordering::Relaxed);
        }
        match answer {
            Ok(()) => {
                if let Some(allowance) = allowance {
                    allowance.used();
                }
                parent.has_lost_entries.store(true, Ordering::Relaxed);
                self.count(parent, removal, is_file);
                Outcome::Gone
            }
            Err(errno) if is_gone(errno) => {
                parent.has_lost_entries.store(true, Ordering::Relaxed);
                Outcome::Gone
            }
            Err(Errno::NOTEMPTY | Errno::EXIST) => Outcome::NotEmpty,
            // It may be a mount point.
            Err(Errno::BUSY) if removal.metadata().is_none() => Outcome::NotEmpty,
            // It was swapped for something else.
            Err(errno) if is_not_a_directory(errno) => Outcome::Stays,
            Err(Errno::ISDIR) if is_file => Outcome::Stays,
            Err(errno) => {
                run.error(|| self.path(parent, removal), errno);
                Outcome::Stays
            }
        }
    }

    /// Acquires a slot, and for a directory an allowance of the limit. `None` if that fails: then the run is stopped.
    fn acquire_slot_and_allowance(
        &mut self,
        is_file: bool,
        has_waited: &mut bool,
    ) -> Option<Option<Allowance<'r>>> {
        let run = self.run;
        if !run.rules.is_dry_run {
            match self.slot.acquire(&run.cancelled) {
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
        let allowance = run.limit.take();
        if allowance.is_none() {
            run.stop(Stop::Limit);
        }
        allowance.map(Some)
    }

    /// True if the name still belongs to the same entry, in a directory that was not moved. For empty directories only
    /// the place counts, unless their age matters or it is the root, whose parent is not ours.
    fn is_unchanged(
        &self,
        parent: &Node,
        directory: &Descriptor,
        removal: &Removal,
        has_waited: bool,
    ) -> Result<bool, Errno> {
        let checks_age = self.run.rules.checks_directory_age();
        if !self.is_in_place(parent, directory, removal, has_waited)? {
            // An error if the entry is gone, too: other processes may have removed both.
            return Metadata::at(directory, removal.name()).map(|_| false);
        }
        match &removal.target {
            Target::File { name, metadata } => is_unchanged_file(directory, name, metadata),
            Target::Unread { name, metadata } if checks_age => {
                let now = Metadata::at_now(directory, name)?;
                Ok(now.identity == metadata.identity && now.modified == metadata.modified)
            }
            Target::Emptied { node, modified } if checks_age || node.depth == 0 => {
                let now = Metadata::at_now(directory, &node.name)?;
                let is_unchanged = modified.is_none_or(|modified| now.modified == modified);
                Ok(now.identity == node.metadata.identity && is_unchanged)
            }
            Target::Unseen { .. } | Target::Unread { .. } | Target::Emptied { .. } => Ok(true),
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
        match &removal.target {
            // Of the parent of the root, only the path of the root is known.
            Target::Emptied { node, .. } if node.depth == 0 => location.is_at(node, directory),
            Target::File { .. } => location.is_at(parent, directory),
            _ if has_waited => location.is_at(parent, directory),
            _ => Ok(true),
        }
    }

    /// Removes a name. Times some of the removals.
    fn unlink(&mut self, directory: &Descriptor, name: &CStr, flags: AtFlags) -> Result<(), Errno> {
        let run = self.run;
        let frees_slowly = run.file_system.frees_slowly();
        let is_timed =
            self.tries.is_multiple_of(if frees_slowly { RARE_TIMING_INTERVAL } else { TIMING_INTERVAL });
        self.tries = self.tries.wrapping_add(1);
        let keeps_open = flags == AtFlags::REMOVEDIR
            && (is_timed || frees_slowly && !run.deletions.are_contended())
            && !run.descriptors.are_scarce();
        // If it can't be kept open, it can still be removed.
        let kept_open = if keeps_open { directory.open_without_reading(name).ok() } else { None };
        let began = is_timed.then(Instant::now);
        let answer = unlinkat(directory, name, flags);
        if let Some(began) = began {
            let removed = Instant::now();
            drop(kept_open);
            let freeing = if answer.is_ok() { removed.elapsed() } else { Duration::ZERO };
            run.file_system.record(removed - began, freeing);
        } else if let (Ok(()), Some(kept_open)) = (answer, kept_open) {
            self.hand_over(kept_open);
        }
        answer
    }

    fn hand_over(&mut self, removed: Arc<Descriptor>) {
        self.removed.push(Job::Close(removed));
        if self.removed.len() >= HAND_OVER_BATCH {
            self.run.queue.offer(&mut self.removed);
            // If the queue is full, close the rest here.
            self.removed.clear();
        }
    }

    fn count(&self, parent: &Node, removal: &Removal, is_file: bool) {
        let counters = &self.run.counters;
        if is_file {
            counters.files_removed.add(1);
            counters.bytes_freed.add(removal.metadata().map_or(0, |metadata| metadata.size));
        } else {
            counters.dirs_removed.add(1);
        }
        let kind = if is_file { Removed::File } else { Removed::Directory };
        self.run.removed(|| self.path(parent, removal), kind);
    }

    fn path(&self, parent: &Node, removal: &Removal) -> PathBuf {
        match &removal.target {
            Target::Emptied { node, .. } => node.path(),
            Target::File { name, .. } | Target::Unseen { name } | Target::Unread { name, .. } => {
                parent.path().join(std::ffi::OsStr::from_bytes(name.to_bytes()))
            }
        }
    }
}

/// True if the name still belongs to the same file with the same content.
fn is_unchanged_file(directory: &Descriptor, name: &CStr, before: &Metadata) -> Result<bool, Errno> {
    let now = Metadata::at_now(directory, name)?;
    if now.is_unchanged_since(before) {
        return Ok(true);
    }
    if !now.has_only_lost_names_since(before) {
        return Ok(false);
    }
    // Another machine may have removed this very name, and a network file system may still have it in its cache.
    Metadata::of_now(directory)?;
    Ok(Metadata::at_now(directory, name)?.has_only_lost_names_since(before))
}
