//! The memory guard without a pipeline.

mod support;

use std::time::Duration;

use proptest::prelude::*;
use semafor_pipeline::{ContainerMemory, Level, MemoryGuard, MemorySource};
use support::{Dial, watched};

#[test]
fn it_is_tight_at_85_percent_and_critical_at_95() {
    let (guard, used) = watched();
    for (bytes, level) in [
        (0, Level::Fine),
        (849, Level::Fine),
        (850, Level::Tight),
        (949, Level::Tight),
        (950, Level::Critical),
        (5000, Level::Critical),
        (849, Level::Fine),
    ] {
        used.set(bytes);
        assert_eq!(guard.level(), level, "{bytes} of 1000");
    }
    assert_eq!((guard.now(), guard.peak()), (849, 5000));
}

#[test]
fn the_thresholds_can_be_set() {
    let (guard, used) = watched();
    let guard = guard.tight_at(0.5).critical_at(0.6);
    used.set(499);
    assert_eq!(guard.level(), Level::Fine);
    used.set(500);
    assert_eq!(guard.level(), Level::Tight);
    used.set(600);
    assert_eq!(guard.level(), Level::Critical);
}

#[test]
fn zero_means_no_limit_but_the_peak_is_measured() {
    let (_, used) = watched();
    let source = used.clone();
    let guard = MemoryGuard::new(0).sample_every(Duration::ZERO).source(move || source.get());
    used.set(u64::MAX);
    assert_eq!((guard.level(), guard.share()), (Level::Fine, 0.0));
    assert_eq!(guard.peak(), u64::MAX);
}

#[test]
fn memory_is_read_at_most_once_per_interval() {
    let (clock, reads) = (Dial::default(), Dial::default());
    let counted = reads.clone();
    let guard = MemoryGuard::new(1000).clock(clock.clone()).source(move || {
        counted.set(counted.get() + 1);
        counted.get()
    });
    for (now, expected) in [(0, 1), (4, 1), (5, 2), (9, 2), (500, 3)] {
        clock.set(now);
        for _ in 0..100 {
            guard.level();
        }
        assert_eq!(reads.get(), expected, "after {now} ms");
    }
    assert_eq!(guard.clone().peak(), 3, "a clone is the same guard");
    assert_eq!(reads.get(), 3);
}

struct Contained {
    resident: u64,
    container: ContainerMemory,
}

impl MemorySource for Contained {
    fn resident(&self) -> u64 {
        self.resident
    }

    fn container(&self) -> Option<ContainerMemory> {
        Some(self.container)
    }
}

proptest! {
    #[test]
    fn the_one_closer_to_its_limit_counts(
        resident in 0..2000u64,
        limit in 1..2000u64,
        used in 0..2000u64,
        container in 1..2000u64,
    ) {
        let source = Contained { resident, container: ContainerMemory { used, limit: container } };
        let guard = MemoryGuard::new(limit).source(source);
        let of_own = resident as f64 / limit as f64;
        let of_container = used as f64 / container as f64;
        prop_assert_eq!(guard.share(), of_own.max(of_container));
        prop_assert_eq!(guard.peak(), resident, "the peak is of the process, not of the container");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn growth_of_this_process_is_measured() {
    let guard = MemoryGuard::new(1 << 50).sample_every(Duration::ZERO);
    let before = guard.now();
    let block = vec![1u8; 64 << 20];
    assert!(guard.now() >= before + (60 << 20));
    drop(block);
    assert!(guard.peak() >= before + (60 << 20));
}
