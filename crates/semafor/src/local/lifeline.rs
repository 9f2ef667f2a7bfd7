//! Shows an agent whether a client without a connection is alive.
//!
//! Each client locks one byte of a file in the agent's folder, for as long as it uses the agent. The lock belongs to the
//! open file, as a connection does: copies of the process share it, and the kernel releases it when the last copy has
//! ended. Unlike a connection it outlives the agent, so the next agent can see which clients of the former one are still
//! alive. Unlike a process id it never means another process later, and a guardian that outlives a killed `semafor run`
//! keeps it.
//!
//! These locks exist on Linux only. Elsewhere, and where the file system refuses them, clients are known by their process
//! ids.

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The byte that a client locks. Small enough for every system's file offsets.
pub(super) type Byte = u32;
const BYTES: u32 = 1 << 30;

fn file_in(directory: &Path) -> PathBuf {
    directory.join("agent.clients")
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options
}

/// A client's lock, held until the last copy of the process has dropped it.
#[derive(Debug)]
pub(super) struct Lifeline {
    file: Arc<File>,
    byte: Byte,
    directory: PathBuf,
}

impl Lifeline {
    /// Locks a byte in the folder of an agent. `None` without the file, or where such locks do not exist.
    pub(super) fn take(directory: &Path) -> Option<Self> {
        let file = options().open(file_in(directory)).ok()?;
        let random = RandomState::new();
        for attempt in 0..100 {
            let byte = (random.hash_one((std::process::id(), attempt)) % u64::from(BYTES)) as Byte;
            match lock(&file, byte) {
                Ok(true) => {
                    return Some(Self { file: Arc::new(file), byte, directory: directory.to_owned() });
                }
                Ok(false) => {}
                Err(_) => return None,
            }
        }
        None
    }

    pub(super) fn byte(&self) -> Byte {
        self.byte
    }

    pub(super) fn is_in(&self, directory: &Path) -> bool {
        self.directory == directory
    }

    pub(super) fn file(&self) -> &Arc<File> {
        &self.file
    }
}

/// The agent's view of all lifelines in its folder.
#[derive(Debug)]
pub(super) struct Lifelines {
    file: File,
    /// True if a former agent had left the file.
    existed_before: bool,
}

impl Lifelines {
    /// Creates the file if it is missing. `None` if that fails: then there are no lifelines.
    pub(super) fn in_folder(directory: &Path) -> Option<Self> {
        let path = file_in(directory);
        if let Ok(file) = options().open(&path) {
            let is_ours = file.metadata().is_ok_and(|file| {
                file.is_file()
                    && file.uid() == rustix::process::geteuid().as_raw()
                    && file.mode() & 0o077 == 0
            });
            return is_ours.then_some(Self { file, existed_before: true });
        }
        let file = options().create_new(true).open(&path).ok()?;
        Some(Self { file, existed_before: false })
    }

    /// True unless all copies of that client's process have certainly ended.
    pub(super) fn is_held(&self, byte: Byte) -> bool {
        is_locked(&self.file, byte, 1).unwrap_or(true)
    }

    /// True if it is certain that no client of a former agent is alive.
    pub(super) fn are_all_gone(&self) -> bool {
        self.existed_before && is_locked(&self.file, 0, 0) == Ok(false)
    }

