//! Interprets the objects that programs yield.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyType;
use semafor_coop as coop;

use super::classes::{
    AcquireSemaphore, Cancel, CompletePromise, CreateExternalPromise, CreatePromise, CreateSemaphore, Delay,
    FailPromise, Gather, Log, Now, Race, ReleaseSemaphore, Shield, Spawn, TryAcquire, Wait, Waitable,
    WithHandler, WithSemaphore, Yield,
};
use super::exceptions::to_exception;
use super::handles::{Awaited, PromiseHandle, Settled, TableEntry, Tables, wrong_run_error};
use super::outcome::{Caught, Outcome, OutcomeCell};
use super::program::Runnable;

pub(crate) enum Yielded {
    Perform(Request),
    /// Run a program on top of the stack.
    Enter(Runnable, Entry),
    /// An effect of the program's own, or an object of the wrong type.
    Handle,
}

pub(crate) enum Entry {
    Plain,
    Shielded,
    Handled { class: Py<PyType>, handler: Py<PyAny> },
}

/// A built-in effect with checked arguments.
pub(crate) enum Request {
    Acquire(coop::Semaphore),
    Release(coop::Semaphore),
    Demand { semaphore: coop::Semaphore, weight: u32, timeout: Option<f64> },
    TryAcquire(coop::Semaphore),
    Create(coop::CreateSemaphore),
    Guard(coop::Semaphore, Runnable),
    Spawn { program: Runnable, name: Option<String>, priority: coop::Priority, is_daemon: bool },
    Wait(Awaited),
    Gather(Vec<Awaited>),
    Race(Vec<Awaited>),
    Cancel(coop::Task<Settled>),
    CreatePromise,
    CreateExternalPromise,
    Settle { promise: coop::Promise<Settled>, cell: Arc<OutcomeCell>, outcome: Outcome },
    Delay(f64),
    Now,
    Log(String),
    Yield,
}

/// # Errors
///
/// If its arguments are wrong.
#[inline]
pub(crate) fn interpret(yielded: &Bound<'_, PyAny>, tables: &Tables) -> PyResult<Yielded> {
    if let Ok(acquire) = yielded.cast_exact::<AcquireSemaphore>() {
        let acquire = acquire.get();
        let semaphore = semaphore(acquire.semaphore.as_ref()?, tables)?;
        return Ok(Yielded::Perform(match &acquire.demand {
            None => Request::Acquire(semaphore),
            Some(demand) => Request::Demand {
                semaphore,
                weight: *demand.weight.as_ref()?,
                timeout: demand.timeout.as_ref().map(Result::as_ref).transpose()?.copied(),
            },
        }));
    }
    if let Ok(release) = yielded.cast_exact::<ReleaseSemaphore>() {
        return Ok(Yielded::Perform(Request::Release(semaphore(release.get().semaphore.as_ref()?, tables)?)));
    }
    if let Some(runnable) = Runnable::of_program(yielded) {
        return Ok(Yielded::Enter(runnable, Entry::Plain));
    }
    interpret_uncommon(yielded, tables)
}

