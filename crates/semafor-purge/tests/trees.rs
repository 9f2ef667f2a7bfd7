//! Whole trees: exactly the removable directories are removed, and a dry run reports the same before.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use semafor_purge::{Purger, StoppedBy, Summary};
use semafor_testkit::trees::{self, Tree, count};

fn purge(root: &Path) -> Summary {
    Purger::new(root).purge().expect("the root exists")
}

/// Runs a dry run, then a real one.
#[track_caller]
fn check(root: &Path, tree: Tree) {
    let would = Purger::new(root).dry_run(true).purge().expect("the root exists");
    assert_eq!(count(root), (tree.dirs, tree.files), "a dry run removes nothing");
    let done = purge(root);
    for (summary, what) in [(&would, "would"), (&done, "done")] {
        assert_eq!(summary.dirs_removed, tree.removable, "{what}: {summary:?}");
        assert_eq!(summary.dirs_scanned, tree.dirs + 1, "{what}: {summary:?}");
        assert_eq!((summary.errors, summary.files_removed), (0, 0), "{what}: {summary:?}");
        assert_eq!(summary.files_scanned, tree.files, "{what}: {summary:?}");
        assert_eq!(summary.stopped_by, StoppedBy::Completed, "{what}");
        assert_eq!(summary.fraction, 1.0, "{what}");
    }
    assert_eq!(count(root), (tree.dirs - tree.removable, tree.files));
    assert_eq!(purge(root).dirs_removed, 0, "there is nothing left to remove");
}

#[test]
fn fan() {
    let root = tempfile::tempdir().unwrap();
    check(root.path(), trees::fan(root.path(), 10_000, 10));
}

#[test]
fn hundred_thousand_directories_in_one_directory() {
    let root = trees::spacious();
    check(root.path(), trees::flat(root.path(), 100_000));
}

#[test]
fn chain_of_ten_thousand_levels() {
    let root = tempfile::tempdir().unwrap();
    check(root.path(), trees::chain(root.path(), 10_000));
}

#[test]
fn mixed_tree() {
    let root = tempfile::tempdir().unwrap();
    let tree = trees::mixed(root.path(), 10_000, 7);
    assert!(tree.removable > 1000 && tree.removable < 9000, "{tree:?}");
    check(root.path(), tree);
}

#[test]
fn root_with_a_single_directory() {
    let root = tempfile::tempdir().unwrap();
    let tree = trees::fan(&root.path().join("top"), 3_000, 30);
    check(root.path(), Tree { dirs: tree.dirs + 1, removable: tree.removable + 1, ..tree });
}

#[test]
fn empty_root() {
    let root = tempfile::tempdir().unwrap();
    check(root.path(), Tree { dirs: 0, files: 0, removable: 0 });
}

#[test]
fn names_may_be_invalid_utf8() {
    let root = tempfile::tempdir().unwrap();
    let odd: [&[u8]; 5] = [b"\xff\xfe", b"new\nline", b" ", b"-rf", "größe".as_bytes()];
    for name in odd {
        fs::create_dir_all(root.path().join(OsStr::from_bytes(name)).join(OsStr::from_bytes(b"\x80")))
            .unwrap();
    }
    fs::create_dir_all(root.path().join(OsStr::from_bytes(b"kept\xff"))).unwrap();
    fs::write(root.path().join(OsStr::from_bytes(b"kept\xff/\xfe")), "").unwrap();
    check(root.path(), Tree { dirs: 11, files: 1, removable: 10 });
}

#[test]
fn hidden_files_symlinks_and_special_files_are_content() {
    let root = tempfile::tempdir().unwrap();
    let dirs = ["hidden", "link", "dangling", "pipe"].map(|name| root.path().join(name));
    dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir(outside.path().join("empty")).unwrap();
    fs::write(dirs[0].join(".hidden"), "").unwrap();
    symlink(outside.path(), dirs[1].join("link")).unwrap();
    symlink("nowhere", dirs[2].join("link")).unwrap();
    let pipe = std::process::Command::new("mkfifo").arg(dirs[3].join("pipe")).status().unwrap();
    assert!(pipe.success());
    check(root.path(), Tree { dirs: 4, files: 4, removable: 0 });
    assert!(outside.path().join("empty").exists());
}

#[test]
fn root_is_removed_only_with_remove_root() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    let tree = trees::fan(&root, 20, 3);
    let would = Purger::new(&root).remove_root(true).dry_run(true).purge().unwrap();
    assert_eq!(would.dirs_removed, tree.removable + 1);
    assert_eq!(purge(&root).dirs_removed, tree.removable);
    assert!(root.exists());
    // Also through a symlink.
    symlink(&root, directory.path().join("link")).unwrap();
    let done = Purger::new(directory.path().join("link/.")).remove_root(true).purge().unwrap();
    assert_eq!(done.dirs_removed, 1);
    assert!(!root.exists());
}

#[test]
fn root_that_is_not_empty_stays() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("file"), "").unwrap();
    let done = Purger::new(&root).remove_root(true).purge().unwrap();
    assert_eq!((done.dirs_removed, done.errors), (2, 0));
    assert!(root.join("file").exists());
}

#[test]
fn one_thread_is_enough() {
    let root = tempfile::tempdir().unwrap();
    let tree = trees::mixed(root.path(), 3_000, 5);
    let purger = Purger::new(root.path()).max_concurrency_deletion(1).max_concurrency_scanning(1);
    assert_eq!(purger.purge().unwrap().dirs_removed, tree.removable);
}

#[test]
fn scanning_and_deletion_limits_may_differ() {
    for (deletions, scans) in [(1, 30), (30, 1), (2, 3), (0, 2)] {
        let root = tempfile::tempdir().unwrap();
        let tree = trees::mixed(root.path(), 2_000, 9);
        let purger = Purger::new(root.path());
        let purger = purger.max_concurrency_deletion(deletions).max_concurrency_scanning(scans);
        assert_eq!(purger.purge().unwrap().dirs_removed, tree.removable);
    }
}
