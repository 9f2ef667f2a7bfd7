//! Lists the processes of this machine, from /proc.
//!
//! Nothing here allocates or locks; see [`process_tree`](super::process_tree).

use std::ffi::CStr;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, RawDir, openat};
use rustix::process::Pid;

/// A process, from /proc/PID/stat.
#[derive(Clone, Copy)]
pub(super) struct Process {
    pub(super) pid: Pid,
    /// `None`, here and below, for a process outside our PID namespace; see [`groups`](crate::groups).
    pub(super) parent: Option<Pid>,
    pub(super) group: Option<Pid>,
    pub(super) session: Option<Pid>,
    /// A zombie: its parent has not waited for it yet.
    pub(super) is_dead: bool,
}

fn open(at: impl AsFd, name: &CStr) -> Option<OwnedFd> {
    openat(at, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Calls `callback` for each process. `None` if /proc can't be read.
pub(super) fn each(mut callback: impl FnMut(Process)) -> Option<()> {
    let list = open(CWD, c"/proc")?;
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(&list, &mut buffer);
    let mut is_listed = None;
    while let Some(entry) = entries.next() {
        let Ok(entry) = entry else { break };
        let Some(pid) = std::str::from_utf8(entry.file_name().to_bytes()).ok().and_then(number) else {
            continue;
        };
        if let Some(process) = open(&list, entry.file_name()).and_then(|directory| read_stat(pid, &directory))
        {
            is_listed = Some(());
            callback(process);
        }
    }
    is_listed
}

fn number(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok().filter(|number| *number > 0)?)
}

fn read_stat(pid: Pid, directory: &OwnedFd) -> Option<Process> {
    let mut buffer = [0; 512];
    let len = rustix::io::read(open(directory, c"stat")?, &mut buffer).ok()?;
    // The name is in parentheses and may contain parentheses.
    let after_name = buffer[..len].iter().rposition(|byte| *byte == b')')? + 1;
    let mut words = std::str::from_utf8(&buffer[after_name..len]).ok()?.split_ascii_whitespace();
    let is_dead = matches!(words.next()?, "Z" | "X" | "x");
    let (parent, group, session) = (words.next()?, words.next()?, words.next()?);
    // It has ended meanwhile.
    if group == "-1" {
        return None;
    }
    let (parent, group, session) = (number(parent), number(group), number(session));
    Some(Process { pid, parent, group, session, is_dead })
}

/// True if the environment that the process was started with contains `mark`.
pub(super) fn has_in_environment(pid: Pid, mark: &[u8]) -> bool {
    search_environment(pid, mark).unwrap_or(false)
}

fn search_environment(pid: Pid, mark: &[u8]) -> Option<bool> {
    let mut path = [0; 32];
    write!(&mut path[..31], "/proc/{}/environ", pid.as_raw_nonzero()).ok()?;
    let environment = open(CWD, CStr::from_bytes_until_nul(&path).ok()?)?;
    let (mut buffer, mut kept) = ([0; 8192], 0);
    loop {
        let read = rustix::io::read(&environment, &mut buffer[kept..]).ok()?;
        let filled = kept + read;
        if buffer[..filled].windows(mark.len()).any(|window| window == mark) {
            return Some(true);
        }
        if read == 0 {
            return Some(false);
        }
        // The mark may be split between two reads.
        kept = filled.min(mark.len() - 1);
        buffer.copy_within(filled - kept..filled, 0);
    }
}
