//! Process groups and sessions, by their leaders.
//!
//! A leader may live outside of our PID namespace: that of a container entered from without, say. It has no number in here
//! then, and stands as `None`; rustix takes for granted that it has one.

use rustix::process::Pid;

/// The group that this process is in.
pub(crate) fn own_group() -> Option<Pid> {
    // SAFETY: it takes nothing and always succeeds.
    leader(unsafe { libc::getpgrp() })
}

/// The group of a process. `None` if the process is gone.
pub(crate) fn group_of(process: Pid) -> Option<Option<Pid>> {
    // SAFETY: any number is allowed; of one that is gone it returns -1.
    let number = unsafe { libc::getpgid(process.as_raw_nonzero().get()) };
    (number >= 0).then(|| leader(number))
}

/// The session that this process is in.
pub(crate) fn own_session() -> Option<Pid> {
    // SAFETY: any number is allowed; 0 is this process.
    leader(unsafe { libc::getsid(0) })
}

/// The session of a process. Who is gone has none to tell.
pub(crate) fn session_of(process: Pid) -> Option<Option<Pid>> {
    // SAFETY: any number is allowed; of one that is gone it returns -1.
    let number = unsafe { libc::getsid(process.as_raw_nonzero().get()) };
    (number >= 0).then(|| leader(number))
}

/// `None` for 0, which stands for one outside.
fn leader(number: libc::pid_t) -> Option<Pid> {
    if number > 0 { Pid::from_raw(number) } else { None }
}
