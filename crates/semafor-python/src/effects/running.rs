//! Runs Python programs, once or under many schedules.

use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use semafor_coop::{
    Clock, Ctx, Deadlocks, Error, Explorer, Lull, Report, Result, Runtime, Schedule, Search, Trace,
};

use super::driver::{TaskSpec, drive};
use super::exceptions::{Raised, exception_of};
use super::outcome::Caught;
use super::program::Runnable;

/// How often a run that waits checks for Ctrl-C.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(50);

type ReportFields<'py> = (
    f64,
    String,
    Vec<(f64, String, String)>,
    Vec<(String, Bound<'py, PyAny>)>,
    Vec<(String, u64, u32)>,
    Vec<(String, Option<String>, bool)>,
);

/// The value or the exception, and the report.
type Ended<'py> = (Option<Py<PyAny>>, Option<Bound<'py, PyAny>>, ReportFields<'py>);

#[pyfunction]
#[pyo3(signature = (program, *, clock, deadlocks, max_steps, seed, replay))]
pub(crate) fn run<'py>(
    program: &Bound<'py, PyAny>,
    clock: &str,
    deadlocks: &str,
    max_steps: Option<u64>,
    seed: Option<u64>,
    replay: Option<&str>,
) -> PyResult<Ended<'py>> {
    let py = program.py();
    let runnable = Runnable::checked(program).map_err(|error| PyErr::from(&error))?;
    let schedule = match (seed, replay) {
        (None, None) => Schedule::Fifo,
        (Some(seed), None) => Schedule::Random(seed),
        (None, Some(trace)) => Schedule::Replay(parsed(trace)?),
        (Some(_), Some(_)) => {
            return Err(PyValueError::new_err("both seed and replay were given: pass only one of them"));
        }
    };
    let runtime = runtime(clock, deadlocks, max_steps)?.schedule(schedule);
    let (result, report) = run_once(py, &runtime, runnable);
    let (value, error) = match result {
        Ok(value) => (value, None),
        Err(error) => (None, Some(object(py, error))),
    };
    Ok((value, error, report_fields(py, &report)))
}

fn run_once(py: Python<'_>, runtime: &Runtime, program: Runnable) -> (PyResult<Option<Py<PyAny>>>, Report) {
    let spec = TaskSpec::new(program);
    let cell = spec.cell.clone();
    let outcome = runtime.run(move |ctx| drive(ctx, spec));
    let result = match (outcome.result, cell.failure(py)) {
        (Ok(_), _) => Ok(cell.value(py)),
        // A stop, and not the program's own exception, ended the run.
        (Err(error), Some(caught)) if !error.is_stop() => Err(caught.reraise(py)),
        (Err(error), _) => Err(exception_of(py, &error)),
    };
    (result, outcome.report)
}

/// The message, the exception, the simplest trace, the first trace, and whether the run reached its limit of steps.
type Failure<'py> = (String, Option<Bound<'py, PyAny>>, String, String, bool);

type Explored<'py> = (u64, bool, Option<Failure<'py>>);

