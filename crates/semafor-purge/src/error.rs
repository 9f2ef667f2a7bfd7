//! Errors that prevent a purge. Errors of single entries are counted in the [`Summary`](crate::Summary).

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// Why a purge did not start. Nothing was removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PurgeError {
    /// The root can't be opened.
    #[error("can't open {}: {source}", path.display())]
    Root {
        /// The path as given.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The root belongs to the system.
    #[error("{} belongs to the system{}", system.display(), resolved_from(path, system))]
    SystemPath {
        /// The path as given.
        path: PathBuf,
        /// The system directory that it leads to.
        system: PathBuf,
    },
    /// A pattern to exclude is invalid.
    #[error(transparent)]
    Pattern(#[from] InvalidPattern),
}

fn resolved_from(path: &Path, system: &Path) -> String {
    if path == system { String::new() } else { format!(": {} leads to it", path.display()) }
}

/// An invalid pattern.
#[derive(Debug, thiserror::Error)]
#[error("invalid pattern {pattern:?}: {why}")]
pub struct InvalidPattern {
    pub(crate) pattern: String,
    pub(crate) why: &'static str,
}

/// Why an entry could not be removed or checked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Permission denied.
    PermissionDenied,
    /// It is a mount point, or in use in another way.
    Busy,
    /// The file system is read-only.
    ReadOnly,
    /// The limit of open files is reached.
    TooManyOpenFiles,
    /// The device or the file server failed.
    Io,
    /// The semaphore of the fleet can't be reached.
    FleetLimit,
    /// Anything else.
    Other,
}

impl ErrorKind {
    /// Every kind.
    pub(crate) const ALL: [Self; 7] = [
        Self::PermissionDenied,
        Self::Busy,
        Self::ReadOnly,
        Self::TooManyOpenFiles,
        Self::Io,
        Self::FleetLimit,
        Self::Other,
    ];

    /// The name in the summary.
    pub fn name(self) -> &'static str {
        match self {
            Self::PermissionDenied => "permission_denied",
            Self::Busy => "busy",
            Self::ReadOnly => "read_only",
            Self::TooManyOpenFiles => "too_many_open_files",
            Self::Io => "io",
            Self::FleetLimit => "fleet_limit",
            Self::Other => "other",
        }
    }
}

impl From<Errno> for ErrorKind {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::ACCESS | Errno::PERM => Self::PermissionDenied,
            Errno::BUSY => Self::Busy,
            Errno::ROFS => Self::ReadOnly,
            Errno::MFILE | Errno::NFILE => Self::TooManyOpenFiles,
            Errno::IO | Errno::TIMEDOUT | Errno::REMOTEIO => Self::Io,
            _ => Self::Other,
        }
    }
}

/// Another process removed the entry. That is not an error: several purges may share a tree.
pub(crate) fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::STALE)
}

/// The name belongs to something other than a directory now.
pub(crate) fn is_not_a_directory(errno: Errno) -> bool {
    matches!(errno, Errno::NOTDIR | Errno::LOOP)
}
