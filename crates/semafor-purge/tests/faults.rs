//! Faults of efspurge, the tool that this one replaces. Each test shows that a fault is not here.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use semafor::Registry;
use semafor_pipeline::MemoryGuard;
use semafor_purge::{PurgeError, Purger, StoppedBy};
use semafor_testkit::trees::{self, count};

#[test]
fn fault_1_more_than_ten_thousand_directories_in_one_directory_are_removed() {
    let root = trees::spacious();
    trees::flat(root.path(), 10_500);
    let done = Purger::new(root.path()).purge().unwrap();
    assert_eq!((done.dirs_removed, done.errors), (10_500, 0));
    assert_eq!(count(root.path()), (0, 0));
}

#[test]
fn fault_2_deep_tree_is_not_an_error() {
    let root = tempfile::tempdir().unwrap();
    trees::chain(root.path(), 2_000);
    let done = Purger::new(root.path()).purge().unwrap();
    assert_eq!((done.dirs_removed, done.errors), (2_000, 0));
}

#[test]
fn fault_3_limit_with_few_threads_does_not_hang() {
    let root = tempfile::tempdir().unwrap();
    trees::flat(root.path(), 3_000);
    let done = Purger::new(root.path()).max_concurrency_deletion(5).max_dirs(50).purge().unwrap();
    assert_eq!((done.dirs_removed, done.stopped_by), (50, StoppedBy::Limit));
    assert_eq!(count(root.path()), (2_950, 0));
}

#[test]
fn fault_4_the_limit_holds_in_cascades() {
    for limit in [1, 2, 101, 199] {
        let root = tempfile::tempdir().unwrap();
        for number in 0..100 {
            fs::create_dir_all(root.path().join(format!("{number}/inner"))).unwrap();
        }
        let done = Purger::new(root.path()).max_dirs(limit).purge().unwrap();
        assert_eq!((done.dirs_removed, done.stopped_by), (limit, StoppedBy::Limit));
        assert_eq!(count(root.path()), (200 - limit, 0));
    }
}

#[test]
fn fault_4_limit_that_is_just_enough_stops_nothing() {
    let root = tempfile::tempdir().unwrap();
    let tree = trees::fan(root.path(), 300, 4);
    let done = Purger::new(root.path()).max_dirs(tree.removable).purge().unwrap();
    assert_eq!((done.dirs_removed, done.stopped_by), (tree.removable, StoppedBy::Completed));
}

#[test]
fn fault_5_dry_run_cascades_and_reports_the_paths_of_the_real_run() {
    let root = tempfile::tempdir().unwrap();
    trees::mixed(root.path(), 500, 4);
    fs::create_dir_all(root.path().join("a/b/c")).unwrap();
    let named = |is_dry_run| {
        let paths = Arc::new(Mutex::new(BTreeSet::new()));
        let reported = Arc::clone(&paths);
        let purger = Purger::new(root.path()).dry_run(is_dry_run);
        let purger = purger.on_removal(move |path, _| {
            assert!(reported.lock().unwrap().insert(path.to_owned()), "{} twice", path.display());
        });
        let summary = purger.purge().unwrap();
        let paths = std::mem::take(&mut *paths.lock().unwrap());
        assert_eq!(paths.len() as u64, summary.dirs_removed);
        paths
    };
    let would: BTreeSet<PathBuf> = named(true);
    assert!(would.contains(&root.path().join("a")), "cascades");
    assert!(would.iter().all(|path| path.exists()));
    assert_eq!(named(false), would);
    assert!(!would.iter().any(|path| path.exists()));
}

#[test]
fn fault_5_dry_run_has_the_same_limit() {
    let root = tempfile::tempdir().unwrap();
    trees::fan(root.path(), 300, 4);
    let would = Purger::new(root.path()).dry_run(true).max_dirs(123).purge().unwrap();
    assert_eq!((would.dirs_removed, would.stopped_by), (123, StoppedBy::Limit));
}

#[test]
fn fault_6_tight_memory_does_not_stop_the_purge() {
    let root = tempfile::tempdir().unwrap();
    let tree = trees::fan(root.path(), 5_000, 10);
    let asked = AtomicUsize::new(0);
    // Tight for a while, then fine.
    let memory = move || if asked.fetch_add(1, Ordering::Relaxed) < 4 { 90 } else { 10 };
    let done = Purger::new(root.path()).memory(MemoryGuard::new(100).source(memory)).purge().unwrap();
    assert_eq!((done.dirs_removed, done.stopped_by), (tree.removable, StoppedBy::Completed));
    assert_eq!(done.peak_memory_bytes, 90);
}

