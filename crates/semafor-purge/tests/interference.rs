//! Other processes remove, write and swap entries in the same tree; and the purge is stopped.

use std::fs;
use std::os::unix::fs::symlink;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use semafor::Registry;
use semafor_purge::{CancellationToken, Purger, StoppedBy};
use semafor_testkit::trees::{self, count};

#[test]
fn two_purgers_share_a_tree() {
    let root = trees::spacious();
    let tree = trees::mixed(root.path(), 20_000, 8);
    let purge = || Purger::new(root.path()).purge().unwrap();
    let (one, other) = thread::scope(|scope| {
        let one = scope.spawn(purge);
        (one.join().unwrap(), purge())
    });
    assert_eq!((one.errors, other.errors), (0, 0), "an entry that the other purge removed is not an error");
    assert_eq!(one.dirs_removed + other.dirs_removed, tree.removable);
    assert_eq!(count(root.path()), (tree.dirs - tree.removable, tree.files));
}

#[test]
fn four_purgers_remove_old_files_and_the_root() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    let tree = trees::mixed(&root, 5_000, 8);
    let purge = || Purger::new(&root).older_than(Duration::ZERO).remove_root(true).purge();
    let done: Vec<_> = thread::scope(|scope| {
        let purges: Vec<_> = (0..4).map(|_| scope.spawn(purge)).collect();
        purges.into_iter().filter_map(|purge| purge.join().unwrap().ok()).collect()
    });
    assert_eq!(done.iter().map(|summary| summary.errors).sum::<u64>(), 0);
    assert_eq!(done.iter().map(|summary| summary.files_removed).sum::<u64>(), tree.files);
    assert_eq!(done.iter().map(|summary| summary.dirs_removed).sum::<u64>(), tree.dirs + 1);
    assert!(!root.exists());
}

#[test]
fn directory_filled_during_the_purge_stays() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("a/b/c")).unwrap();
    let done = Purger::new(root.path()).on_removal(|path, _| {
        if path.ends_with("c") {
            fs::write(path.with_file_name("new"), "just written").unwrap();
        }
    });
    let done = done.purge().unwrap();
    assert_eq!((done.dirs_removed, done.errors), (1, 0));
    assert_eq!(fs::read_to_string(root.path().join("a/b/new")).unwrap(), "just written");
}

#[test]
fn directory_created_during_the_purge_is_removed() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("a/b")).unwrap();
    let done = Purger::new(root.path()).on_removal(|path, _| {
        if path.ends_with("b") {
            fs::create_dir(path.with_file_name("late")).unwrap();
        }
    });
    let done = done.purge().unwrap();
    assert_eq!((done.dirs_removed, done.errors), (3, 0));
    assert_eq!(count(root.path()), (0, 0));
}

#[test]
fn directory_filled_repeatedly_is_read_only_twice() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("a/0")).unwrap();
    let made = AtomicU64::new(0);
    let done = Purger::new(root.path()).on_removal(move |path, _| {
        if path.parent().is_some_and(|parent| parent.ends_with("a")) {
            let number = made.fetch_add(1, Ordering::Relaxed) + 1;
            fs::create_dir(path.with_file_name(number.to_string())).unwrap();
        }
    });
    let done = done.purge().unwrap();
    assert_eq!((done.dirs_removed, done.errors), (2, 0), "it is read once more, then it stays");
}

#[test]
fn new_file_is_never_removed_by_concurrent_purges() {
    let root = tempfile::tempdir().unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let directory = root.path().join(format!("x/{}/y", written.len() % 7));
                let file = directory.join(written.len().to_string());
                // The directory may be removed before the file is created.
                if fs::create_dir_all(&directory).is_ok() && fs::write(&file, "").is_ok() {
                    written.push(file);
                }
            }
            written
        });
        for _ in 0..200 {
            assert_eq!(Purger::new(root.path()).purge().unwrap().errors, 0);
        }
        is_over.store(true, Ordering::Relaxed);
        for file in writer.join().unwrap() {
            assert!(file.exists(), "{}", file.display());
        }
    });
}

