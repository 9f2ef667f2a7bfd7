//! Directory trees on a real file system with a known result of a purge.

use std::ffi::OsStr;
use std::fs::{self, File, FileTimes};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, mkdirat, openat};
use tempfile::TempDir;

/// What is in a tree, its root not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tree {
    /// All directories.
    pub dirs: u64,
    /// All files.
    pub files: u64,
    /// Directories that are empty, or become empty when their subdirectories are removed.
    pub removable: u64,
}

/// A folder for large trees: in memory, if there is such a file system.
///
/// # Panics
///
/// If it can't be created.
pub fn spacious() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("it can be made")
}

/// So many directories, all in the root.
///
/// # Panics
///
/// If something can't be created. The same holds for all functions here that create a tree.
pub fn flat(root: &Path, dirs: u64) -> Tree {
    fs::create_dir_all(root).expect("the root can be made");
    for number in 0..dirs {
        fs::create_dir(root.join(format!("d{number}"))).expect("it can be made");
    }
    Tree { dirs, files: 0, removable: dirs }
}

/// So many directories, one in the other.
pub fn chain(root: &Path, levels: u64) -> Tree {
    fs::create_dir_all(root).expect("the root can be made");
    let mut at = open(root);
    for _ in 0..levels {
        mkdirat(&at, c"d", Mode::from_raw_mode(0o755)).expect("it can be made");
        at = openat(&at, c"d", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).expect("it was made");
    }
    Tree { dirs: levels, files: 0, removable: levels }
}

/// So many directories, each with `fanout` subdirectories until there are enough, the upper ones first.
pub fn fan(root: &Path, dirs: u64, fanout: u64) -> Tree {
    lay_out(root, dirs, fanout);
    Tree { dirs, files: 0, removable: dirs }
}

/// Like [`fan`], with a file in every third directory that has no subdirectories.
pub fn mixed(root: &Path, dirs: u64, fanout: u64) -> Tree {
    let parents = lay_out(root, dirs, fanout);
    let path = |mut at: usize| {
        let mut names = vec![name_of(at as u64, fanout)];
        while let Some(parent) = parents[at] {
            at = parent;
            names.push(name_of(at as u64, fanout));
        }
        names.iter().rev().collect::<PathBuf>()
    };
    let mut has_children = vec![false; parents.len()];
    parents.iter().flatten().for_each(|parent| has_children[*parent] = true);
    let mut is_kept = vec![false; parents.len()];
    let mut files = 0;
    for leaf in (0..parents.len()).filter(|at| !has_children[*at]).step_by(3) {
        fs::write(root.join(path(leaf)).join("file"), "content").expect("it can be written");
        files += 1;
        let mut at = Some(leaf);
        while let Some(kept) = at {
            is_kept[kept] = true;
            at = parents[kept];
        }
    }
    let removable = is_kept.iter().filter(|is_kept| !**is_kept).count() as u64;
    Tree { dirs, files, removable }
}

fn name_of(number: u64, fanout: u64) -> String {
    format!("d{}", number % fanout)
}

/// The parent of each directory, none for those in the root.
fn lay_out(root: &Path, dirs: u64, fanout: u64) -> Vec<Option<usize>> {
    fs::create_dir_all(root).expect("the root can be made");
    let mut parents = Vec::new();
    let mut paths = vec![root.to_owned()];
    for number in 0..dirs {
        let above = usize::try_from(number / fanout).expect("it fits into memory");
        let path = paths[above].join(name_of(number, fanout));
        fs::create_dir(&path).expect("it can be made");
        paths.push(path);
        parents.push(above.checked_sub(1));
    }
    parents
}

/// How many directories and other entries there are, however deep. The root is not counted.
///
/// # Panics
///
/// If it can't be read.
pub fn count(root: &Path) -> (u64, u64) {
    let (mut dirs, mut others) = (0, 0);
    // Not by path, which may exceed the longest path allowed. Nor with one descriptor per level.
    let mut above: Vec<Vec<Vec<u8>>> = Vec::new();
    let mut at = open(root);
    let mut subdirectories = read(&at, &mut others);
    loop {
        if let Some(name) = subdirectories.pop() {
            dirs += 1;
            let next = openat(&at, OsStr::from_bytes(&name), NO_LINK, Mode::empty()).expect("it is there");
            at = next;
            above.push(std::mem::replace(&mut subdirectories, read(&at, &mut others)));
        } else if let Some(rest) = above.pop() {
            at = openat(&at, c"..", NO_LINK, Mode::empty()).expect("we came from there");
            subdirectories = rest;
        } else {
            return (dirs, others);
        }
    }
}

const NO_LINK: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn open(path: &Path) -> OwnedFd {
    openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .expect("it is there")
}

/// The names of its subdirectories. Counts the other entries.
fn read(directory: &OwnedFd, others: &mut u64) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory).expect("it can be read") {
        let entry = entry.expect("it can be read");
        match entry.file_name().to_bytes() {
            b"." | b".." => {}
            name if entry.file_type() == FileType::Directory => names.push(name.to_owned()),
            _ => *others += 1,
        }
    }
    names
}

/// Makes a file or directory look as if it was last changed so long ago.
///
/// # Panics
///
/// If it is not ours.
pub fn age(path: &Path, age: Duration) {
    let file = File::open(path).expect("it can be opened");
    let changed = SystemTime::now() - age;
    file.set_times(FileTimes::new().set_modified(changed)).expect("it is ours");
}
