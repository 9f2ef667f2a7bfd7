use std::fmt;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use semafor_core::PermitId;

use crate::eventual::Settle;
use crate::{Deadlock, Error, Label, Recording, Result, Stall, Trace};

/// The result of a run, and its report.
#[derive(Debug)]
#[non_exhaustive]
pub struct Outcome<T> {
    /// What the root program returned.
    pub result: Result<T>,
    /// Everything else about the run.
    pub report: Report,
}

/// What happened during a run, beside its result.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// How long the run took, by its own clock.
    pub elapsed: Duration,
    /// The lines that the program logged.
    pub log: Vec<LogLine>,
    /// Deadlocks in the order they were found, including those that the program caught. The first thousand.
    pub deadlocks: Vec<Arc<Deadlock>>,
    /// Stalls, in which every task waited for other threads; a thousand at most. See
    /// [`Runtime::stall_after`](crate::Runtime::stall_after).
    pub stalls: Vec<Stall>,
    /// Permits that their task had not released at its end, and that no other task released later. Permits of
    /// [signals](crate::CreateSemaphore::signal) are left out. The first thousand.
    pub unreleased: Vec<Unreleased>,
    /// Tasks that failed and that no task waited for.
    pub unobserved: Vec<Unobserved>,
    /// Tasks that had not ended when the root program did, except daemons.
    pub abandoned: Vec<Abandoned>,
    /// The decisions of the schedule.
    pub trace: Trace,
    /// The steps of the run, if it was [recorded](crate::Runtime::record).
    pub recording: Option<Recording>,
}

impl Report {
    /// The first failure that no task waited for, or else the first permit that was not released.
    pub fn complaint(&self) -> Option<String> {
        let unobserved = self.unobserved.first().map(ToString::to_string);
        unobserved.or_else(|| self.unreleased.first().map(ToString::to_string))
    }
}

/// A line of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LogLine {
    /// The time, by the run's clock.
    pub at: Duration,
    /// The task that logged the line.
    pub task: Label,
    /// The text.
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
    /// The task that ended.
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

/// A task that failed and that no task waited for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Unobserved {
    /// The task that failed.
    pub task: Label,
    /// Its error.
    pub error: Error,
}

impl fmt::Display for Unobserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed, and no task waited for it: {}", self.task, self.error)
    }
}

/// A task that had not ended when the run did.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Abandoned {
    /// The task.
    pub task: Label,
    /// What the task waited for. `None` if it was ready to run.
    pub waiting_for: Option<String>,
    /// False if the task never ran.
    pub was_started: bool,
}

impl fmt::Display for Abandoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was abandoned", self.task)?;
        match &self.waiting_for {
            Some(what) => write!(f, ", waiting for {what}"),
            None if self.was_started => f.write_str(", ready to run"),
            None => f.write_str(" before it started"),
        }
    }
}

/// Limits the memory for a program that deadlocks or stalls again and again.
const MOST_KEPT: usize = 1_000;

/// Collected during a run for its report.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) log: Vec<LogLine>,
    pub(crate) deadlocks: Vec<Arc<Deadlock>>,
    pub(crate) stalls: Vec<Stall>,
    unreleased: Vec<(PermitId, Unreleased)>,
    failures: Vec<Failed>,
    /// At this number of failures, those that have been observed are removed.
    failures_before_sweep: usize,
    pub(crate) abandoned: Vec<Abandoned>,
}

/// A task that failed, and its cell, which knows whether a task waited for it.
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

    /// Called when another task releases the permit of a task that has ended.
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

    /// A stall that continues replaces its earlier entry.
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

    /// Takes out the failures that have been observed, once there are many, so that a long run does not accumulate
    /// them. The caller drops them.
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
