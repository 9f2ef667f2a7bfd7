//! What kind of file system it is, as its answers show. How to go about removing depends on that.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What takes longer has left the computer.
const SLOW_REMOVAL: Duration = Duration::from_micros(200);
/// What takes longer is worth being handed over.
const SLOW_FREEING: Duration = Duration::from_micros(25);

pub(crate) struct FileSystem {
    is_slow: AtomicBool,
    frees_slowly: AtomicBool,
    /// Removals that were timed since the last judgement, those of them that took long, and those after which much was
    /// left to do.
    timed: AtomicU64,
    slow: AtomicU64,
    slow_freeing: AtomicU64,
    /// For tests: whatever it shows.
    #[cfg(test)]
    is_fixed: bool,
}

impl Default for FileSystem {
    /// Nothing is known yet. Then it is better taken for a slow one.
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
    /// Whether to ask it something takes longer than any computer needs to answer: there is a network, or a disk.
    pub(crate) fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }

    /// Whether to free what a removed directory had on the disk takes long. That need not be done in line.
    pub(crate) fn frees_slowly(&self) -> bool {
        self.frees_slowly.load(Ordering::Relaxed)
    }

    /// One removal took so long, and so long to forget what was removed.
    pub(crate) fn record(&self, removing: Duration, freeing: Duration) {
        self.timed.fetch_add(1, Ordering::Relaxed);
        self.slow.fetch_add((removing > SLOW_REMOVAL).into(), Ordering::Relaxed);
        self.slow_freeing.fetch_add((freeing > SLOW_FREEING).into(), Ordering::Relaxed);
    }

    /// Some are slow because another process had the core; many are because the file system is.
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

    /// What this process has open there, removed or not.
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
        assert!(file_system.frees_slowly(), "nothing new is no news");
        (0..9).for_each(|_| file_system.record(slow, quick));
        file_system.classify();
        assert!(file_system.is_slow() && !file_system.frees_slowly());
    }

    /// Whichever way it goes about it, the same is removed, and nothing stays open.
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
