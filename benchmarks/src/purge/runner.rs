//! Measures one command from a small process: the peak memory that the kernel reports for a process includes that of
//! the process that started it.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// With this as its first argument, the benchmark is that small process.
pub(super) const WORD: &str = "--run";

/// The time and memory of a command.
#[derive(Serialize, Deserialize, Clone, Copy)]
pub(super) struct Taken {
    pub(super) millis: f64,
    /// The peak of its largest process.
    pub(super) kib: f64,
}

/// Runs a command in a folder.
pub(super) fn run(command: &[OsString], folder: &Path) -> Taken {
    let ours = std::env::current_exe().expect("we were started from somewhere");
    let output = Command::new(ours)
        .arg(WORD)
        .args(command)
        .current_dir(folder)
        .stderr(Stdio::inherit())
        .output()
        .expect("we can be started once more");
    assert!(output.status.success(), "{command:?} failed: {}", output.status);
    serde_json::from_slice(&output.stdout).expect("it answers in JSON")
}

pub(super) fn main(mut words: impl Iterator<Item = OsString>) -> std::io::Result<()> {
    let mut command = Command::new(words.next().ok_or(std::io::ErrorKind::InvalidInput)?);
    let start = Instant::now();
    let child = command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    let (status, kib) = wait_for(child.id());
    let taken = Taken { millis: start.elapsed().as_secs_f64() * 1e3, kib };
    if !status.success() {
        return Err(std::io::Error::other(format!("{command:?}: {status}")));
    }
    println!("{}", serde_json::to_string(&taken)?);
    Ok(())
}

/// Its exit status, and its peak memory.
fn wait_for(pid: u32) -> (ExitStatus, f64) {
    let pid = i32::try_from(pid).expect("a process id");
    let mut status = 0;
    // SAFETY: a plain structure of numbers, for which zeros are valid.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to what lives until the call returns.
    let ended = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut used) };
    assert_eq!(ended, pid, "it is our child: {}", std::io::Error::last_os_error());
    (ExitStatus::from_raw(status), used.ru_maxrss as f64)
}
