//! Processes that the benchmark has started: measures what they use, and ends them.

use std::fs::read_to_string;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

/// Does not outlive the benchmark, unless that is killed.
pub(super) struct Process {
    /// Waited for with `wait4`: `Child::wait` does not return what was used.
    child: Child,
    is_over: bool,
}

#[must_use]
pub(super) struct Finish {
    status: ExitStatus,
    /// Including the child processes that it has waited for.
    pub(super) cpu: Duration,
}

impl Finish {
    pub(super) fn successful(self) -> Self {
        assert!(self.status.success(), "a process failed: {}", self.status);
        self
    }
}

impl Process {
    pub(super) fn start(command: &mut Command) -> Self {
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { child, is_over: false }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn finish(mut self) -> Finish {
        self.reap()
    }

    /// Whether it is in this system call.
    pub(super) fn is_in_call(&self, number: libc::c_long) -> bool {
        let call = read_to_string(format!("/proc/{}/syscall", self.pid())).unwrap_or_default();
        call.split(' ').next() == Some(&number.to_string())
    }

    fn reap(&mut self) -> Finish {
        self.is_over = true;
        let mut status = 0;
        // SAFETY: a plain structure of numbers, for which zeros are valid.
        let mut used: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to what lives until the call returns.
        let pid = unsafe { libc::wait4(signed(self.pid()), &raw mut status, 0, &raw mut used) };
        assert_eq!(pid, signed(self.pid()), "it is our child: {}", std::io::Error::last_os_error());
        Finish {
            status: ExitStatus::from_raw(status),
            cpu: since_zero(used.ru_utime) + since_zero(used.ru_stime),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.is_over {
            end(self.pid());
            let _ = self.reap();
        }
    }
}

fn since_zero(time: libc::timeval) -> Duration {
    Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
}

/// Kills a process. It may have ended by itself.
pub(super) fn end(pid: u32) {
    // SAFETY: no memory is involved.
    unsafe { libc::kill(signed(pid), libc::SIGKILL) };
}

/// Whether there is such a process that has not ended. Its parent may take some time to notice its end.
pub(super) fn is_running(pid: u32) -> bool {
    let stat = read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in front may contain any character, and ends with the last parenthesis.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

pub(super) fn signed(pid: u32) -> i32 {
    i32::try_from(pid).expect("a process id")
}