fn interpret_uncommon(yielded: &Bound<'_, PyAny>, tables: &Tables) -> PyResult<Yielded> {
    let py = yielded.py();
    let request = if let Ok(spawn) = yielded.cast_exact::<Spawn>() {
        let spawn = spawn.get();
        Request::Spawn {
            program: spawn.program.as_ref()?.clone_ref(py),
            name: spawn.name.as_ref()?.clone(),
            priority: *spawn.priority.as_ref()?,
            is_daemon: spawn.is_daemon,
        }
    } else if let Ok(wait) = yielded.cast_exact::<Wait>() {
        Request::Wait(awaited(wait.get().awaited.as_ref()?, tables)?)
    } else if let Ok(gather) = yielded.cast_exact::<Gather>() {
        Request::Gather(all_awaited(gather.get().awaited.as_ref()?, tables)?)
    } else if let Ok(race) = yielded.cast_exact::<Race>() {
        Request::Race(all_awaited(race.get().awaited.as_ref()?, tables)?)
    } else if let Ok(delay) = yielded.cast_exact::<Delay>() {
        Request::Delay(*delay.get().seconds.as_ref()?)
    } else if let Ok(log) = yielded.cast_exact::<Log>() {
        Request::Log(log.get().text.clone())
    } else if let Ok(create) = yielded.cast_exact::<CreateSemaphore>() {
        Request::Create(create_semaphore(create.get())?)
    } else if let Ok(attempt) = yielded.cast_exact::<TryAcquire>() {
        Request::TryAcquire(semaphore(attempt.get().semaphore.as_ref()?, tables)?)
    } else if let Ok(with) = yielded.cast_exact::<WithSemaphore>() {
        let with = with.get();
        Request::Guard(semaphore(with.semaphore.as_ref()?, tables)?, with.program.as_ref()?.clone_ref(py))
    } else if let Ok(cancel) = yielded.cast_exact::<Cancel>() {
        Request::Cancel(cancel.get().task.as_ref()?.get().within(tables).ok_or_else(wrong_run_error)?)
    } else if let Ok(complete) = yielded.cast_exact::<CompletePromise>() {
        let complete = complete.get();
        settle(py, complete.promise.as_ref()?, tables, Outcome::Value(complete.value.clone_ref(py)))?
    } else if let Ok(fail) = yielded.cast_exact::<FailPromise>() {
        let fail = fail.get();
        let promise = fail.promise.as_ref()?;
        let caught = Caught::new(py, to_exception(fail.error.bind(py))?);
        settle(py, promise, tables, Outcome::Failure(caught))?
    } else if yielded.cast_exact::<CreatePromise>().is_ok() {
        Request::CreatePromise
    } else if yielded.cast_exact::<CreateExternalPromise>().is_ok() {
        Request::CreateExternalPromise
    } else if yielded.cast_exact::<Yield>().is_ok() {
        Request::Yield
    } else if yielded.cast_exact::<Now>().is_ok() {
        Request::Now
    } else {
        return interpret_program(yielded);
    };
    Ok(Yielded::Perform(request))
}

fn interpret_program(yielded: &Bound<'_, PyAny>) -> PyResult<Yielded> {
    let py = yielded.py();
    if let Ok(shield) = yielded.cast_exact::<Shield>() {
        return Ok(Yielded::Enter(shield.get().program.as_ref()?.clone_ref(py), Entry::Shielded));
    }
    if let Ok(with) = yielded.cast_exact::<WithHandler>() {
        let with = with.get();
        let class = with.class.as_ref()?.clone_ref(py);
        let how = Entry::Handled { class, handler: with.handler.clone_ref(py) };
        return Ok(Yielded::Enter(with.program.as_ref()?.clone_ref(py), how));
    }
    Ok(Runnable::of(yielded).map_or(Yielded::Handle, |runnable| Yielded::Enter(runnable, Entry::Plain)))
}

#[inline]
fn semaphore(place: &TableEntry, tables: &Tables) -> PyResult<coop::Semaphore> {
    place.semaphore(tables).ok_or_else(wrong_run_error)
}

fn awaited(waitable: &Waitable, tables: &Tables) -> PyResult<Awaited> {
    let awaited = match waitable {
        Waitable::Task(task) => task.get().awaited(tables),
        Waitable::Future(future) => future.get().awaited(tables),
    };
    awaited.ok_or_else(wrong_run_error)
}

fn all_awaited(waitables: &[Waitable], tables: &Tables) -> PyResult<Vec<Awaited>> {
    waitables.iter().map(|waitable| awaited(waitable, tables)).collect()
}

fn create_semaphore(create: &CreateSemaphore) -> PyResult<coop::CreateSemaphore> {
    let mut effect = coop::CreateSemaphore::new(*create.permits.as_ref()?);
    if let Some(name) = create.name.as_ref()? {
        effect = effect.name(name);
    }
    Ok(if create.is_signal { effect.signal() } else { effect })
}

fn settle(
    py: Python<'_>,
    handle: &Py<PromiseHandle>,
    tables: &Tables,
    outcome: Outcome,
) -> PyResult<Request> {
    let handle = handle.get();
    let promise = handle.within(tables).ok_or_else(wrong_run_error)?;
    Ok(Request::Settle { promise, cell: handle.future.bind(py).get().cell.clone(), outcome })
}
