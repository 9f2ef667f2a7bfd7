use std::collections::BTreeMap;
use std::time::Duration;

/// What a purge has seen and done; in a dry run, what it would have.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Summary {
    /// Nothing was removed, whatever the other numbers say.
    pub dry_run: bool,
    /// Directories that were looked at, the root among them. Not those that were excluded, on another file system, or
    /// too deep.
    pub dirs_scanned: u64,
    /// Directories that were removed.
    pub dirs_removed: u64,
    /// Anything else that was seen in those directories.
    pub files_scanned: u64,
    /// Files that were removed.
    pub files_removed: u64,
    /// The sum of their sizes.
    pub bytes_freed: u64,
    /// Directories that were to be removed and stay, because a directory they are in was moved first; with
    /// [`min_age`](crate::Purger::min_age), also because they were changed or replaced.
    pub dirs_changed: u64,
    /// Files that were to be removed and stay, because they, or a directory they are in, were changed, replaced or
    /// moved first.
    pub files_changed: u64,
    /// What could not be looked at or removed. What somebody else removed meanwhile is no error, nor is a directory
    /// that was filled meanwhile.
    pub errors: u64,
    /// How many of each [kind](crate::ErrorKind).
    pub errors_by_kind: BTreeMap<&'static str, u64>,
    /// The most memory that this process was seen to use.
    pub peak_memory_bytes: u64,
    /// How often fewer threads had to do, because memory was short.
    pub backpressure_events: u64,
    /// What part of the tree was done, from 0 to 1: all of it if it was completed, else as far as one can tell.
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
    /// All was looked at.
    Completed,
    /// There was more to remove than the [limit](crate::Purger::max_dirs).
    Limit,
    /// Memory was almost used up.
    Breaker,
    /// It was [cancelled](crate::Purger::cancelled_by).
    Cancelled,
    /// The semaphore of the [fleet](crate::Purger::fleet_limit) could not be asked any more.
    FleetLimit,
}

impl StoppedBy {
    /// As it is called in JSON. A cancelled purge was stopped by a `signal`.
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
