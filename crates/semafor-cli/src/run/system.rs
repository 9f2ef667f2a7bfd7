//! What the system is asked for that neither the standard library nor rustix asks in a safe way: what happens on a signal,
//! and a process that is a copy of this one.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use rustix::process::{Pid, Signal};

/// What a signal does that nobody listens to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Disposition {
    Default,
    Ignore,
}

/// Sets what a signal does, and returns what it did. Async-signal-safe.
fn set(signal: Signal, disposition: Disposition) -> libc::sigaction {
    let (mut new, mut old) = (MaybeUninit::<libc::sigaction>::zeroed(), MaybeUninit::zeroed());
    // SAFETY: zeroes are a valid action with an empty mask and no flags; both handlers written here are the system's own.
    unsafe {
        (*new.as_mut_ptr()).sa_sigaction = match disposition {
            Disposition::Default => libc::SIG_DFL,
            Disposition::Ignore => libc::SIG_IGN,
        };
        libc::sigaction(signal.as_raw(), new.as_ptr(), old.as_mut_ptr());
        old.assume_init()
    }
}

/// From now on. Async-signal-safe.
pub(super) fn set_disposition(signal: Signal, disposition: Disposition) {
    set(signal, disposition);
}

/// For as long as `then` takes, the signal does what it does to those who do not listen.
pub(super) fn with_default(signal: Signal, then: impl FnOnce()) {
    let listener = set(signal, Disposition::Default);
    then();
    // SAFETY: the action is the one that was there before.
    unsafe { libc::sigaction(signal.as_raw(), &raw const listener, ptr::null_mut()) };
}

/// Keeps signals from this thread until it is dropped. Async-signal-safe.
#[must_use]
pub(super) struct Blocked(libc::sigset_t);

impl Blocked {
    pub(super) fn all() -> Self {
        // SAFETY: the set is filled before it is read.
        Self::these(|set| unsafe { libc::sigfillset(set) })
    }

    pub(super) fn one(signal: Signal) -> Self {
        // SAFETY: the set is emptied before it is added to, and the signal is one.
        Self::these(|set| unsafe {
            libc::sigemptyset(set);
            libc::sigaddset(set, signal.as_raw())
        })
    }

    fn these(fill: impl FnOnce(*mut libc::sigset_t) -> libc::c_int) -> Self {
        let (mut set, mut before) = (MaybeUninit::zeroed(), MaybeUninit::zeroed());
        fill(set.as_mut_ptr());
        // SAFETY: both sets are there, the first one filled; the second one is written.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr());
            Self(before.assume_init())
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the mask is the one that was there before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

/// Makes a copy of this process. `None` in the copy, which should [`exit_now`] when it is done.
///
/// # Safety
///
/// Of all threads, the copy has only the caller's: as in a signal handler, it must not allocate, lock or print.
pub(super) unsafe fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: the caller vouches for what the copy does.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// Ends this process without running what others want to be run at its end.
pub(super) fn exit_now() -> ! {
    // SAFETY: it has no conditions.
    unsafe { libc::_exit(0) }
}
