//! Opens the directory to purge.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use crate::descriptor::Descriptors;
use crate::error::PurgeError;
use crate::location::Location;
use crate::metadata::Metadata;
use crate::node::Node;
use crate::system_paths;

/// Opens the root, and returns its location. Only here a symlink is followed, because the user named it.
pub(crate) fn open(
    path: &Path,
    descriptors: &Arc<Descriptors>,
    even_system_paths: bool,
    is_removed: bool,
) -> Result<(Node, Location), PurgeError> {
    let failed = |source: io::Error| PurgeError::Root { path: path.to_owned(), source };
    let failed_with = |errno: Errno| failed(errno.into());
    let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(CWD, path, how, Mode::empty()).map_err(failed_with)?;
    let metadata = Metadata::of(&opened).map_err(failed_with)?;
    if !even_system_paths && let Some(system) = system_paths::system_path(&opened, path, &metadata) {
        return Err(PurgeError::SystemPath { path: path.to_owned(), system });
    }
    let real_path = system_paths::real_path(&opened, path);
    let root = descriptors.wrap(opened);
    let location = Location::new(Arc::clone(&root), &metadata, real_path.clone());
    if !is_removed {
        let node = Node::top(root, metadata);
        node.keep();
        return Ok((node, location));
    }
    let unknown = || failed(io::Error::other("its path is unknown, so it can't be removed"));
    let name = real_path.as_deref().and_then(Path::file_name).ok_or_else(unknown)?;
    let name = CString::new(name.as_bytes()).map_err(|_| unknown())?;
    let outside = root.open(c"..").map_err(failed_with)?;
    let found = Metadata::at(&*outside, &name).map_err(failed_with)?;
    if found.identity != metadata.identity {
        return Err(unknown());
    }
    let above = Metadata::of(&*outside).map_err(failed_with)?;
    Ok((Node::root(Node::top(outside, above), name.into_boxed_c_str(), root, metadata), location))
}
