//! Simulated fleets keep the rules, whatever goes wrong.

use std::time::{Duration, Instant};

use semafor_testkit::simulation::{Settings, Violation, run};

/// Runs seeds until the time is over.
fn seeds(first: u64, processes: impl Fn(u64) -> usize, time: Duration) {
    let start = Instant::now();
    let mut seed = first;
    while start.elapsed() < time {
        check(seed, processes(seed));
        seed += 1;
    }
    println!("{} runs", seed - first);
}

fn check(seed: u64, processes: usize) {
    if let Some(violation) = broken(seed, processes) {
        panic!("{violation}\nrun it again: cargo xtask simulate --seed {seed} --fleet {processes}");
    }
}

fn broken(seed: u64, processes: usize) -> Option<Violation> {
    run(&Settings::of_seed(seed, processes)).violation
}

/// Those that have found something, and some more.
#[test]
fn known_seeds_keep_the_rules() {
    (1..=40).for_each(|seed| check(seed, 2 + (seed % 7) as usize));
}

#[test]
fn new_seeds_keep_the_rules() {
    let first = u64::from(std::process::id()) << 32;
    println!("from seed {first} on");
    seeds(first, |seed| 2 + (seed % 7) as usize, Duration::from_secs(15));
}

#[test]
fn a_large_fleet_keeps_the_rules() {
    let first = u64::from(std::process::id()) << 32 | 1 << 31;
    println!("from seed {first} on");
    seeds(first, |_| 50, Duration::from_secs(10));
}

#[test]
fn a_seed_repeats_its_run_exactly() {
    for seed in [3, 14] {
        let recorded = Settings { is_recorded: true, ..Settings::of_seed(seed, 5) };
        let (one, other) = (run(&recorded), run(&recorded));
        assert_eq!((one.simulated, one.grants, one.scripts), (other.simulated, other.grants, other.scripts));
        let texts = |outcome: &semafor_testkit::simulation::Outcome| {
            outcome.events.iter().map(|event| (event.at, event.text.clone())).collect::<Vec<_>>()
        };
        assert!(texts(&one) == texts(&other), "seed {seed} does not repeat");
    }
}
