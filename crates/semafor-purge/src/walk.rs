//! Reads directories, and decides about their entries.
//!
//! A thread that reads a directory offers its entries to the queue. Entries without room in the queue it checks itself,
//! at once and depth first. Its stack has the directories being read, with at most one batch of names each. When
//! descriptors are scarce, it checks all entries itself, because directories can't be kept open for other threads.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use rustix::fs::{FileType, RawDir, SeekFrom, seek};
use rustix::io::Errno;

use crate::descriptor::Descriptor;
use crate::metadata::Metadata;
use crate::node::{Node, Unavailable};
use crate::removal::Removal;
use crate::removal_slot::RemovalSlot;
use crate::run::{Run, Stop};

/// The size of a batch: the names that the kernel returns at a time.
const BATCH: usize = 16 * 1024;

/// Work for a thread.
pub(crate) enum Job {
    Check(Entry),
    Enter(Arc<Node>),
    /// A removed directory that the kernel frees when it is closed.
    Close(Arc<Descriptor>),
}

/// A name that was read from a directory.
pub(crate) struct Entry {
    parent: Arc<Node>,
    name: Box<CStr>,
    kind: FileType,
    share: u64,
    /// A removal was tried: it is a directory that is not empty, or a mount point.
    was_tried: bool,
}

impl Entry {
    pub(crate) fn tried(parent: &Arc<Node>, name: Box<CStr>, share: u64) -> Self {
        Self { parent: Arc::clone(parent), name, kind: FileType::Directory, share, was_tried: true }
    }
}

/// A directory that is being read.
struct Reading {
    node: Arc<Node>,
    /// Names that were read and not taken by the queue.
    entries: Vec<Job>,
    is_at_end: bool,
    /// Where to continue if the directory was closed and opened again.
    position: u64,
    opened: Weak<Descriptor>,
    /// The share of the whole tree that is left for names not read yet.
    share: u64,
}

/// A worker thread.
pub(crate) struct Worker<'r> {
    pub(crate) run: &'r Run<'r>,
    pub(crate) slot: RemovalSlot<'r>,
    /// Jobs taken from the queue.
    jobs: Vec<Job>,
    /// Directories that were not empty and for which the queue has no room. They come before all other work, so they
    /// are never from more than one directory.
    pub(crate) not_empty: Vec<Job>,
    /// How many removals it has tried, for timing.
    pub(crate) tries: u32,
    /// Removed directories to close. They are handed over a few at a time.
    pub(crate) removed: Vec<Job>,
    reading: Vec<Reading>,
    batch: Vec<u8>,
}

impl<'r> Worker<'r> {
    pub(crate) fn new(run: &'r Run<'r>) -> Self {
        let slot = run.deletions.slot();
        let (jobs, not_empty, removed, reading) = Default::default();
        Self { run, slot, jobs, not_empty, tries: 0, removed, reading, batch: Vec::with_capacity(BATCH) }
    }

    pub(crate) fn work(mut self) {
        let _stop_on_panic = StopsOnPanic(self.run);
        let run = self.run;
        while run.queue.take(&mut self.jobs, || self.slot.release()) {
            self.finish_jobs();
            self.removed.clear();
            run.queue.done();
        }
    }

    fn finish_jobs(&mut self) {
        while !self.run.is_stopped() {
            if let Some(job) = self.not_empty.pop() {
                self.start(job);
            } else if !self.reading.is_empty() {
                self.read_on();
            } else if let Some(job) = self.jobs.pop() {
                self.start(job);
            } else {
                return;
            }
        }
        self.not_empty.clear();
        self.reading.clear();
        self.jobs.clear();
    }

    fn start(&mut self, job: Job) {
        match job {
            Job::Check(entry) => self.check(entry),
            Job::Enter(node) => self.enter(node),
            Job::Close(removed) => drop(removed),
        }
    }

    fn enter(&mut self, node: Arc<Node>) {
        let entered = {
            let _scan = self.run.scan();
            node.enter()
        };
        match entered {
            Ok(()) => {
                let share = node.share;
                let (entries, opened) = (Vec::new(), Weak::new());
                self.reading.push(Reading { node, entries, is_at_end: false, position: 0, opened, share });
            }
            Err(why) => {
                self.run.counters.decided.add(node.share);
                if let Unavailable::Error(errno) = why {
                    self.run.error(|| node.path(), errno);
                }
                // The node itself has nothing left to decide.
                if let Some(parent) = node.parent().cloned() {
                    self.settle(parent, !matches!(why, Unavailable::Gone));
                }
            }
        }
    }

    /// Does one step in the innermost directory.
    fn read_on(&mut self) {
        let Some(reading) = self.reading.last_mut() else { return };
        if !reading.entries.is_empty() {
            // A directory stays open while other threads work in it. And to try a removal takes less time than to hand
            // it over, because the kernel removes one entry of a directory at a time.
            let is_tried_here =
                reading.node.is_worth_trying() && self.run.may_try_without_looking(&reading.node);
            if !is_tried_here && !self.run.descriptors.are_scarce() {
                self.run.queue.offer(&mut reading.entries);
            }
            if let Some(job) = reading.entries.pop() {
                self.start(job);
            }
            return;
        }
        if !reading.is_at_end {
            let _scan = self.run.scan();
            reading.read_batch(self.run, &mut self.batch);
            return;
        }
        if let Some(Reading { node, share, .. }) = self.reading.pop() {
            self.run.counters.decided.add(share);
            self.slot.release_if_contended();
            self.settle(node, false);
        }
    }

