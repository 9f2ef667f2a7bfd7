//! Safe wrappers for system calls that the standard library and rustix do not have: signal actions, signal masks, fork.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use rustix::process::{Pid, Signal};

/// The action for a signal without a handler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Disposition {
    Default,
    Ignore,
}

/// Sets the action for a signal, and returns the previous one. Async-signal-safe.
fn set(signal: Signal, disposition: Disposition) -> libc::sigaction {
    let (mut new, mut old) = (MaybeUninit::<libc::sigaction>::zeroed(), MaybeUninit::zeroed());
    // SAFETY: zeroes are a valid action with an empty mask and no flags; both handlers are constants of the system.
    unsafe {
        (*new.as_mut_ptr()).sa_sigaction = match disposition {
            Disposition::Default => libc::SIG_DFL,
            Disposition::Ignore => libc::SIG_IGN,
        };
        libc::sigaction(signal.as_raw(), new.as_ptr(), old.as_mut_ptr());
        old.assume_init()
    }
}

/// Sets the action for a signal. Async-signal-safe.
pub(super) fn set_disposition(signal: Signal, disposition: Disposition) {
    set(signal, disposition);
}

/// Runs `then` with the default action for the signal.
pub(super) fn with_default(signal: Signal, then: impl FnOnce()) {
    let listener = set(signal, Disposition::Default);
    then();
    // SAFETY: restores the previous action.
    unsafe { libc::sigaction(signal.as_raw(), &raw const listener, ptr::null_mut()) };
}

/// Blocks signals in this thread until it is dropped. Async-signal-safe.
#[must_use]
pub(super) struct Blocked(libc::sigset_t);

impl Blocked {
    pub(super) fn all() -> Self {
        // SAFETY: the set is filled before it is read.
        Self::these(|set| unsafe { libc::sigfillset(set) })
    }

    pub(super) fn one(signal: Signal) -> Self {
        // SAFETY: the set is emptied before the signal is added, and the signal is valid.
        Self::these(|set| unsafe {
            libc::sigemptyset(set);
            libc::sigaddset(set, signal.as_raw())
        })
    }

    fn these(fill: impl FnOnce(*mut libc::sigset_t) -> libc::c_int) -> Self {
        let (mut set, mut before) = (MaybeUninit::zeroed(), MaybeUninit::zeroed());
        fill(set.as_mut_ptr());
        // SAFETY: both pointers are valid; the first set is filled, the second is written by the call.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr());
            Self(before.assume_init())
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: restores the previous mask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

/// Forks this process. Returns `None` in the fork, which must end with [`exit_now`].
///
/// # Safety
///
/// The fork has only the calling thread. As in a signal handler, it must not allocate, lock or print.
pub(super) unsafe fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: the caller guarantees what the fork does.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// Ends this process without running exit handlers.
pub(super) fn exit_now() -> ! {
    // SAFETY: always allowed.
    unsafe { libc::_exit(0) }
}