#[test]
fn fault_6_constantly_tight_memory_reduces_threads() {
    let root = trees::spacious();
    let tree = trees::fan(root.path(), 20_000, 10);
    let done = Purger::new(root.path()).memory(MemoryGuard::new(100).source(|| 90)).purge().unwrap();
    assert_eq!((done.dirs_removed, done.stopped_by), (tree.removable, StoppedBy::Completed));
    assert!(done.backpressure_events > 0, "{done:?}");
}

#[test]
fn fault_6_used_up_memory_stops_the_purge() {
    let root = trees::spacious();
    let tree = trees::fan(root.path(), 20_000, 10);
    let is_used_up = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_used_up);
    let memory = MemoryGuard::new(100).source(move || if seen.load(Ordering::Relaxed) { 96 } else { 1 });
    let purger = Purger::new(root.path()).memory(memory).rate(5_000);
    let done = purger.on_removal(move |_, _| is_used_up.store(true, Ordering::Relaxed)).purge().unwrap();
    assert_eq!(done.stopped_by, StoppedBy::Breaker);
    assert_eq!(count(root.path()).0, tree.dirs - done.dirs_removed, "the summary counts what was removed");
}

#[test]
fn fault_7_cascade_needs_one_pass() {
    let root = tempfile::tempdir().unwrap();
    trees::chain(root.path(), 200);
    let done = Purger::new(root.path()).purge().unwrap();
    assert_eq!((done.dirs_removed, done.dirs_scanned), (200, 201), "each directory is read once");
}

/// Two equal trees: `root/a/b/c` and `outside/b/c`.
fn same_trees() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let (root, outside) = (directory.path().join("root"), directory.path().join("outside"));
    for tree in [&root.join("a"), &outside] {
        fs::create_dir_all(tree.join("b/c")).unwrap();
    }
    (directory, root, outside)
}

#[test]
fn fault_8_swapped_in_symlink_is_not_followed() {
    let (directory, root, outside) = same_trees();
    let (inside, moved, target) = (root.join("a"), directory.path().join("moved"), outside.clone());
    let purger = Purger::new(&root).on_removal(move |path, _| {
        if path.ends_with("c") {
            fs::rename(&inside, &moved).unwrap();
            symlink(&target, &inside).unwrap();
        }
    });
    purger.purge().unwrap();
    assert!(outside.join("b/c").exists(), "nothing outside was removed");
    assert!(fs::symlink_metadata(root.join("a")).unwrap().is_symlink());
}

#[test]
fn fault_8_symlink_to_a_system_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (link, through) = (directory.path().join("link"), directory.path().join("root"));
    symlink("/etc", &link).unwrap();
    symlink("/", &through).unwrap();
    for root in [
        link.as_path(),
        &link.join("."),
        &through,
        &through.join("usr/bin"),
        &through.join("proc/self/fd"),
        Path::new("/"),
        Path::new("/usr/../etc"),
        Path::new("/dev/shm"),
    ] {
        match Purger::new(root).dry_run(true).purge() {
            Err(PurgeError::SystemPath { .. }) => {}
            other => panic!("{}: {other:?}", root.display()),
        }
    }
    let forced = Purger::new(link).dry_run(true).even_system_paths(true).max_depth(1).purge();
    assert!(forced.is_ok(), "allowed with even_system_paths: {forced:?}");
}

#[test]
fn fault_9_directories_of_all_levels_are_removed_concurrently() {
    let root = tempfile::tempdir().unwrap();
    // The root has one directory, so only deeper levels can be removed concurrently.
    let tree = trees::fan(&root.path().join("top"), 4_000, 20);
    let semaphore = Registry::new().named("deletions").slots(16).build().unwrap();
    let (most, watched) = (Arc::new(AtomicUsize::new(0)), semaphore.clone());
    let seen = Arc::clone(&most);
    let purger = Purger::new(root.path()).fleet_limit(semaphore).max_concurrency_scanning(16);
    let purger = purger.max_concurrency_deletion(16).on_removal(move |_, _| {
        let held = pollster::block_on(watched.stats()).unwrap().held;
        seen.fetch_max(held as usize, Ordering::Relaxed);
        assert!(held <= 16, "{held}");
        // Gives other threads time to remove, on any number of cores.
        std::thread::yield_now();
    });
    assert_eq!(purger.purge().unwrap().dirs_removed, tree.removable + 1);
    assert!(most.load(Ordering::Relaxed) > 1, "never two at once");
}

// Fault 10, memory that grows with the tree, is in memory.rs.
