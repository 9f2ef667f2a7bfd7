//! The handle that every class of `semafor.Semaphore` uses.

use std::future::poll_fn;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt};
use semafor::{AcquireError, Permit, PermitId, ReleaseError};
use tokio_util::sync::CancellationToken;

use crate::call::{Call, MakeResult, NONE, make_none, make_result};
use crate::held::{self, Task};
use crate::opened::{Opened, Spec};
use crate::result::{AcquisitionResult, renew};
use crate::stats;
use crate::{attached, errors, process};

/// A handle to a name. Opened at the first use, and again in a forked child.
#[pyclass(frozen, module = "semafor._native")]
pub struct Semaphore {
    spec: Arc<Spec>,
    opened: Mutex<Option<Arc<Opened>>>,
}

#[pymethods]
impl Semaphore {
    #[new]
    #[pyo3(signature = (
        *, name, slots, ttl, max_acquire_time, cancel_task_after_ttl, label, url=None, program=None,
        heartbeat_max_interval=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "all of them named")]
    fn new(
        name: String,
        slots: u32,
        ttl: Option<f64>,
        max_acquire_time: Option<f64>,
        cancel_task_after_ttl: bool,
        label: Option<String>,
        url: Option<String>,
        program: Option<PathBuf>,
        heartbeat_max_interval: Option<f64>,
    ) -> PyResult<Self> {
        let spec = Spec {
            name,
            slots,
            ttl,
            max_acquire_time,
            cancel_task_after_ttl,
            label,
            url,
            program,
            heartbeat_max_interval,
        };
        Ok(Self { spec: Arc::new(spec), opened: Mutex::default() })
    }

    /// Acquires a slot if that needs no waiting. `None` if it does: for a slot, or for a reply of the home.
    #[pyo3(signature = (weight, by_id))]
    fn acquire_now(&self, weight: &Bound<'_, PyAny>, by_id: bool) -> PyResult<Option<AcquisitionResult>> {
        if self.spec.url.is_some() {
            return Ok(None);
        }
        let py = weight.py();
        let weight = parse_weight(weight)?;
        let opened = self.opened()?;
        match opened.acquire(weight).now().blocking() {
            Ok(permit) => {
                let task = self.needs_task(by_id).then(|| Task::current(py)).flatten();
                Ok(Some(AcquisitionResult::new(py, &opened, permit.into_owned(), task, by_id)))
            }
            Err(AcquireError::Busy) => Ok(None),
            Err(error) => Err(errors::acquire(&opened, &error)),
        }
    }

    /// Waits in line for a slot.
    #[pyo3(signature = (weight, by_id))]
    fn acquire(&self, weight: &Bound<'_, PyAny>, by_id: bool) -> PyResult<Call> {
        if process::is_exiting() && self.spec.url.is_some() {
            return Err(PyRuntimeError::new_err(
                "the interpreter is exiting: no slot can be acquired any more",
            ));
        }
        let py = weight.py();
        let weight = parse_weight(weight)?;
        let task = self.needs_task(by_id).then(|| Task::current(py)).flatten();
        let opened = self.opened()?;
        let call = Call::new(|cancel_token| async move {
            match acquire_or_leave(&opened, weight, &cancel_token).await {
                None => make_none(),
                Some(Err(error)) => make_result(Err::<bool, _>(errors::acquire(&opened, &error))),
                Some(Ok(permit)) => Box::new(move |py: Python<'_>| {
                    let result = AcquisitionResult::new(py, &opened, permit, task, by_id);
                    Ok(Py::new(py, result)?.into_any())
                }),
            }
        });
        if self.spec.url.is_some() {
            held::track_waiter(call.work());
        }
        Ok(call)
    }

    /// Releases a slot by its id; without an id, the latest one that the current task acquired. `None` if that needs no
    /// waiting.
    #[pyo3(signature = (acquisition_id))]
    fn release(&self, py: Python<'_>, acquisition_id: Option<&str>) -> PyResult<Option<Call>> {
        let Some(text) = acquisition_id else { return self.release_latest(py) };
        // An invalid id was never issued.
        let Ok(id) = text.parse::<PermitId>() else { return Ok(None) };
        if let Some(acquisition) = held::take(self.name_number(), &id) {
            return Ok(acquisition.take_permit().and_then(|permit| self.release_permit(py, permit)));
        }
        if self.spec.url.is_none() {
            let opened = self.opened_as_it_is()?;
            attached::with(py, || drop(poll_once(opened.semaphore().release(&id))));
            return Ok(None);
        }
        let opened = self.opened()?;
        Ok(Some(Call::new(|_| async move { make_release_result(opened.semaphore().release(&id).await) })))
    }

    /// Releases the slot of a context manager. `None` if that needs no waiting.
    fn release_result(&self, py: Python<'_>, result: &AcquisitionResult) -> Option<Call> {
        let (_, permit) = result.take_permit()?;
        self.release_permit(py, permit)
    }

    fn renew(&self, acquisition_id: &str, ttl: Option<f64>) -> PyResult<Call> {
        let id = parse_id(acquisition_id)?;
        Ok(Call::drop_on_cancel(renew(self.opened_as_it_is()?, id, ttl)))
    }

    fn resize(&self, slots: u32) -> PyResult<Call> {
        let opened = self.opened_as_it_is()?;
        Ok(Call::drop_on_cancel(async move {
            opened.semaphore().resize(slots).await.map_err(|error| errors::resize(&error))?;
            opened.name.record_resized(slots);
            Ok(NONE)
        }))
    }

    fn evict(&self, acquisition_id: &str) -> PyResult<Call> {
        let (id, opened) = (parse_id(acquisition_id)?, self.opened_as_it_is()?);
        Ok(Call::drop_on_cancel(async move {
            let evicted = opened.semaphore().evict(&id).await;
            evicted.map_err(|error| errors::release(&error)).map(|()| NONE)
        }))
    }

    fn locked(&self) -> PyResult<Call> {
        let opened = self.opened_as_it_is()?;
        Ok(Call::drop_on_cancel(async move {
            opened.semaphore().locked().await.map_err(|error| errors::home(&error))
        }))
    }

    fn holders(&self) -> PyResult<Call> {
        let opened = self.opened_as_it_is()?;
        Ok(Call::drop_on_cancel(async move {
            let holders = opened.semaphore().holders().await.map_err(|error| errors::home(&error))?;
            Ok(holders.into_iter().map(stats::holder).collect::<Vec<_>>())
        }))
    }

    fn waiters(&self) -> PyResult<Call> {
        let opened = self.opened_as_it_is()?;
        Ok(Call::drop_on_cancel(async move {
            let waiters = opened.semaphore().waiters().await.map_err(|error| errors::home(&error))?;
            Ok(waiters.into_iter().map(stats::waiter).collect::<Vec<_>>())
        }))
    }
}

