//! Which entries may be removed, and which are checked.

use std::ffi::CStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use rustix::fs::FileType;
use rustix::process::{Uid, geteuid};

use crate::age::Moment;
use crate::exclude::Pattern;
use crate::metadata::Metadata;
use crate::node::Node;

pub(crate) struct Rules {
    pub(crate) is_dry_run: bool,
    /// Files changed before this moment may be removed. `None` keeps all files.
    pub(crate) files_before: Option<Moment>,
    /// Directories changed before this moment may be removed. `None` means all.
    pub(crate) directories_before: Option<Moment>,
    pub(crate) keeps_directories: bool,
    pub(crate) exclude: Vec<Pattern>,
    pub(crate) max_depth: Option<u32>,
    pub(crate) crosses_file_systems: bool,
    pub(crate) user: Uid,
}

impl Rules {
    pub(crate) fn user() -> Uid {
        geteuid()
    }

    /// True if the entry is excluded.
    pub(crate) fn exclude(&self, directory: &Node, name: &CStr) -> bool {
        if self.exclude.is_empty() {
            return false;
        }
        let name = name.to_bytes();
        if self.exclude.iter().any(|pattern| pattern.matches(name)) {
            return true;
        }
        if !self.exclude.iter().any(Pattern::is_path) {
            return false;
        }
        let path = directory.path().join(std::ffi::OsStr::from_bytes(name)).into_os_string().into_vec();
        self.exclude.iter().any(|pattern| pattern.is_path() && pattern.matches(&path))
    }

    /// True if the entries of a directory at this depth are too deep.
    pub(crate) fn is_max_depth(&self, depth: u32) -> bool {
        self.max_depth.is_some_and(|most| depth >= most)
    }

    pub(crate) fn is_on_other_file_system(&self, parent: &Node, directory: &Metadata) -> bool {
        let is_elsewhere =
            directory.is_mount_point || directory.identity.device != parent.metadata.identity.device;
        is_elsewhere && !self.crosses_file_systems
    }

    pub(crate) fn may_remove_file(&self, file: &Metadata) -> bool {
        let is_old_enough = self.files_before.is_some_and(|before| file.modified < before);
        is_old_enough && file.kind == FileType::RegularFile && !file.is_mount_point
    }

    /// True if the directory may be removed once it is empty.
    pub(crate) fn may_remove_directory(&self, directory: &Metadata) -> bool {
        let is_old_enough = self.directories_before.is_none_or(|before| directory.modified < before);
        is_old_enough && !self.keeps_directories && !directory.is_mount_point
    }

    /// True if the age of directories matters.
    pub(crate) fn checks_directory_age(&self) -> bool {
        self.directories_before.is_some()
    }

    /// True if every empty directory may be removed.
    pub(crate) fn may_remove_any_directory(&self) -> bool {
        !self.is_dry_run
            && !self.keeps_directories
            && self.directories_before.is_none()
            && self.user.is_root()
    }

    /// True if the directory is readable, so it may be removed without reading it first. Unreadable directories are
    /// never removed, because a dry run can't know whether they are empty.
    pub(crate) fn is_surely_readable(&self, directory: &Metadata) -> bool {
        self.user.is_root()
            || (directory.owner == self.user.as_raw() && directory.permissions & 0o500 == 0o500)
    }
}
