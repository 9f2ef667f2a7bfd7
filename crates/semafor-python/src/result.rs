//! The result of an acquire.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;
use semafor::{Permit, PermitId};
use tokio_util::sync::CancellationToken;

use crate::call::{Call, NONE};
use crate::held::{self, Acquisition, Task};
use crate::opened::{Opened, span};
use crate::{attached, errors};

/// A slot that was granted, and its id.
#[pyclass(frozen, module = "semafor", weakref)]
pub struct AcquisitionResult {
    id: Id,
    slot_number: u32,
    fencing_token: u64,
    waited: f64,
    id_text: PyOnceLock<Py<PyString>>,
    grant: Option<Grant>,
    lost: PyOnceLock<Py<Lost>>,
}

enum Id {
    Permit(PermitId),
    /// The user constructed the result.
    Text,
}

/// Where the slot came from.
struct Grant {
    opened: Arc<Opened>,
    acquisition: Arc<Acquisition>,
}

impl AcquisitionResult {
    /// `by_id`: the slot is held until it is released by its id. Otherwise dropping this result releases it.
    pub(crate) fn new(
        py: Python<'_>,
        opened: &Arc<Opened>,
        permit: Permit<'static>,
        task: Option<Task>,
        by_id: bool,
    ) -> Self {
        let id = permit.id();
        let (slot_number, fencing_token) = (permit.slot(), permit.fencing_token());
        let waited = permit.waited().as_secs_f64();
        let acquisition = Acquisition::new(py, opened, permit, task);
        if by_id {
            held::keep(py, id.clone(), Arc::clone(&acquisition));
        } else if !opened.is_in_memory {
            held::track_guard(&acquisition);
        }
        Self {
            id: Id::Permit(id),
            slot_number,
            fencing_token,
            waited,
            id_text: PyOnceLock::new(),
            grant: Some(Grant { opened: Arc::clone(opened), acquisition }),
            lost: PyOnceLock::new(),
        }
    }

    /// Takes the permit, to release it. `None` if it was taken before.
    pub(crate) fn take_permit(&self) -> Option<(Arc<Opened>, Permit<'static>)> {
        let grant = self.grant.as_ref()?;
        Some((Arc::clone(&grant.opened), grant.acquisition.take_permit()?))
    }
}

#[pymethods]
impl AcquisitionResult {
    #[new]
    fn constructed(acquisition_id: Py<PyString>, slot_number: u32, py: Python<'_>) -> PyResult<Self> {
        let id_text = PyOnceLock::new();
        let _ = id_text.set(py, acquisition_id);
        Ok(Self {
            id: Id::Text,
            slot_number,
            fencing_token: 0,
            waited: 0.0,
            id_text,
            grant: None,
            lost: PyOnceLock::new(),
        })
    }