#[test]
fn symlink_swapped_in_and_out_is_never_followed() {
    let directory = tempfile::tempdir().unwrap();
    let (root, outside) = (directory.path().join("root"), directory.path().join("outside"));
    for number in 0..50 {
        fs::create_dir_all(outside.join(format!("{number}/inner"))).unwrap();
    }
    let (victim, aside) = (root.join("a/victim"), directory.path().join("aside"));
    let (is_over, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    fs::create_dir_all(&root).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _ = fs::create_dir_all(victim.join("0/inner"));
                if fs::rename(&victim, &aside).is_ok() {
                    let _ = symlink(&outside, &victim);
                    let _ = fs::remove_file(&victim);
                    let _ = fs::remove_dir_all(&aside);
                    swaps.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let mut purges = 0;
        while purges < 300 || swaps.load(Ordering::Relaxed) < 300 {
            Purger::new(&root).older_than(Duration::ZERO).purge().unwrap();
            purges += 1;
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(count(&outside), (100, 0), "nothing outside was removed");
}

#[test]
fn second_run_continues_a_stopped_purge() {
    let root = tempfile::tempdir().unwrap();
    let tree = trees::mixed(root.path(), 10_000, 6);
    let token = CancellationToken::new();
    let (removed, stop) = (AtomicU64::new(0), token.clone());
    let purger = Purger::new(root.path()).cancelled_by(token).rate(20_000).on_removal(move |_, _| {
        if removed.fetch_add(1, Ordering::Relaxed) == 100 {
            stop.cancel();
        }
    });
    let first = purger.purge().unwrap();
    assert_eq!(first.stopped_by, StoppedBy::Cancelled);
    assert!((100..tree.removable).contains(&first.dirs_removed), "{first:?}");
    assert_eq!(count(root.path()).0, tree.dirs - first.dirs_removed, "the summary counts what was removed");
    let second = Purger::new(root.path()).purge().unwrap();
    assert_eq!(first.dirs_removed + second.dirs_removed, tree.removable);
    assert_eq!(second.stopped_by, StoppedBy::Completed);
}

#[test]
fn purge_cancelled_before_it_began_removes_nothing() {
    let root = tempfile::tempdir().unwrap();
    trees::fan(root.path(), 1_000, 10);
    let token = CancellationToken::new();
    token.cancel();
    let done = Purger::new(root.path()).cancelled_by(token).purge().unwrap();
    assert_eq!((done.stopped_by, done.dirs_removed), (StoppedBy::Cancelled, 0));
    assert_eq!(done.fraction, 0.0);
}

#[test]
fn without_a_slot_of_the_fleet_nothing_is_removed() {
    let root = tempfile::tempdir().unwrap();
    let tree = trees::fan(root.path(), 500, 10);
    let semaphore = Registry::new().named("fleet").slots(1).build().unwrap();
    let other_permit = semaphore.try_acquire().blocking().unwrap();
    let done = thread::scope(|scope| {
        let purge = scope.spawn(|| Purger::new(root.path()).fleet_limit(semaphore.clone()).purge().unwrap());
        while pollster::block_on(semaphore.waiters()).unwrap().is_empty() {
            thread::yield_now();
        }
        assert_eq!(count(root.path()), (tree.dirs, 0));
        drop(other_permit);
        purge.join().unwrap()
    });
    assert_eq!(done.dirs_removed, tree.removable);
    assert_eq!(pollster::block_on(semaphore.stats()).unwrap().held, 0, "all slots are released");
}

#[test]
fn purge_waiting_for_a_slot_of_the_fleet_can_be_cancelled() {
    let root = tempfile::tempdir().unwrap();
    trees::fan(root.path(), 500, 10);
    let semaphore = Registry::new().named("fleet").slots(1).build().unwrap();
    let _other_permit = semaphore.try_acquire().blocking().unwrap();
    let token = CancellationToken::new();
    let done = thread::scope(|scope| {
        let purger = Purger::new(root.path()).fleet_limit(semaphore.clone()).cancelled_by(token.clone());
        let purge = scope.spawn(|| purger.purge().unwrap());
        while pollster::block_on(semaphore.waiters()).unwrap().is_empty() {
            thread::yield_now();
        }
        token.cancel();
        purge.join().unwrap()
    });
    assert_eq!((done.dirs_removed, done.errors, done.stopped_by), (0, 0, StoppedBy::Cancelled));
}

#[test]
fn closed_fleet_semaphore_stops_the_purge_with_an_error() {
    let root = tempfile::tempdir().unwrap();
    trees::fan(root.path(), 100, 10);
    let semaphore = Registry::new().named("fleet").slots(1).build().unwrap();
    pollster::block_on(semaphore.close()).unwrap();
    let done = Purger::new(root.path()).fleet_limit(semaphore).purge().unwrap();
    assert_eq!((done.dirs_removed, done.stopped_by), (0, StoppedBy::FleetLimit));
    assert_eq!(done.errors_by_kind.get("fleet_limit"), Some(&done.errors));
}

#[test]
fn removals_at_once_never_exceed_the_slots_of_the_fleet() {
    let root = tempfile::tempdir().unwrap();
    let tree = trees::fan(root.path(), 2_000, 10);
    let semaphore = Registry::new().named("fleet").slots(3).build().unwrap();
    let (running, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let done: u64 = thread::scope(|scope| {
        let purges: Vec<_> = (0..3)
            .map(|_| {
                let (running, most) = (Arc::clone(&running), Arc::clone(&most));
                let purger = Purger::new(root.path()).fleet_limit(semaphore.clone());
                let purger = purger.on_removal(move |_, _| {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    thread::yield_now();
                    running.fetch_sub(1, Ordering::SeqCst);
                });
                scope.spawn(|| purger.purge().unwrap().dirs_removed)
            })
            .collect();
        purges.into_iter().map(|purge| purge.join().unwrap()).sum()
    });
    assert_eq!(done, tree.removable);
    assert!(most.load(Ordering::SeqCst) <= 3, "{most:?}");
}

#[test]
fn panic_in_callback_is_propagated() {
    let root = tempfile::tempdir().unwrap();
    trees::fan(root.path(), 100, 10);
    let purger = Purger::new(root.path()).on_removal(|_, _| panic!("planned"));
    assert!(catch_unwind(AssertUnwindSafe(|| purger.purge())).is_err());
}

#[test]
fn panic_in_on_progress_ends_the_purge() {
    let root = tempfile::tempdir().unwrap();
    trees::fan(root.path(), 1_000, 10);
    let purger = Purger::new(root.path()).rate(200);
    let purger = purger.on_progress(Duration::ZERO, |progress| assert!(progress.dirs_removed < 5, "planned"));
    let panic = catch_unwind(AssertUnwindSafe(|| purger.purge())).expect_err("it panics");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"planned"));
    assert_ne!(count(root.path()), (0, 0), "the purge continued after the panic");
}

/// The other threads complete their current removal and begin no other.
#[test]
fn panic_in_on_removal_ends_the_purge() {
    let root = tempfile::tempdir().unwrap();
    for number in 0..4 {
        trees::flat(&root.path().join(number.to_string()), 300);
    }
    let (has_panicked, removed_after) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (seen, after) = (Arc::clone(&has_panicked), Arc::clone(&removed_after));
    let purger = Purger::new(root.path()).rate(200).max_concurrency_scanning(4).max_concurrency_deletion(4);
    let purger = purger.on_removal(move |_, _| {
        assert!(seen.swap(true, Ordering::SeqCst), "planned");
        after.fetch_add(1, Ordering::SeqCst);
    });
    assert!(catch_unwind(AssertUnwindSafe(|| purger.purge())).is_err());
    let after = removed_after.load(Ordering::SeqCst);
    assert!(after < 100, "{after} were removed after the panic");
}