    fn check(&mut self, entry: Entry) {
        let Entry { parent, name, kind, share, was_tried } = entry;
        self.wait_for_room(&parent);
        let is_worth_a_try = kind == FileType::Directory && !was_tried && parent.is_worth_trying();
        if is_worth_a_try && self.run.may_try_without_looking(&parent) {
            self.run.counters.dirs_scanned.add(1);
            return self.remove(parent, Removal::unseen(name, share));
        }
        let metadata = {
            let _scan = self.run.scan();
            parent.directory().and_then(|directory| Ok(Metadata::at(&*directory, &name)?))
        };
        let metadata = match metadata {
            Ok(metadata) => metadata,
            Err(why) => {
                if let Unavailable::Error(errno) = why {
                    let name = std::ffi::OsStr::from_bytes(name.to_bytes());
                    self.run.error(|| parent.path().join(name), errno);
                }
                self.run.counters.decided.add(share);
                let is_gone = matches!(why, Unavailable::Gone);
                if is_gone {
                    parent.has_lost_entries.store(true, Ordering::Relaxed);
                }
                return self.settle(parent, !is_gone);
            }
        };
        let (rules, counters) = (&self.run.rules, &self.run.counters);
        if metadata.kind != FileType::Directory {
            if kind == FileType::Unknown {
                counters.files_scanned.add(1);
            }
            if rules.may_remove_file(&metadata) {
                return self.remove(parent, Removal::file(name, metadata, share));
            }
            counters.decided.add(share);
            return self.settle(parent, true);
        }
        if rules.is_on_other_file_system(&parent, &metadata) {
            counters.decided.add(share);
            return self.settle(parent, true);
        }
        if !was_tried {
            counters.dirs_scanned.add(1);
        }
        let may_remove = rules.may_remove_directory(&metadata);
        let is_max_depth = rules.is_max_depth(parent.depth + 1);
        let looks_empty = metadata.links <= 2 && rules.is_surely_readable(&metadata);
        if may_remove
            && looks_empty
            && !rules.is_dry_run
            && !is_max_depth
            && !was_tried
            && parent.is_worth_trying()
        {
            return self.remove(parent, Removal::unread(name, metadata, share));
        }
        let node = Node::of_entry(&parent, name, metadata, share);
        if !may_remove {
            node.keep();
            if is_max_depth {
                counters.decided.add(share);
                return self.settle(parent, true);
            }
        }
        self.enter(Arc::new(node));
    }
}

impl Reading {
    /// Reads one batch of names. No entry of a batch is removed before the whole batch is read.
    fn read_batch(&mut self, run: &Run<'_>, batch: &mut Vec<u8>) {
        match self.read_names(run, batch) {
            Ok(()) => {}
            // Another process removed it, so it was empty.
            Err(Unavailable::Gone) => self.is_at_end = true,
            Err(why) => {
                if let Unavailable::Error(errno) = why {
                    run.error(|| self.node.path(), errno);
                }
                self.node.keep();
                self.is_at_end = true;
            }
        }
        let count = self.entries.len();
        self.node.add_pending(count);
        self.divide_share(count);
    }

    fn read_names(&mut self, run: &Run<'_>, batch: &mut Vec<u8>) -> Result<(), Unavailable> {
        let directory = self.node.directory()?;
        if self.opened.as_ptr() != Arc::as_ptr(&directory) {
            self.opened = Arc::downgrade(&directory);
            if self.position > 0 {
                seek(&*directory, SeekFrom::Start(self.position))?;
            }
        }
        batch.clear();
        let room: &mut [MaybeUninit<u8>] = batch.spare_capacity_mut();
        let mut names = RawDir::new(&*directory, room);
        loop {
            match names.next() {
                None => {
                    self.is_at_end = true;
                    break;
                }
                Some(Err(Errno::INTR)) => continue,
                Some(Err(errno)) => return Err(errno.into()),
                Some(Ok(entry)) => {
                    self.position = entry.next_entry_cookie();
                    self.add_name(run, entry.file_name(), entry.file_type());
                }
            }
            if names.is_buffer_empty() || self.is_at_end {
                break;
            }
        }
        Ok(())
    }

    /// Adds a name that was read.
    fn add_name(&mut self, run: &Run<'_>, name: &CStr, kind: FileType) {
        if name == c"." || name == c".." {
            return;
        }
        if run.rules.is_max_depth(self.node.depth) {
            // Any entry is content: the directory stays, and no more names are needed.
            self.node.keep();
            self.is_at_end = true;
            return;
        }
        let may_be_of_interest = match kind {
            FileType::Directory | FileType::Unknown => true,
            kind => {
                run.counters.files_scanned.add(1);
                kind == FileType::RegularFile && run.rules.files_before.is_some()
            }
        };
        if may_be_of_interest && !run.rules.exclude(&self.node, name) {
            let parent = Arc::clone(&self.node);
            let entry = Entry { parent, name: name.into(), kind, share: 0, was_tried: false };
            self.entries.push(Job::Check(entry));
        } else {
            self.node.keep();
        }
    }

    /// Divides the share among the entries. On most file systems, the number of links tells the number of directories;
    /// otherwise each batch gets half of the rest.
    fn divide_share(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        let count = count as u64;
        let subdirectories = u64::from(self.node.metadata.links).saturating_sub(2);
        let each = match subdirectories {
            0 => self.share / 2 / count,
            expected => (self.node.share / expected).min(self.share / count),
        };
        self.share -= each * count;
        for job in &mut self.entries {
            if let Job::Check(entry) = job {
                entry.share = each;
            }
        }
    }
}

/// A panic ends the run: the entries of that thread are never decided, and the caller expects no more removals.
pub(crate) struct StopsOnPanic<'r, 'p>(pub(crate) &'r Run<'p>);

impl Drop for StopsOnPanic<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop(Stop::Cancelled);
        }
    }
}
