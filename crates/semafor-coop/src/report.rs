use std::fmt;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::eventual::Settle;
use crate::{Deadlock, Error, Label, Recording, Result, Trace};

/// How a run ended, and what was noticed on the way.
#[derive(Debug)]
#[non_exhaustive]
pub struct Outcome<T> {
    /// What the root program returned.
    pub result: Result<T>,
    /// What was noticed.
    pub report: Report,
}

/// What was noticed during a run.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// How long it took, by its own clock.
    pub elapsed: Duration,
    /// What was logged.
    pub log: Vec<LogLine>,
    /// Deadlocks, in the order in which they were found; caught ones included.
    pub deadlocks: Vec<Arc<Deadlock>>,
    /// Permits of tasks that ended without releasing them. Nobody gets these any more, unless another task releases them.
    pub unreleased: Vec<Unreleased>,
    /// Tasks that failed, and nobody ever waited for them.
    pub unobserved: Vec<Unobserved>,
    /// Tasks that had not ended when the root program did. Daemons are not counted.
    pub abandoned: Vec<Abandoned>,
    /// The decisions of the schedule.
    pub trace: Trace,
    /// What happened, if it was [recorded](crate::Runtime::record).
    pub recording: Option<Recording>,
}

impl Report {
    /// The first thing that should not be: a failure nobody saw, or a permit nobody released.
    pub fn complaint(&self) -> Option<String> {
        let unobserved = self.unobserved.first().map(ToString::to_string);
        unobserved.or_else(|| self.unreleased.first().map(ToString::to_string))
    }
}

/// A line of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LogLine {
    /// When, by the run's clock.
    pub at: Duration,
    /// Who.
    pub task: Label,
    /// What.
    pub text: String,
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} {}: {}", self.at.as_secs_f64(), self.task, self.text)
    }
}

/// A permit whose task ended without releasing it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Unreleased {
    /// Who ended.
    pub task: Label,
    /// The id of the semaphore.
    pub semaphore: u64,
    /// How many permits.
    pub permits: u32,
    /// Where they were acquired.
    pub at: &'static Location<'static>,
}

impl fmt::Display for Unreleased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, semaphore, permits, at } = self;
        write!(f, "{task} ended with {permits} unreleased of semaphore {semaphore}, acquired at {at}")
    }
}

/// A task that failed unseen.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Unobserved {
    /// Who failed.
    pub task: Label,
    /// Why.
    pub error: Error,
}

impl fmt::Display for Unobserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed, and nobody waited for it: {}", self.task, self.error)
    }
}

/// A task that had not ended when the run did.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Abandoned {
    /// Who.
    pub task: Label,
    /// What it was waiting for; nothing if it could have run.
    pub waiting_for: Option<String>,
    /// False if it never ran at all.
    pub was_started: bool,
}

impl fmt::Display for Abandoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was abandoned", self.task)?;
        match &self.waiting_for {
            Some(what) => write!(f, ", waiting for {what}"),
            None if self.was_started => f.write_str(", ready to go on"),
            None => f.write_str(" before it started"),
        }
    }
}

/// What a run collects for its report.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) log: Vec<LogLine>,
    pub(crate) deadlocks: Vec<Arc<Deadlock>>,
    pub(crate) unreleased: Vec<Unreleased>,
    pub(crate) failures: Vec<(Label, Error, Rc<dyn Settle>)>,
    pub(crate) abandoned: Vec<Abandoned>,
}

impl Findings {
    /// Failures that somebody has seen by now, when they take up room that others need: a long run keeps what it will tell, and
    /// no more. The caller drops them.
    pub(crate) fn take_seen(&mut self) -> Vec<(Label, Error, Rc<dyn Settle>)> {
        if self.failures.len() < self.failures.capacity() {
            return Vec::new();
        }
        let is_seen = |(_, _, outcome): &mut (_, _, Rc<dyn Settle>)| outcome.settlement().is_observed.get();
        self.failures.extract_if(.., is_seen).collect()
    }
}
