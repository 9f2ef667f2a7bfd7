//! Whether `rmdir` or `unlink` would succeed, without calling it.
//!
//! The directory was read, so it is known to be empty. What remains is to check permissions.

use rustix::fs::{Access, AtFlags, accessat};
use rustix::io::{Errno, Result};

use crate::descriptor::Descriptor;
use crate::metadata::Metadata;
use crate::node::Node;
use crate::rules::Rules;

const STICKY: u16 = 0o1000;

pub(crate) fn would_remove(
    rules: &Rules,
    parent: &Node,
    directory: &Descriptor,
    entry: &Metadata,
) -> Result<()> {
    accessat(directory, c".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)?;
    if parent.metadata.is_frozen || entry.is_frozen {
        return Err(Errno::PERM);
    }
    let user = rules.user.as_raw();
    let is_protected =
        parent.metadata.permissions & STICKY != 0 && ![entry.owner, parent.metadata.owner].contains(&user);
    if is_protected && !rules.user.is_root() {
        return Err(Errno::PERM);
    }
    Ok(())
}
