//! Which of those who could run does. Every decision goes through here, and is written down.

use std::fmt;
use std::str::FromStr;

use crate::random::Random;

/// Who runs next when several could.
///
/// [`Fifo`](Self::Fifo) is for production: a task runs until an effect makes it wait. The others are for finding out
/// what else could happen: every effect is a place where another task may go on, and so is every timer that is due.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Schedule {
    /// Who was ready first.
    #[default]
    Fifo,
    /// Anybody, as the seed has it.
    Random(u64),
    /// Probabilistic concurrency testing: tasks get random ranks, the highest runs, and at `changes` random moments the
    /// one that runs falls to the lowest rank. Finds bugs of few, rare switches.
    Pct {
        /// Where the ranks and moments come from.
        seed: u64,
        /// How often somebody falls.
        changes: usize,
    },
    /// As in an earlier run.
    Replay(Trace),
}

/// The decisions of a run: each the place of the one that was chosen among those who could go on, where `0` is to stay
/// with who ran, or else with who was ready first.
///
/// Its text can be kept and parsed back, and means the same in all releases with the same major version.
///
/// ```
/// use semafor_coop::Trace;
///
/// let trace: Trace = "1:001-12-2(40)".parse()?;
/// assert_eq!(trace.choices().len(), 3 + 12 + 2);
/// assert_eq!(trace.to_string(), "1:001-12-2(40)");
/// # Ok::<(), semafor_coop::ParseTraceError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Trace {
    choices: Vec<u32>,
}

impl Trace {
    /// The decisions, in order. Beyond the last one, all are `0`.
    pub fn choices(&self) -> &[u32] {
        &self.choices
    }
}

impl From<Vec<u32>> for Trace {
    fn from(mut choices: Vec<u32>) -> Self {
        let len = choices.iter().rposition(|choice| *choice != 0).map_or(0, |last| last + 1);
        choices.truncate(len);
        Self { choices }
    }
}

/// Zeros in a row, from so many on, are written as their number.
const SHORTENED: usize = 5;
const VERSION: &str = "1:";

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(VERSION)?;
        let mut rest = self.choices.as_slice();
        while let Some(&choice) = rest.first() {
            let zeros = rest.iter().take_while(|choice| **choice == 0).count();
            if zeros >= SHORTENED {
                write!(f, "-{zeros}-")?;
                rest = &rest[zeros..];
                continue;
            }
            match char::from_digit(choice, 36) {
                Some(digit) => write!(f, "{digit}")?,
                None => write!(f, "({choice})")?,
            }
            rest = &rest[1..];
        }
        Ok(())
    }
}

/// The text is not a trace, or of a version that is not known here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseTraceError;

impl fmt::Display for ParseTraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a trace: expected something like 1:00102")
    }
}

impl std::error::Error for ParseTraceError {}

/// A run of zeros that no run of ours could have written would take all memory.
const LONGEST: usize = 1 << 28;

impl FromStr for Trace {
    type Err = ParseTraceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut choices = Vec::new();
        let mut rest = text.trim().strip_prefix(VERSION).ok_or(ParseTraceError)?;
        while let Some(first) = rest.chars().next() {
            rest = &rest[first.len_utf8()..];
            let end = match first {
                '(' => ')',
                '-' => '-',
                digit => {
                    choices.push(digit.to_digit(36).ok_or(ParseTraceError)?);
                    continue;
                }
            };
            let (number, after) = rest.split_once(end).ok_or(ParseTraceError)?;
            let number: u32 = number.parse().map_err(|_| ParseTraceError)?;
            rest = after;
            if end == ')' {
                choices.push(number);
            } else if choices.len() + number as usize <= LONGEST {
                choices.resize(choices.len() + number as usize, 0);
            } else {
                return Err(ParseTraceError);
            }
        }
        Ok(choices.into())
    }
}

/// Decides, as a [`Schedule`] or a search says.
pub(crate) enum Chooser {
    Fifo,
    Random(Random),
    Pct(Pct),
    Replay { trace: Trace, next: usize },
    Exhaustive(Exhaustive),
}

impl Chooser {
    pub(crate) fn new(schedule: &Schedule) -> Self {
        match schedule {
            Schedule::Fifo => Self::Fifo,
            Schedule::Random(seed) => Self::Random(Random::new(*seed)),
            Schedule::Pct { seed, changes } => Self::Pct(Pct::new(*seed, *changes, Pct::GUESSED_STEPS)),
            Schedule::Replay(trace) => Self::Replay { trace: trace.clone(), next: 0 },
        }
    }

