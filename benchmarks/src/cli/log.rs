//! The log that contenders write: when their command begins and ends. One file for all, in the order of events.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::limiter::Limiter;
use super::setup::Setup;

const TURN: &str = r#"
echo "begin $2" >> "$1"
sleep 0.01
echo "end $2" >> "$1"
"#;

pub(super) struct Log {
    file: PathBuf,
    turn: PathBuf,
}

impl Log {
    pub(super) fn open(setup: &Setup, name: &str) -> Self {
        Self { file: setup.file(&format!("{name}.log")), turn: setup.script("turn", TURN) }
    }

    /// The script that takes a turn, and its first argument, the log file. The number of the contender follows.
    pub(super) fn turn(&self) -> [&Path; 2] {
        [&self.turn, &self.file]
    }

    /// The commands that wait for a slot and take a turn in it.
    pub(super) fn contenders(
        &self,
        setup: &Setup,
        limiter: Limiter,
        lock: &str,
        slots: usize,
        count: usize,
    ) -> impl Iterator<Item = Command> {
        (0..count).map(move |nth| {
            let mut contender = limiter.command(setup, lock, slots, &self.turn);
            contender.arg(&self.file).arg(nth.to_string());
            contender
        })
    }

    pub(super) fn read(&self) -> History {
        let text = read_to_string(&self.file).expect("they have written something");
        History::from(&*text)
    }
}

pub(super) struct History(Vec<Event>);

enum Event {
    Begin(usize),
    End,
}

impl From<&str> for History {
    fn from(text: &str) -> Self {
        let event = |line: &str| match line.split_once(' ') {
            Some(("begin", contender)) => Event::Begin(contender.parse().expect("a number")),
            Some(("end", _)) => Event::End,
            _ => panic!("{line:?} is no event"),
        };
        Self(text.lines().map(event).collect())
    }
}

impl History {
    pub(super) fn turns(&self) -> usize {
        self.begun().count()
    }

    pub(super) fn most_at_once(&self) -> usize {
        let mut running = 0_usize;
        let counts = self.0.iter().map(|event| {
            match event {
                Event::Begin(_) => running += 1,
                Event::End => running -= 1,
            }
            running
        });
        counts.max().unwrap_or(0)
    }

    /// By how many places each contender was overtaken at most, by contenders that came later and began earlier.
    ///
    /// Less than the number of slots means nothing: so many may begin before the first of them writes to the log.
    pub(super) fn overtaken(&self) -> impl Iterator<Item = usize> {
        let last = self.begun().scan(0, |last, contender| {
            *last = contender.max(*last);
            Some(*last)
        });
        self.begun().zip(last).map(|(contender, last)| last - contender)
    }

    fn begun(&self) -> impl Iterator<Item = usize> {
        self.0.iter().filter_map(|event| match event {
            Event::Begin(contender) => Some(*contender),
            Event::End => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contender_that_began_late_was_overtaken() {
        let history = History::from("begin 0\nbegin 5\nend 0\nbegin 1\nend 5\nend 1\nbegin 6\nend 6\n");
        assert_eq!(Vec::from_iter(history.overtaken()), [0, 0, 4, 0]);
        assert_eq!(history.most_at_once(), 2);
        assert_eq!(history.turns(), 4);
    }
}
