//! How much memory there is and how much of it is used: the process, and the container it lives in.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cgroup::Cgroup;

/// Where a [`MemoryGuard`](crate::MemoryGuard) reads how much memory is used.
///
/// Any `Fn() -> u64` is one, for a test or for a program that counts for itself.
pub trait MemorySource: Send + Sync {
    /// What the process has in memory, in bytes. 0 if nobody can tell.
    fn resident(&self) -> u64;

    /// What the container has in use, and how much it may. `None` if nothing limits it.
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
    /// In use, without what the kernel gives back when it is short of memory.
    pub used: u64,
    /// At more than this, processes are killed.
    pub limit: u64,
}

impl ContainerMemory {
    pub(crate) fn share(&self) -> f64 {
        self.used as f64 / self.limit as f64
    }
}

/// What Linux says: `/proc/self/statm`, and the control groups of this process, version 2 and 1.
///
/// Of several groups with a limit, one inside the other, the one that is closest to its limit counts. On other systems it
/// reads 0: nothing is guarded there.
#[derive(Clone, Debug)]
pub struct SystemMemory {
    statm: PathBuf,
    page_size: u64,
    groups: Vec<Cgroup>,
}

impl SystemMemory {
    /// As this process sees it.
    pub fn new() -> Self {
        Self::at(Path::new("/"))
    }

    /// With another root of the file system, which has a `proc` in it. For tests.
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
