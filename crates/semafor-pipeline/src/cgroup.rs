//! The control groups of this process that limit memory.
//!
//! `/proc/self/cgroup` names the group; `/proc/self/mountinfo` says where groups are mounted and which part of the
//! hierarchy is visible there (in a container, often only its own). Every parent group may have a limit, too.
//!
//! Memory that the kernel reclaims when a group reaches its limit does not count as used: inactive file pages, and the
//! slabs of names and inodes, which a walk through a file system fills by the gigabyte.

use std::fs;
use std::path::{Path, PathBuf};

use crate::memory_source::ContainerMemory;

/// In version 1, a limit from here on means no limit.
const V1_UNLIMITED: u64 = 1 << 62;

#[derive(Clone, Debug)]
pub(crate) struct Cgroup {
    dir: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    One,
    Two,
}

impl Cgroup {
    /// The group of this process and its parents, as far as they can be read. Groups without a limit are included,
    /// because a limit may be set later.
    pub(crate) fn with_limits(root: &Path) -> Vec<Self> {
        let read = |file| fs::read_to_string(root.join("proc/self").join(file)).unwrap_or_default();
        let (own, mounts) = (read("cgroup"), read("mountinfo"));
        let mut groups = Vec::new();
        for mount in mounts.lines().filter_map(Mount::parse) {
            let Some(path) = own.lines().find_map(|line| group_path(line, mount.version)) else { continue };
            let top = root.join(mount.point.trim_start_matches('/'));
            // A group that is not below the mount: only the top of the mount is visible.
            let below = Path::new(path).strip_prefix(mount.root).unwrap_or(Path::new(""));
            let dirs = below.ancestors().map(|part| top.join(part));
            let dirs = dirs.filter(|dir| dir.join(mount.version.used_file()).exists());
            groups.extend(dirs.map(|dir| Self { dir, version: mount.version }));
        }
        groups
    }

    /// The memory it uses, if it has a limit.
    pub(crate) fn memory(&self) -> Option<ContainerMemory> {
        let limit = self.number(self.version.limit_file())?;
        if limit == 0 || (self.version == Version::One && limit >= V1_UNLIMITED) {
            return None;
        }
        let mut used = self.number(self.version.used_file())?;
        // Far from the limit the details do not matter, and reading `memory.stat` is slow.
        if used > limit / 2 {
            used = used.saturating_sub(self.reclaimable());
        }
        Some(ContainerMemory { used, limit })
    }

    fn reclaimable(&self) -> u64 {
        let stat = fs::read_to_string(self.dir.join("memory.stat")).unwrap_or_default();
        let value = |name| {
            let words = stat.lines().filter_map(|line| line.split_once(' '));
            words
                .into_iter()
                .find(|(word, _)| *word == name)
                .and_then(|(_, n)| n.parse::<u64>().ok())
                .unwrap_or(0)
        };
        match self.version {
            Version::Two => value("inactive_file") + value("slab_reclaimable"),
            // Version 1 has no separate number for slabs that can be reclaimed.
            Version::One => {
                value("total_inactive_file") + self.number("memory.kmem.usage_in_bytes").unwrap_or(0)
            }
        }
    }

    /// `None` for `max`, which means no limit.
    fn number(&self, file: &str) -> Option<u64> {
        fs::read_to_string(self.dir.join(file)).ok()?.trim_end().parse().ok()
    }
}

impl Version {
    fn used_file(self) -> &'static str {
        match self {
            Self::One => "memory.usage_in_bytes",
            Self::Two => "memory.current",
        }
    }

    fn limit_file(self) -> &'static str {
        match self {
            Self::One => "memory.limit_in_bytes",
            Self::Two => "memory.max",
        }
    }
}

/// The path of a line of `/proc/self/cgroup`: `0::/path` for version 2, `4:memory:/path` for version 1.
fn group_path(line: &str, version: Version) -> Option<&str> {
    let mut fields = line.splitn(3, ':');
    let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let is_it = match version {
        Version::One => controllers.split(',').any(|controller| controller == "memory"),
        Version::Two => number == "0" && controllers.is_empty(),
    };
    is_it.then_some(path)
}

/// A line of `/proc/self/mountinfo` about control groups that can limit memory.
struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    version: Version,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, point) = (place.next()?, place.next()?);
        let mut kind = kind.split(' ');
        let version = match (kind.next()?, kind.nth(1)) {
            ("cgroup2", _) => Version::Two,
            ("cgroup", Some(options)) if options.split(',').any(|option| option == "memory") => Version::One,
            _ => return None,
        };
        Some(Self { root, point, version })
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A root directory with these files in it.
    fn root(files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn seen(files: &[(&str, &str)]) -> Vec<(u64, u64)> {
        let root = root(files);
        let groups = Cgroup::with_limits(root.path());
        groups.iter().filter_map(Cgroup::memory).map(|memory| (memory.used, memory.limit)).collect()
    }

    const V2_MOUNT: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn limits_of_parent_groups_count() {
        let memory = seen(&[
            ("proc/self/cgroup", "0::/app.slice/job\n"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/app.slice/job/memory.current", "100\n"),
            ("sys/fs/cgroup/app.slice/job/memory.max", "1000\n"),
            ("sys/fs/cgroup/app.slice/memory.current", "300\n"),
            ("sys/fs/cgroup/app.slice/memory.max", "2000\n"),
        ]);
        assert_eq!(memory, [(100, 1000), (300, 2000)]);
    }

    #[test]
    fn max_is_no_limit() {
        let memory = seen(&[
            ("proc/self/cgroup", "0::/\n"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/memory.current", "100\n"),
            ("sys/fs/cgroup/memory.max", "max\n"),
        ]);
        assert_eq!(memory, []);
    }

    #[test]
    fn reclaimable_memory_does_not_count_as_used() {
        let memory = seen(&[
            ("proc/self/cgroup", "0::/\n"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/memory.current", "990\n"),
            ("sys/fs/cgroup/memory.max", "1000\n"),
            ("sys/fs/cgroup/memory.stat", "anon 200\nfile 500\ninactive_file 400\nslab_reclaimable 300\n"),
        ]);
        assert_eq!(memory, [(290, 1000)]);
    }

    #[test]
    fn version_1_groups_are_read_below_their_mount_point() {
        let mount = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let memory = seen(&[
            ("proc/self/cgroup", "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc/inner\n0::/\n"),
            ("proc/self/mountinfo", mount),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "900\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000\n"),
            ("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 100\n"),
            ("sys/fs/cgroup/memory/memory.kmem.usage_in_bytes", "250\n"),
            ("sys/fs/cgroup/memory/inner/memory.usage_in_bytes", "10\n"),
            ("sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        assert_eq!(memory, [(550, 1000)]);
    }

    #[test]
    fn a_group_outside_the_mount_uses_the_top_of_the_mount() {
        let memory = seen(&[
            ("proc/self/cgroup", "0::/../../elsewhere\n"),
            ("proc/self/mountinfo", "30 23 0:26 /kube/pod /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n"),
            ("sys/fs/cgroup/memory.current", "7\n"),
            ("sys/fs/cgroup/memory.max", "70\n"),
        ]);
        assert_eq!(memory, [(7, 70)]);
    }
}
