//! Classifies the file system by the time that removals take. The way to remove entries depends on it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A removal that takes longer needs a network or a disk.
const SLOW_REMOVAL: Duration = Duration::from_micros(200);
/// Freeing that takes longer is handed over to another thread.
const SLOW_FREEING: Duration = Duration::from_micros(25);

pub(crate) struct FileSystem {
    is_slow: AtomicBool,
    frees_slowly: AtomicBool,
    /// Since the last classification: removals that were timed, removals that were slow, and removals whose freeing was
    /// slow.
    timed: AtomicU64,
    slow: AtomicU64,
    slow_freeing: AtomicU64,
    /// For tests: never classified again.
    #[cfg(test)]
    is_fixed: bool,
}

impl Default for FileSystem {
    /// Before the first removal, it is better to assume a slow file system.
    fn default() -> Self {
        Self {
            is_slow: true.into(),
            frees_slowly: false.into(),
            timed: 0.into(),
            slow: 0.into(),
            slow_freeing: 0.into(),
            #[cfg(test)]
            is_fixed: false,
        }
    }
}

impl FileSystem {
    /// True if calls take so long that they must reach a network or a disk.
    pub(crate) fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }

    /// True if freeing the disk space of a removed directory takes long. Another thread can do it.
    pub(crate) fn frees_slowly(&self) -> bool {
        self.frees_slowly.load(Ordering::Relaxed)
    }

    /// Records how long a removal took, and how long the freeing after it.
    pub(crate) fn record(&self, removing: Duration, freeing: Duration) {
        self.timed.fetch_add(1, Ordering::Relaxed);
        self.slow.fetch_add((removing > SLOW_REMOVAL).into(), Ordering::Relaxed);
        self.slow_freeing.fetch_add((freeing > SLOW_FREEING).into(), Ordering::Relaxed);
    }

    /// Requires that more than a third are slow: single ones may be slow because another process used the core.
    pub(crate) fn classify(&self) {
        #[cfg(test)]
        if self.is_fixed {
            return;
        }
        let [timed, slow, slow_freeing] =
            [&self.timed, &self.slow, &self.slow_freeing].map(|count| count.swap(0, Ordering::Relaxed));
        if timed > 0 {
            self.is_slow.store(slow * 3 > timed, Ordering::Relaxed);
            self.frees_slowly.store(slow_freeing * 3 > timed, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use semafor_testkit::trees::{Tree, count, flat, mixed};

    use super::*;
    use crate::Purger;

    impl FileSystem {
        fn fixed(is_slow: bool, frees_slowly: bool) -> Self {
            Self {
                is_slow: is_slow.into(),
                frees_slowly: frees_slowly.into(),
                is_fixed: true,
                ..Self::default()
            }
        }
    }

    /// How many files this process has open below the directory, removed ones included.
    fn open_below(directory: &Path) -> usize {
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        open.filter_map(|fd| fd.path().read_link().ok()).filter(|path| path.starts_with(directory)).count()
    }

    #[test]
    fn many_slow_removals_make_a_file_system_slow() {
        let (quick, slow) = (Duration::from_micros(3), Duration::from_millis(2));
        let file_system = FileSystem::default();
        assert!(file_system.is_slow() && !file_system.frees_slowly());
        (0..9).for_each(|_| file_system.record(quick, slow));
        file_system.record(slow, quick);
        file_system.classify();
        assert!(!file_system.is_slow() && file_system.frees_slowly());
        file_system.classify();
        assert!(file_system.frees_slowly(), "without new removals nothing changes");
        (0..9).for_each(|_| file_system.record(slow, quick));
        file_system.classify();
        assert!(file_system.is_slow() && !file_system.frees_slowly());
    }

    /// The same entries are removed on every kind, and no descriptor stays open.
    #[test]
    fn purge_works_on_every_kind_of_file_system() {
        for (is_slow, frees_slowly) in [(false, false), (false, true), (true, false), (true, true)] {
            let directory = tempfile::tempdir().unwrap();
            let wide = flat(&directory.path().join("wide"), 3_000);
            let bushy = mixed(&directory.path().join("bushy"), 2_000, 10);
            let all = Tree {
                dirs: wide.dirs + bushy.dirs + 2,
                files: bushy.files,
                removable: wide.removable + bushy.removable + 1,
            };
            let mut purger = Purger::new(directory.path());
            purger.file_system = FileSystem::fixed(is_slow, frees_slowly);
            let summary = purger.purge().unwrap();
            assert_eq!(summary.dirs_removed, all.removable, "slow {is_slow}, frees slowly {frees_slowly}");
            assert_eq!(count(directory.path()), (all.dirs - all.removable, all.files));
            assert_eq!((summary.errors, open_below(directory.path())), (0, 0));
        }
    }
}
