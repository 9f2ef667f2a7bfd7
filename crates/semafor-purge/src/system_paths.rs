//! Directories that belong to the system. A purge of one of them is most likely a mistake.
//!
//! The opened directory counts, not its path: a symlink to it, a path through a symlink, or a bind mount is the same
//! directory.

use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::metadata::Metadata;

/// Refused with everything below them.
const WITH_CONTENT: [&str; 18] = [
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/usr/bin",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/sbin",
    "/var/run",
];
/// Refused only themselves: data of users may be below.
const WITHOUT_CONTENT: [&str; 12] = [
    "/",
    "/home",
    "/opt",
    "/root",
    "/srv",
    "/usr",
    "/usr/local",
    "/usr/share",
    "/var",
    "/var/lib",
    "/var/log",
    "/var/spool",
];
/// Allowed although they are below one of the above.
const FOR_USERS: [&str; 2] = ["/dev/shm", "/run/user"];

/// The system directory, if the root is one or is in one.
pub(crate) fn system_path(root: impl AsFd, given: &Path, metadata: &Metadata) -> Option<PathBuf> {
    let path = real_path(root.as_fd(), given)?;
    let is_for_users = FOR_USERS.iter().any(|users| path.starts_with(users) && path != Path::new(users));
    let is_system = WITH_CONTENT.iter().any(|system| path.starts_with(system)) && !is_for_users
        || WITHOUT_CONTENT.iter().any(|system| path == Path::new(system));
    if is_system {
        return Some(path);
    }
    let mounted_elsewhere =
        WITH_CONTENT.iter().chain(&WITHOUT_CONTENT).find(|system| is_same(system, metadata));
    mounted_elsewhere.map(PathBuf::from)
}

fn is_same(system: &str, metadata: &Metadata) -> bool {
    let opened = openat(CWD, system, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    opened.and_then(Metadata::of).is_ok_and(|there| there.identity == metadata.identity)
}

/// The path of the open directory, without symlinks.
pub(crate) fn real_path(root: impl AsFd, given: &Path) -> Option<PathBuf> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", root.as_fd().as_raw_fd()));
    link.ok().filter(|path| path.is_absolute()).or_else(|| given.canonicalize().ok())
}
