//! Why nothing was purged at all. What goes wrong with single entries is counted in the [`Summary`](crate::Summary).

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// Why the purge did not begin. Nothing was removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PurgeError {
    /// The root can't be opened.
    #[error("can't open {}: {source}", path.display())]
    Root {
        /// As it was given.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The root belongs to the system.
    #[error("{} belongs to the system{}", system.display(), resolved_from(path, system))]
    SystemPath {
        /// As it was given.
        path: PathBuf,
        /// What it is, through all symlinks.
        system: PathBuf,
    },
    /// A pattern of what to leave alone can't be read.
    #[error(transparent)]
    Pattern(#[from] InvalidPattern),
}

fn resolved_from(path: &Path, system: &Path) -> String {
    if path == system { String::new() } else { format!(", and that is what {} is", path.display()) }
}

/// A pattern that can't be read.
#[derive(Debug, thiserror::Error)]
#[error("the pattern {pattern:?} can't be used: {why}")]
pub struct InvalidPattern {
    pub(crate) pattern: String,
    pub(crate) why: &'static str,
}

/// What an entry could not be removed for, or looked at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// It is not allowed.
    PermissionDenied,
    /// It is a mount point, or in use in another way.
    Busy,
    /// The file system can't be written to.
    ReadOnly,
    /// No more files can be opened.
    TooManyOpenFiles,
    /// The device, or the server, has failed.
    Io,
    /// The semaphore that a fleet shares can't be asked.
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

    /// As it is called in the summary.
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

/// Somebody else removed it. That is no error: two purgers may share a tree.
pub(crate) fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::STALE)
}

/// There is no directory of that name any more, but something else.
pub(crate) fn is_not_a_directory(errno: Errno) -> bool {
    matches!(errno, Errno::NOTDIR | Errno::LOOP)
}
