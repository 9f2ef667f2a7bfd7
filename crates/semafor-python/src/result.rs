//! What an acquire gives.

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

/// A slot, and how to name it.
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
    /// Somebody made one up.
    Text,
}

/// Where it came from.
struct Grant {
    opened: Arc<Opened>,
    acquisition: Arc<Acquisition>,
}

impl AcquisitionResult {
    /// `by_id`: it is held until somebody releases it by its id. Else, until this lets go of it.
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

    /// What remains to be done to give it back.
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

    /// Names this acquisition, for `release` and `renew`.
    #[getter]
    fn acquisition_id<'py>(&self, py: Python<'py>) -> &Bound<'py, PyString> {
        let text = self.id_text.get_or_init(py, || match &self.id {
            Id::Permit(id) => PyString::new(py, &id.to_string()).unbind(),
            Id::Text => PyString::new(py, "").unbind(),
        });
        text.bind(py)
    }

    /// Which slot it is, from 0. No other holder has the same, so it can stand for a port, a device or a worker.
    #[getter]
    fn slot_number(&self) -> u32 {
        self.slot_number
    }

    /// Grows with every grant of the name: a resource that refuses lower ones than it has seen is safe from late holders.
    #[getter]
    fn fencing_token(&self) -> u64 {
        self.fencing_token
    }

    /// How long it stood in line, in seconds.
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

    /// `await result.renew(ttl)`: keeps the slot for `ttl` seconds from now; `None`: for as long as it takes.
    ///
    /// Raises NotHeldError if it is not held any more.
    #[pyo3(signature = (ttl))]
    fn renew<'py>(&self, py: Python<'py>, ttl: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let (Some(grant), Id::Permit(id)) = (&self.grant, &self.id) else {
            return Err(errors::not_held("it was not acquired, but made up"));
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
            // Only the interpreter drops its objects, perhaps while it raises an exception. The next in line is told by Python,
            // which must not find that.
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
        return Err(errors::not_held("it is held by the process that this one was forked from"));
    }
    let renewed = opened.semaphore().renew(&id, span(ttl)).await;
    renewed.map_err(|error| errors::renew(&error)).map(|()| NONE)
}

/// Set when a slot is lost: its time to live is up, it was evicted, or its home could not be told that its holder lives.
#[pyclass(frozen, module = "semafor")]
pub struct Lost {
    signal: CancellationToken,
    acquisition: Option<Arc<Acquisition>>,
}

#[pymethods]
impl Lost {
    /// True once the slot is lost. Giving it back is not losing it.
    fn is_set(&self) -> bool {
        self.signal.is_cancelled()
    }

    /// Why, in words; `None` if it is not lost.
    #[getter]
    fn reason(&self) -> Option<String> {
        let why = self.is_set().then_some(self.acquisition.as_ref()?)?.why_lost();
        why.map(|why| why.to_string())
    }

    /// `await result.lost.wait()`: waits until the slot is lost, and gives True. It never is if it is given back before.
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
