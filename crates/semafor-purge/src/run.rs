//! The state that all threads of a run share, and how the run ends.
//!
//! It ends when the topmost directory is decided. If it is stopped before, removals in progress are completed, no other
//! begins, and undecided entries stay.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::io::Errno;
use semafor::{AcquireError, Permit, Semaphore};
use semafor_pipeline::Rate;
use tokio_util::sync::CancellationToken;

use crate::cancelled::run_unless_cancelled;
use crate::counters::Counters;
use crate::descriptor::Descriptors;
use crate::error::ErrorKind;
use crate::file_system::FileSystem;
use crate::limit::Limit;
use crate::location::Location;
use crate::node::Node;
use crate::purger::{Observers, Removed};
use crate::queue::Queue;
use crate::removal_slot::Deletions;
use crate::rules::Rules;
use crate::summary::StoppedBy;
use crate::walk::Job;

pub(crate) struct Run<'p> {
    pub(crate) rules: Rules,
    pub(crate) queue: Queue<Job>,
    pub(crate) descriptors: Arc<Descriptors>,
    pub(crate) counters: Counters,
    pub(crate) limit: Limit,
    pub(crate) deletions: Deletions,
    /// `None` if the number of threads does not exceed the limit.
    pub(crate) scanning: Option<Semaphore>,
    pub(crate) rate: Option<Rate>,
    /// Ends all waits. Cancelled when the run is stopped.
    pub(crate) cancelled: CancellationToken,
    pub(crate) observers: &'p Observers,
    /// The path as given.
    pub(crate) root: &'p Path,
    pub(crate) location: Location,
    pub(crate) stop: AtomicStop,
    pub(crate) file_system: FileSystem,
}

/// Why a run was stopped. The first reason counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Stop {
    Limit = 1,
    Breaker,
    Cancelled,
    Fleet,
}

#[derive(Default)]
pub(crate) struct AtomicStop {
    reason: AtomicU8,
    is_limit_reached: AtomicU8,
}

impl Run<'_> {
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.reason.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn stop(&self, why: Stop) {
        if why == Stop::Limit {
            self.stop.is_limit_reached.store(1, Ordering::Relaxed);
            // The limit is for directories: old files are still removed.
            if self.rules.files_before.is_some() {
                return;
            }
        }
        let first = self.stop.reason.compare_exchange(0, why as u8, Ordering::Relaxed, Ordering::Relaxed);
        if first.is_ok() {
            self.cancelled.cancel();
            self.queue.close();
        }
    }

    /// True if subdirectories should be removed first and checked only if that fails. Not on a slow file system, where
    /// the kernel would look up an unknown name while it blocks the whole directory. And not if there is only one
    /// subdirectory, which is rarely empty.
    pub(crate) fn may_try_without_looking(&self, directory: &Node) -> bool {
        let is_alone = directory.metadata.links == 3;
        self.rules.may_remove_any_directory()
            && !self.rules.is_max_depth(directory.depth + 1)
            && !is_alone
            && !self.file_system.is_slow()
    }

    pub(crate) fn stopped_by(&self) -> StoppedBy {
        const LIMIT: u8 = Stop::Limit as u8;
        const BREAKER: u8 = Stop::Breaker as u8;
        const CANCELLED: u8 = Stop::Cancelled as u8;
        const FLEET: u8 = Stop::Fleet as u8;
        match self.stop.reason.load(Ordering::Relaxed) {
            LIMIT => StoppedBy::Limit,
            BREAKER => StoppedBy::Breaker,
            CANCELLED => StoppedBy::Cancelled,
            FLEET => StoppedBy::FleetLimit,
            _ if self.stop.is_limit_reached.load(Ordering::Relaxed) != 0 => StoppedBy::Limit,
            _ => StoppedBy::Completed,
        }
    }

    /// Waits for the rate limit. False if the run was cancelled first.
    pub(crate) fn pace(&self) -> bool {
        match &self.rate {
            None => true,
            Some(rate) => run_unless_cancelled(&self.cancelled, rate.ready()).is_some(),
        }
    }

    /// Acquires a slot for reading from the file system, if reads are limited.
    pub(crate) fn scan(&self) -> Option<Permit<'_>> {
        // Can't fail: the semaphore is never closed and has no timeout.
        self.scanning.as_ref().and_then(|scanning| scanning.acquire().blocking().ok())
    }

    pub(crate) fn error(&self, path: impl FnOnce() -> PathBuf, errno: Errno) {
        self.counters.error(errno.into());
        if let Some(callback) = &self.observers.error {
            callback(&self.full(&path()), &errno.into());
        }
    }

    pub(crate) fn fleet_error(&self, error: &AcquireError) {
        if !self.is_stopped() {
            self.counters.error(ErrorKind::FleetLimit);
            if let Some(callback) = &self.observers.error {
                callback(self.root, &std::io::Error::other(error.to_string()));
            }
        }
        self.stop(Stop::Fleet);
    }

    pub(crate) fn removed(&self, path: impl FnOnce() -> PathBuf, what: Removed) {
        if let Some(callback) = &self.observers.removal {
            callback(&self.full(&path()), what);
        }
    }

    fn full(&self, relative: &Path) -> PathBuf {
        match relative.as_os_str().is_empty() {
            true => self.root.to_owned(),
            false => self.root.join(relative),
        }
    }
}
