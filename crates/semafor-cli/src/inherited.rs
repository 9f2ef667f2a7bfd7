//! State inherited from the parent process that Rust's runtime or this program changes later.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;

/// Read before `main`, because Rust then ignores SIGPIPE. A parent such as systemd may have ignored it already.
static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

/// Read before `main`, because Rust then opens /dev/null in place of a closed stdout.
static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

#[cfg(target_os = "linux")]
#[used]
// SAFETY: functions in this section are called once, before `main`, with arguments that a C function may ignore.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = record;

#[cfg(target_os = "linux")]
extern "C" fn record() {
    PIPE_WAS_IGNORED.store(is_ignored(Signal::PIPE), Ordering::Relaxed);
    // SAFETY: only queries the descriptor; a closed descriptor is allowed.
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

/// True if the signal is ignored now. Unless this process has changed it, it was ignored at the start, too.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action this only writes the current one to `now`. Zeroes are a valid action.
    let now = unsafe {
        libc::sigaction(signal.as_raw(), ptr::null(), now.as_mut_ptr());
        now.assume_init()
    };
    now.sa_sigaction == libc::SIG_IGN
}
