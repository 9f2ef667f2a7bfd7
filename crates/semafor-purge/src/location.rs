//! Checks whether a directory is still where it was found.
//!
//! An open directory stays open when another process moves it, and a removal in it would then happen elsewhere. So its
//! path is looked up again, from the top of the file system and without following symlinks, and must lead to the same
//! directory. The path of the root is its path at the start of the purge.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::{Errno, Result};

use crate::descriptor::Descriptor;
use crate::error::{is_gone, is_not_a_directory};
use crate::metadata::{Identity, Metadata};
use crate::node::Node;

/// How many times `../` fits into a path.
const MAX_LEVELS: usize = 1_300;

/// Where the root is.
pub(crate) struct Location {
    root: Arc<Descriptor>,
    identity: Identity,
    /// Without symlinks. `None` if this process can't reach the root by a path.
    path: Option<PathBuf>,
}

impl Location {
    pub(crate) fn new(root: Arc<Descriptor>, metadata: &Metadata, path: Option<PathBuf>) -> Self {
        let mut location = Self { root, identity: metadata.identity, path };
        if !location.leads_to(Path::new(""), metadata.identity).is_ok_and(|is_there| is_there) {
            location.path = None;
        }
        location
    }

    /// True if this open directory still has the path where it was found.
    ///
    /// Below [`MAX_LEVELS`] levels, checks only the nearest ones and the root.
    pub(crate) fn is_at(&self, node: &Node, directory: &Descriptor) -> Result<bool> {
        let above = node.ancestor(MAX_LEVELS);
        if above.depth == 0 {
            return self.leads_to(&node.path(), node.metadata.identity);
        }
        let upwards = CString::new("../".repeat(MAX_LEVELS)).map_err(|_| Errno::INVAL)?;
        let is_below = Metadata::at(directory, &upwards)?.identity == above.metadata.identity;
        Ok(is_below && self.leads_to(Path::new(""), self.identity)?)
    }

    /// True if this path below the root leads to this directory.
    fn leads_to(&self, below: &Path, directory: Identity) -> Result<bool> {
        let found = match &self.path {
            Some(root) => look_up(CWD, &root.join(below)),
            None => look_up(self.root.as_fd(), &Path::new(".").join(below)),
        };
        match found.and_then(Metadata::of) {
            Ok(found) => Ok(found.identity == directory),
            Err(errno) if is_gone(errno) || is_not_a_directory(errno) => Ok(false),
            Err(errno) => Err(errno),
        }
    }
}

/// Opens the directory with this path. Fails if a part of it is a symlink.
fn look_up(within: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd> {
    match openat2(within, path, FLAGS, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // An old kernel, a sandbox that forbids the call, or a long path.
        Err(Errno::NOSYS | Errno::PERM | Errno::NAMETOOLONG) => walk(within, path),
        answer => answer,
    }
}

const FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The same with one call per name.
fn walk(within: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd> {
    let start = if path.is_absolute() { c"/" } else { c"." };
    let mut at = openat(within, start, FLAGS, Mode::empty())?;
    for part in path.components() {
        if let Component::Normal(name) = part {
            at = openat(&at, name, FLAGS, Mode::empty())?;
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Both ways give the same result.
    #[test]
    fn path_is_found_with_one_call_or_one_per_part() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().canonicalize().unwrap();
        fs::create_dir_all(directory.join("a/b")).unwrap();
        fs::write(directory.join("a/file"), "").unwrap();
        symlink("a", directory.join("link")).unwrap();
        symlink("b", directory.join("a/link")).unwrap();
        let start = openat(CWD, &directory, FLAGS, Mode::empty()).unwrap();
        let wanted = Metadata::of(openat(&start, "a/b", FLAGS, Mode::empty()).unwrap()).unwrap().identity;
        for find in [look_up, walk] {
            let at = |path: &str| find(start.as_fd(), Path::new(path)).and_then(Metadata::of);
            assert_eq!(at("a/b").unwrap().identity, wanted);
            assert_eq!(at("./a/b/").unwrap().identity, wanted);
            assert_eq!(at(directory.join("a/b").to_str().unwrap()).unwrap().identity, wanted);
            for path in ["link/b", "a/link", "a/file", "a/file/b"] {
                assert!(is_not_a_directory(at(path).unwrap_err()), "{path}");
            }
            assert!(is_gone(at("a/c").unwrap_err()));
        }
    }

    #[test]
    fn path_too_long_for_one_call_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let name = "x".repeat(250);
        let mut at = openat(CWD, directory.path(), FLAGS, Mode::empty()).unwrap();
        let mut path = directory.path().canonicalize().unwrap();
        for _ in 0..20 {
            rustix::fs::mkdirat(&at, name.as_str(), Mode::RWXU).unwrap();
            at = openat(&at, name.as_str(), FLAGS, Mode::empty()).unwrap();
            path.push(&name);
        }
        let wanted = Metadata::of(&at).unwrap().identity;
        assert_eq!(Metadata::of(look_up(CWD, &path).unwrap()).unwrap().identity, wanted);
        path.push("y");
        assert!(is_gone(look_up(CWD, &path).unwrap_err()));
    }
}