    /// Distinguishes this file from another of the same name.
    pub(super) fn identity(&self) -> Option<(u64, u64)> {
        self.file.metadata().ok().map(|file| (file.dev(), file.ino()))
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod kernel {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    fn command(file: &File, command: libc::c_int, start: u32, length: u32) -> Result<libc::flock, i32> {
        // SAFETY: plain numbers, for which zero is a value.
        let mut wanted: libc::flock = unsafe { std::mem::zeroed() };
        wanted.l_type = libc::F_WRLCK as _;
        wanted.l_whence = libc::SEEK_SET as _;
        wanted.l_start = start as _;
        wanted.l_len = length as _;
        // SAFETY: the file is open, and `wanted` is what these commands read and write.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut wanted) } {
            -1 => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
            _ => Ok(wanted),
        }
    }

    /// False if another process has locked it.
    pub(super) fn lock(file: &File, byte: u32) -> Result<bool, i32> {
        match command(file, libc::F_OFD_SETLK, byte, 1) {
            Ok(_) => Ok(true),
            Err(libc::EAGAIN | libc::EACCES) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A length of 0 means all bytes from `start` on.
    pub(super) fn is_locked(file: &File, start: u32, length: u32) -> Result<bool, i32> {
        let found = command(file, libc::F_OFD_GETLK, start, length)?;
        Ok(found.l_type != libc::F_UNLCK as libc::c_short)
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod kernel {
    use std::fs::File;

    pub(super) fn lock(_: &File, _: u32) -> Result<bool, i32> {
        Err(libc::ENOSYS)
    }

    pub(super) fn is_locked(_: &File, _: u32, _: u32) -> Result<bool, i32> {
        Err(libc::ENOSYS)
    }
}

use kernel::{is_locked, lock};

/// A process. Its start time distinguishes it from other processes with the same id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct ProcessKey {
    pid: u32,
    /// When it was started, in the system's unit; 0 if unknown.
    started: u64,
}

impl ProcessKey {
    pub(super) fn of(pid: u32) -> Self {
        Self { pid, started: start_time(pid).unwrap_or(0) }
    }

    /// For a client with a lifeline, of which only the process id is needed.
    pub(super) fn pid_only(pid: u32) -> Self {
        Self { pid, started: 0 }
    }

    pub(super) fn pid(self) -> u32 {
        self.pid
    }

    /// True unless it has certainly ended.
    pub(super) fn may_be_alive(self) -> bool {
        match start_time(self.pid) {
            Ok(started) => self.started == 0 || started == self.started,
            Err(error) if error.kind() == io::ErrorKind::NotFound && Path::new("/proc/self").exists() => {
                false
            }
            Err(_) => {
                let pid = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw);
                pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
            }
        }
    }
}

/// When a process was started. Works on Linux, for processes that have not ended.
fn start_time(pid: u32) -> io::Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, in parentheses, may contain anything. Of the fields behind it, the state is the first, the start the 20th.
    let words = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' ').collect::<Vec<_>>());
    let words = words.unwrap_or_default();
    if words.first().is_some_and(|state| ["Z", "X"].contains(state)) {
        return Err(io::ErrorKind::NotFound.into());
    }
    words.get(19).and_then(|word| word.parse().ok()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifeline_is_held_until_its_last_copy_is_dropped() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let lifelines = Lifelines::in_folder(folder.path()).expect("the file can be made");
        assert!(!lifelines.are_all_gone(), "the file is new, so it can't tell");
        let mine = Lifeline::take(folder.path()).expect("Linux has them");
        let other = Lifeline::take(folder.path()).expect("there are many");
        assert_ne!(mine.byte(), other.byte());
        assert!(lifelines.is_held(mine.byte()) && lifelines.is_held(other.byte()));
        let copy = mine.file().try_clone().expect("as a fork would");
        let byte = mine.byte();
        drop(mine);
        assert!(lifelines.is_held(byte));
        let next = Lifelines::in_folder(folder.path()).expect("it is there");
        assert!(!next.are_all_gone());
        drop((copy, other));
        assert!(!lifelines.is_held(byte));
        assert!(next.are_all_gone());
        assert_eq!(next.identity(), lifelines.identity());
    }

    #[test]
    fn process_is_identified_by_its_id_and_its_start_time() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().expect("it runs");
        let key = ProcessKey::of(child.id());
        assert!(key.may_be_alive());
        assert!(!ProcessKey { started: key.started + 1, ..key }.may_be_alive(), "another process of that id");
        drop(child.stdin.take());
        child.wait().expect("it is our child");
        assert!(!key.may_be_alive());
    }
}
