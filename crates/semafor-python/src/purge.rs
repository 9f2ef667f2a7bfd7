//! The purger, which runs on a thread of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use semafor_pipeline::MemoryGuard;
use semafor_purge::{PurgeError, Purger};
use tokio::sync::oneshot;

use crate::call::{Call, make_result};
use crate::loop_queue::LoopQueue;

/// The progress of a purge.
///
/// - `dirs_scanned`, `files_scanned`: the directories that were read, and their other entries.
/// - `dirs_removed`, `files_removed`: the directories and files that were removed.
/// - `bytes_freed`: the sum of the sizes of the removed files.
/// - `dirs_changed`, `files_changed`: the directories and files that stayed because they, or a directory above them,
///   were changed or moved before their removal.
/// - `errors`: the entries that could not be read or removed.
/// - `fraction`: the share of the tree that is done, from 0 to 1; an estimate.
/// - `memory_bytes`: the memory of this process.
/// - `elapsed`: the seconds since the start.
#[pyclass(frozen, get_all, module = "semafor.purge", name = "PurgeProgress")]
pub struct Progress {
    dirs_scanned: u64,
    dirs_removed: u64,
    files_scanned: u64,
    files_removed: u64,
    bytes_freed: u64,
    dirs_changed: u64,
    files_changed: u64,
    errors: u64,
    fraction: f64,
    memory_bytes: u64,
    elapsed: f64,
}

/// The result of a purge.
///
/// - `dirs_scanned`, `files_scanned`: the directories that were read, and their other entries.
/// - `dirs_removed`, `files_removed`: the directories and files that were removed; with `dry_run`, that would
///   be removed.
/// - `bytes_freed`: the sum of the sizes of the removed files.
/// - `dirs_changed`, `files_changed`: the directories and files that stayed because they, or a directory above them,
///   were changed or moved before their removal.
/// - `errors`: the entries that could not be read or removed.
/// - `errors_by_kind`: the number of errors of each kind.
/// - `dry_run`: True if nothing was removed.
/// - `stopped_by`: why the purge ended: "completed", "limit", "breaker" (memory) or "signal" (cancelled).
/// - `peak_memory_bytes`: the highest measured memory of this process.
/// - `backpressure_events`: how often the purge used fewer threads because memory was short.
/// - `elapsed`: how long the purge took, in seconds.
#[pyclass(frozen, get_all, module = "semafor.purge", name = "PurgeSummary")]
pub struct Summary {
    dry_run: bool,
    dirs_scanned: u64,
    dirs_removed: u64,
    files_scanned: u64,
    files_removed: u64,
    bytes_freed: u64,
    dirs_changed: u64,
    files_changed: u64,
    errors: u64,
    errors_by_kind: std::collections::BTreeMap<&'static str, u64>,
    peak_memory_bytes: u64,
    backpressure_events: u64,
    stopped_by: &'static str,
    elapsed: f64,
}

#[pymethods]
impl Progress {
    fn __repr__(&self) -> String {
        format!("<PurgeProgress: {} directories removed, {:.0} %>", self.dirs_removed, 100.0 * self.fraction)
    }
}

#[pymethods]
impl Summary {
    fn __repr__(&self) -> String {
        let Self { dirs_removed, files_removed, errors, stopped_by, .. } = self;
        let removed = if self.dry_run { "would be removed" } else { "removed" };
        format!(
            "<PurgeSummary: {dirs_removed} directories and {files_removed} files {removed}, {errors} errors, {stopped_by}>"
        )
    }
}

