//! Between the check of an entry and its removal there may be a long wait. Entries that change meanwhile stay.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use pollster::block_on;
use proptest::prelude::*;
use semafor::Registry;
use semafor_purge::{Purger, Removed, Summary};
use semafor_testkit::trees::{age, count};

const DAY: Duration = Duration::from_secs(86_400);

/// A tree to purge, and a directory outside of it.
struct Tree {
    directory: tempfile::TempDir,
}

impl Tree {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("root")).unwrap();
        fs::create_dir(directory.path().join("outside")).unwrap();
        Self { directory }
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    fn outside(&self, name: &str) -> PathBuf {
        self.directory.path().join("outside").join(name)
    }

    /// A file below the root that is two days old.
    fn old_file(&self, path: &str) -> PathBuf {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "old").unwrap();
        age(&path, 2 * DAY);
        path
    }

    fn old_files(&self) -> Purger<'static> {
        Purger::new(self.root()).older_than(DAY)
    }
}

/// Purges old files, and calls `change` while the removal of the first one waits for a slot. Keeps directories, because
/// otherwise the removal of a directory could be the first.
fn purge_while_a_file_waits(purger: Purger<'static>, change: impl FnOnce()) -> Summary {
    purge_while_it_waits(purger.keep_dirs(true), change)
}

/// Runs the purge, and calls `change` while the first removal waits for a slot.
fn purge_while_it_waits(purger: Purger<'static>, change: impl FnOnce()) -> Summary {
    let semaphore = Registry::new().named("fleet").slots(1).build().unwrap();
    let other_permit = semaphore.try_acquire().blocking().unwrap();
    let purger = purger.fleet_limit(semaphore.clone());
    thread::scope(|scope| {
        let purge = scope.spawn(|| purger.purge().unwrap());
        let deadline = Instant::now() + Duration::from_secs(60);
        while block_on(semaphore.waiters()).unwrap().is_empty() {
            assert!(Instant::now() < deadline, "nothing waits for a slot");
            thread::yield_now();
        }
        change();
        drop(other_permit);
        purge.join().unwrap()
    })
}

/// Writes a file with the modification time of `like`.
fn write_like(path: &Path, content: &str, like: &Path) {
    let modified = fs::metadata(like).unwrap().modified().unwrap();
    fs::write(path, content).unwrap();
    let file = File::options().write(true).open(path).unwrap();
    file.set_times(FileTimes::new().set_modified(modified)).unwrap();
}

fn swap_in(path: &Path, make: impl FnOnce(&Path)) {
    let new = path.with_extension("new");
    make(&new);
    fs::rename(new, path).unwrap();
}

type Change = fn(&Path);
/// Moves a directory, and returns the new path of the file.
type Move = fn(&Tree) -> PathBuf;

#[test]
fn file_changed_or_replaced_while_its_removal_waits_stays() {
    let changes: [(&str, Change); 10] = [
        ("touched", |path| age(path, Duration::ZERO)),
        ("aged", |path| age(path, 3 * DAY)),
        ("rewritten", |path| fs::write(path, "new").unwrap()),
        ("grown, with its time kept", |path| {
            let modified = fs::metadata(path).unwrap().modified().unwrap();
            let mut file = OpenOptions::new().append(true).open(path).unwrap();
            file.write_all(b"er").unwrap();
            file.set_times(FileTimes::new().set_modified(modified)).unwrap();
        }),
        ("rewritten, with its time and size kept", |path| write_like(path, "new", path)),
        ("replaced", |path| swap_in(path, |new| fs::write(new, "new").unwrap())),
        ("replaced by a file with the same time and size", |path| {
            swap_in(path, |new| write_like(new, "new", path));
        }),
        ("removed and written again, with its time and size", |path| {
            let like = path.with_extension("like");
            write_like(&like, "old", path);
            fs::remove_file(path).unwrap();
            write_like(path, "new", &like);
            fs::remove_file(like).unwrap();
        }),
        ("replaced by a symlink", |path| swap_in(path, |new| symlink("elsewhere", new).unwrap())),
        ("replaced by a directory", |path| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        }),
    ];
    for (what, change) in changes {
        let place = Tree::new();
        let file = place.old_file("directory/file");
        let done = purge_while_a_file_waits(place.old_files(), || change(&file));
        assert!(fs::symlink_metadata(&file).is_ok(), "{what}: it was removed; {done:?}");
        assert_eq!((done.files_removed, done.files_changed, done.bytes_freed), (0, 1, 0), "{what}");
        assert_eq!((done.dirs_removed, done.errors), (0, 0), "{what}: {done:?}");
    }
}

