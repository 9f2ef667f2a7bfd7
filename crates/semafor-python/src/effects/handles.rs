//! The handles of a program: semaphores, tasks, promises.
//!
//! The objects of a run stay on its thread, but a Python object may be collected on any thread. So a handle is a
//! number, and the run keeps the object in a [`Table`]. A handle that is dropped adds itself to the run's
//! [`DroppedHandles`], and the run removes the object later. Dropping an entry runs no Python code.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::{PyTraverseError, PyVisit};
use semafor_coop::{self as coop, Awaitable};

use super::classes::{AcquireSemaphore, ReleaseSemaphore};
use super::exceptions::{Raised, to_exception};
use super::outcome::{Caught, Outcome, OutcomeCell};

/// The value of a task or promise for the scheduler: the cell of its outcome.
pub(crate) type Settled = Arc<OutcomeCell>;

/// The objects of the handles of one kind. An entry is reused after its handle was dropped.
pub(crate) struct Table<T> {
    entries: RefCell<Vec<Option<T>>>,
    free: RefCell<Vec<u32>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { entries: RefCell::default(), free: RefCell::default() }
    }
}

impl<T: Clone> Table<T> {
    pub(crate) fn insert(&self, thing: T) -> u32 {
        let mut entries = self.entries.borrow_mut();
        match self.free.borrow_mut().pop() {
            Some(place) => {
                entries[place as usize] = Some(thing);
                place
            }
            None => {
                entries.push(Some(thing));
                entries.len() as u32 - 1
            }
        }
    }

    #[inline]
    pub(crate) fn get(&self, place: u32) -> Option<T> {
        self.entries.borrow().get(place as usize)?.clone()
    }

    fn remove(&self, place: u32) -> Option<T> {
        let thing = self.entries.borrow_mut().get_mut(place as usize)?.take()?;
        self.free.borrow_mut().push(place);
        Some(thing)
    }
}

/// The objects that a run keeps for its handles.
#[derive(Default)]
pub(crate) struct Tables {
    pub(crate) semaphores: Table<coop::Semaphore>,
    pub(crate) tasks: Table<coop::Task<Settled>>,
    pub(crate) promises: Table<coop::Promise<Settled>>,
    pub(crate) futures: Table<coop::Eventual<Settled>>,
    pub(crate) dropped: Arc<DroppedHandles>,
}

impl Tables {
    /// Removes the objects of dropped handles. Costs one load if there are none.
    #[inline]
    pub(crate) fn sweep(&self) {
        if self.dropped.has_any.load(Ordering::Relaxed) {
            self.remove_dropped();
        }
    }

