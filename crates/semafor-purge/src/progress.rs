use std::time::Duration;

/// How far a purge has come.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// Directories looked at so far.
    pub dirs_scanned: u64,
    /// Directories removed so far.
    pub dirs_removed: u64,
    /// Files seen so far.
    pub files_scanned: u64,
    /// Files removed so far.
    pub files_removed: u64,
    /// The sum of their sizes.
    pub bytes_freed: u64,
    /// Directories that were to be removed and stay, because they were changed or moved first.
    pub dirs_changed: u64,
    /// Files that were to be removed and stay, because they were changed or moved first.
    pub files_changed: u64,
    /// Errors so far.
    pub errors: u64,
    /// What part of the tree is done, from 0 to 1, as far as one can tell before having seen it all.
    pub fraction: f64,
    /// What waits to be looked at.
    pub queued: usize,
    /// How many threads are at work.
    pub working: usize,
    /// What the process has in memory.
    pub memory_bytes: u64,
    /// How long it has taken.
    pub elapsed: Duration,
}

impl Progress {
    /// How much longer it may take. A guess, and none before there is enough to go by.
    pub fn remaining(&self) -> Option<Duration> {
        let is_telling = self.fraction >= 0.01 && self.elapsed >= Duration::from_secs(1);
        let seconds = self.elapsed.as_secs_f64() * (1.0 - self.fraction) / self.fraction;
        is_telling.then(|| Duration::try_from_secs_f64(seconds).ok()).flatten()
    }
}
