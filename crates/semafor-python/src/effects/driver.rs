//! A task: a future of the scheduler that runs a Python program.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyList;
use semafor_coop::{self as coop, Ctx, Error};

use super::exceptions::{Raised, deadlock_error, error_of, exception_of};
use super::frames::{Frames, Resume, Scope, Step};
use super::handles::{
    Awaited, ExternalPromiseHandle, PromiseHandle, SemaphoreHandle, Settled, Tables, TaskHandle,
};
use super::log;
use super::outcome::{Caught, Outcome, OutcomeCell};
use super::program::Runnable;
use super::request::Request;

/// Shared by all tasks of a run.
#[derive(Default)]
pub(crate) struct Run {
    tables: Tables,
    /// The running programs, by the number of their task; the root has none. Weak, so that it does not keep an
    /// abandoned task alive.
    running: RefCell<HashMap<Option<u64>, Weak<Frames>>>,
}

/// A task to run.
pub(crate) struct TaskSpec {
    pub(crate) run: Rc<Run>,
    pub(crate) program: Runnable,
    pub(crate) scope: Option<Rc<Scope>>,
    /// Where its outcome goes.
    pub(crate) cell: Arc<OutcomeCell>,
}

impl TaskSpec {
    /// The root program of a new run.
    pub(crate) fn new(program: Runnable) -> Self {
        Self { run: Rc::default(), program, scope: None, cell: Arc::default() }
    }
}

pub(crate) async fn drive(ctx: Ctx, spec: TaskSpec) -> coop::Result<Settled> {
    let TaskSpec { run, program, scope, cell } = spec;
    let number = ctx.task().number;
    let task = Driver { ctx, run, frames: Rc::default() };
    task.run.running.borrow_mut().insert(number, Rc::downgrade(&task.frames));
    let ended = task.run_to_end(program, scope).await;
    task.run.running.borrow_mut().remove(&number);
    match ended {
        Ok(value) => {
            cell.fill(Outcome::Value(value));
            Ok(cell)
        }
        Err(error) => Err(Python::attach(|py| {
            let caught = Caught::new(py, error);
            let error = error_of(py, &caught, &cell);
            cell.fill(Outcome::Failure(caught));
            error
        })),
    }
}

struct Driver {
    ctx: Ctx,
    run: Rc<Run>,
    frames: Rc<Frames>,
}

impl Driver {
    async fn run_to_end(&self, program: Runnable, scope: Option<Rc<Scope>>) -> PyResult<Py<PyAny>> {
        let mut answer = Python::attach(|py| self.frames.enter(py, &program, scope, false, None));
        drop(program);
        loop {
            match Python::attach(|py| self.frames.resume(py, answer, &self.run.tables)) {
                Step::Ended(result) => return result,
                Step::Perform(request) if self.frames.is_shielded() => {
                    answer = self.ctx.shield(Box::pin(self.perform(request))).await;
                }
                // The most common effects are performed here, without a box. Every task has room for them.
                Step::Perform(Request::Acquire(semaphore)) => {
                    answer = self.done(self.ctx.acquire(&semaphore).await);
                }
                Step::Perform(Request::Release(semaphore)) => {
                    answer = self.done(self.ctx.release(&semaphore).await);
                }
                Step::Perform(request) => answer = Box::pin(self.perform(request)).await,
            }
        }
    }

    async fn perform(&self, request: Request) -> Resume {
        let ctx = &self.ctx;
        match request {
            Request::Acquire(semaphore) => self.done(ctx.acquire(&semaphore).await),
            Request::Release(semaphore) => self.done(ctx.release(&semaphore).await),
            Request::Demand { semaphore, weight, timeout } => {
                let mut demand = coop::AcquireSemaphore(&semaphore).weight(weight);
                if let Some(timeout) = timeout {
                    demand = demand.timeout(timeout);
                }
                self.done(ctx.perform(demand).await)
            }
            Request::TryAcquire(semaphore) => {
                let acquired = ctx.try_acquire(&semaphore).await;
                self.answer(acquired, |py, acquired| acquired.into_py_any(py))
            }
            Request::Guard(semaphore, program) => {
                // A frame never leaves its task, and neither does the permit in it.
                let demand = coop::AcquireSemaphore(&semaphore).weight(1).guarded().stays_with_task();
                match ctx.perform(demand).await {
                    Ok(permit) => Python::attach(|py| {
                        self.frames.enter(py, &program, self.frames.scope(), false, Some(permit))
                    }),
                    Err(error) => self.raise(&error),
                }
            }
            Request::Create(create) => {
                let semaphore = ctx.perform(create).await;
                self.answer(semaphore, |py, semaphore| {
                    object(py, SemaphoreHandle::new(&self.run.tables, semaphore))
                })
            }
            Request::Spawn { program, name, priority, is_daemon } => {
                self.spawn(program, name, priority, is_daemon).await
            }
            Request::Wait(awaited) => match ctx.wait(&awaited.eventual).await {
                Ok(cell) => value(&cell),
                Err(error) => self.raise_failure_of(&[awaited], &error),
            },
            Request::Gather(awaited) => match ctx.gather(awaited.iter().map(|each| &each.eventual)).await {
                Ok(cells) => values(&cells),
                Err(error) => self.raise_failure_of(&awaited, &error),
            },
            Request::Race(awaited) => match ctx.race(awaited.iter().map(|each| &each.eventual)).await {
                Ok(cell) => value(&cell),
                Err(error) => self.raise_failure_of(&awaited, &error),
            },
            Request::Cancel(task) => self.done(ctx.cancel(&task).await),
            Request::CreatePromise => {
                let promise = ctx.promise().await;
                self.answer(promise, |py, promise| {
                    object(py, PromiseHandle::new(py, &self.run.tables, promise)?)
                })
            }
            Request::CreateExternalPromise => {
                let made = ctx.perform(coop::CreateExternalPromise::new()).await;
                self.answer(made, |py, made| {
                    object(py, ExternalPromiseHandle::new(py, &self.run.tables, made)?)
                })
            }
            Request::Settle { promise, cell, outcome } => self.settle(promise, cell, outcome).await,
            Request::Delay(seconds) => self.done(ctx.delay(seconds).await),
            Request::Now => {
                let now = ctx.perform(coop::Now).await;
                self.answer(now, |py, now: Duration| now.as_secs_f64().into_py_any(py))
            }
            Request::Log(text) => self.log(text).await,
            Request::Yield => self.done(ctx.yield_now().await),
        }
    }

