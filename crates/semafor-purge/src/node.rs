//! A directory that is being purged, and its place in the tree.
//!
//! - A node lives as long as something in it is undecided: `pending` counts its undecided entries, and one more while
//!   it is being read. Whoever decides the last one decides about the node itself, and goes on with its parent. So
//!   parents follow their children, and cascades need no second pass.
//! - What is kept keeps all directories above it. `kept` is only ever set.
//! - There are nodes only for directories being read, or waiting for what is in them: how many there are depends on
//!   threads, queue and depth, not on the size of the tree.
//! - A node's directory is always the same one: if it was closed and has to be opened again, it is compared with what
//!   it was before.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use crate::counters::WHOLE;
use crate::descriptor::Descriptor;
use crate::error::{is_gone, is_not_a_directory};
use crate::metadata::Metadata;
use crate::removal::Removals;

pub(crate) struct Node {
    parent: Option<Arc<Node>>,
    pub(crate) name: Box<CStr>,
    /// Of the root's children it is 1.
    pub(crate) depth: u32,
    /// Before anything was changed in it.
    pub(crate) metadata: Metadata,
    /// What part of the whole it is taken for.
    pub(crate) share: u64,
    directory: Mutex<Option<Arc<Descriptor>>>,
    pending: AtomicUsize,
    kept: AtomicBool,
    pub(crate) was_read_twice: AtomicBool,
    /// Something was removed from it, by this purge or by another. So it is not known any more when it was last changed
    /// else.
    pub(crate) has_lost_entries: AtomicBool,
    /// Successes less failures of removing its entries without having looked into them.
    pub(crate) try_score: AtomicI32,
    pub(crate) removals: Mutex<Removals>,
    /// Half of a list of removals that was full is done.
    pub(crate) room: Condvar,
}

/// Why a node's directory can't be had.
#[derive(Debug)]
pub(crate) enum Unavailable {
    /// Somebody else removed it.
    Gone,
    /// Something else has its name now: another directory, a symlink, a mount. It is left alone.
    Moved,
    Error(Errno),
}

impl From<Errno> for Unavailable {
    fn from(errno: Errno) -> Self {
        match errno {
            errno if is_gone(errno) => Self::Gone,
            errno if is_not_a_directory(errno) => Self::Moved,
            errno => Self::Error(errno),
        }
    }
}

impl Node {
    /// The directory to purge, or the one that it is in.
    pub(crate) fn top(directory: Arc<Descriptor>, metadata: Metadata) -> Self {
        let top = Self::new(None, c"".into(), 0, metadata, WHOLE);
        *top.directory.lock() = Some(directory);
        top
    }

    /// The directory to purge, where it may be removed from its parent.
    pub(crate) fn root(
        outside: Node,
        name: Box<CStr>,
        directory: Arc<Descriptor>,
        metadata: Metadata,
    ) -> Self {
        let root = Self::new(Some(Arc::new(outside)), name, 0, metadata, WHOLE);
        *root.directory.lock() = Some(directory);
        root
    }

    pub(crate) fn of_entry(parent: &Arc<Node>, name: Box<CStr>, metadata: Metadata, share: u64) -> Self {
        Self::new(Some(Arc::clone(parent)), name, parent.depth + 1, metadata, share)
    }

    fn new(parent: Option<Arc<Node>>, name: Box<CStr>, depth: u32, metadata: Metadata, share: u64) -> Self {
        Self {
            parent,
            name,
            depth,
            metadata,
            share,
            directory: Mutex::new(None),
            pending: AtomicUsize::new(1),
            kept: AtomicBool::new(false),
            was_read_twice: AtomicBool::new(false),
            has_lost_entries: AtomicBool::new(false),
            try_score: AtomicI32::new(0),
            removals: Mutex::default(),
            room: Condvar::new(),
        }
    }

    pub(crate) fn parent(&self) -> Option<&Arc<Node>> {
        self.parent.as_ref()
    }

