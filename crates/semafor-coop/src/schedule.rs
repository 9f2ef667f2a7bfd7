//! Chooses which of the ready tasks runs. Every decision is made here, and recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use crate::Error;
use crate::random::Random;

/// How the next task is chosen when several are ready.
///
/// [`Fifo`](Self::Fifo) is for production: a task runs until an effect makes it wait. The others explore other orders:
/// at every effect another task may run, or a timer that is due may fire.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Schedule {
    /// The task that was ready first.
    #[default]
    Fifo,
    /// A random task, by this random seed.
    Random(u64),
    /// Probabilistic concurrency testing: tasks get random ranks, the task with the highest rank runs, and at `changes`
    /// random moments the running task falls to the lowest rank. So does a task that yields. Finds bugs that need a few
    /// rare switches.
    Pct {
        /// The random seed of the ranks and moments.
        seed: u64,
        /// How often a task falls to the lowest rank.
        changes: usize,
    },
    /// The choices of an earlier run.
    Replay(Trace),
}

/// The decisions of a run. Each is the index of the chosen task or timer among the options, where `0` is the task that
/// ran last or, if it can't continue, the one that was ready first.
///
/// Its text can be kept and parsed back, and means the same in all releases with the same major version.
///
/// ```
/// use semafor_coop::Trace;
///
/// let trace: Trace = "1:001-12-2(40)".parse()?;
/// assert_eq!(trace.choices().count(), 3 + 12 + 2);
/// assert_eq!(trace.to_string(), "1:001-12-2(40)");
/// # Ok::<(), semafor_coop::ParseTraceError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Trace {
    /// Only counted zeros: a short text with a huge count of zeros must not need much memory.
    switches: Vec<Switch>,
}

/// A decision that is not `0`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Switch {
    /// So many decisions before it are `0`.
    zeros: u64,
    choice: u32,
}

impl Trace {
    /// The decisions, in order. Beyond the last one, all are `0`.
    ///
    /// There may be very many: `1:-4000000000-1` is a trace.
    pub fn choices(&self) -> impl Iterator<Item = u32> {
        self.switches
            .iter()
            .flat_map(|switch| (0..switch.zeros).map(|_| 0).chain(std::iter::once(switch.choice)))
    }
}

impl From<Vec<u32>> for Trace {
    fn from(choices: Vec<u32>) -> Self {
        let (mut switches, mut zeros) = (Vec::new(), 0);
        for choice in choices {
            if choice == 0 {
                zeros += 1;
            } else {
                switches.push(Switch { zeros, choice });
                zeros = 0;
            }
        }
        Self { switches }
    }
}

/// So many zeros in a row, or more, are written as their count.
const SHORTENED: u64 = 5;
const VERSION: &str = "1:";

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(VERSION)?;
        for Switch { zeros, choice } in &self.switches {
            match *zeros {
                SHORTENED.. => write!(f, "-{zeros}-")?,
                few => (0..few).try_for_each(|_| f.write_str("0"))?,
            }
            match char::from_digit(*choice, 36) {
                Some(digit) => write!(f, "{digit}")?,
                None => write!(f, "({choice})")?,
            }
        }
        Ok(())
    }
}

/// The text is not a trace, or has an unknown version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseTraceError;

impl fmt::Display for ParseTraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a trace: expected something like 1:00102")
    }
}

impl std::error::Error for ParseTraceError {}

impl FromStr for Trace {
    type Err = ParseTraceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (mut switches, mut zeros) = (Vec::new(), 0u64);
        let mut rest = text.trim().strip_prefix(VERSION).ok_or(ParseTraceError)?;
        while let Some(first) = rest.chars().next() {
            rest = &rest[first.len_utf8()..];
            let choice = if first == '-' {
                let (count, after) = rest.split_once('-').ok_or(ParseTraceError)?;
                let count: u64 = count.parse().map_err(|_| ParseTraceError)?;
                zeros = zeros.checked_add(count).ok_or(ParseTraceError)?;
                rest = after;
                continue;
            } else if first == '(' {
                let (choice, after) = rest.split_once(')').ok_or(ParseTraceError)?;
                rest = after;
                choice.parse().map_err(|_| ParseTraceError)?
            } else {
                first.to_digit(36).ok_or(ParseTraceError)?
            };
            if choice == 0 {
                zeros = zeros.checked_add(1).ok_or(ParseTraceError)?;
            } else {
                switches.push(Switch { zeros, choice });
                zeros = 0;
            }
        }
        Ok(Self { switches })
    }
}

