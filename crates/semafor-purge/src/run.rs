//! What all threads of one run share, and how it ends.
//!
//! It ends by itself when the topmost directory is decided. If it is stopped before, removals under way are completed,
//! nothing new is begun, and what was not decided stays as it is.

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
    /// None if there are no more threads than may scan at once.
    pub(crate) scanning: Option<Semaphore>,
    pub(crate) rate: Option<Rate>,
    /// Ends all waiting. Not before the run is stopped.
    pub(crate) cancelled: CancellationToken,
    pub(crate) observers: &'p Observers,
    /// As it was given.
    pub(crate) root: &'p Path,
    pub(crate) location: Location,
    pub(crate) stop: AtomicStop,
    pub(crate) file_system: FileSystem,
}

/// Why a run ends before all is decided. The first reason counts.
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
            // It is one for directories: there may be old files left.
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

    /// Whether directories in this one are removed first and looked at only if that fails. Where asking takes long, it
    /// is the other way round: the kernel asks for a name it does not know while it holds back all others in the
    /// directory. And where there is but one, it is more likely on the way to something than empty.
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

    /// Waits until the next removal may be. False if the run is over before.
    pub(crate) fn pace(&self) -> bool {
        match &self.rate {
            None => true,
            Some(rate) => run_unless_cancelled(&self.cancelled, rate.ready()).is_some(),
        }
    }

    /// Holds a slot for asking the file system something, if those are limited.
    pub(crate) fn scan(&self) -> Option<Permit<'_>> {
        // Nobody closes it and nobody leaves the line.
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