    pub(crate) fn explores(&self) -> bool {
        !matches!(self, Self::Fifo)
    }

    /// One of `0..count`, at least two. `task` tells who is at a place; `can_stay` that place 0 is who ran.
    pub(crate) fn choose(&mut self, count: usize, task: impl Fn(usize) -> u64, can_stay: bool) -> usize {
        match self {
            Self::Fifo => 0,
            Self::Random(random) => random.below(count),
            Self::Pct(pct) => pct.choose(count, task),
            Self::Replay { trace, next } => {
                let choice = trace.choices.get(*next).map_or(0, |choice| *choice as usize);
                *next += 1;
                // A trace of another program: the nearest there is.
                choice.min(count - 1)
            }
            Self::Exhaustive(search) => search.choose(count, can_stay),
        }
    }
}

/// Ranks, and moments at which they change.
pub(crate) struct Pct {
    random: Random,
    /// By task number; there are few tasks in what is explored.
    ranks: Vec<(u64, u64)>,
    changes: Vec<usize>,
    step: usize,
    lowest: u64,
}

impl Pct {
    /// How long a run is taken to be before one was seen.
    pub(crate) const GUESSED_STEPS: usize = 64;

    pub(crate) fn new(seed: u64, changes: usize, steps: usize) -> Self {
        let mut random = Random::new(seed);
        let changes = (0..changes).map(|_| random.below(steps.max(1))).collect();
        // Ranks above, falls below the middle.
        Self { random, ranks: Vec::new(), changes, step: 0, lowest: u64::MAX / 2 }
    }

    fn choose(&mut self, count: usize, task: impl Fn(usize) -> u64) -> usize {
        let mut chosen = self.highest(count, &task);
        if self.changes.contains(&self.step) {
            self.lowest -= 1;
            let fallen = task(chosen);
            self.ranks.iter_mut().filter(|rank| rank.0 == fallen).for_each(|rank| rank.1 = self.lowest);
            chosen = self.highest(count, &task);
        }
        self.step += 1;
        chosen
    }

    fn highest(&mut self, count: usize, task: impl Fn(usize) -> u64) -> usize {
        let mut highest = (0, 0);
        for place in 0..count {
            let number = task(place);
            let rank = match self.ranks.iter().find(|rank| rank.0 == number) {
                Some(rank) => rank.1,
                None => {
                    let rank = self.random.next() | 1 << 63;
                    self.ranks.push((number, rank));
                    rank
                }
            };
            if rank > highest.1 {
                highest = (place, rank);
            }
        }
        highest.0
    }
}

/// All decisions, one after the other: the last one that can be changed is, and what follows starts with `0` again.
#[derive(Default)]
pub(crate) struct Exhaustive {
    path: Vec<(u32, u32)>,
    depth: usize,
    /// How often somebody who could go on may be made to stop in one run.
    most_preemptions: Option<usize>,
    preemptions: usize,
}

impl Exhaustive {
    pub(crate) fn new(most_preemptions: Option<usize>) -> Self {
        Self { most_preemptions, ..Self::default() }
    }

    fn choose(&mut self, count: usize, can_stay: bool) -> usize {
        let is_bound = self.most_preemptions.is_some_and(|most| self.preemptions >= most);
        if can_stay && is_bound {
            return 0;
        }
        if self.depth == self.path.len() {
            self.path.push((0, count as u32));
        }
        let (choice, _) = self.path[self.depth];
        self.depth += 1;
        self.preemptions += usize::from(can_stay && choice > 0);
        choice as usize
    }

    /// Goes on to the next run; false if that was the last one.
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
        fn a_trace_survives_being_written_and_read(choices in proptest::collection::vec(prop_oneof![Just(0), 0..50u32], 0..60)) {
            let trace = Trace::from(choices);
            prop_assert_eq!(trace.to_string().parse(), Ok(trace));
        }
    }

    #[test]
    fn text_that_is_no_trace_is_refused() {
        for text in
            ["", "0", "2:01", "1:(", "1:-3", "1:(x)", "1:-99999999999-", "1:-4294967295-", "1:é", "1:_"]
        {
            assert_eq!(text.parse::<Trace>(), Err(ParseTraceError), "{text:?}");
        }
    }

    #[test]
    fn an_exhaustive_search_takes_every_path_once() {
        let mut search = Exhaustive::default();
        let mut paths = Vec::new();
        loop {
            let first = search.choose(2, false);
            let second = search.choose(2 + first, false);
            paths.push((first, second));
            if !search.advance() {
                break;
            }
        }
        assert_eq!(paths, [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]);
    }
}
