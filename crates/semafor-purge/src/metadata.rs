//! Metadata of an entry. Read before anything is changed, so that the age of a directory is its age before the run; and
//! again right before a removal, to detect changes by other processes.

use std::ffi::CStr;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, Statx, StatxAttributes, StatxFlags, statx};
use rustix::io::Result;

use crate::age::Moment;

/// Identifies a file independent of its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub(crate) device: (u32, u32),
    inode: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Metadata {
    pub(crate) kind: FileType,
    pub(crate) identity: Identity,
    pub(crate) links: u32,
    pub(crate) permissions: u16,
    pub(crate) owner: u32,
    pub(crate) modified: Moment,
    /// When its content, owner, permissions or number of links last changed. No program can set it.
    pub(crate) changed: Moment,
    pub(crate) size: u64,
    pub(crate) is_mount_point: bool,
    /// Immutable or append-only: not even root can remove it, or an entry of it.
    pub(crate) is_frozen: bool,
}

impl Metadata {
    /// Metadata of the entry itself. Does not follow a symlink.
    pub(crate) fn at(directory: impl AsFd, name: &CStr) -> Result<Self> {
        Self::read(directory, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)
    }

    /// Like [`at`](Self::at), but a network file system asks its server instead of its cache.
    pub(crate) fn at_now(directory: impl AsFd, name: &CStr) -> Result<Self> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_FORCE_SYNC;
        Self::read(directory, name, flags)
    }

    pub(crate) fn of(descriptor: impl AsFd) -> Result<Self> {
        Self::read(descriptor, c"", AtFlags::EMPTY_PATH)
    }

    /// Like [`of`](Self::of), from the server. For a directory, this also validates cached names.
    pub(crate) fn of_now(descriptor: impl AsFd) -> Result<Self> {
        Self::read(descriptor, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC)
    }

    /// True if this is the same file with the same content as before, as far as the file system can tell.
    pub(crate) fn is_unchanged_since(&self, before: &Self) -> bool {
        self.has_content_of(before) && self.changed == before.changed
    }

    /// The same for a file that has fewer links than before. Removing a link sets `changed`, and may be our own
    /// removal.
    pub(crate) fn has_only_lost_names_since(&self, before: &Self) -> bool {
        self.has_content_of(before) && (1..before.links).contains(&self.links)
    }

    fn has_content_of(&self, before: &Self) -> bool {
        self.kind == before.kind
            && self.identity == before.identity
            && self.size == before.size
            && self.modified == before.modified
    }

    fn read(directory: impl AsFd, name: &CStr, flags: AtFlags) -> Result<Self> {
        let wanted = StatxFlags::TYPE
            | StatxFlags::MODE
            | StatxFlags::NLINK
            | StatxFlags::UID
            | StatxFlags::INO
            | StatxFlags::SIZE
            | StatxFlags::MTIME
            | StatxFlags::CTIME;
        Ok(statx(directory, name, flags, wanted)?.into())
    }
}

impl From<Statx> for Metadata {
    fn from(statx: Statx) -> Self {
        Self {
            kind: FileType::from_raw_mode(statx.stx_mode.into()),
            identity: Identity { device: (statx.stx_dev_major, statx.stx_dev_minor), inode: statx.stx_ino },
            links: statx.stx_nlink,
            permissions: statx.stx_mode & 0o7777,
            owner: statx.stx_uid,
            modified: Moment::new(statx.stx_mtime.tv_sec, statx.stx_mtime.tv_nsec),
            changed: Moment::new(statx.stx_ctime.tv_sec, statx.stx_ctime.tv_nsec),
            size: statx.stx_size,
            is_mount_point: statx.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
            is_frozen: statx.stx_attributes.intersects(StatxAttributes::IMMUTABLE | StatxAttributes::APPEND),
        }
    }
}
