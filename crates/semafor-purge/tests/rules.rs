//! What is removed, and what stays.

use std::fs;
use std::path::Path;
use std::time::Duration;

use semafor_purge::{Purger, StoppedBy, Summary};
use semafor_testkit::trees::{self, age, count};

const DAY: Duration = Duration::from_secs(86_400);

/// Creates these paths. Those that end in a slash are directories.
fn tree(paths: &[&str]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for path in paths {
        let (path, is_directory) = (root.path().join(path), path.ends_with('/'));
        fs::create_dir_all(if is_directory { &path } else { path.parent().unwrap() }).unwrap();
        if !is_directory {
            fs::write(&path, "12345").unwrap();
        }
    }
    root
}

/// Runs a dry run and a real one, which must agree, and returns the summary of the real one.
#[track_caller]
fn purge(root: &Path, options: impl Fn(Purger<'static>) -> Purger<'static>) -> Summary {
    let before = count(root);
    let would = options(Purger::new(root)).dry_run(true).purge().unwrap();
    assert_eq!(count(root), before, "a dry run removes nothing");
    let done = options(Purger::new(root)).purge().unwrap();
    let counts = |summary: &Summary| {
        let Summary { dirs_scanned, dirs_removed, files_scanned, files_removed, bytes_freed, errors, .. } =
            summary;
        [*dirs_scanned, *dirs_removed, *files_scanned, *files_removed, *bytes_freed, *errors]
    };
    assert_eq!(counts(&would), counts(&done), "the dry run reports the same as the real run");
    let (dirs, files) = count(root);
    assert_eq!((before.0 - dirs, before.1 - files), (done.dirs_removed, done.files_removed));
    done
}

fn exists(root: &tempfile::TempDir, paths: &[&str]) -> Vec<bool> {
    paths.iter().map(|path| root.path().join(path).exists()).collect()
}

#[test]
fn only_old_files_are_removed_and_only_with_older_than() {
    let paths = ["old/file", "new/file", "both/old", "both/new"];
    let root = tree(&paths);
    for old in ["old/file", "both/old"] {
        age(&root.path().join(old), 31 * DAY);
    }
    age(&root.path().join("new/file"), 29 * DAY);
    assert_eq!(purge(root.path(), |purger| purger).files_removed, 0);
    let done = purge(root.path(), |purger| purger.older_than(30 * DAY));
    assert_eq!((done.files_removed, done.bytes_freed, done.dirs_removed), (2, 10, 1));
    assert_eq!(exists(&root, &["old", "new/file", "both/old", "both/new"]), [false, true, false, true]);
}

#[test]
fn keep_dirs_removes_only_old_files() {
    let root = tree(&["a/old", "empty/"]);
    age(&root.path().join("a/old"), 3 * DAY);
    let done = purge(root.path(), |purger| purger.older_than(DAY).keep_dirs(true));
    assert_eq!((done.files_removed, done.dirs_removed), (1, 0));
    assert_eq!(exists(&root, &["a", "empty"]), [true, true]);
}

#[test]
fn old_symlinks_stay() {
    let root = tree(&["dir/"]);
    std::os::unix::fs::symlink("nowhere", root.path().join("dir/link")).unwrap();
    let done = purge(root.path(), |purger| purger.older_than(Duration::ZERO));
    assert_eq!((done.files_removed, done.dirs_removed, done.files_scanned), (0, 0, 1));
}

#[test]
fn age_of_a_directory_is_its_age_before_the_purge() {
    let root = tree(&["parent/child/", "young/", "mixed/old/", "mixed/young/"]);
    for old in ["parent/child", "mixed/old", "mixed", "parent"] {
        age(&root.path().join(old), 2 * DAY);
    }
    let done = purge(root.path(), |purger| purger.min_age(DAY));
    // The removal of its child changed the parent, but that does not count.
    assert_eq!(done.dirs_removed, 3);
    assert_eq!(exists(&root, &["parent", "young", "mixed/old", "mixed/young"]), [false, true, false, true]);
}

#[test]
fn young_parent_of_an_old_child_stays() {
    let root = tree(&["parent/child/"]);
    age(&root.path().join("parent/child"), 2 * DAY);
    assert_eq!(purge(root.path(), |purger| purger.min_age(DAY)).dirs_removed, 1);
    assert_eq!(exists(&root, &["parent", "parent/child"]), [true, false]);
}

#[test]
fn young_root_stays() {
    let root = tree(&["root/a/"]);
    age(&root.path().join("root/a"), 2 * DAY);
    let done = Purger::new(root.path().join("root")).min_age(DAY).remove_root(true).purge().unwrap();
    assert_eq!(done.dirs_removed, 1);
    assert_eq!(exists(&root, &["root"]), [true]);
}

#[test]
fn excluded_directories_are_not_entered_and_keep_their_parents() {
    let root = tree(&["a/.snapshot/inner/", "b/keep.d/", "b/x/", "users/ann/", "other/users/ann/", "c/d/"]);
    let done = purge(root.path(), |purger| {
        let purger = purger.exclude(".snapshot").unwrap().exclude("*.d").unwrap();
        purger.exclude("users/*").unwrap()
    });
    assert_eq!(
        exists(&root, &["a/.snapshot/inner", "b/keep.d", "b/x", "users/ann", "other", "c"]),
        [true, true, false, true, false, false]
    );
    // Scanned: the root, a, b, b/x, users, other, other/users, other/users/ann, c, c/d.
    assert_eq!((done.dirs_removed, done.dirs_scanned), (6, 10));
}

#[test]
fn excluded_old_files_stay() {
    let root = tree(&["a/keep.log", "a/go.txt"]);
    let done = purge(root.path(), |purger| purger.older_than(Duration::ZERO).exclude("*.log").unwrap());
    assert_eq!((done.files_removed, done.files_scanned), (1, 2));
    assert_eq!(exists(&root, &["a/keep.log", "a/go.txt"]), [true, false]);
}

#[test]
fn entries_below_max_depth_count_as_content() {
    for (depth, removed) in [(1, 1), (2, 1), (3, 4), (4, 4), (0, 4)] {
        let root = tree(&["empty/", "a/b/c/", "d/file"]);
        assert_eq!(
            purge(root.path(), |purger| purger.max_depth(depth)).dirs_removed,
            removed,
            "depth {depth}"
        );
    }
}

#[test]
fn old_files_below_max_depth_stay() {
    let root = tree(&["top", "a/file"]);
    let done = purge(root.path(), |purger| purger.older_than(Duration::ZERO).max_depth(1));
    assert_eq!((done.files_removed, done.dirs_removed), (1, 0));
    assert_eq!(exists(&root, &["a/file"]), [true]);
}

#[test]
fn max_dirs_does_not_keep_old_files() {
    let root = tree(&["a/old", "b/old", "c/old", "d/old"]);
    let done = purge(root.path(), |purger| purger.older_than(Duration::ZERO).max_dirs(2));
    assert_eq!((done.files_removed, done.dirs_removed, done.stopped_by), (4, 2, StoppedBy::Limit));
}

#[test]
fn purge_with_a_rate_removes_the_same() {
    let root = tempfile::tempdir().unwrap();
    let fan = trees::fan(root.path(), 100, 3);
    assert_eq!(Purger::new(root.path()).rate(10_000).purge().unwrap().dirs_removed, fan.removable);
}

#[test]
fn root_that_is_not_a_directory_is_refused() {
    let root = tree(&["file"]);
    for path in ["file", "missing", "file/below"] {
        let error = Purger::new(root.path().join(path)).purge().expect_err(path);
        assert!(error.to_string().contains(path), "{error}");
    }
}
