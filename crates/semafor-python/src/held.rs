//! The slots that this process holds.
//!
//! A user of `acquire()` has only the id to release a slot by, so the table here keeps the [`Acquisition`]. A context
//! manager has the acquisition itself. Dropping it releases the slot, at the latest when it is garbage collected.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Wake, Waker};
use std::time::Instant;

use hashbrown::HashMap;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::sync::{MutexExt, PyOnceLock};
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};
use semafor::{NotHeld, Permit, PermitId};
use tokio_util::sync::CancellationToken;

use crate::call::Work;
use crate::loop_queue::LoopQueue;
use crate::opened::Opened;
use crate::process::NameState;
use crate::{attached, process};

/// Lost slots are removed from the table when it has doubled since the last time, and has at least so many entries.
const MIN_SWEEP: usize = 1024;

/// The asyncio task that acquired a slot. An object has one plain weak reference, whose address identifies the task.
#[derive(Clone)]
pub(crate) struct Task(Arc<Py<PyWeakrefReference>>);

impl Task {
    /// `None` outside a task.
    pub(crate) fn current(py: Python<'_>) -> Option<Self> {
        static CURRENT_TASK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let task = CURRENT_TASK.import(py, "asyncio", "current_task").ok()?.call0().ok()?;
        if task.is_none() {
            return None;
        }
        Some(Self(Arc::new(PyWeakrefReference::new(&task).ok()?.unbind())))
    }

    fn key(&self) -> usize {
        self.0.as_ptr() as usize
    }

    /// The queue of the loop that the task runs in.
    fn queue(&self, py: Python<'_>) -> Option<Arc<LoopQueue>> {
        let task = self.0.bind(py).upgrade()?;
        LoopQueue::of(&task.call_method0("get_loop").ok()?).ok()
    }

    /// Call it on the thread of the loop.
    fn cancel(&self, py: Python<'_>, why: String) {
        if let Some(task) = self.0.bind(py).upgrade() {
            // This fails if the loop is closed: then there is nothing to cancel.
            let _ = task.call_method1("cancel", (why,));
        }
    }
}

/// A slot that was granted.
pub(crate) struct Acquisition {
    fork_count: u32,
    name: Arc<NameState>,
    held: Mutex<Option<Held>>,
    /// Set at the release, if the slot was lost before.
    lost: OnceLock<NotHeld>,
}

struct Held {
    /// Dropped first, because a release is not a loss.
    _watch: Option<Watch>,
    permit: Permit<'static>,
    task: Option<Task>,
}

impl Acquisition {
    pub(crate) fn new(
        py: Python<'_>,
        opened: &Opened,
        permit: Permit<'static>,
        task: Option<Task>,
    ) -> Arc<Self> {
        let watched = task.clone().filter(|_| opened.cancel_task_after_ttl);
        let queue = watched.as_ref().and_then(|task| task.queue(py));
        Arc::new_cyclic(|acquisition| {
            let canceller = watched.zip(queue).map(|(task, queue)| Canceller {
                task,
                semaphore_name: opened.semaphore().name().into(),
                acquisition: Weak::clone(acquisition),
                queue,
                is_released: AtomicBool::new(false),
            });
            let watch = canceller.map(|canceller| Watch::new(&permit, canceller));
            let held = Mutex::new(Some(Held { _watch: watch, permit, task }));
            Self {
                fork_count: process::fork_count(),
                name: Arc::clone(&opened.name),
                held,
                lost: OnceLock::new(),
            }
        })
    }

