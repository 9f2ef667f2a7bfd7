use std::fmt;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use semafor_core::PermitId;

use crate::eventual::Settle;
use crate::{Deadlock, Error, Label, Recording, Result, Stall, Trace};

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
    /// Deadlocks, in the order in which they were found; caught ones included. The first thousand.
    pub deadlocks: Vec<Arc<Deadlock>>,
    /// Times for which everything waited for other threads, a thousand at most; see [`Runtime::stall_after`](crate::Runtime::stall_after).
    pub stalls: Vec<Stall>,
    /// Permits of tasks that ended without releasing them, and that no other task released later. Permits of
    /// [signals](crate::CreateSemaphore::signal) are not counted. The first thousand.
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
    /// Where they were acquired, unless [`hide_sites`](crate::Runtime::hide_sites) was called.
    pub at: Option<&'static Location<'static>>,
}

impl fmt::Display for Unreleased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, semaphore, permits, at } = self;
        write!(f, "{task} ended with {permits} unreleased of semaphore {semaphore}")?;
        at.map_or(Ok(()), |at| write!(f, ", acquired at {at}"))
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

/// A program that gets into deadlocks, or stalls, again and again does not fill the memory with them.
const MOST_KEPT: usize = 1_000;

/// What a run collects for its report.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) log: Vec<LogLine>,
    pub(crate) deadlocks: Vec<Arc<Deadlock>>,
    pub(crate) stalls: Vec<Stall>,
    unreleased: Vec<(PermitId, Unreleased)>,
    failures: Vec<Failed>,
    /// When so many failures are noted, those that somebody has seen meanwhile are struck off.
    failures_before_sweep: usize,
    pub(crate) abandoned: Vec<Abandoned>,
}

/// A task that failed, and its cell, which knows whether somebody waited for it.
pub(crate) struct Failed {
    task: Label,
    error: Error,
    outcome: Rc<dyn Settle>,
}

impl Failed {
    fn is_unobserved(&self) -> bool {
        !self.outcome.settlement().is_observed.get()
    }
}

impl Findings {
    pub(crate) fn add_deadlock(&mut self, deadlock: Arc<Deadlock>) {
        if self.deadlocks.len() < MOST_KEPT {
            self.deadlocks.push(deadlock);
        }
    }

    pub(crate) fn add_unreleased(&mut self, permit: PermitId, unreleased: Unreleased) {
        if self.unreleased.len() < MOST_KEPT {
            self.unreleased.push((permit, unreleased));
        }
    }

    /// Another task has released the permit of one that ended with it.
    pub(crate) fn remove_unreleased(&mut self, semaphore: u64, permit: PermitId) {
        let is_match =
            |(id, unreleased): &(PermitId, Unreleased)| *id == permit && unreleased.semaphore == semaphore;
        if let Some(place) = self.unreleased.iter().position(is_match) {
            self.unreleased.remove(place);
        }
    }

    pub(crate) fn take_unreleased(&mut self) -> Vec<Unreleased> {
        std::mem::take(&mut self.unreleased).into_iter().map(|(_, unreleased)| unreleased).collect()
    }

    /// A stall that goes on takes the place of what was known of it.
    pub(crate) fn add_stall(&mut self, stall: Stall, is_new: bool) {
        if !is_new {
            self.stalls.pop();
        }
        if self.stalls.len() < MOST_KEPT {
            self.stalls.push(stall);
        }
    }

    pub(crate) fn add_failure(&mut self, task: Label, error: Error, outcome: Rc<dyn Settle>) {
        self.failures.push(Failed { task, error, outcome });
    }

    /// Failures that somebody has seen by now, when there are many: a long run keeps what it will tell, and no more. The
    /// caller drops them.
    pub(crate) fn take_observed(&mut self) -> Vec<Failed> {
        const AT_FIRST: usize = 64;
        if self.failures.len() < self.failures_before_sweep.max(AT_FIRST) {
            return Vec::new();
        }
        let seen = self.failures.extract_if(.., |failed| !failed.is_unobserved()).collect();
        self.failures_before_sweep = 2 * self.failures.len();
        seen
    }

    pub(crate) fn take_unobserved(&mut self) -> Vec<Unobserved> {
        let failures = std::mem::take(&mut self.failures).into_iter().filter(Failed::is_unobserved);
        failures.map(|Failed { task, error, .. }| Unobserved { task, error }).collect()
    }
}
