//! Compares random trees and options with a simple reference.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use semafor_purge::Purger;
use semafor_testkit::trees::age;

const DAY: Duration = Duration::from_secs(86_400);

#[derive(Clone, Debug)]
enum Entry {
    Directory { is_old: bool, entries: Vec<Entry> },
    File { is_old: bool },
    Link,
}

#[derive(Clone, Copy, Debug)]
struct Options {
    removes_files: bool,
    minds_age: bool,
    excludes: bool,
    max_depth: u32,
    removes_root: bool,
    threads: u32,
}

fn entry() -> impl Strategy<Value = Entry> {
    let leaf = prop_oneof![
        4 => any::<bool>().prop_map(|is_old| Entry::Directory { is_old, entries: Vec::new() }),
        1 => any::<bool>().prop_map(|is_old| Entry::File { is_old }),
        1 => Just(Entry::Link),
    ];
    leaf.prop_recursive(6, 60, 6, |inner| {
        (any::<bool>(), proptest::collection::vec(inner, 0..6))
            .prop_map(|(is_old, entries)| Entry::Directory { is_old, entries })
    })
}

prop_compose! {
    fn options()(
        removes_files: bool, minds_age: bool, excludes: bool, max_depth in 0..5u32, removes_root: bool,
        threads in prop_oneof![Just(1u32), Just(2), Just(16)],
    ) -> Options {
        Options { removes_files, minds_age, excludes, max_depth, removes_root, threads }
    }
}

/// Every third name can be excluded.
fn name(number: usize) -> String {
    if number % 3 == 2 { format!("keep-{number}") } else { format!("e{number}") }
}

fn make(path: &Path, entry: &Entry) {
    match entry {
        Entry::Link => symlink("/etc", path).unwrap(),
        Entry::File { is_old } => {
            fs::write(path, "x").unwrap();
            if *is_old {
                age(path, 2 * DAY);
            }
        }
        Entry::Directory { is_old, entries } => {
            fs::create_dir(path).unwrap();
            for (number, entry) in entries.iter().enumerate() {
                make(&path.join(name(number)), entry);
            }
            if *is_old {
                age(path, 2 * DAY);
            }
        }
    }
}

/// True if the entry is removed. Adds all removed paths to `gone`.
fn reference(path: &Path, entry: &Entry, depth: u32, options: Options, gone: &mut BTreeSet<PathBuf>) -> bool {
    if options.max_depth > 0 && depth > options.max_depth {
        return false;
    }
    let goes = match entry {
        Entry::Link => false,
        Entry::File { is_old } => options.removes_files && *is_old,
        Entry::Directory { is_old, entries } => {
            let mut is_empty = true;
            for (number, entry) in entries.iter().enumerate() {
                let name = name(number);
                let is_excluded = options.excludes && name.starts_with("keep-");
                is_empty &= !is_excluded && reference(&path.join(name), entry, depth + 1, options, gone);
            }
            is_empty && (*is_old || !options.minds_age) && (depth > 0 || options.removes_root)
        }
    };
    if goes {
        gone.insert(path.to_owned());
    }
    goes
}

fn all(path: &Path, found: &mut BTreeSet<PathBuf>) {
    if let Ok(metadata) = fs::symlink_metadata(path) {
        found.insert(path.to_owned());
        if metadata.is_dir() {
            fs::read_dir(path).unwrap().for_each(|entry| all(&entry.unwrap().path(), found));
        }
    }
}

fn purge(root: &Path, options: Options, is_dry_run: bool) -> BTreeSet<PathBuf> {
    let removed = Arc::new(Mutex::new(BTreeSet::new()));
    let reported = Arc::clone(&removed);
    let mut purger = Purger::new(root)
        .dry_run(is_dry_run)
        .remove_root(options.removes_root)
        .max_depth(options.max_depth)
        .max_concurrency_deletion(options.threads)
        .max_concurrency_scanning(options.threads)
        .on_removal(move |path, _| {
            reported.lock().unwrap().insert(path.to_owned());
        });
    if options.removes_files {
        purger = purger.older_than(DAY);
    }
    if options.minds_age {
        purger = purger.min_age(DAY);
    }
    if options.excludes {
        purger = purger.exclude("keep-*").unwrap();
    }
    assert_eq!(purger.purge().unwrap().errors, 0);
    std::mem::take(&mut *removed.lock().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn purge_removes_the_same_as_the_reference(
        entries in proptest::collection::vec(entry(), 0..6),
        is_old: bool,
        options in options(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        let tree = Entry::Directory { is_old, entries };
        make(&root, &tree);
        let (mut expected, mut before, mut after) = Default::default();
        reference(&root, &tree, 0, options, &mut expected);
        all(&root, &mut before);
        prop_assert_eq!(&purge(&root, options, true), &expected, "dry run");
        prop_assert_eq!(&purge(&root, options, false), &expected, "real run");
        all(&root, &mut after);
        let left: BTreeSet<_> = before.difference(&expected).cloned().collect();
        prop_assert_eq!(after, left);
    }
}