    /// Takes the permit, to release it. `None` if it was taken before, or if another process holds it.
    pub(crate) fn take_permit(&self) -> Option<Permit<'static>> {
        self.is_of_this_process().then_some(())?;
        let Held { permit, .. } = self.held.lock().take()?;
        permit.why_not_held().map(|why| self.lost.set(why));
        Some(permit)
    }

    /// Why the slot was lost, or `None`.
    pub(crate) fn why_lost(&self) -> Option<NotHeld> {
        self.is_of_this_process().then_some(())?;
        let held = self.held.lock();
        held.as_ref().map_or_else(|| self.lost.get().copied(), |held| held.permit.why_not_held())
    }

    /// Cancelled when the slot is lost.
    pub(crate) fn lost_signal(&self) -> CancellationToken {
        let held = self.is_of_this_process().then(|| self.held.lock());
        if let Some(held) = held.as_deref().and_then(Option::as_ref) {
            return held.permit.lost_signal().cancellation_token();
        }
        let signal = CancellationToken::new();
        if self.lost.get().is_some() {
            signal.cancel();
        }
        signal
    }

    /// False in a forked child.
    fn is_of_this_process(&self) -> bool {
        self.fork_count == process::fork_count()
    }

    fn has_ended(&self) -> bool {
        self.held.lock().as_ref().is_none_or(|held| held.permit.is_lost())
    }

    fn task_key(&self) -> Option<usize> {
        self.held.lock().as_ref()?.task.as_ref().map(Task::key)
    }
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            std::mem::forget(self.held.get_mut().take());
        }
    }
}

/// Cancels a task when its slot is lost.
struct Watch {
    /// Polled once, to register the waker.
    _lost: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>,
    canceller: Arc<Canceller>,
}

impl Watch {
    fn new(permit: &Permit<'_>, canceller: Canceller) -> Self {
        let canceller = Arc::new(canceller);
        let mut lost = Box::pin(permit.lost_signal().lost());
        let waker = Waker::from(Arc::clone(&canceller));
        if lost.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            Arc::clone(&canceller).wake();
        }
        Self { _lost: lost, canceller }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.canceller.is_released.store(true, Ordering::Relaxed);
    }
}

struct Canceller {
    task: Task,
    semaphore_name: Box<str>,
    acquisition: Weak<Acquisition>,
    queue: Arc<LoopQueue>,
    /// True once the task has released the slot. Then it is not cancelled, even if the callback is already queued.
    is_released: AtomicBool,
}

impl Canceller {
    fn why(&self) -> String {
        let why = self.acquisition.upgrade().and_then(|acquisition| acquisition.why_lost());
        format!("semaphore {:?}: {}", self.semaphore_name, why.unwrap_or(NotHeld::Unknown))
    }
}

impl Wake for Canceller {
    fn wake(self: Arc<Self>) {
        let this = Arc::clone(&self);
        self.queue.push(Box::new(move |py| {
            if !this.is_released.load(Ordering::Relaxed) {
                this.task.cancel(py, this.why());
            }
        }));
    }
}

static TABLE: Mutex<Option<Table>> = Mutex::new(None);

#[derive(Default)]
struct Table {
    /// The key includes the number of the name, because two agents may issue the same id.
    by_id: HashMap<(u32, PermitId), Arc<Acquisition>>,
    /// The slots that each task acquired, the latest last.
    by_task: HashMap<usize, Vec<(u32, PermitId)>>,
    /// The number of entries after the last sweep.
    swept_at: usize,
    /// Slots of context managers outside this process, to be released at exit.
    guards: Vec<Weak<Acquisition>>,
    /// Waiters outside this process, to be cancelled at exit.
    waiters: Vec<Weak<Work>>,
}

fn with_table<R>(work: impl FnOnce(&mut Table) -> R) -> R {
    work(TABLE.lock().get_or_insert_default())
}

/// Keeps the acquisition until it is released by its id.
pub(crate) fn keep(py: Python<'_>, id: PermitId, acquisition: Arc<Acquisition>) {
    let lost = with_table(|table| {
        if let Some(task) = acquisition.task_key() {
            table.by_task.entry(task).or_default().push((acquisition.name.number, id.clone()));
        }
        table.by_id.insert((acquisition.name.number, id), acquisition);
        table.sweep()
    });
    attached::with(py, || drop(lost));
}

/// Removes the acquisition from the table.
pub(crate) fn take(number: u32, id: &PermitId) -> Option<Arc<Acquisition>> {
    with_table(|table| table.take(&(number, id.clone())))
}