#[pyfunction]
#[pyo3(signature = (program, *, schedules, clock, deadlocks, max_steps, search, seed, changes, preemptions))]
#[allow(clippy::too_many_arguments, reason = "all of them are named, by one caller")]
pub(crate) fn explore<'py>(
    program: &Bound<'py, PyAny>,
    schedules: u64,
    clock: &str,
    deadlocks: &str,
    max_steps: Option<u64>,
    search: &str,
    seed: u64,
    changes: usize,
    preemptions: Option<usize>,
) -> PyResult<Explored<'py>> {
    let py = program.py();
    let runnable = Runnable::checked(program).map_err(|error| PyErr::from(&error))?;
    if !runnable.is_reusable() {
        return Err(PyTypeError::new_err(
            "a generator can be run once only: pass a program made by @do, which can be run many times",
        ));
    }
    let search = match search {
        "random" => Search::Random { seed },
        "pct" => Search::Pct { seed, changes },
        "exhaustive" => Search::Exhaustive { preemptions },
        other => return Err(unknown("search", other, "random, pct, exhaustive")),
    };
    let runtime = runtime(clock, deadlocks, max_steps)?;
    let explorer = Explorer::new().search(search).schedules(schedules).runtime(runtime.clone());
    let again = runnable.clone_ref(py);
    let exploration = explorer.run(async move |ctx: Ctx| {
        let runnable = Python::attach(|py| runnable.clone_ref(py));
        drive(ctx, TaskSpec::new(runnable)).await
    });
    let Some(failure) = exploration.failure else {
        return Ok((exploration.schedules, exploration.is_complete, None));
    };
    if let Some(error) = failure.error.as_ref().filter(|error| error.is_stop()) {
        return Err(exception_of(py, error));
    }
    let (trace, found) = (failure.trace.to_string(), failure.found.to_string());
    let is_at_limit = matches!(failure.error, Some(Error::TooManySteps(_)));
    let error = failure.error.map(|error| match error {
        // The scheduler does not know the lines of Python, so the run is replayed.
        Error::Deadlock(_) => {
            let replay = runtime.schedule(Schedule::Replay(failure.trace));
            run_once(py, &replay, again).0.err().unwrap_or_else(|| exception_of(py, &error))
        }
        error => exception_of(py, &error),
    });
    let failure = (failure.message, error.map(|error| object(py, error)), trace, found, is_at_limit);
    Ok((exploration.schedules, exploration.is_complete, Some(failure)))
}

fn runtime(clock: &str, deadlocks: &str, max_steps: Option<u64>) -> PyResult<Runtime> {
    let clock = match clock {
        "virtual" => Clock::Virtual,
        "real" => Clock::Real,
        other => return Err(unknown("clock", other, "virtual, real")),
    };
    let deadlocks = match deadlocks {
        "certain" => Deadlocks::Certain,
        "holders" => Deadlocks::Holders,
        "global" => Deadlocks::Global,
        "off" => Deadlocks::Off,
        other => return Err(unknown("search for deadlocks", other, "certain, holders, global, off")),
    };
    let runtime = Runtime::new().clock(clock).deadlocks(deadlocks).hide_sites().pause(pause);
    Ok(max_steps.into_iter().fold(runtime, Runtime::most_steps))
}

fn unknown(what: &str, name: &str, known: &str) -> PyErr {
    PyValueError::new_err(format!("unknown {what} {name:?}: expected one of {known}"))
}

fn parsed(trace: &str) -> PyResult<Trace> {
    trace.parse().map_err(|error: semafor_coop::ParseTraceError| PyValueError::new_err(error.to_string()))
}

/// No task can run, so other threads get the interpreter.
fn pause(lull: &Lull<'_>) -> Result {
    Python::attach(|py| {
        py.detach(|| lull.wait_at_most(SIGNAL_CHECK_INTERVAL));
        py.check_signals().map_err(|interrupt| Error::stopping(Raised::Here(Caught::new(py, interrupt))))
    })
}

fn object(py: Python<'_>, error: PyErr) -> Bound<'_, PyAny> {
    error.into_value(py).into_bound(py).into_any()
}

fn report_fields<'py>(py: Python<'py>, report: &Report) -> ReportFields<'py> {
    let Report { elapsed, log, unreleased, unobserved, abandoned, trace, .. } = report;
    (
        elapsed.as_secs_f64(),
        trace.to_string(),
        log.iter().map(|line| (line.at.as_secs_f64(), line.task.to_string(), line.text.clone())).collect(),
        unobserved
            .iter()
            .map(|each| (each.task.to_string(), object(py, exception_of(py, &each.error))))
            .collect(),
        unreleased.iter().map(|each| (each.task.to_string(), each.semaphore, each.permits)).collect(),
        abandoned
            .iter()
            .map(|each| (each.task.to_string(), each.waiting_for.clone(), each.was_started))
            .collect(),
    )
}