#[test]
fn file_removed_by_others_while_its_removal_waits_is_not_an_error() {
    let place = Tree::new();
    let (file, kept) = (place.old_file("directory/file"), place.outside("kept"));
    let done = purge_while_a_file_waits(place.old_files(), || fs::rename(&file, &kept).unwrap());
    assert_eq!((done.files_removed, done.files_changed, done.errors), (0, 0, 0));
    assert_eq!(fs::read_to_string(kept).unwrap(), "old");
}

#[test]
fn files_in_a_directory_moved_while_their_removal_waits_stay() {
    let moves: [(&str, Move); 9] = [
        ("out of the tree", |place| {
            fs::rename(place.root().join("a/b"), place.outside("b")).unwrap();
            place.outside("b/file")
        }),
        ("out of the tree, with the one above", |place| {
            fs::rename(place.root().join("a"), place.outside("a")).unwrap();
            place.outside("a/b/file")
        }),
        ("out of the tree, with a symlink in its place", |place| {
            fs::rename(place.root().join("a"), place.outside("a")).unwrap();
            symlink(place.outside("a"), place.root().join("a")).unwrap();
            place.outside("a/b/file")
        }),
        ("to an excluded name", |place| {
            fs::rename(place.root().join("a"), place.root().join("a.keep")).unwrap();
            place.root().join("a.keep/b/file")
        }),
        ("out of the tree, with another in its place", |place| {
            fs::rename(place.root().join("a"), place.outside("a")).unwrap();
            fs::create_dir_all(place.root().join("a/b")).unwrap();
            place.outside("a/b/file")
        }),
        ("to an excluded name, with a symlink in its place", |place| {
            fs::rename(place.root().join("a"), place.root().join("a.keep")).unwrap();
            symlink("a.keep", place.root().join("a")).unwrap();
            place.root().join("a.keep/b/file")
        }),
        ("with the root", |place| {
            fs::rename(place.root(), place.outside("archive")).unwrap();
            place.outside("archive/a/b/file")
        }),
        ("with the root, with a new one in its place", |place| {
            fs::rename(place.root(), place.outside("archive")).unwrap();
            fs::create_dir_all(place.root().join("a/b")).unwrap();
            place.outside("archive/a/b/file")
        }),
        ("with the root, with a symlink in its place", |place| {
            fs::rename(place.root(), place.outside("archive")).unwrap();
            symlink(place.outside("archive"), place.root()).unwrap();
            place.outside("archive/a/b/file")
        }),
    ];
    for (what, change) in moves {
        let place = Tree::new();
        place.old_file("a/b/file");
        let mut new_path = PathBuf::new();
        let purger = place.old_files().exclude("*.keep").unwrap();
        let done = purge_while_a_file_waits(purger, || new_path = change(&place));
        assert!(new_path.exists(), "{what}: it was removed; {done:?}");
        assert_eq!((done.files_removed, done.files_changed, done.errors), (0, 1, 0), "{what}: {done:?}");
    }
}

/// The root, or the directory above it, is moved while the removal of a file waits.
#[test]
fn files_directly_in_a_root_moved_while_their_removal_waits_stay() {
    let place = Tree::new();
    place.old_file("file");
    let done = purge_while_a_file_waits(place.old_files(), || {
        fs::rename(place.root(), place.outside("archive")).unwrap();
        fs::create_dir(place.root()).unwrap();
    });
    assert!(place.outside("archive/file").exists(), "it was removed; {done:?}");
    assert_eq!((done.files_removed, done.files_changed, done.errors), (0, 1, 0), "{done:?}");

    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("data/logs");
    fs::create_dir_all(&root).unwrap();
    fs::write(root.join("file"), "old").unwrap();
    age(&root.join("file"), 2 * DAY);
    let done = purge_while_a_file_waits(Purger::new(&root).older_than(DAY), || {
        fs::rename(directory.path().join("data"), directory.path().join("archive")).unwrap();
    });
    assert!(directory.path().join("archive/logs/file").exists(), "it was removed; {done:?}");
    assert_eq!((done.files_removed, done.files_changed, done.errors), (0, 1, 0), "{done:?}");
}