/// Removes the task's latest acquisition of this semaphore from the table. It may be lost: `release()` never means an
/// earlier one.
pub(crate) fn take_latest(task: &Task, number: u32) -> Option<Arc<Acquisition>> {
    with_table(|table| {
        let own = table.by_task.get(&task.key())?;
        let latest = own.iter().rev().find(|(of, _)| *of == number)?.clone();
        table.take(&latest)
    })
}

/// Remembers the slot of a context manager, to release it at exit.
pub(crate) fn track_guard(acquisition: &Arc<Acquisition>) {
    with_table(|table| track(&mut table.guards, acquisition));
}

/// Remembers a waiter, to cancel it at exit.
pub(crate) fn track_waiter(work: &Arc<Work>) {
    with_table(|table| track(&mut table.waiters, work));
}

/// Adds an entry. Removes dropped ones each time the number of entries has doubled.
fn track<T>(all: &mut Vec<Weak<T>>, one: &Arc<T>) {
    if all.len() == all.capacity() {
        all.retain(|known| known.strong_count() > 0);
        all.reserve(all.len() + 1);
    }
    all.push(Arc::downgrade(one));
}

impl Table {
    fn take(&mut self, key: &(u32, PermitId)) -> Option<Arc<Acquisition>> {
        let acquisition = self.by_id.remove(key)?;
        if let Some(task) = acquisition.task_key()
            && let Some(own) = self.by_task.get_mut(&task)
        {
            if let Some(at) = own.iter().rposition(|known| known == key) {
                own.remove(at);
            }
            if own.is_empty() {
                self.by_task.remove(&task);
            }
        }
        Some(acquisition)
    }

    /// Removes lost slots: their holders need not release them.
    fn sweep(&mut self) -> Vec<Arc<Acquisition>> {
        if self.by_id.len() < MIN_SWEEP.max(2 * self.swept_at) {
            return Vec::new();
        }
        let ended = self.by_id.iter().filter(|(_, acquisition)| acquisition.has_ended());
        let ended: Vec<_> = ended.map(|(key, _)| key.clone()).collect();
        let ended = ended.iter().filter_map(|key| self.take(key)).collect();
        self.swept_at = self.by_id.len();
        ended
    }
}

pub(crate) fn after_fork() {
    std::mem::forget(TABLE.lock().take());
}

/// Leaves all lines and releases all slots outside this process. Waits at most [`EXIT_TIMEOUT`](process::EXIT_TIMEOUT)
/// for each next step.
pub(crate) fn release_everything(py: Python<'_>) {
    let Some(table) = TABLE.lock_py_attached(py).take() else { return };
    // Waiters first, because they would be granted the slots released next. All are cancelled before waiting for the
    // first, so that the home gets them in batches.
    let waiters: Vec<_> = table.waiters.iter().filter_map(Weak::upgrade).collect();
    waiters.iter().for_each(|waiter| waiter.begin_cancel(py));
    cancel_and_wait_all(py, waiters.iter());
    let guards = table.guards.iter().filter_map(Weak::upgrade);
    let acquisitions: Vec<_> = guards.chain(table.by_id.into_values()).collect();
    let permits = acquisitions.iter().filter_map(|acquisition| acquisition.take_permit());
    let mut releases: Vec<_> = permits.map(|permit| Box::pin(permit.release())).collect();
    // All releases are sent before the first is waited for.
    let mut context = Context::from_waker(Waker::noop());
    releases.retain_mut(|release| release.as_mut().poll(&mut context).is_pending());
    let releases: Vec<_> = releases
        .into_iter()
        .map(|release| {
            crate::call::Call::new(|_| async move {
                let _ = release.await;
                crate::call::make_none()
            })
        })
        .collect();
    cancel_and_wait_all(py, releases.iter().map(crate::call::Call::work));
}

fn cancel_and_wait_all<'a>(py: Python<'_>, all: impl Iterator<Item = &'a Arc<Work>>) {
    let mut until = Instant::now() + process::EXIT_TIMEOUT;
    for work in all {
        if work.cancel_and_wait(py, until) {
            until = Instant::now() + process::EXIT_TIMEOUT;
        }
    }
}
