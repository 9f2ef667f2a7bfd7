//! Process groups and sessions, by their leaders.
//!
//! A leader may live outside our PID namespace, for example if a process was started in a container from outside. It
//! has no pid here and is `None`. rustix can't express this: it assumes that every leader has a pid.

use rustix::process::Pid;

/// The group that this process is in.
pub(crate) fn own_group() -> Option<Pid> {
    // SAFETY: takes no arguments and always succeeds.
    leader(unsafe { libc::getpgrp() })
}

/// The group of a process. `None` if the process is gone.
pub(crate) fn group_of(process: Pid) -> Option<Option<Pid>> {
    // SAFETY: any number is allowed; returns -1 if the process is gone.
    let number = unsafe { libc::getpgid(process.as_raw_nonzero().get()) };
    (number >= 0).then(|| leader(number))
}

/// The session that this process is in.
pub(crate) fn own_session() -> Option<Pid> {
    // SAFETY: any number is allowed; 0 means this process.
    leader(unsafe { libc::getsid(0) })
}

/// The session of a process. `None` if the process is gone.
pub(crate) fn session_of(process: Pid) -> Option<Option<Pid>> {
    // SAFETY: any number is allowed; returns -1 if the process is gone.
    let number = unsafe { libc::getsid(process.as_raw_nonzero().get()) };
    (number >= 0).then(|| leader(number))
}

/// `None` for 0, which means a leader outside our PID namespace.
fn leader(number: libc::pid_t) -> Option<Pid> {
    if number > 0 { Pid::from_raw(number) } else { None }
}