    pub(crate) fn keep(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Relaxed)
    }

    /// So many more entries are undecided. Only while it is being read.
    pub(crate) fn add_pending(&self, entries: usize) {
        self.pending.fetch_add(entries, Ordering::Relaxed);
    }

    /// One thing less is undecided. True for the last one: then the node is the caller's to decide about.
    #[must_use]
    pub(crate) fn settle(&self) -> bool {
        // Who decides about the node sees all that was decided in it.
        self.pending.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// It is read once more: the last thing was settled, and yet it was not empty.
    pub(crate) fn reset_pending(&self) {
        self.pending.store(1, Ordering::Relaxed);
    }

    /// Opens the directory for the first time.
    pub(crate) fn enter(&self) -> Result<(), Unavailable> {
        let Some(parent) = &self.parent else { return Ok(()) };
        let within = parent.directory()?;
        let opened = match within.open(&self.name) {
            Err(Errno::MFILE | Errno::NFILE) => {
                self.close_ancestors();
                within.open(&self.name)?
            }
            opened => opened?,
        };
        // What was there when it was looked at may have been swapped for another, or mounted upon.
        if Metadata::of(&*opened)?.identity != self.metadata.identity {
            return Err(Unavailable::Moved);
        }
        if opened.is_scarce() {
            parent.close();
        }
        *self.directory.lock() = Some(opened);
        Ok(())
    }

    /// The open directory; found again if it was put away.
    pub(crate) fn directory(&self) -> Result<Arc<Descriptor>, Unavailable> {
        if let Some(open) = &*self.directory.lock() {
            return Ok(Arc::clone(open));
        }
        // From the nearest one above that is open; the topmost always is.
        let mut closed = vec![self];
        let mut at = &self.parent;
        let mut within = loop {
            let Some(node) = at else { return Err(Unavailable::Gone) };
            if let Some(open) = &*node.directory.lock() {
                break Arc::clone(open);
            }
            closed.push(node);
            at = &node.parent;
        };
        for node in closed.into_iter().rev() {
            within = within.open(&node.name)?;
            if Metadata::of(&*within)?.identity != node.metadata.identity {
                return Err(Unavailable::Moved);
            }
        }
        if !within.is_scarce() {
            *self.directory.lock() = Some(Arc::clone(&within));
        }
        Ok(within)
    }

    /// Nothing in it is undecided any more. Opens the parent from here, should it have been put away and be a long way
    /// from above.
    pub(crate) fn leave(&self) {
        let own = self.directory.lock().take();
        if let (Some(own), Some(parent)) = (own, &self.parent)
            && parent.directory.lock().is_none()
            && !(own.is_scarce() && parent.has_open_parent())
            && let Ok(above) = own.open(c"..")
            && Metadata::of(&*above).is_ok_and(|metadata| metadata.identity == parent.metadata.identity)
        {
            *parent.directory.lock() = Some(above);
        }
    }

    /// So many levels above, or the root.
    pub(crate) fn ancestor(&self, levels: usize) -> &Self {
        let mut at = self;
        for _ in 0..levels {
            match &at.parent {
                Some(parent) if at.depth > 0 => at = parent,
                _ => break,
            }
        }
        at
    }

    fn has_open_parent(&self) -> bool {
        self.parent.as_ref().is_some_and(|parent| parent.directory.lock().is_some())
    }

    fn close(&self) {
        // The topmost is where all others are found again.
        if self.parent.is_some() && self.depth > 0 {
            *self.directory.lock() = None;
        }
    }

    fn close_ancestors(&self) {
        let mut at = self.parent.as_ref();
        while let Some(node) = at {
            node.close();
            at = node.parent.as_ref();
        }
    }

    /// Relative to the root.
    pub(crate) fn path(&self) -> PathBuf {
        let mut names = Vec::new();
        let mut at = self;
        while at.depth > 0
            && let Some(parent) = &at.parent
        {
            names.push(OsStr::from_bytes(at.name.to_bytes()));
            at = parent;
        }
        names.iter().rev().collect()
    }
}

impl Drop for Node {
    /// One after the other: recursion would need as much stack as the tree is deep.
    fn drop(&mut self) {
        let mut above = self.parent.take();
        while let Some(node) = above {
            above = Arc::into_inner(node).and_then(|mut node| node.parent.take());
        }
    }
}
