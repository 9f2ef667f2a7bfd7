//! What this process was started with, as far as Rust's runtime or we change it afterwards.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;

/// Rust ignores SIGPIPE before `main` begins. Under systemd, say, it was ignored before that.
static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

/// Rust opens /dev/null in place of a stdout that is closed.
static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

#[cfg(target_os = "linux")]
#[used]
// SAFETY: what stands in this section is called once, before `main`, with arguments that C lets a function leave unread.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look;

#[cfg(target_os = "linux")]
extern "C" fn look() {
    PIPE_WAS_IGNORED.store(is_ignored(Signal::PIPE), Ordering::Relaxed);
    // SAFETY: it only asks, and a number that is no open file is what it asks about.
    let is_closed = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } == -1;
    STDOUT_WAS_CLOSED.store(is_closed, Ordering::Relaxed);
}

/// True if this process was started with SIGPIPE ignored.
pub(crate) fn was_pipe_ignored() -> bool {
    PIPE_WAS_IGNORED.load(Ordering::Relaxed)
}

/// True if stdout was closed (`>&-`). Known on Linux only.
pub(crate) fn was_stdout_closed() -> bool {
    STDOUT_WAS_CLOSED.load(Ordering::Relaxed)
}

/// True if the signal is ignored, and was when this process started unless we have changed that.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action this only writes the present one, to where there is room for it. Zeroes are a valid one.
    let now = unsafe {
        libc::sigaction(signal.as_raw(), ptr::null(), now.as_mut_ptr());
        now.assume_init()
    };
    now.sa_sigaction == libc::SIG_IGN
}
