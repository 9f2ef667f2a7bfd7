//! A directory that is being purged, and its place in the tree.
//!
//! - A node lives as long as an entry of it is undecided: `pending` counts its undecided entries, plus one while it is
//!   being read. The thread that decides the last one decides about the node itself, and continues with its parent. So
//!   parents follow their children, and cascades need no second pass.
//! - An entry that is kept keeps all directories above it. `kept` is never reset.
//! - There are nodes only for directories being read or waiting for their entries. So their number depends on threads,
//!   queue and depth, not on the size of the tree.
//! - A node always means the same directory: when a closed directory is opened again, its identity is compared.

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
    /// 1 for entries of the root.
    pub(crate) depth: u32,
    /// Read before anything was changed in it.
    pub(crate) metadata: Metadata,
    /// Its estimated share of the whole tree, for the progress.
    pub(crate) share: u64,
    directory: Mutex<Option<Arc<Descriptor>>>,
    pending: AtomicUsize,
    kept: AtomicBool,
    pub(crate) was_read_twice: AtomicBool,
    /// An entry was removed, by this purge or by another. So its time stamp no longer tells other changes.
    pub(crate) has_lost_entries: AtomicBool,
    /// Successes minus failures of removing its entries without checking them first.
    pub(crate) try_score: AtomicI32,
    pub(crate) removals: Mutex<Removals>,
    /// Notified when half of a full list of removals is done.
    pub(crate) room: Condvar,
}

/// Why the directory of a node can't be opened.
#[derive(Debug)]
pub(crate) enum Unavailable {
    /// Another process removed it.
    Gone,
    /// The name belongs to something else now: another directory, a symlink, a mount. It stays.
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
    /// The directory to purge, or its parent.
    pub(crate) fn top(directory: Arc<Descriptor>, metadata: Metadata) -> Self {
        let top = Self::new(None, c"".into(), 0, metadata, WHOLE);
        *top.directory.lock() = Some(directory);
        top
    }

    /// The directory to purge, if it may be removed itself.
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

    /// Adds undecided entries. Only while the directory is being read.
    pub(crate) fn add_pending(&self, entries: usize) {
        self.pending.fetch_add(entries, Ordering::Relaxed);
    }

    /// Called when one entry is decided. True if it was the last one: then the caller decides about the node.
    #[must_use]
    pub(crate) fn settle(&self) -> bool {
        // The thread that decides about the node must see all decisions in it.
        self.pending.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Prepares for reading the directory again: all entries were decided, but it was not empty.
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
        // The directory may have been swapped for another since it was checked, or may be a mount point now.
        if Metadata::of(&*opened)?.identity != self.metadata.identity {
            return Err(Unavailable::Moved);
        }
        if opened.is_scarce() {
            parent.close();
        }
        *self.directory.lock() = Some(opened);
        Ok(())
    }

    /// The open directory. Opened again if it was closed.
    pub(crate) fn directory(&self) -> Result<Arc<Descriptor>, Unavailable> {
        if let Some(open) = &*self.directory.lock() {
            return Ok(Arc::clone(open));
        }
        // Start at the nearest open ancestor; the topmost is always open.
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

    /// Called when all entries are decided. Opens a closed parent by `..`, which is shorter than from above.
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

    /// The ancestor so many levels above, or the root.
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
        // All others are opened again from the topmost.
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

    /// The path relative to the root.
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
    /// Drops the ancestors in a loop: recursion would need a stack as deep as the tree.
    fn drop(&mut self) {
        let mut above = self.parent.take();
        while let Some(node) = above {
            above = Arc::into_inner(node).and_then(|mut node| node.parent.take());
        }
    }
}
