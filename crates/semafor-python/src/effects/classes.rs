//! The effects as Python classes. Wrong arguments are reported when an effect is yielded, not when it is created.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};
use pyo3::{PyTraverseError, PyVisit};
use semafor_coop as coop;

use super::arguments::{ArgumentError, Checked, Permits, exact, seconds, text, timeout, type_error};
use super::exceptions::kind_of;
use super::handles::{
    ExternalPromiseHandle, FutureHandle, PromiseHandle, SemaphoreHandle, TableEntry, TaskHandle,
};
use super::program::Runnable;

type Visited = Result<(), PyTraverseError>;

fn semaphore(object: &Bound<'_, PyAny>) -> Checked<Arc<TableEntry>> {
    let handle = object.cast_exact::<SemaphoreHandle>().map_err(|_| type_error(object, "a Semaphore"))?;
    Ok(handle.get().place.clone())
}

/// Creates a semaphore and returns its handle. All of its permits are free.
///
/// `signal`: permits are released by other tasks than those that acquired them. A task that ends with one is not
/// reported as unreleased, and `deadlocks="holders"` does not report this semaphore while any task can run.
#[pyclass(frozen, module = "semafor.effects")]
pub struct CreateSemaphore {
    pub(crate) permits: Checked<u32>,
    pub(crate) name: Checked<Option<String>>,
    pub(crate) is_signal: bool,
}

#[pymethods]
impl CreateSemaphore {
    #[new]
    #[pyo3(signature = (permits=Permits(Ok(1)), *, name=None, signal=false))]
    fn new(permits: Permits, name: Option<&Bound<'_, PyAny>>, signal: bool) -> Self {
        Self {
            permits: permits.0,
            name: name.map(|name| text(name, "a name")).transpose(),
            is_signal: signal,
        }
    }
}

/// Acquires a permit, to be released later. Waits in line if none is free.
///
/// `weight`: the number of permits; 1 by default. `timeout`: the number of seconds after which a `TimeoutError` is
/// raised.
#[pyclass(frozen, module = "semafor.effects")]
pub struct AcquireSemaphore {
    pub(crate) semaphore: Checked<Arc<TableEntry>>,
    /// `None` for one permit without a timeout.
    pub(crate) demand: Option<Box<Demand>>,
}

pub(crate) struct Demand {
    pub(crate) weight: Checked<u32>,
    pub(crate) timeout: Option<Checked<f64>>,
}

