//! The tree that the latency file system shows: directories and files without content, in memory.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};

use fuser::{Errno, FileType};

pub(super) const ROOT: u64 = 1;

pub(super) struct Store {
    nodes: HashMap<u64, Node>,
    last: u64,
}

pub(super) struct Node {
    pub(super) kind: FileType,
    by_name: HashMap<OsString, u64>,
    /// In the order of creation, which is also the order of a listing: a removal during a listing shifts nothing.
    by_number: BTreeMap<u64, OsString>,
    subdirectories: u32,
}

/// One line of a listing.
pub(super) struct Line<'a> {
    pub(super) number: u64,
    pub(super) kind: FileType,
    pub(super) name: &'a OsStr,
}

impl Node {
    fn new(kind: FileType) -> Self {
        let (by_name, by_number) = (HashMap::new(), BTreeMap::new());
        Self { kind, by_name, by_number, subdirectories: 0 }
    }

    pub(super) fn links(&self) -> u32 {
        if self.kind == FileType::Directory { 2 + self.subdirectories } else { 1 }
    }
}

impl Store {
    pub(super) fn new() -> Self {
        let root = Node::new(FileType::Directory);
        Self { nodes: HashMap::from([(ROOT, root)]), last: ROOT }
    }

    pub(super) fn get(&self, number: u64) -> Result<&Node, Errno> {
        self.nodes.get(&number).ok_or(Errno::ENOENT)
    }

    pub(super) fn find(&self, parent: u64, name: &OsStr) -> Result<u64, Errno> {
        self.get(parent)?.by_name.get(name).copied().ok_or(Errno::ENOENT)
    }

    pub(super) fn add(&mut self, parent: u64, name: &OsStr, kind: FileType) -> Result<u64, Errno> {
        let above = self.nodes.get_mut(&parent).ok_or(Errno::ENOENT)?;
        if above.by_name.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        self.last += 1;
        above.by_name.insert(name.to_owned(), self.last);
        above.by_number.insert(self.last, name.to_owned());
        above.subdirectories += u32::from(kind == FileType::Directory);
        self.nodes.insert(self.last, Node::new(kind));
        Ok(self.last)
    }

    /// Removes a directory only if it is empty.
    pub(super) fn remove(&mut self, parent: u64, name: &OsStr, kind: FileType) -> Result<(), Errno> {
        let number = self.find(parent, name)?;
        let node = self.get(number)?;
        if node.kind != kind {
            return Err(if kind == FileType::Directory { Errno::ENOTDIR } else { Errno::EISDIR });
        }
        if !node.by_name.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        self.nodes.remove(&number);
        let above = self.nodes.get_mut(&parent).ok_or(Errno::ENOENT)?;
        above.by_name.remove(name);
        above.by_number.remove(&number);
        above.subdirectories -= u32::from(kind == FileType::Directory);
        Ok(())
    }

    /// The entries of a directory after the one with this number. Without `.` and `..`.
    pub(super) fn list(&self, directory: u64, behind: u64) -> Result<impl Iterator<Item = Line<'_>>, Errno> {
        let lines = self.get(directory)?.by_number.range(behind + 1..);
        Ok(lines.map(|(number, name)| Line { number: *number, kind: self.nodes[number].kind, name }))
    }
}
