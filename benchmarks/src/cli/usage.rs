//! The CPU time and memory of processes.

use std::fs::read_to_string;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::process::signed;

/// The CPU time that each of these groups uses per second, measured over `window`.
pub(super) fn cpu_in<const N: usize>(window: Duration, groups: [&[u32]; N]) -> [Duration; N] {
    let (start, before) = (Instant::now(), groups.map(cpu_of));
    sleep(window);
    let (after, time) = (groups.map(cpu_of), start.elapsed());
    std::array::from_fn(|n| (after[n] - before[n]).div_f64(time.as_secs_f64()))
}

pub(super) fn cpu_of(pids: &[u32]) -> Duration {
    pids.iter().map(|pid| cpu_so_far(*pid)).sum()
}

/// To the nanosecond: `/proc` counts only hundredths of a second, and a waiting process uses less.
fn cpu_so_far(pid: u32) -> Duration {
    let mut clock = 0;
    // SAFETY: the pointer is to what lives until the call returns.
    let error = unsafe { libc::clock_getcpuclockid(signed(pid), &raw mut clock) };
    assert_eq!(error, 0, "the process {pid} is gone");
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: as above.
    let error = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(error, 0, "the process {pid} is gone");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// In KiB. Shared memory is divided among the processes that share it.
pub(super) fn memory_of(pids: &[u32]) -> f64 {
    let of_one = |pid: &u32| -> f64 {
        let rollup = read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("the process is there");
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
        line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok()).expect("it is said")
    };
    pids.iter().map(of_one).sum()
}

pub(super) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

pub(super) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