/// Makes the decisions of a [`Schedule`] or a search.
pub(crate) enum Chooser {
    Fifo,
    Random(Random),
    Pct(Pct),
    Replay(Replay),
    Exhaustive(Exhaustive),
}

impl Chooser {
    pub(crate) fn new(schedule: &Schedule) -> Self {
        match schedule {
            Schedule::Fifo => Self::Fifo,
            Schedule::Random(seed) => Self::Random(Random::new(*seed)),
            Schedule::Pct { seed, changes } => Self::Pct(Pct::new(*seed, *changes, Pct::GUESSED_STEPS)),
            Schedule::Replay(trace) => Self::Replay(Replay::new(trace.clone())),
        }
    }

    pub(crate) fn explores(&self) -> bool {
        !matches!(self, Self::Fifo)
    }

    /// Chooses one of `0..count`; `count` is at least two. `ranked` returns the task or timer at an index. `can_stay`
    /// means that index 0 is the task that ran last.
    ///
    /// # Errors
    ///
    /// [`Error::NotDeterministic`] if an exhaustive search finds a different number of options than before.
    pub(crate) fn choose(
        &mut self,
        count: usize,
        ranked: impl Fn(usize) -> Ranked,
        can_stay: bool,
    ) -> crate::Result<usize> {
        Ok(match self {
            Self::Fifo => 0,
            Self::Random(random) => random.below(count),
            Self::Pct(pct) => pct.choose(count, ranked),
            // The trace of another program may be out of range: take the nearest option.
            Self::Replay(replay) => (replay.next() as usize).min(count - 1),
            Self::Exhaustive(search) => return search.choose(count, can_stay),
        })
    }

    /// Lets all others run first, if the schedule could otherwise choose this one forever.
    pub(crate) fn lower(&mut self, ranked: Ranked) {
        if let Self::Pct(pct) = self {
            pct.lower(ranked);
        }
    }
}

/// A task or timer that can be chosen, by its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ranked {
    Task(u64),
    Timer(u64),
}

/// The decisions of a trace, one after the other.
pub(crate) struct Replay {
    switches: std::vec::IntoIter<Switch>,
    next: Option<Switch>,
}

impl Replay {
    fn new(trace: Trace) -> Self {
        let mut switches = trace.switches.into_iter();
        let next = switches.next();
        Self { switches, next }
    }

    fn next(&mut self) -> u32 {
        match &mut self.next {
            None => 0,
            Some(Switch { zeros: 0, choice }) => {
                let choice = *choice;
                self.next = self.switches.next();
                choice
            }
            Some(Switch { zeros, .. }) => {
                *zeros -= 1;
                0
            }
        }
    }
}

/// Ranks, and moments at which they change.
pub(crate) struct Pct {
    random: Random,
    ranks: BTreeMap<Ranked, u64>,
    changes: BTreeSet<usize>,
    step: usize,
    lowest: u64,
}

impl Pct {
    /// The assumed length of the first run.
    pub(crate) const GUESSED_STEPS: usize = 64;
    const MOST_CHANGES: usize = 1 << 20;

    pub(crate) fn new(seed: u64, changes: usize, steps: usize) -> Self {
        let mut random = Random::new(seed);
        // More changes would not make a difference.
        let changes = changes.min(Self::MOST_CHANGES);
        let changes = (0..changes).map(|_| random.below(steps.max(1))).collect();
        // Initial ranks are above the middle, lowered ones below it.
        Self { random, ranks: BTreeMap::new(), changes, step: 0, lowest: u64::MAX / 2 }
    }

    fn choose(&mut self, count: usize, ranked: impl Fn(usize) -> Ranked) -> usize {
        let mut chosen = self.highest(count, &ranked);
        if self.changes.contains(&self.step) {
            self.lower(ranked(chosen));
            chosen = self.highest(count, &ranked);
        }
        self.step += 1;
        chosen
    }

    fn lower(&mut self, ranked: Ranked) {
        self.lowest -= 1;
        self.ranks.insert(ranked, self.lowest);
    }

    fn highest(&mut self, count: usize, ranked: impl Fn(usize) -> Ranked) -> usize {
        let mut highest = (0, 0);
        for place in 0..count {
            let rank = self.ranks.entry(ranked(place)).or_insert_with(|| self.random.next() | 1 << 63);
            if *rank > highest.1 {
                highest = (place, *rank);
            }
        }
        highest.0
    }
}