/// A symlink in the given path is followed when the purge starts. Its later target does not matter.
#[test]
fn root_reached_through_a_symlink_is_purged() {
    let place = Tree::new();
    let file = place.old_file("a/file");
    let (link, above) = (place.outside("link"), place.outside("above"));
    symlink(place.root(), &link).unwrap();
    symlink(place.directory.path(), &above).unwrap();
    let done = Purger::new(&link).older_than(DAY).keep_dirs(true).rate(100).purge().unwrap();
    assert_eq!((done.files_removed, done.files_changed, done.errors), (1, 0, 0), "{done:?}");
    place.old_file("a/file");
    let done = purge_while_a_file_waits(Purger::new(above.join("root")).older_than(DAY), || {
        fs::remove_file(&above).unwrap();
    });
    assert_eq!((done.files_removed, done.files_changed, done.errors), (1, 0, 0), "{done:?}");
    assert!(!file.exists());
}

/// Removing one link of a file changes the file. That alone must not keep its other links.
#[test]
fn all_hard_links_of_an_old_file_are_removed() {
    let place = Tree::new();
    let first = place.old_file("0");
    for number in 1..50 {
        fs::create_dir_all(place.root().join((number % 7).to_string() + "d")).unwrap();
        let name = place.root().join(format!("{}d/{number}", number % 7));
        fs::hard_link(&first, name).unwrap();
    }
    let would = place.old_files().dry_run(true).purge().unwrap();
    let done = place.old_files().purge().unwrap();
    // The kernel lowers the link count and sets the time in two steps. A link checked in between seems to be changed.
    assert_eq!((done.files_removed + done.files_changed, done.errors), (50, 0));
    assert!(done.files_changed < 5, "{} of 50 links stay", done.files_changed);
    let rest = place.old_files().purge().unwrap();
    assert_eq!(would.files_removed, done.files_removed + rest.files_removed);
    assert_eq!(would.dirs_removed, done.dirs_removed + rest.dirs_removed);

    // A removed link keeps nothing, even during a wait. New content or a new link does.
    let linked = || {
        let place = Tree::new();
        let (file, other) = (place.old_file("directory/file"), place.outside("other"));
        fs::hard_link(&file, &other).unwrap();
        (place, file, other)
    };
    let (place, file, other) = linked();
    let done = purge_while_a_file_waits(place.old_files(), || fs::remove_file(other).unwrap());
    assert_eq!((done.files_removed, done.files_changed, file.exists()), (1, 0, false));
    let (place, file, other) = linked();
    let done = purge_while_a_file_waits(place.old_files(), || fs::write(other, "new").unwrap());
    assert_eq!((done.files_removed, done.files_changed, file.exists()), (0, 1, true));
    let (place, file, other) = linked();
    let done =
        purge_while_a_file_waits(place.old_files(), || fs::rename(other, file.with_extension("x")).unwrap());
    assert_eq!((done.files_removed, done.files_changed, file.exists()), (0, 1, true));
}

#[test]
fn files_rewritten_during_a_purge_with_a_rate_stay() {
    let place = Tree::new();
    let files: Vec<_> = (0..100).map(|number| place.old_file(&format!("logs/{number}"))).collect();
    let all = files.clone();
    let is_first = AtomicBool::new(true);
    // No other entry of this directory is removed before this returns.
    let done = place.old_files().rate(500).on_removal(move |_, _| {
        if is_first.swap(false, Ordering::Relaxed) {
            for file in all.iter().filter(|file| file.exists()) {
                fs::write(file, "new").unwrap();
            }
        }
    });
    let done = done.purge().unwrap();
    let left = files.iter().filter(|file| file.exists()).count();
    assert_eq!((left, done.files_removed, done.errors), (99, 1, 0), "{done:?}");
}