/// `progress`: an event loop, a callback that it calls, and the seconds between two calls. The last call is at the end.
#[pyfunction]
#[pyo3(signature = (
    root, *, dry_run, max_concurrency_deletion, max_concurrency_scanning, memory_limit_mb, max_empty_dirs_to_delete,
    max_age, min_age, exclude, remove_root, rate, force, progress
))]
#[expect(clippy::too_many_arguments, reason = "all of them named")]
pub(crate) fn purge(
    root: PathBuf,
    dry_run: bool,
    max_concurrency_deletion: Option<u32>,
    max_concurrency_scanning: Option<u32>,
    memory_limit_mb: u64,
    max_empty_dirs_to_delete: u64,
    max_age: Option<f64>,
    min_age: f64,
    exclude: Vec<PathBuf>,
    remove_root: bool,
    rate: u32,
    force: bool,
    progress: Option<(Bound<'_, PyAny>, Py<PyAny>, f64)>,
) -> PyResult<Call> {
    let memory = MemoryGuard::new(memory_limit_mb.saturating_mul(1024 * 1024));
    let mut purger = Purger::new(root)
        .dry_run(dry_run)
        .min_age(seconds(min_age)?)
        .remove_root(remove_root)
        .max_dirs(max_empty_dirs_to_delete)
        .rate(rate)
        .even_system_paths(force)
        .memory(memory.clone());
    if let Some(age) = max_age {
        purger = purger.older_than(seconds(age)?);
    }
    if let Some(most) = max_concurrency_deletion {
        purger = purger.max_concurrency_deletion(most);
    }
    if let Some(most) = max_concurrency_scanning {
        purger = purger.max_concurrency_scanning(most);
    }
    for pattern in exclude {
        purger = purger.exclude(pattern).map_err(|error| purge_error(&error))?;
    }
    let mut listener = None;
    if let Some((event_loop, callback, every)) = progress {
        let progress_listener = Listener { queue: LoopQueue::of(&event_loop)?, callback: Arc::new(callback) };
        listener = Some(progress_listener.clone());
        purger =
            purger.on_progress(seconds(every)?, move |seen| progress_listener.report(current_progress(seen)));
    }
    Ok(Call::new(|cancel_token| async move {
        // A cancelled purge stops and returns its summary.
        let purger = purger.cancelled_by(cancel_token);
        let (ended, end) = oneshot::channel();
        let thread = std::thread::Builder::new().name("semafor-purge".into());
        let started = thread.spawn(move || {
            let done = purger.purge();
            match (listener, done) {
                (Some(listener), Ok(done)) => {
                    listener.report(final_progress(&done, memory.now()));
                    // The loop calls the listener first, even if the purge ends before it is awaited.
                    listener.queue.push(Box::new(move |_| drop(ended.send(Ok(done)))));
                }
                (_, done) => drop(ended.send(done)),
            }
        });
        make_result(match (started, end.await) {
            (Ok(_), Ok(Ok(done))) => Ok(summary(done)),
            (Ok(_), Ok(Err(error))) => Err(purge_error(&error)),
            (Err(error), _) => Err(PyOSError::new_err(format!("cannot start the purge thread: {error}"))),
            (_, Err(_)) => Err(PyOSError::new_err("the purge ended without a result; this is a bug")),
        })
    }))
}

/// A Python callback, and the queue of the event loop that calls it.
#[derive(Clone)]
struct Listener {
    queue: Arc<LoopQueue>,
    callback: Arc<Py<PyAny>>,
}

impl Listener {
    fn report(&self, progress: Progress) {
        let callback = Arc::clone(&self.callback);
        self.queue.push(Box::new(move |py| {
            if let Err(error) = callback.call1(py, (progress,)) {
                error.write_unraisable(py, None);
            }
        }));
    }
}

fn current_progress(seen: &semafor_purge::Progress) -> Progress {
    Progress {
        dirs_scanned: seen.dirs_scanned,
        dirs_removed: seen.dirs_removed,
        files_scanned: seen.files_scanned,
        files_removed: seen.files_removed,
        bytes_freed: seen.bytes_freed,
        dirs_changed: seen.dirs_changed,
        files_changed: seen.files_changed,
        errors: seen.errors,
        fraction: seen.fraction,
        memory_bytes: seen.memory_bytes,
        elapsed: seen.elapsed.as_secs_f64(),
    }
}

fn final_progress(done: &semafor_purge::Summary, memory_bytes: u64) -> Progress {
    Progress {
        dirs_scanned: done.dirs_scanned,
        dirs_removed: done.dirs_removed,
        files_scanned: done.files_scanned,
        files_removed: done.files_removed,
        bytes_freed: done.bytes_freed,
        dirs_changed: done.dirs_changed,
        files_changed: done.files_changed,
        errors: done.errors,
        fraction: done.fraction,
        memory_bytes,
        elapsed: done.elapsed.as_secs_f64(),
    }
}

fn summary(done: semafor_purge::Summary) -> Summary {
    Summary {
        dry_run: done.dry_run,
        dirs_scanned: done.dirs_scanned,
        dirs_removed: done.dirs_removed,
        files_scanned: done.files_scanned,
        files_removed: done.files_removed,
        bytes_freed: done.bytes_freed,
        dirs_changed: done.dirs_changed,
        files_changed: done.files_changed,
        errors: done.errors,
        errors_by_kind: done.errors_by_kind,
        peak_memory_bytes: done.peak_memory_bytes,
        backpressure_events: done.backpressure_events,
        stopped_by: done.stopped_by.name(),
        elapsed: done.elapsed.as_secs_f64(),
    }
}

fn seconds(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err(format!("invalid number of seconds: {seconds}")))
}

fn purge_error(error: &PurgeError) -> PyErr {
    match error {
        PurgeError::Root { source, .. } => std::io::Error::new(source.kind(), error.to_string()).into(),
        error => PyValueError::new_err(error.to_string()),
    }
}