    /// Identifies the slot that was granted, for `release`, `renew` and `evict`.
    #[getter]
    fn acquisition_id<'py>(&self, py: Python<'py>) -> &Bound<'py, PyString> {
        let text = self.id_text.get_or_init(py, || match &self.id {
            Id::Permit(id) => PyString::new(py, &id.to_string()).unbind(),
            Id::Text => PyString::new(py, "").unbind(),
        });
        text.bind(py)
    }

    /// The slot number, from 0. No two holders have the same, so it can stand for a port, a device or a worker.
    ///
    /// A holder has one slot number, whatever its weight is.
    #[getter]
    fn slot_number(&self) -> u32 {
        self.slot_number
    }

    /// Grows with every grant of the name.
    ///
    /// With one slot, a resource that refuses tokens lower than the highest it has seen is safe from holders that lost
    /// their slot. With several slots, the resource must compare only the tokens of the same `slot_number`.
    #[getter]
    fn fencing_token(&self) -> u64 {
        self.fencing_token
    }

    /// How long the acquire waited in line, in seconds.
    #[getter]
    fn waited(&self) -> f64 {
        self.waited
    }

    /// Set when the slot is lost: `result.lost.is_set()`, or `await result.lost.wait()`.
    #[getter]
    fn lost(&self, py: Python<'_>) -> PyResult<Py<Lost>> {
        let lost = self.lost.get_or_try_init(py, || {
            let acquisition = self.grant.as_ref().map(|grant| Arc::clone(&grant.acquisition));
            let signal =
                acquisition.as_ref().map(|acquisition| acquisition.lost_signal()).unwrap_or_default();
            Py::new(py, Lost { signal, acquisition })
        });
        lost.map(|lost| lost.clone_ref(py))
    }

    /// `await result.renew(ttl)`: sets the lease of the slot to `ttl` seconds from now. None: no limit.
    ///
    /// Raises NotHeldError if the slot is no longer held.
    #[pyo3(signature = (ttl))]
    fn renew<'py>(&self, py: Python<'py>, ttl: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let (Some(grant), Id::Permit(id)) = (&self.grant, &self.id) else {
            return Err(errors::not_held("this result was not returned by an acquire"));
        };
        Call::drop_on_cancel(renew(Arc::clone(&grant.opened), id.clone(), ttl)).into_coroutine(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let id = self.acquisition_id(py).repr()?;
        Ok(format!("AcquisitionResult(acquisition_id={id}, slot_number={})", self.slot_number))
    }

    fn __eq__(&self, py: Python<'_>, other: &Self) -> PyResult<bool> {
        Ok(self.slot_number == other.slot_number
            && self.acquisition_id(py).as_any().eq(other.acquisition_id(py))?)
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        self.acquisition_id(py).hash()
    }
}

impl Drop for AcquisitionResult {
    fn drop(&mut self) {
        if let Some(grant) = self.grant.take() {
            // Only the interpreter drops its objects, perhaps while it raises an exception. The drop calls Python
            // code to wake the next waiter, and that code must run without the exception.
            Python::attach(|py| {
                let raised = PyErr::take(py);
                attached::with(py, || drop(grant));
                if let Some(raised) = raised {
                    raised.restore(py);
                }
            });
        }
    }
}

pub(crate) async fn renew(opened: Arc<Opened>, id: PermitId, ttl: Option<f64>) -> PyResult<Option<bool>> {
    if !opened.is_of_this_process() {
        return Err(errors::not_held("the slot is held by the process that this one was forked from"));
    }
    let renewed = opened.semaphore().renew(&id, span(ttl)).await;
    renewed.map_err(|error| errors::renew(&error)).map(|()| NONE)
}

/// Set when the slot is lost: its lease expired, it was evicted, or its home was unreachable for too long. Also set when
/// another process releases the slot, and when the slot of a `with` block is released by its id.
#[pyclass(frozen, module = "semafor")]
pub struct Lost {
    signal: CancellationToken,
    acquisition: Option<Arc<Acquisition>>,
}

#[pymethods]
impl Lost {
    /// Returns True once the slot is lost. The end of the block is not a loss, nor is the release of a slot of
    /// `acquire()` in its own process.
    fn is_set(&self) -> bool {
        self.signal.is_cancelled()
    }

    /// Why the slot was lost, as a sentence; None if it was not lost.
    #[getter]
    fn reason(&self) -> Option<String> {
        let why = self.is_set().then_some(self.acquisition.as_ref()?)?.why_lost();
        why.map(|why| why.to_string())
    }

    /// `await result.lost.wait()`: waits until the slot is lost and returns True. Never returns if the slot is released
    /// without a loss.
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let signal = self.signal.clone();
        let wait = Call::drop_on_cancel(async move {
            signal.cancelled().await;
            Ok(true)
        });
        wait.may_never_end().into_coroutine(py)
    }

    fn __repr__(&self) -> String {
        match self.reason() {
            Some(reason) => format!("<Lost: {reason}>"),
            None if self.is_set() => "<Lost: set>".into(),
            None => "<Lost: unset>".into(),
        }
    }
}