/// Tries all sequences of decisions. Each run changes the last decision that has another option, and starts with `0`
/// after it.
#[derive(Default)]
pub(crate) struct Exhaustive {
    path: Vec<(u32, u32)>,
    depth: usize,
    /// How often one run may stop a task that could continue.
    most_preemptions: Option<usize>,
    preemptions: usize,
}

impl Exhaustive {
    pub(crate) fn new(most_preemptions: Option<usize>) -> Self {
        Self { most_preemptions, ..Self::default() }
    }

    /// The choices so far are those of the previous run, except the last one. So a deterministic program has as many
    /// options as it had then.
    fn choose(&mut self, count: usize, can_stay: bool) -> crate::Result<usize> {
        let is_bound = self.most_preemptions.is_some_and(|most| self.preemptions >= most);
        if can_stay && is_bound {
            return Ok(0);
        }
        let (choice, before) = match self.path.get(self.depth) {
            Some(entry) => *entry,
            None => {
                self.path.push((0, count as u32));
                (0, count as u32)
            }
        };
        if before != count as u32 {
            return Err(self.difference(count as u32));
        }
        self.depth += 1;
        self.preemptions += usize::from(can_stay && choice > 0);
        Ok(choice as usize)
    }

    fn difference(&self, options: u32) -> Error {
        let before = self.path.get(self.depth).map_or(0, |(_, before)| *before);
        Error::NotDeterministic { choice: self.depth as u32 + 1, options, before }
    }

    /// The error of a run that ended before it made all of the choices it had to repeat.
    pub(crate) fn missing_choices(&self) -> Option<Error> {
        (self.depth < self.path.len()).then(|| self.difference(0))
    }

    /// Moves to the next run. False if that was the last one.
    pub(crate) fn advance(&mut self) -> bool {
        self.depth = 0;
        self.preemptions = 0;
        while let Some((choice, count)) = self.path.pop() {
            if choice + 1 < count {
                self.path.push((choice + 1, count));
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_trace_can_be_written_and_parsed_back(
            choices in proptest::collection::vec(prop_oneof![Just(0), 0..50u32], 0..60),
        ) {
            let trace = Trace::from(choices);
            prop_assert_eq!(trace.to_string().parse(), Ok(trace));
        }
    }

    #[test]
    fn text_that_is_no_trace_is_refused() {
        for text in [
            "",
            "0",
            "2:01",
            "1:(",
            "1:-3",
            "1:(x)",
            "1:(4294967296)",
            "1:-99999999999999999999-",
            "1:é",
            "1:_",
        ] {
            assert_eq!(text.parse::<Trace>(), Err(ParseTraceError), "{text:?}");
        }
        let too_many = format!("1:-{0}--{0}-1", u64::MAX);
        assert_eq!(too_many.parse::<Trace>(), Err(ParseTraceError));
    }

    #[test]
    fn huge_counts_of_zeros_need_no_memory_and_are_replayed() {
        let trace: Trace = "1:2-18446744073709551615-1-18446744073709551615-".parse().unwrap();
        assert_eq!(trace.switches.len(), 2);
        assert_eq!(trace.to_string(), "1:2-18446744073709551615-1");
        let mut chooser = Chooser::new(&Schedule::Replay(trace));
        let chosen = [(); 4].map(|()| chooser.choose(3, |_| Ranked::Task(0), false).unwrap());
        assert_eq!(chosen, [2, 0, 0, 0]);
    }

    #[test]
    fn an_exhaustive_search_takes_every_path_once() {
        let mut search = Exhaustive::default();
        let mut paths = Vec::new();
        loop {
            let first = search.choose(2, false).unwrap();
            let second = search.choose(2 + first, false).unwrap();
            assert!(search.missing_choices().is_none());
            paths.push((first, second));
            if !search.advance() {
                break;
            }
        }
        assert_eq!(paths, [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]);
    }

    #[test]
    fn an_exhaustive_search_notices_a_program_that_is_not_deterministic() {
        for options in [1, 2, 4] {
            let mut search = Exhaustive::default();
            search.choose(2, false).unwrap();
            search.choose(3, false).unwrap();
            assert!(search.advance());
            search.choose(2, false).unwrap();
            let noticed = search.missing_choices().unwrap().to_string();
            assert!(noticed.contains("at choice 2") && noticed.contains("0 options"), "{noticed}");
            let noticed = search.choose(options, false).unwrap_err();
            let (choice, before) = (2, 3);
            assert!(
                matches!(noticed, Error::NotDeterministic { choice: at, options: now, before: then }
                    if (at, now as usize, then) == (choice, options, before)),
                "{noticed}"
            );
        }
    }
}
