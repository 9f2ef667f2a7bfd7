//! How much memory the process and its container use, and how much the container may use.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cgroup::Cgroup;

/// Where a [`MemoryGuard`](crate::MemoryGuard) reads how much memory is used.
///
/// Any `Fn() -> u64` is a source: for tests, or for a program with its own allocator statistics.
pub trait MemorySource: Send + Sync {
    /// The resident memory of the process, in bytes. 0 if unknown.
    fn resident(&self) -> u64;

    /// How much memory the container uses and may use. `None` without a limit.
    fn container(&self) -> Option<ContainerMemory> {
        None
    }
}

impl<F: Fn() -> u64 + Send + Sync> MemorySource for F {
    fn resident(&self) -> u64 {
        self()
    }
}

/// The memory of a container. There may be other processes in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContainerMemory {
    /// Bytes in use, without memory that the kernel reclaims when it is short of it.
    pub used: u64,
    /// Above this, in bytes, the kernel kills processes.
    pub limit: u64,
}

impl ContainerMemory {
    pub(crate) fn share(&self) -> f64 {
        self.used as f64 / self.limit as f64
    }
}

/// Reads `/proc/self/statm` and the control groups of this process, version 2 and 1.
///
/// Of several nested groups with a limit, the one closest to its limit counts. Outside Linux it reads 0, so the guard
/// stops nothing.
#[derive(Clone, Debug)]
pub struct SystemMemory {
    statm: PathBuf,
    page_size: u64,
    groups: Vec<Cgroup>,
}

impl SystemMemory {
    /// The memory of this process.
    pub fn new() -> Self {
        Self::at(Path::new("/"))
    }

    /// Reads below another root directory, which contains `proc`. For tests.
    pub fn at(root: &Path) -> Self {
        Self {
            statm: root.join("proc/self/statm"),
            page_size: page_size(),
            groups: Cgroup::with_limits(root),
        }
    }
}

impl Default for SystemMemory {
    fn default() -> Self {
        Self::new()
    }
}

impl MemorySource for SystemMemory {
    fn resident(&self) -> u64 {
        let pages = fs::read_to_string(&self.statm).ok();
        let pages = pages.and_then(|statm| statm.split(' ').nth(1)?.parse::<u64>().ok());
        pages.unwrap_or(0) * self.page_size
    }

    fn container(&self) -> Option<ContainerMemory> {
        let memory = self.groups.iter().filter_map(Cgroup::memory);
        memory.max_by(|a, b| a.share().total_cmp(&b.share()))
    }
}

fn page_size() -> u64 {
    #[cfg(target_os = "linux")]
    return rustix::param::page_size() as u64;
    #[cfg(not(target_os = "linux"))]
    return 0;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn resident_memory_of_this_process_is_read() {
        let resident = SystemMemory::new().resident();
        assert!(resident > 100 * 1024, "{resident}");
    }

    #[test]
    fn unreadable_files_give_zero_and_no_limit() {
        let empty = tempfile::tempdir().unwrap();
        let memory = SystemMemory::at(empty.path());
        assert_eq!((memory.resident(), memory.container()), (0, None));
    }
}