#[test]
fn slot_lost_during_the_wait_for_the_rate_is_acquired_again() {
    let place = Tree::new();
    (0..3).for_each(|number| drop(place.old_file(&format!("logs/{number}"))));
    let semaphore = Registry::new().named("fleet").slots(1).build().unwrap();
    let (watched, held) = (semaphore.clone(), Arc::new(Mutex::new(Vec::new())));
    let (sender, receiver) = mpsc::channel();
    let seen = Arc::clone(&held);
    let purger = place.old_files().rate(2).fleet_limit(semaphore.clone()).on_removal(move |_, _| {
        seen.lock().unwrap().push(block_on(watched.stats()).unwrap().held);
        let _ = sender.send(());
    });
    thread::scope(|scope| {
        let semaphore = &semaphore;
        scope.spawn(move || {
            while receiver.recv().is_ok() {
                for holder in block_on(semaphore.holders()).unwrap() {
                    let _ = block_on(semaphore.evict(&holder.id));
                }
            }
        });
        let done = purger.purge().unwrap();
        assert_eq!((done.files_removed, done.dirs_removed, done.errors), (3, 1, 0));
    });
    assert_eq!(*held.lock().unwrap(), [1; 4], "no removal without a slot");
}

// Directories

#[test]
fn old_directory_changed_or_replaced_while_its_removal_waits_stays() {
    let changes: [(&str, Change); 2] = [
        ("used", |path| {
            fs::write(path.join("file"), "").unwrap();
            fs::remove_file(path.join("file")).unwrap();
        }),
        ("replaced", |path| {
            swap_in(path, |new| fs::create_dir(new).unwrap());
        }),
    ];
    for (what, change) in changes {
        let place = Tree::new();
        let directory = place.root().join("directory");
        fs::create_dir(&directory).unwrap();
        age(&directory, 2 * DAY);
        let done = purge_while_it_waits(Purger::new(place.root()).min_age(DAY), || change(&directory));
        assert!(directory.exists(), "{what}");
        assert_eq!((done.dirs_removed, done.dirs_changed, done.errors), (0, 1, 0), "{what}: {done:?}");
        // Without min_age, an empty directory of any age is removed.
        let done = purge_while_it_waits(Purger::new(place.root()), || change(&directory));
        assert_eq!((done.dirs_removed, done.dirs_changed, done.errors), (1, 0, 0), "{what}: {done:?}");
    }
}

#[test]
fn emptied_directory_used_while_its_removal_waits_stays() {
    let place = Tree::new();
    let file = place.old_file("directory/file");
    let directory = file.parent().unwrap().to_owned();
    age(&directory, 2 * DAY);
    let (sender, receiver) = mpsc::channel();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (used, is_over) = (directory.clone(), &is_over);
        scope.spawn(move || {
            let removed: Removed = receiver.recv().unwrap();
            assert_eq!(removed, Removed::File);
            // From before its removal is decided until the removal is tried, a second later.
            while !is_over.load(Ordering::Relaxed) && used.exists() {
                if let Ok(directory) = File::open(&used) {
                    directory.set_times(FileTimes::new().set_modified(std::time::SystemTime::now())).unwrap();
                }
                thread::yield_now();
            }
        });
        let purger = place.old_files().min_age(DAY).rate(1);
        let purger = purger.on_removal(move |_, what| {
            let _ = sender.send(what);
        });
        let done = purger.purge().unwrap();
        is_over.store(true, Ordering::Relaxed);
        assert_eq!((done.files_removed, done.dirs_removed, done.dirs_changed), (1, 0, 1), "{done:?}");
    });
    assert!(directory.exists());
}

#[test]
fn empty_directories_in_a_directory_moved_while_their_removal_waits_stay() {
    let moves: [(&str, Move); 3] = [
        ("out of the tree", |place| {
            fs::rename(place.root().join("a"), place.outside("a")).unwrap();
            place.outside("a/b/empty")
        }),
        ("out of the tree, with a symlink in its place", |place| {
            fs::rename(place.root().join("a"), place.outside("a")).unwrap();
            symlink(place.outside("a"), place.root().join("a")).unwrap();
            place.outside("a/b/empty")
        }),
        ("with the root", |place| {
            fs::rename(place.root(), place.outside("archive")).unwrap();
            place.outside("archive/a/b/empty")
        }),
    ];
    for (what, change) in moves {
        for min_age in [Duration::ZERO, DAY] {
            let place = Tree::new();
            let mut directory = place.root().join("a/b/empty");
            fs::create_dir_all(&directory).unwrap();
            while directory != place.root() {
                age(&directory, 2 * DAY);
                directory.pop();
            }
            let mut new_path = PathBuf::new();
            let purger = Purger::new(place.root()).min_age(min_age);
            let done = purge_while_it_waits(purger, || new_path = change(&place));
            assert!(new_path.exists(), "{what}: it was removed; {done:?}");
            assert_eq!((done.dirs_removed, done.dirs_changed, done.errors), (0, 1, 0), "{what}: {done:?}");
        }
    }
}

