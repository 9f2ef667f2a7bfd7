//! A forked child has none of its parent's threads. What it opens after [`semafor::after_fork`] gets threads of its
//! own.
//!
//! In a file of its own, because the child gets copies of everything that the tests of this process have open.

#![cfg(target_os = "linux")]

use semafor::{Semaphore, secs};

/// True if leases and timeouts end in this process. If they do not, a signal ends the process.
fn deadlines_are_watched() -> bool {
    // SAFETY: `alarm` takes a number and no pointers.
    unsafe { libc::alarm(60) };
    let Ok(sem) = Semaphore::memory("it").slots(1).build() else { return false };
    let Ok(_held) = sem.try_acquire().blocking() else { return false };
    matches!(sem.acquire().timeout(secs(0.01)).blocking(), Err(error) if error.is_timeout())
}

#[test]
fn a_forked_child_has_a_global_registry_of_its_own() {
    let sem = Semaphore::memory("it").slots(1).build().expect("it can be opened");
    let held = sem.acquire().ttl(secs(3600)).now().blocking().expect("a slot is free");

    // SAFETY: nothing else of this process takes locks that the child needs.
    let child = unsafe { libc::fork() };
    if child == 0 {
        semafor::after_fork();
        let ended_well = deadlines_are_watched();
        // SAFETY: the child ends here, and runs no code of its parent.
        unsafe { libc::_exit(i32::from(!ended_well)) };
    }
    assert!(child > 0, "fork failed");
    let mut status = 0;
    // SAFETY: it is our child, and `status` is a local variable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "it waited for ever, until signal {} came", libc::WTERMSIG(status));
    assert_eq!(libc::WEXITSTATUS(status), 0, "it found its parent's semaphore");
    assert!(!held.is_lost(), "the parent keeps its slot");
}
