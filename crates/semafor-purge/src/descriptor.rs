//! Open directories, and how many there may be.
//!
//! Everything is done relative to an open directory, so nothing that is renamed or swapped for a symlink meanwhile can
//! lead elsewhere. A process may only have so many files open; when they become scarce, directories that are not needed
//! right now are closed and found again later.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::ffi::CStr;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::{Result, fcntl_dupfd_cloexec};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Enough for any tree but chains of thousands. More would only pin memory in the kernel.
const MAX_OPEN: u64 = 4096;
/// Left to the rest of the process.
const RESERVED: u64 = 64;
/// What a thread may need at once even when they are scarce: a directory, the two above it, and what it has just read.
const PER_THREAD: u64 = 5;

/// All directories that one run has open.
#[derive(Debug)]
pub(crate) struct Descriptors {
    open: AtomicUsize,
    scarce_from: usize,
}

/// One open directory.
#[derive(Debug)]
pub(crate) struct Descriptor {
    fd: OwnedFd,
    all: Arc<Descriptors>,
}

impl Descriptors {
    /// As many as the process may have, and how many of the threads that are wanted get by with them. Raises the soft
    /// limit to what is needed, never beyond the hard one.
    pub(crate) fn for_threads(wanted: usize) -> (Arc<Self>, usize) {
        Self::at_most(raise_limit(MAX_OPEN + RESERVED + PER_THREAD * wanted as u64), wanted)
    }

    fn at_most(granted: u64, wanted: usize) -> (Arc<Self>, usize) {
        let enough_for = (granted.saturating_sub(RESERVED) / 8).max(granted / 16);
        let threads = wanted.min(usize::try_from(enough_for).unwrap_or(usize::MAX)).max(1);
        let ours =
            granted.saturating_sub(RESERVED + PER_THREAD * threads as u64).clamp(granted / 4, MAX_OPEN);
        let scarce_from = usize::try_from(ours).unwrap_or(usize::MAX);
        (Arc::new(Self { open: AtomicUsize::new(0), scarce_from }), threads)
    }

    /// From how many on they are scarce.
    pub(crate) fn limit(&self) -> usize {
        self.scarce_from
    }

    pub(crate) fn are_scarce(&self) -> bool {
        self.open.load(Ordering::Relaxed) >= self.scarce_from
    }

    pub(crate) fn wrap(self: &Arc<Self>, fd: OwnedFd) -> Arc<Descriptor> {
        self.open.fetch_add(1, Ordering::Relaxed);
        Arc::new(Descriptor { fd, all: Arc::clone(self) })
    }
}

impl Descriptor {
    /// Whether those that are not needed right now should be closed.
    pub(crate) fn is_scarce(&self) -> bool {
        self.all.are_scarce()
    }

    /// Opens a directory in this one; `..` is one, too. Never what a symlink points to.
    pub(crate) fn open(&self, name: &CStr) -> Result<Arc<Self>> {
        let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(self.all.wrap(openat(&self.fd, name, how, Mode::empty())?))
    }

    /// Holds on to what has this name, without opening it: even if it is removed, it is gone only when this is dropped.
    pub(crate) fn open_without_reading(&self, name: &CStr) -> Result<Arc<Self>> {
        let how = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(self.all.wrap(openat(&self.fd, name, how, Mode::empty())?))
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.all.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Prepares this process for having many directories open. It is not needed, but saves some milliseconds where it is
/// called before the process has a second thread: later, the kernel has to wait for all of them each time it makes
/// room.
pub fn make_room_for_directories() {
    let limit = raise_limit(MAX_OPEN + RESERVED);
    let any = openat(CWD, c"/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    if let (Ok(any), Ok(highest)) = (any, i32::try_from(limit - 1)) {
        drop(fcntl_dupfd_cloexec(any, highest));
    }
}

/// The number of files that this process may have open from now on: as many as wanted, if the hard limit allows.
fn raise_limit(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let (soft, hard) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    let wanted = wanted.min(hard);
    let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
    if soft < wanted && setrlimit(Resource::Nofile, raised).is_err() { soft } else { wanted }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_left_for_all_threads_and_the_rest_of_the_process() {
        let usable = |granted| {
            let (descriptors, threads) = Descriptors::at_most(granted, 128);
            (descriptors.scarce_from, threads)
        };
        assert_eq!(usable(4800), (4096, 128));
        assert_eq!(usable(1024), (360, 120));
        assert_eq!(usable(256), (72, 24));
        assert_eq!(usable(32), (8, 2));
        assert_eq!(usable(4), (1, 1));
    }
}