/// With a rate, every removal waits: nothing more is removed from a tree that was moved during the purge.
#[test]
fn tree_moved_out_during_a_purge_with_a_rate_keeps_its_empty_directories() {
    let place = Tree::new();
    for number in 0..40 {
        fs::create_dir_all(place.root().join(format!("a/{}/{number}", number % 4))).unwrap();
    }
    let (from, to, is_first) = (place.root().join("a"), place.outside("a"), AtomicBool::new(true));
    let purger = Purger::new(place.root()).max_concurrency_deletion(1).rate(500);
    let purger = purger.on_removal(move |_, _| {
        if is_first.swap(false, Ordering::Relaxed) {
            fs::rename(&from, &to).unwrap();
        }
    });
    let done = purger.purge().unwrap();
    assert_eq!((done.dirs_removed, done.errors), (1, 0), "{done:?}");
    assert_eq!(count(&place.outside("a")), (43, 0));
}

#[test]
fn root_whose_parent_is_moved_while_its_removal_waits_stays() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("data/logs");
    fs::create_dir_all(&root).unwrap();
    let done = purge_while_it_waits(Purger::new(&root).remove_root(true), || {
        fs::rename(directory.path().join("data"), directory.path().join("archive")).unwrap();
    });
    assert!(directory.path().join("archive/logs").exists());
    assert_eq!((done.dirs_removed, done.dirs_changed, done.errors), (0, 1, 0), "{done:?}");
}

#[test]
fn directory_changed_only_by_the_purge_is_removed() {
    let place = Tree::new();
    let file = place.old_file("directory/sub/file");
    for directory in [file.parent().unwrap(), &place.root().join("directory")] {
        age(directory, 2 * DAY);
    }
    let done = place.old_files().min_age(DAY).rate(50).purge().unwrap();
    assert_eq!((done.files_removed, done.dirs_removed, done.dirs_changed), (1, 2, 0), "{done:?}");
}

#[test]
fn root_replaced_while_its_removal_waits_stays() {
    let place = Tree::new();
    let purger = Purger::new(place.root()).remove_root(true);
    let done = purge_while_it_waits(purger, || {
        fs::rename(place.root(), place.outside("root")).unwrap();
        fs::create_dir(place.root()).unwrap();
    });
    assert!(place.root().exists() && place.outside("root").exists());
    assert_eq!((done.dirs_removed, done.dirs_changed, done.errors), (0, 1, 0), "{done:?}");
}

// Random changes at random times

#[derive(Clone, Copy, Debug)]
enum Kind {
    Rewrite,
    /// Keeps the time. If the file was not checked before, it still is an old file.
    RewriteSilently,
    /// Renames another file to its name.
    Replace,
    RemoveAndWrite,
    Rename,
    MoveOut,
    MoveDirectoryOut,
    Touch,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    /// After this many removals.
    after: u64,
    kind: Kind,
    file: usize,
}

const DIRECTORIES: [&str; 6] = [".", "a", "a/b", "c", "c/d/e", "f"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = prop_oneof![
        Just(Kind::Rewrite),
        Just(Kind::RewriteSilently),
        Just(Kind::Replace),
        Just(Kind::RemoveAndWrite),
        Just(Kind::Rename),
        Just(Kind::MoveOut),
        Just(Kind::MoveDirectoryOut),
        Just(Kind::Touch),
    ];
    let step = (1..12u64, kind, 0..1000usize).prop_map(|(after, kind, file)| Step { after, kind, file });
    proptest::collection::vec(step, 1..12)
}

/// The changes by other processes, and what must remain. Every file has unique content.
struct OtherProcesses {
    root: PathBuf,
    outside: PathBuf,
    files: Vec<PathBuf>,
    /// Contents that the purge must not remove.
    safe: BTreeSet<String>,
    /// Contents that may be removed or stay.
    open: BTreeSet<String>,
    moved: u64,
}