impl Semaphore {
    /// Whether the acquiring task must be known: to find its latest slot, or to cancel it.
    fn needs_task(&self, by_id: bool) -> bool {
        by_id || self.spec.cancel_task_after_ttl
    }

    /// The number that stands for the home and the name.
    fn name_number(&self) -> u32 {
        match &*self.opened.lock() {
            Some(opened) if opened.is_of_this_process() => opened.name.number,
            _ => process::name(self.spec.url.as_deref(), &self.spec.name).number,
        }
    }

    fn current_handle(&self) -> Option<Arc<Opened>> {
        let opened = self.opened.lock();
        opened.as_ref().filter(|opened| opened.is_current()).cloned()
    }

    fn opened(&self) -> PyResult<Arc<Opened>> {
        if let Some(opened) = self.current_handle() {
            return Ok(opened);
        }
        let opened = Arc::new(self.spec.open()?);
        *self.opened.lock() = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// The same for calls that acquire nothing. In memory they accept any number of slots, as in the other homes.
    fn opened_as_it_is(&self) -> PyResult<Arc<Opened>> {
        match self.opened() {
            Err(error) if self.spec.url.is_none() => {
                self.spec.open_with(None).map(Arc::new).map_err(|_| error)
            }
            opened => opened,
        }
    }

    fn release_latest(&self, py: Python<'_>) -> PyResult<Option<Call>> {
        let latest = Task::current(py).and_then(|task| held::take_latest(&task, self.name_number()));
        let Some(acquisition) = latest else {
            let name = &self.spec.name;
            return Err(errors::not_held(&format!(
                "this task holds no slot of {name:?} that it acquired with acquire(): \
                 pass the acquisition_id of the slot to release"
            )));
        };
        Ok(acquisition.take_permit().and_then(|permit| self.release_permit(py, permit)))
    }

    fn release_permit(&self, py: Python<'_>, permit: Permit<'static>) -> Option<Call> {
        if self.spec.url.is_none() {
            attached::with(py, || drop(permit));
            return None;
        }
        // Sent at once: the caller may never await the call.
        let mut release = Box::pin(permit.release());
        match poll_once(release.as_mut()) {
            Some(Err(error @ ReleaseError::Home(_))) => {
                Some(Call::new(|_| async move { make_release_result(Err(error)) }))
            }
            Some(_) => None,
            None => Some(Call::new(|_| async move { make_release_result(release.await) })),
        }
    }
}

fn parse_id(acquisition_id: &str) -> PyResult<PermitId> {
    let invalid = |_| errors::not_held(&format!("invalid acquisition id: {acquisition_id:?}"));
    acquisition_id.parse().map_err(invalid)
}

/// In Rust because every acquire needs it, and Python is slow.
fn parse_weight(weight: &Bound<'_, PyAny>) -> PyResult<u32> {
    if weight.is_exact_instance_of::<PyInt>()
        && let Ok(count @ 1..) = weight.extract()
    {
        return Ok(count);
    }
    let wrong = |wanted: &str| format!("weight must be {wanted}, got {weight:?}");
    let index = intern!(weight.py(), "__index__");
    if weight.is_instance_of::<PyBool>() || !weight.hasattr(index)? {
        return Err(PyTypeError::new_err(wrong("an int of at least 1")));
    }
    let weight = weight.call_method0(index)?;
    if weight.lt(1)? {
        return Err(PyValueError::new_err(wrong("at least 1")));
    }
    weight.extract().map_err(|_| PyValueError::new_err(wrong("from 1 to 4294967295")))
}

/// Acquires a slot. If the token is cancelled, leaves the line and returns `None`.
async fn acquire_or_leave(
    opened: &Opened,
    weight: u32,
    cancel_token: &CancellationToken,
) -> Option<Result<Permit<'static>, AcquireError>> {
    let mut acquire = opened.acquire(weight);
    let mut cancelled = pin!(cancel_token.cancelled());
    let outcome = poll_fn(|cx| {
        if cancelled.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        Pin::new(&mut acquire).poll(cx).map(Some)
    });
    match outcome.await {
        None => {
            acquire.leave().await;
            None
        }
        Some(outcome) => Some(outcome.map(Permit::into_owned)),
    }
}

/// Polls the future once; `None` if it is not ready.
fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Releasing a slot that is no longer held is not an error.
fn make_release_result(released: Result<(), ReleaseError>) -> MakeResult {
    make_result(match released {
        Err(ReleaseError::Home(error)) => Err(errors::home(&error)),
        _ => Ok(NONE),
    })
}
