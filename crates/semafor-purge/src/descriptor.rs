//! Open directories, and their maximum number.
//!
//! All calls are relative to an open directory, so an entry that is renamed or swapped for a symlink meanwhile can't
//! lead elsewhere. The number of open files is limited; when descriptors become scarce, directories that are not needed
//! right now are closed and opened again later.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::ffi::CStr;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::{Result, fcntl_dupfd_cloexec};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Enough for any tree except chains of thousands of levels. More would only use memory in the kernel.
const MAX_OPEN: u64 = 4096;
/// Reserved for the rest of the process.
const RESERVED: u64 = 64;
/// How many a thread may need even when they are scarce: a directory, the two above it, and the ones it has just read.
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
    /// Raises the soft limit as far as needed, at most to the hard limit. Returns the descriptors, and how many of the
    /// wanted threads they are enough for.
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

    /// From this number on, descriptors are scarce.
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
    /// True if directories that are not needed right now should be closed.
    pub(crate) fn is_scarce(&self) -> bool {
        self.all.are_scarce()
    }

    /// Opens a directory in this one, or `..`. Never follows a symlink.
    pub(crate) fn open(&self, name: &CStr) -> Result<Arc<Self>> {
        let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(self.all.wrap(openat(&self.fd, name, how, Mode::empty())?))
    }

    /// Opens the entry only as a reference (`O_PATH`). After its removal, the kernel frees it when this is dropped.
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

/// Prepares this process for many open directories. Optional: it saves some milliseconds if it is called before the
/// process has a second thread, because the kernel must wait for all threads each time it enlarges the table of open
/// files.
pub fn make_room_for_directories() {
    let limit = raise_limit(MAX_OPEN + RESERVED);
    let any = openat(CWD, c"/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    if let (Ok(any), Ok(highest)) = (any, i32::try_from(limit - 1)) {
        drop(fcntl_dupfd_cloexec(any, highest));
    }
}

/// Raises the soft limit of open files to `wanted`, at most to the hard limit, and returns the new limit.
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
