use std::collections::BTreeMap;
use std::time::Duration;

/// What a purge has checked and removed; in a dry run, what it would have removed.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Summary {
    /// If true, nothing was removed.
    pub dry_run: bool,
    /// Directories that were checked, including the root. Without those that were excluded, on another file system, or
    /// too deep.
    pub dirs_scanned: u64,
    /// Directories that were removed.
    pub dirs_removed: u64,
    /// All other entries of those directories.
    pub files_scanned: u64,
    /// Files that were removed.
    pub files_removed: u64,
    /// The sum of their sizes.
    pub bytes_freed: u64,
    /// Directories that were not removed because a directory above them was moved first; with
    /// [`min_age`](crate::Purger::min_age), also because they were changed or replaced.
    pub dirs_changed: u64,
    /// Files that were not removed because they were changed or replaced first, or a directory above them was moved.
    pub files_changed: u64,
    /// Entries that could not be checked or removed. Entries that another process removed and directories that got new
    /// content are not errors.
    pub errors: u64,
    /// The number of errors of each [kind](crate::ErrorKind).
    pub errors_by_kind: BTreeMap<&'static str, u64>,
    /// The highest measured memory of this process.
    pub peak_memory_bytes: u64,
    /// How often the number of threads was reduced because memory was short.
    pub backpressure_events: u64,
    /// The share of the tree that was done, from 0 to 1. An estimate, unless it is 1.
    pub fraction: f64,
    /// Why it ended.
    pub stopped_by: StoppedBy,
    /// How long it took.
    pub elapsed: Duration,
}

/// Why a purge ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StoppedBy {
    /// The whole tree was checked.
    Completed,
    /// The [limit](crate::Purger::max_dirs) was reached and more directories could be removed.
    Limit,
    /// Memory was almost used up.
    Breaker,
    /// It was [cancelled](crate::Purger::cancelled_by).
    Cancelled,
    /// The semaphore of the [fleet](crate::Purger::fleet_limit) could no longer be reached.
    FleetLimit,
}

impl StoppedBy {
    /// The name in JSON. For a cancelled purge it is `signal`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Limit => "limit",
            Self::Breaker => "breaker",
            Self::Cancelled => "signal",
            Self::FleetLimit => "fleet_limit",
        }
    }
}
