//! Memory and descriptors of processes, over time.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};

/// What a process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    /// The Redis server or the agent.
    Server,
    /// The client that is never killed.
    SteadyClient,
    OtherClients,
    PythonClients,
    /// The program that checks.
    Checker,
}

/// The processes of all sites.
#[derive(Default)]
pub(super) struct Processes(BTreeMap<(usize, Role), Vec<u32>>);

pub(super) type Roster = Arc<Mutex<Processes>>;

/// One moment of one role.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// Seconds since the start.
    pub(super) at: f64,
    /// Resident memory in KiB, of all processes of the role.
    pub(super) rss: u64,
    pub(super) descriptors: u64,
}

/// All samples.
#[derive(Default)]
pub(super) struct Samples(pub(super) BTreeMap<(usize, Role), Vec<Sample>>);

impl Processes {
    pub(super) fn set(&mut self, site: usize, role: Role, pids: Vec<u32>) {
        self.0.insert((site, role), pids);
    }
}

impl Samples {
    /// Adds one of each role.
    pub(super) fn take(&mut self, at: f64, roster: &Roster) {
        let roster = roster.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, pids) in &roster.0 {
            let found = pids.iter().filter_map(|pid| Some((rss(*pid)?, descriptors(*pid)?)));
            let (mut sample, mut number) = (Sample { at, rss: 0, descriptors: 0 }, 0);
            for (rss, descriptors) in found {
                sample.rss += rss;
                sample.descriptors += descriptors;
                number += 1;
            }
            if number > 0 {
                self.0.entry(*key).or_default().push(sample);
            }
        }
    }

    pub(super) fn last(&self, site: usize, role: Role) -> Option<Sample> {
        self.0.get(&(site, role))?.last().copied()
    }
}

/// Resident memory in KiB.
fn rss(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

fn descriptors(pid: u32) -> Option<u64> {
    Some(fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64)
}

/// How a value changed over the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Growth {
    /// The median of the second quarter. The first is left out: memory fills up to what the load needs.
    pub(super) early: u64,
    /// The median of the last quarter.
    pub(super) late: u64,
    pub(super) grows: bool,
}

/// In a shorter run the memory still fills up to what the load needs.
const SHORTEST_RUN: f64 = 240.0;
const FEWEST_SAMPLES: usize = 8;

impl Growth {
    /// Whether it grows by more than a fraction and a margin, both of which leave room for noise. `None` if the run was too
    /// short to tell.
    pub(super) fn of(samples: &[Sample], margin: u64, value: impl Fn(&Sample) -> u64) -> Option<Self> {
        let time = samples.last()?.at - samples.first()?.at;
        if time < SHORTEST_RUN || samples.len() < FEWEST_SAMPLES {
            return None;
        }
        let quarter = samples.len() / 4;
        let median = |part: &[Sample]| {
            let mut values: Vec<_> = part.iter().map(&value).collect();
            values.sort_unstable();
            values[values.len() / 2]
        };
        let (early, late) =
            (median(&samples[quarter..2 * quarter]), median(&samples[samples.len() - quarter..]));
        Some(Self { early, late, grows: late > early + early / 10 + margin })
    }
}

/// How much more memory, in KiB, is no growth, beside a tenth.
pub(super) const MEMORY_MARGIN: u64 = 1_024;
/// How many more descriptors are no growth, beside a tenth.
pub(super) const DESCRIPTOR_MARGIN: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(values: impl Fn(u64) -> u64) -> Option<Growth> {
        let samples: Vec<_> =
            (0..100).map(|at| Sample { at: at as f64 * 10.0, rss: values(at), descriptors: 0 }).collect();
        Growth::of(&samples, MEMORY_MARGIN, |sample| sample.rss)
    }

    #[test]
    fn steady_memory_does_not_grow() {
        let steady = growth(|at| 10_000 + at * 7 % 300).expect("there are enough samples");
        assert!(!steady.grows, "{steady:?}");
    }

    #[test]
    fn warming_up_is_no_growth() {
        let warm = growth(|at| at.min(20) * 1_000).expect("there are enough samples");
        assert!(!warm.grows, "{warm:?}");
    }

    #[test]
    fn leak_is_found() {
        let leak = growth(|at| 10_000 + at * 50).expect("there are enough samples");
        assert!(leak.grows, "{leak:?}");
    }

    #[test]
    fn short_run_says_nothing() {
        let samples: Vec<_> =
            (0..100).map(|at| Sample { at: at as f64, rss: at * 1_000, descriptors: 0 }).collect();
        assert_eq!(Growth::of(&samples, MEMORY_MARGIN, |sample| sample.rss), None);
    }

    #[test]
    fn own_process_can_be_sampled() {
        let roster = Roster::default();
        roster.lock().unwrap().set(0, Role::Checker, vec![std::process::id()]);
        let mut samples = Samples::default();
        samples.take(1.0, &roster);
        let last = samples.last(0, Role::Checker).expect("this process has memory");
        assert!(last.rss > 0 && last.descriptors > 2, "{last:?}");
    }
}
