use std::time::Duration;

/// The progress of a purge.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// Directories checked so far.
    pub dirs_scanned: u64,
    /// Directories removed so far.
    pub dirs_removed: u64,
    /// Files seen so far.
    pub files_scanned: u64,
    /// Files removed so far.
    pub files_removed: u64,
    /// The sum of their sizes.
    pub bytes_freed: u64,
    /// Directories that were not removed because they were changed or moved first.
    pub dirs_changed: u64,
    /// Files that were not removed because they were changed or moved first.
    pub files_changed: u64,
    /// Errors so far.
    pub errors: u64,
    /// The share of the tree that is done, from 0 to 1. An estimate.
    pub fraction: f64,
    /// Jobs in the queue.
    pub queued: usize,
    /// Threads that are working.
    pub working: usize,
    /// Resident memory of the process.
    pub memory_bytes: u64,
    /// Time since the start.
    pub elapsed: Duration,
}

impl Progress {
    /// The estimated remaining time. `None` before an estimate is possible.
    pub fn remaining(&self) -> Option<Duration> {
        let is_meaningful = self.fraction >= 0.01 && self.elapsed >= Duration::from_secs(1);
        let seconds = self.elapsed.as_secs_f64() * (1.0 - self.fraction) / self.fraction;
        is_meaningful.then(|| Duration::try_from_secs_f64(seconds).ok()).flatten()
    }
}
