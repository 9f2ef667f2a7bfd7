//! Starts an agent where none is running.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{FlockOperation, flock};

use super::address;
use crate::error::{HomeError, HomeErrorKind};

/// Starts an agent in `directory`, and returns its warnings. If another process has started one meanwhile, that one is
/// used.
///
/// When an agent dies, all its clients need the next one at once, and it is enough if one client starts it: if
/// `may_leave_to_other`, and another process is starting one, this does nothing.
pub(super) fn start(
    program: Option<&Path>,
    directory: &Path,
    may_leave_to_other: bool,
) -> Result<Option<String>, HomeError> {
    address::make(directory)?;
    let lock = StartLock::take(directory);
    if may_leave_to_other && matches!(lock, StartLock::HeldByOther) {
        return Ok(None);
    }
    let program = program.map(Path::to_owned).or_else(|| in_path("semafor"));
    let program = program.unwrap_or_else(|| PathBuf::from("semafor"));
    let mut command = Command::new(&program);
    command.args(["agent", "start"]).arg(directory);
    // The agent is for all processes, so it inherits nothing from the one that starts it.
    command.env_clear().current_dir("/").stdin(Stdio::null());
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let message = format!(
                "no agent is running in {}, and {program:?} was not found to start one: install the `semafor` command \
                 (cargo install semafor-cli), or set its path with Config::program",
                directory.display()
            );
            return Err(HomeError::caused_by(error, HomeErrorKind::Unreachable, message));
        }
        Err(error) => return Err(address::io_failure("start the agent for", directory, error)),
    };
    drop(lock);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stderr = stderr.trim().trim_start_matches("semafor: ");
    if output.status.success() {
        return Ok(Some(stderr.to_owned()).filter(|stderr| !stderr.is_empty()));
    }
    let message = if stderr.is_empty() {
        format!("{} could not start an agent: {}", program.display(), output.status)
    } else {
        stderr.to_owned()
    };
    Err(HomeError::new(HomeErrorKind::Unreachable, message))
}

/// The lock that one process holds while it starts an agent.
enum StartLock {
    /// This process has it while the file is open; or the file can't be locked.
    Ours {
        _lock: Option<File>,
    },
    HeldByOther,
}

impl StartLock {
    fn take(directory: &Path) -> Self {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let file = options.open(directory.join("agent.starting")).ok();
        match file.as_ref().map(|file| flock(file, FlockOperation::NonBlockingLockExclusive)) {
            Some(Err(rustix::io::Errno::WOULDBLOCK)) => Self::HeldByOther,
            _ => Self::Ours { _lock: file },
        }
    }
}

/// Searched here, because the agent gets no `PATH`.
fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}