#[pymethods]
impl AcquireSemaphore {
    #[new]
    #[pyo3(signature = (semaphore, *, weight=None, timeout=None))]
    fn new(
        semaphore: &Bound<'_, PyAny>,
        weight: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<Self>> {
        let py = semaphore.py();
        if weight.is_some() || timeout.is_some() {
            let demand = Demand {
                weight: weight.map_or(Ok(1), |weight| Permits::of(weight, "weight").0),
                timeout: timeout.map(self::timeout),
            };
            return Py::new(
                py,
                Self { semaphore: self::semaphore(semaphore), demand: Some(Box::new(demand)) },
            );
        }
        let plain = || Py::new(py, Self { semaphore: self::semaphore(semaphore), demand: None });
        match semaphore.cast_exact::<SemaphoreHandle>() {
            Ok(handle) => Ok(handle.get().acquire.get_or_try_init(py, plain)?.clone_ref(py)),
            Err(_) => plain(),
        }
    }
}

/// Releases what this task acquired last of the semaphore; if it holds nothing, what another task acquired. Never waits,
/// and never releases the permit of a `WithSemaphore`.
#[pyclass(frozen, module = "semafor.effects")]
pub struct ReleaseSemaphore {
    pub(crate) semaphore: Checked<Arc<TableEntry>>,
}

#[pymethods]
impl ReleaseSemaphore {
    #[new]
    fn new(semaphore: &Bound<'_, PyAny>) -> PyResult<Py<Self>> {
        let py = semaphore.py();
        let plain = || Py::new(py, Self { semaphore: self::semaphore(semaphore) });
        match semaphore.cast_exact::<SemaphoreHandle>() {
            Ok(handle) => Ok(handle.get().release.get_or_try_init(py, plain)?.clone_ref(py)),
            Err(_) => plain(),
        }
    }
}

/// Acquires a permit if one is free and no task waits for it. Returns True or False, and never waits.
#[pyclass(frozen, module = "semafor.effects")]
pub struct TryAcquire {
    pub(crate) semaphore: Checked<Arc<TableEntry>>,
}

#[pymethods]
impl TryAcquire {
    #[new]
    fn new(semaphore: &Bound<'_, PyAny>) -> Self {
        Self { semaphore: self::semaphore(semaphore) }
    }
}

/// Runs a program with a permit, which is released however the program ends. Returns what the program returns.
#[pyclass(frozen, module = "semafor.effects")]
pub struct WithSemaphore {
    pub(crate) semaphore: Checked<Arc<TableEntry>>,
    pub(crate) program: Checked<Runnable>,
}

#[pymethods]
impl WithSemaphore {
    #[new]
    fn new(semaphore: &Bound<'_, PyAny>, program: &Bound<'_, PyAny>) -> Self {
        Self { semaphore: self::semaphore(semaphore), program: Runnable::checked(program) }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Visited {
        traverse_program(&self.program, &visit)
    }
}

/// Starts a task, and returns its handle. The new task runs before its parent goes on, unless its priority
/// is lower. Tasks that were ready earlier still run before both.
///
/// `daemon`: the report leaves the task out if it has not ended. `name`: for reports.
#[pyclass(frozen, module = "semafor.effects")]
pub struct Spawn {
    pub(crate) program: Checked<Runnable>,
    pub(crate) priority: Checked<coop::Priority>,
    pub(crate) is_daemon: bool,
    pub(crate) name: Checked<Option<String>>,
}

#[pymethods]
impl Spawn {
    #[new]
    #[pyo3(signature = (program, priority=None, daemon=false, name=None))]
    fn new(
        program: &Bound<'_, PyAny>,
        priority: Option<&Bound<'_, PyAny>>,
        daemon: bool,
        name: Option<&Bound<'_, PyAny>>,
    ) -> Self {
        Self {
            program: Runnable::checked(program),
            priority: priority.map_or(Ok(coop::Priority::Normal), self::priority),
            is_daemon: daemon,
            name: name.map(|name| text(name, "a name")).transpose(),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Visited {
        traverse_program(&self.program, &visit)
    }
}

/// Takes the numbers of `semafor.effects.Priority`.
fn priority(object: &Bound<'_, PyAny>) -> Checked<coop::Priority> {
    match object.extract::<i64>() {
        Ok(0) => Ok(coop::Priority::Idle),
        Ok(10) => Ok(coop::Priority::Normal),
        Ok(20) => Ok(coop::Priority::High),
        Ok(_) => Err(ArgumentError::Value(
            "a priority is one of Priority.IDLE, Priority.NORMAL, Priority.HIGH".into(),
        )),
        Err(_) => Err(type_error(object, "a Priority")),
    }
}

fn traverse_program(program: &Checked<Runnable>, visit: &PyVisit<'_>) -> Visited {
    program.as_ref().map_or(Ok(()), |program| program.traverse(visit))
}

/// A handle to wait for.
pub(crate) enum Waitable {
    Task(Py<TaskHandle>),
    Future(Py<FutureHandle>),
}

impl Waitable {
    fn of(object: &Bound<'_, PyAny>) -> Checked<Self> {
        if let Ok(task) = object.cast_exact::<TaskHandle>() {
            return Ok(Self::Task(task.clone().unbind()));
        }
        if let Ok(future) = object.cast_exact::<FutureHandle>() {
            return Ok(Self::Future(future.clone().unbind()));
        }
        let advice = match Runnable::of(object) {
            Some(_) => ": Spawn it, and wait for its task",
            None if is_promise(object) => ": use promise.future",
            None if object.is_callable() => ": decorate it with @do, call it, and Spawn the result",
            None => "",
        };
        let kind = kind_of(object);
        Err(ArgumentError::Type(format!("a Task or a Future is needed here, not {kind}{advice}")))
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Visited {
        match self {
            Self::Task(task) => visit.call(task),
            Self::Future(future) => visit.call(future),
        }
    }
}

/// Tasks, futures, and `Wait`s for them.
fn waitables(objects: &Bound<'_, PyTuple>) -> Checked<Vec<Waitable>> {
    let of = |object: Bound<'_, PyAny>| match object.cast_exact::<Wait>() {
        Ok(wait) => match &wait.get().awaited {
            Ok(Waitable::Task(task)) => Ok(Waitable::Task(task.clone_ref(object.py()))),
            Ok(Waitable::Future(future)) => Ok(Waitable::Future(future.clone_ref(object.py()))),
            Err(error) => Err(error.clone()),
        },
        Err(_) => Waitable::of(&object),
    };
    objects.iter().map(of).collect()
}

fn traverse_all(awaited: &Checked<Vec<Waitable>>, visit: &PyVisit<'_>) -> Visited {
    awaited.iter().flatten().try_for_each(|awaited| awaited.traverse(visit))
}

/// Waits for a task or future, and returns its value or raises its exception. For a promise, wait for `promise.future`.
#[pyclass(frozen, module = "semafor.effects")]
pub struct Wait {
    pub(crate) awaited: Checked<Waitable>,
}

#[pymethods]
impl Wait {
    #[new]
    fn new(awaited: &Bound<'_, PyAny>) -> Self {
        Self { awaited: Waitable::of(awaited) }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Visited {
        self.awaited.as_ref().map_or(Ok(()), |awaited| awaited.traverse(&visit))
    }
}

/// Waits for all of its arguments, and returns their values in the same order.
///
/// Raises the exception of the first that fails, at once. The other tasks continue.
#[pyclass(frozen, module = "semafor.effects")]
pub struct Gather {
    pub(crate) awaited: Checked<Vec<Waitable>>,
}

#[pymethods]
impl Gather {
    #[new]
    #[pyo3(signature = (*awaited))]
    fn new(awaited: &Bound<'_, PyTuple>) -> Self {
        Self { awaited: waitables(awaited) }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Visited {
        traverse_all(&self.awaited, &visit)
    }
}

/// Waits for the first of its arguments that ends, and returns its value or raises its exception. The other tasks
/// continue. Without arguments: ValueError.
#[pyclass(frozen, module = "semafor.effects")]
pub struct Race {
    pub(crate) awaited: Checked<Vec<Waitable>>,
}

#[pymethods]
impl Race {
    #[new]
    #[pyo3(signature = (*awaited))]
    fn new(awaited: &Bound<'_, PyTuple>) -> Self {
        Self { awaited: waitables(awaited) }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Visited {
        traverse_all(&self.awaited, &visit)
    }
}

/// Cancels a task: raises `TaskCancelledError` where it waits. The task may clean up, and yield while it does.
#[pyclass(frozen, module = "semafor.effects")]
pub struct Cancel {
    pub(crate) task: Checked<Py<TaskHandle>>,
}

#[pymethods]
impl Cancel {
    #[new]
    fn new(task: &Bound<'_, PyAny>) -> Self {
        Self { task: exact(task, "a Task") }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Visited {
        self.task.as_ref().map_or(Ok(()), |task| visit.call(task))
    }
}

/// Creates a promise: a value that a task will provide. Other tasks wait for `promise.future`.
#[pyclass(frozen, module = "semafor.effects")]
pub struct CreatePromise;

#[pymethods]
impl CreatePromise {
    #[new]
    fn new() -> Self {
        Self
    }
}

/// Creates a promise that any thread may complete, with `promise.complete(value)` or `promise.fail(error)`. Tasks wait
/// for `promise.future`.
#[pyclass(frozen, module = "semafor.effects")]
pub struct CreateExternalPromise;

#[pymethods]
impl CreateExternalPromise {
    #[new]
    fn new() -> Self {
        Self
    }
}

/// Completes a promise. The tasks that wait for it run before this task goes on. Tasks that were ready earlier still
/// run before both.
///
/// RuntimeError if it was completed before.
#[pyclass(frozen, module = "semafor.effects")]
pub struct CompletePromise {
    pub(crate) promise: Checked<Py<PromiseHandle>>,
    pub(crate) value: Py<PyAny>,
}

#[pymethods]
impl CompletePromise {
    #[new]
    fn new(promise: &Bound<'_, PyAny>, value: Py<PyAny>) -> Self {
        Self { promise: self::promise(promise), value }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Visited {
        visit.call(&self.value)?;
        self.promise.as_ref().map_or(Ok(()), |promise| visit.call(promise))
    }
}

/// Fails a promise: the tasks that wait for it get this exception. RuntimeError if it was completed before.
#[pyclass(frozen, module = "semafor.effects")]
pub struct FailPromise {
    pub(crate) promise: Checked<Py<PromiseHandle>>,
    pub(crate) error: Py<PyAny>,
}

#[pymethods]
impl FailPromise {
    #[new]
    fn new(promise: &Bound<'_, PyAny>, error: Py<PyAny>) -> Self {
        Self { promise: self::promise(promise), error }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Visited {
        visit.call(&self.error)?;
        self.promise.as_ref().map_or(Ok(()), |promise| visit.call(promise))
    }
}

fn is_promise(object: &Bound<'_, PyAny>) -> bool {
    object.cast_exact::<PromiseHandle>().is_ok() || object.cast_exact::<ExternalPromiseHandle>().is_ok()
}

fn promise(object: &Bound<'_, PyAny>) -> Checked<Py<PromiseHandle>> {
    if object.cast_exact::<ExternalPromiseHandle>().is_ok() {
        return Err(ArgumentError::Misuse(
            "an external promise is completed by its own methods: call complete() or fail()",
        ));
    }
    exact(object, "a Promise")
}

/// Waits for this number of seconds, by the run's clock.
#[pyclass(frozen, module = "semafor.effects")]
pub struct Delay {
    pub(crate) seconds: Checked<f64>,
}

#[pymethods]
impl Delay {
    #[new]
    fn new(seconds: &Bound<'_, PyAny>) -> Self {
        Self { seconds: self::seconds(seconds) }
    }
}

/// The seconds since the start of the run, by its clock.
#[pyclass(frozen, module = "semafor.effects")]
pub struct Now;

#[pymethods]
impl Now {
    #[new]
    fn new() -> Self {
        Self
    }
}

/// Adds a line to the log of the run, with the time and the task.
#[pyclass(frozen, module = "semafor.effects")]
pub struct Log {
    pub(crate) text: String,
}

#[pymethods]
impl Log {
    #[new]
    fn new(text: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self { text: text.str()?.to_string_lossy().into_owned() })
    }
}

/// Lets all ready tasks of the same priority run first.
#[pyclass(frozen, module = "semafor.effects")]
pub struct Yield;

#[pymethods]
impl Yield {
    #[new]
    fn new() -> Self {
        Self
    }
}

/// Runs a program that cancellation does not interrupt. The first effect after it that has to wait gets the
/// cancellation.
#[pyclass(frozen, module = "semafor.effects")]
pub struct Shield {
    pub(crate) program: Checked<Runnable>,
}

#[pymethods]
impl Shield {
    #[new]
    fn new(program: &Bound<'_, PyAny>) -> Self {
        Self { program: Runnable::checked(program) }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Visited {
        traverse_program(&self.program, &visit)
    }
}

/// Runs a program in which objects of a class are effects, handled by `handler(effect)`: a function, or one made by
/// `@do`.
///
/// The `yield` returns what the handler returns, and raises what it raises. Effects that the handler yields, even the
/// same one, go to the outer handlers. Tasks that the program spawns inherit the handler. The effects of this module
/// can't be handled: `TypeError`.
#[pyclass(frozen, module = "semafor.effects")]
pub struct WithHandler {
    pub(crate) class: Checked<Py<PyType>>,
    pub(crate) handler: Py<PyAny>,
    pub(crate) program: Checked<Runnable>,
}

#[pymethods]
impl WithHandler {
    #[new]
    fn new(effect: &Bound<'_, PyAny>, handler: Py<PyAny>, program: &Bound<'_, PyAny>) -> Self {
        Self { class: handled_class(effect), handler, program: Runnable::checked(program) }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Visited {
        self.class.as_ref().map_or(Ok(()), |class| visit.call(class))?;
        visit.call(&self.handler)?;
        traverse_program(&self.program, &visit)
    }
}

/// A class whose objects a handler can get. The scheduler itself performs the built-in effects.
fn handled_class(object: &Bound<'_, PyAny>) -> Checked<Py<PyType>> {
    let class = object.cast::<PyType>().map_err(|_| type_error(object, "a class of effects"))?;
    let py = class.py();
    let built_in = [
        py.get_type::<CreateSemaphore>(),
        py.get_type::<AcquireSemaphore>(),
        py.get_type::<ReleaseSemaphore>(),
        py.get_type::<TryAcquire>(),
        py.get_type::<WithSemaphore>(),
        py.get_type::<Spawn>(),
        py.get_type::<Wait>(),
        py.get_type::<Gather>(),
        py.get_type::<Race>(),
        py.get_type::<Cancel>(),
        py.get_type::<CreatePromise>(),
        py.get_type::<CreateExternalPromise>(),
        py.get_type::<CompletePromise>(),
        py.get_type::<FailPromise>(),
        py.get_type::<Delay>(),
        py.get_type::<Now>(),
        py.get_type::<Log>(),
        py.get_type::<Yield>(),
        py.get_type::<Shield>(),
        py.get_type::<WithHandler>(),
    ];
    if built_in.iter().any(|built_in| class.is(built_in)) {
        let name = class.name().map_or_else(|_| "it".into(), |name| name.to_string());
        let message = format!("{name} is a built-in effect, which can't be handled: use a class of your own");
        return Err(ArgumentError::Type(message));
    }
    Ok(class.clone().unbind())
}