impl OtherProcesses {
    /// An error if the file or its directory no longer exists.
    fn take(&mut self, step: Step) -> std::io::Result<()> {
        let path = self.files[step.file % self.files.len()].clone();
        let before = fs::read_to_string(&path)?;
        let new = format!("{before}+");
        self.moved += 1;
        let elsewhere = self.outside.join(self.moved.to_string());
        match step.kind {
            Kind::Rewrite => fs::write(&path, &new)?,
            Kind::RewriteSilently => write_like(&path, &new, &path),
            Kind::Replace => {
                fs::write(&elsewhere, &new)?;
                fs::rename(&elsewhere, &path)?;
            }
            Kind::RemoveAndWrite => {
                fs::remove_file(&path)?;
                fs::write(&path, &new)?;
            }
            Kind::Rename => fs::rename(&path, path.with_file_name(format!("renamed-{}", self.moved)))?,
            Kind::MoveOut => fs::rename(&path, &elsewhere)?,
            Kind::MoveDirectoryOut => {
                let directory = path.parent().unwrap();
                if directory == self.root || directory == self.root.join(".") {
                    return Err(ErrorKind::InvalidInput.into());
                }
                fs::rename(directory, &elsewhere)?;
                for content in contents(&elsewhere).into_keys() {
                    self.open.remove(&content);
                    self.safe.insert(content);
                }
            }
            Kind::Touch => age(&path, Duration::ZERO),
        }
        let was_safe = self.safe.remove(&before);
        self.open.remove(&before);
        match step.kind {
            Kind::MoveDirectoryOut | Kind::MoveOut | Kind::Touch => self.safe.insert(before),
            Kind::Rewrite | Kind::Replace | Kind::RemoveAndWrite => self.safe.insert(new),
            Kind::RewriteSilently if was_safe => self.safe.insert(new),
            Kind::RewriteSilently => self.open.insert(new),
            // A changed file is safe under its new name. An old one may or may not be found under it.
            Kind::Rename if was_safe => self.safe.insert(before),
            Kind::Rename => self.open.insert(before),
        };
        Ok(())
    }
}

/// The contents of all files below, with their paths.
fn contents(directory: &Path) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let duplicate = found.insert(fs::read_to_string(&path).unwrap(), path);
                assert_eq!(duplicate, None, "every content exists once");
            }
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) })]

    #[test]
    fn files_changed_by_others_during_a_purge_with_a_rate_stay(
        directories in proptest::collection::vec(0..DIRECTORIES.len(), 4..40),
        steps in steps(),
        min_age: bool,
    ) {
        let place = Tree::new();
        let mut files = Vec::new();
        for (number, directory) in directories.iter().enumerate() {
            let file = place.old_file(&format!("{}/{number}", DIRECTORIES[*directory]));
            fs::write(&file, number.to_string()).unwrap();
            age(&file, 2 * DAY);
            files.push(file);
        }
        let total = files.len();
        let others = OtherProcesses {
            root: place.root(),
            outside: place.outside("."),
            files,
            safe: BTreeSet::new(),
            open: BTreeSet::new(),
            moved: 0,
        };
        let others = Arc::new(Mutex::new(others));
        let (acting, removed) = (Arc::clone(&others), AtomicU64::new(0));
        let all_steps = steps.clone();
        let mut purger = place.old_files().max_concurrency_deletion(1).rate(3_000);
        if min_age {
            purger = purger.min_age(DAY);
        }
        // There is only one slot, so there is no other removal while this runs.
        let purger = purger.on_removal(move |_, _| {
            let removed = removed.fetch_add(1, Ordering::Relaxed) + 1;
            let mut others = acting.lock().unwrap();
            for step in all_steps.iter().filter(|step| step.after == removed) {
                let _ = others.take(*step);
            }
        });
        let done = purger.purge().unwrap();
        let others = Arc::into_inner(others).unwrap().into_inner().unwrap();
        let left = contents(place.directory.path());
        for content in &others.safe {
            prop_assert!(left.contains_key(content), "{content:?} is lost; {done:?}");
        }
        for (content, path) in &left {
            let may_stay = others.safe.contains(content) || others.open.contains(content);
            prop_assert!(may_stay, "{content:?} stays as {}; {done:?}", path.display());
        }
        prop_assert_eq!(done.files_removed as usize, total - left.len());
        prop_assert!(done.files_changed as usize <= left.len());
        prop_assert_eq!(done.errors, 0);
        prop_assert_eq!(count(place.directory.path()).1 as usize, left.len());
    }
}