    async fn spawn(
        &self,
        program: Runnable,
        name: Option<String>,
        priority: coop::Priority,
        is_daemon: bool,
    ) -> Resume {
        let cell = Arc::<OutcomeCell>::default();
        let (run, scope) = (self.run.clone(), self.frames.scope());
        let spec = TaskSpec { run, program, scope, cell: cell.clone() };
        let mut spawn = coop::Spawn::new(move |ctx| drive(ctx, spec)).priority(priority);
        if let Some(name) = name {
            spawn = spawn.name(&name);
        }
        if is_daemon {
            spawn = spawn.daemon();
        }
        let task = self.ctx.perform(spawn).await;
        self.answer(task, |py, task| object(py, TaskHandle::new(&self.run.tables, task, cell)))
    }

    /// Logs to the report and to Python's `logging`.
    async fn log(&self, text: String) -> Resume {
        let emitted = Python::attach(|py| log::emit(py, &self.ctx, &text));
        match emitted {
            Ok(()) => self.done(self.ctx.log(text).await),
            Err(error) => Resume::Raise(error),
        }
    }

    async fn settle(
        &self,
        promise: coop::Promise<Settled>,
        cell: Arc<OutcomeCell>,
        outcome: Outcome,
    ) -> Resume {
        let is_failure = matches!(outcome, Outcome::Failure(_));
        if !cell.fill(outcome) {
            return self.raise(&Error::AlreadyCompleted);
        }
        let raised = || Error::new(Raised::Within(cell.clone()));
        self.done(match is_failure {
            true => self.ctx.perform(coop::FailPromise(&promise, raised())).await,
            false => self.ctx.complete(&promise, cell.clone()).await,
        })
    }

    #[inline]
    fn done(&self, result: coop::Result) -> Resume {
        match result {
            Ok(()) => Resume::Nothing,
            Err(error) => self.raise(&error),
        }
    }

    fn answer<T>(
        &self,
        result: coop::Result<T>,
        to_python: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>>,
    ) -> Resume {
        match result {
            Ok(value) => Python::attach(|py| to_python(py, value)).map_or_else(Resume::Raise, Resume::Value),
            Err(error) => self.raise(&error),
        }
    }

    #[cold]
    fn raise(&self, error: &Error) -> Resume {
        Python::attach(|py| Resume::Raise(self.exception(py, error)))
    }

    fn exception(&self, py: Python<'_>, error: &Error) -> PyErr {
        match error {
            Error::Deadlock(deadlock) => deadlock_error(py, deadlock, |task| {
                let frames = self.run.running.borrow().get(&task.number)?.upgrade()?;
                frames.site(py)
            }),
            error => exception_of(py, error),
        }
    }

    /// Raises the exception of the awaited task that failed, the same one for all waiters.
    #[cold]
    fn raise_failure_of(&self, awaited: &[Awaited], error: &Error) -> Resume {
        Python::attach(|py| {
            if !matches!(error, Error::TaskCancelled | Error::Deadlock(_)) {
                return Resume::Raise(self.exception(py, error));
            }
            for each in awaited {
                if let Some(caught) = each.cell.failure(py)
                    && is_same(&error_of(py, &caught, &each.cell), error)
                {
                    return Resume::Raise(caught.reraise(py));
                }
            }
            let exception = self.exception(py, error);
            // A task that was cancelled before it started has no exception yet.
            let unstarted = |each: &&Awaited| error.is_cancelled() && each.eventual.is_settled();
            if let Some(cancelled) = awaited.iter().find(unstarted) {
                let caught = Caught::new(py, exception.clone_ref(py));
                cancelled.cell.fill(Outcome::Failure(caught));
            }
            Resume::Raise(exception)
        })
    }
}

fn is_same(one: &Error, other: &Error) -> bool {
    match (one, other) {
        (Error::Deadlock(one), Error::Deadlock(other)) => Arc::ptr_eq(one, other),
        (one, other) => one.is_cancelled() && other.is_cancelled(),
    }
}

fn object<T: pyo3::PyClass>(
    py: Python<'_>,
    value: impl Into<pyo3::PyClassInitializer<T>>,
) -> PyResult<Py<PyAny>> {
    Ok(Py::new(py, value)?.into_any())
}

fn value(cell: &OutcomeCell) -> Resume {
    Python::attach(|py| cell.value(py)).map_or(Resume::Nothing, Resume::Value)
}

fn values(cells: &[Settled]) -> Resume {
    Python::attach(|py| {
        let values = cells.iter().map(|cell| cell.value(py).unwrap_or_else(|| py.None()));
        match PyList::new(py, values.collect::<Vec<_>>()) {
            Ok(list) => Resume::Value(list.into_any().unbind()),
            Err(error) => Resume::Raise(error),
        }
    })
}