    #[cold]
    fn remove_dropped(&self) {
        self.dropped.has_any.store(false, Ordering::Relaxed);
        // Removing an object may drop other handles, which are then added again.
        let dropped = std::mem::take(&mut *self.dropped.entries.lock());
        for (kind, place) in dropped {
            match kind {
                Kind::Semaphore => drop(self.semaphores.remove(place)),
                Kind::Task => drop(self.tasks.remove(place)),
                Kind::Promise => drop(self.promises.remove(place)),
                Kind::Future => drop(self.futures.remove(place)),
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Semaphore,
    Task,
    Promise,
    Future,
}

/// The handles that were dropped. Every run has its own list, which also identifies the run.
#[derive(Default)]
pub(crate) struct DroppedHandles {
    has_any: AtomicBool,
    entries: Mutex<Vec<(Kind, u32)>>,
}

/// A place in a table of a run.
pub(crate) struct TableEntry {
    run: Arc<DroppedHandles>,
    kind: Kind,
    place: u32,
}

impl TableEntry {
    #[inline]
    fn within(&self, tables: &Tables) -> Option<u32> {
        Arc::ptr_eq(&self.run, &tables.dropped).then_some(self.place)
    }

    /// The semaphore of this entry. `None` if it is of another run.
    #[inline]
    pub(crate) fn semaphore(&self, tables: &Tables) -> Option<coop::Semaphore> {
        tables.semaphores.get(self.within(tables)?)
    }
}

impl Drop for TableEntry {
    fn drop(&mut self) {
        self.run.entries.lock().push((self.kind, self.place));
        self.run.has_any.store(true, Ordering::Relaxed);
    }
}

/// A semaphore of one run, from `CreateSemaphore`. It exists until the last reference to it is gone.
#[pyclass(frozen, module = "semafor.effects", name = "Semaphore", weakref)]
pub struct SemaphoreHandle {
    pub(crate) place: Arc<TableEntry>,
    id: u64,
    // Cached, because programs create them again and again.
    pub(crate) acquire: PyOnceLock<Py<AcquireSemaphore>>,
    pub(crate) release: PyOnceLock<Py<ReleaseSemaphore>>,
}

impl SemaphoreHandle {
    pub(crate) fn new(tables: &Tables, semaphore: coop::Semaphore) -> Self {
        let id = semaphore.id();
        let place = tables.semaphores.insert(semaphore);
        let place = TableEntry { run: tables.dropped.clone(), kind: Kind::Semaphore, place };
        Self { place: Arc::new(place), id, acquire: PyOnceLock::new(), release: PyOnceLock::new() }
    }
}

#[pymethods]
impl SemaphoreHandle {
    /// Its number within the run. Tasks, promises and semaphores share one counter, from 0.
    #[getter]
    fn id(&self) -> u64 {
        self.id
    }

    /// The same as `id`.
    #[getter]
    fn sem_id(&self) -> u64 {
        self.id
    }

    fn __repr__(&self) -> String {
        format!("Semaphore({})", self.id)
    }
}

/// A task of one run, from `Spawn`. It goes on without a reference to it.
#[pyclass(frozen, generic, module = "semafor.effects", name = "Task", weakref)]
pub struct TaskHandle {
    place: TableEntry,
    id: u64,
    pub(crate) cell: Arc<OutcomeCell>,
}

impl TaskHandle {
    pub(crate) fn new(tables: &Tables, task: coop::Task<Settled>, cell: Arc<OutcomeCell>) -> Self {
        let id = task.id();
        let place = tables.tasks.insert(task);
        Self { place: TableEntry { run: tables.dropped.clone(), kind: Kind::Task, place }, id, cell }
    }

    pub(crate) fn within(&self, tables: &Tables) -> Option<coop::Task<Settled>> {
        tables.tasks.get(self.place.within(tables)?)
    }

    pub(crate) fn awaited(&self, tables: &Tables) -> Option<Awaited> {
        Some(Awaited { eventual: self.within(tables)?.eventual(), cell: self.cell.clone() })
    }
}

#[pymethods]
impl TaskHandle {
    /// Its number within the run. Tasks, promises and semaphores share one counter, from 0.
    #[getter]
    fn id(&self) -> u64 {
        self.id
    }

    /// The same as `id`.
    #[getter]
    fn task_id(&self) -> u64 {
        self.id
    }

    fn __repr__(&self) -> String {
        format!("Task({})", self.id)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.cell.traverse(&visit)
    }

    fn __clear__(&self) {
        self.cell.clear();
    }
}

/// The value of a promise, to wait for.
#[pyclass(frozen, generic, module = "semafor.effects", name = "Future", weakref)]
pub struct FutureHandle {
    place: TableEntry,
    pub(crate) cell: Arc<OutcomeCell>,
}

impl FutureHandle {
    pub(crate) fn new(tables: &Tables, future: coop::Eventual<Settled>) -> Self {
        let place = tables.futures.insert(future);
        let place = TableEntry { run: tables.dropped.clone(), kind: Kind::Future, place };
        Self { place, cell: Arc::default() }
    }

    pub(crate) fn awaited(&self, tables: &Tables) -> Option<Awaited> {
        let eventual = tables.futures.get(self.place.within(tables)?)?;
        Some(Awaited { eventual, cell: self.cell.clone() })
    }
}

#[pymethods]
impl FutureHandle {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.cell.traverse(&visit)
    }

    fn __clear__(&self) {
        self.cell.clear();
    }
}

/// A promise of one run, from `CreatePromise`: `yield CompletePromise(promise, value)` completes it.
#[pyclass(frozen, generic, module = "semafor.effects", name = "Promise", weakref)]
pub struct PromiseHandle {
    place: TableEntry,
    id: u64,
    /// Wait for this.
    #[pyo3(get)]
    pub(crate) future: Py<FutureHandle>,
}

impl PromiseHandle {
    pub(crate) fn new(py: Python<'_>, tables: &Tables, promise: coop::Promise<Settled>) -> PyResult<Self> {
        let (id, future) = (promise.id(), Py::new(py, FutureHandle::new(tables, promise.future()))?);
        let place = tables.promises.insert(promise);
        let place = TableEntry { run: tables.dropped.clone(), kind: Kind::Promise, place };
        Ok(Self { place, id, future })
    }

    pub(crate) fn within(&self, tables: &Tables) -> Option<coop::Promise<Settled>> {
        tables.promises.get(self.place.within(tables)?)
    }
}

#[pymethods]
impl PromiseHandle {
    /// Its number within the run. Tasks, promises and semaphores share one counter, from 0.
    #[getter]
    fn id(&self) -> u64 {
        self.id
    }

    fn __repr__(&self) -> String {
        format!("Promise({})", self.id)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.future)
    }
}

/// A promise that any thread may complete, from `CreateExternalPromise`.
#[pyclass(frozen, generic, module = "semafor.effects", name = "ExternalPromise", weakref)]
pub struct ExternalPromiseHandle {
    promise: coop::ExternalPromise<Settled>,
    /// Wait for this.
    #[pyo3(get)]
    future: Py<FutureHandle>,
}

impl ExternalPromiseHandle {
    pub(crate) fn new(
        py: Python<'_>,
        tables: &Tables,
        (promise, future): (coop::ExternalPromise<Settled>, coop::Eventual<Settled>),
    ) -> PyResult<Self> {
        Ok(Self { promise, future: Py::new(py, FutureHandle::new(tables, future))? })
    }
}

#[pymethods]
impl ExternalPromiseHandle {
    /// Completes it, from any thread. False if it was completed before: the first value is kept.
    fn complete(&self, value: Py<PyAny>) -> bool {
        let cell = &self.future.get().cell;
        cell.fill(Outcome::Value(value)) && self.promise.complete(cell.clone())
    }

    /// Fails it, from any thread: its waiters get this exception. False if it was completed before.
    fn fail(&self, error: &Bound<'_, PyAny>) -> PyResult<bool> {
        let caught = Caught::new(error.py(), to_exception(error)?);
        let cell = &self.future.get().cell;
        let is_first = cell.fill(Outcome::Failure(caught));
        Ok(is_first && self.promise.fail(coop::Error::new(Raised::Within(cell.clone()))))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.future)
    }
}

/// A value to wait for.
pub(crate) struct Awaited {
    pub(crate) eventual: coop::Eventual<Settled>,
    pub(crate) cell: Arc<OutcomeCell>,
}

/// The exception for a handle of another run.
pub(crate) fn wrong_run_error() -> PyErr {
    PyRuntimeError::new_err(coop::Error::ForeignHandle.to_string())
}
