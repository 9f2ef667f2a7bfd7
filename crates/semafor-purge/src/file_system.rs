//! What kind of file system it is, as its answers show. How to go about removing depends on that.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What takes longer has left the computer.
const SLOW: Duration = Duration::from_micros(200);
/// What takes longer is worth being handed over.
const HEAVY: Duration = Duration::from_micros(25);

pub(crate) struct FileSystem {
    is_slow: AtomicBool,
    is_heavy: AtomicBool,
    /// Removals that were timed since the last judgement, those of them that took long, and those after which much was left
    /// to do.
    timed: AtomicU64,
    slow: AtomicU64,
    heavy: AtomicU64,
    /// For tests: whatever it shows.
    #[cfg(test)]
    is_settled: bool,
}

impl Default for FileSystem {
    /// Nothing is known yet. Then it is better taken for a slow one.
    fn default() -> Self {
        Self {
            is_slow: true.into(),
            is_heavy: false.into(),
            timed: 0.into(),
            slow: 0.into(),
            heavy: 0.into(),
            #[cfg(test)]
            is_settled: false,
        }
    }
}

impl FileSystem {
    /// Whether to ask it something takes longer than any computer needs to answer: there is a network, or a disk.
    pub(crate) fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }

    /// Whether to free what a removed directory had on the disk takes long. That need not be done in line.
    pub(crate) fn is_heavy(&self) -> bool {
        self.is_heavy.load(Ordering::Relaxed)
    }

    /// One removal took so long, and so long to forget what was removed.
    pub(crate) fn note(&self, removing: Duration, forgetting: Duration) {
        self.timed.fetch_add(1, Ordering::Relaxed);
        self.slow.fetch_add((removing > SLOW).into(), Ordering::Relaxed);
        self.heavy.fetch_add((forgetting > HEAVY).into(), Ordering::Relaxed);
    }

    /// Some are slow because another process had the core; many are because the file system is.
    pub(crate) fn judge(&self) {
        #[cfg(test)]
        if self.is_settled {
            return;
        }
        let [timed, slow, heavy] =
            [&self.timed, &self.slow, &self.heavy].map(|count| count.swap(0, Ordering::Relaxed));
        if timed > 0 {
            self.is_slow.store(slow * 3 > timed, Ordering::Relaxed);
            self.is_heavy.store(heavy * 3 > timed, Ordering::Relaxed);
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
        fn settled(is_slow: bool, is_heavy: bool) -> Self {
            Self { is_slow: is_slow.into(), is_heavy: is_heavy.into(), is_settled: true, ..Self::default() }
        }
    }

    /// What this process has open there, removed or not.
    fn open_below(folder: &Path) -> usize {
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        open.filter_map(|fd| fd.path().read_link().ok()).filter(|path| path.starts_with(folder)).count()
    }

    #[test]
    fn many_that_are_slow_make_it_slow_and_few_do_not() {
        let (quick, slow) = (Duration::from_micros(3), Duration::from_millis(2));
        let file_system = FileSystem::default();
        assert!(file_system.is_slow() && !file_system.is_heavy());
        (0..9).for_each(|_| file_system.note(quick, slow));
        file_system.note(slow, quick);
        file_system.judge();
        assert!(!file_system.is_slow() && file_system.is_heavy());
        file_system.judge();
        assert!(file_system.is_heavy(), "nothing new is no news");
        (0..9).for_each(|_| file_system.note(slow, quick));
        file_system.judge();
        assert!(file_system.is_slow() && !file_system.is_heavy());
    }

    /// Whichever way it goes about it, the same is removed, and nothing stays open.
    #[test]
    fn every_kind_is_purged() {
        for (is_slow, is_heavy) in [(false, false), (false, true), (true, false), (true, true)] {
            let folder = tempfile::tempdir().unwrap();
            let wide = flat(&folder.path().join("wide"), 3_000);
            let bushy = mixed(&folder.path().join("bushy"), 2_000, 10);
            let all = Tree {
                dirs: wide.dirs + bushy.dirs + 2,
                files: bushy.files,
                removable: wide.removable + bushy.removable + 1,
            };
            let mut purger = Purger::new(folder.path());
            purger.file_system = FileSystem::settled(is_slow, is_heavy);
            let summary = purger.purge().unwrap();
            assert_eq!(summary.dirs_removed, all.removable, "slow {is_slow}, heavy {is_heavy}");
            assert_eq!(count(folder.path()), (all.dirs - all.removable, all.files));
            assert_eq!((summary.errors, open_below(folder.path())), (0, 0));
        }
    }
}
