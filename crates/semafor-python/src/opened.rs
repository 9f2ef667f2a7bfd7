//! A semaphore of the engine, and how it is opened.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::PyResult;
use semafor::{Acquire, BuildError, Builder, Semaphore, Span, secs};

use crate::errors;
use crate::process::{self, NameState};

/// The arguments of a Python semaphore.
pub(crate) struct Spec {
    pub(crate) name: String,
    pub(crate) slots: u32,
    pub(crate) ttl: Option<f64>,
    pub(crate) max_acquire_time: Option<f64>,
    pub(crate) cancel_task_after_ttl: bool,
    pub(crate) label: Option<String>,
    /// `None`: in memory.
    pub(crate) url: Option<String>,
    /// The `semafor` command that starts an agent. `None`: the one in `PATH`.
    pub(crate) program: Option<PathBuf>,
    pub(crate) heartbeat_max_interval: Option<f64>,
}

/// An open semaphore. A forked child does not use the ones it inherits: see [`process`].
pub(crate) struct Opened {
    /// `None` only while it is dropped.
    semaphore: Option<Semaphore>,
    pub(crate) name: Arc<NameState>,
    slots_version: u32,
    fork_count: u32,
    pub(crate) cancel_task_after_ttl: bool,
    pub(crate) is_in_memory: bool,
}

impl Spec {
    /// Opens the semaphore. Connects to nothing.
    pub(crate) fn open(&self) -> PyResult<Opened> {
        self.open_with(Some(self.slots))
    }

    /// Opens the semaphore with the number of slots that it has, or with the given number.
    pub(crate) fn open_with(&self, slots: Option<u32>) -> PyResult<Opened> {
        let builder = match &self.url {
            None => process::registry().named(&self.name),
            Some(url) => {
                let home = process::home(url, self.program.as_deref());
                home.map_err(|error| errors::home(&error))?.named(&self.name)
            }
        };
        self.build(builder, slots).map_err(|error| errors::build(&error))
    }

    fn build(&self, builder: Builder, slots: Option<u32>) -> Result<Opened, BuildError> {
        let mut builder = builder.ttl(span(self.ttl)).timeout(span(self.max_acquire_time));
        if let Some(slots) = slots {
            builder = builder.slots(slots);
        }
        if let Some(label) = &self.label {
            builder = builder.label(label.as_str());
        }
        if let Some(interval) = self.heartbeat_max_interval {
            builder = builder.heartbeat_max_interval(secs(interval));
        }
        let semaphore = builder.build()?;
        let name = process::name(self.url.as_deref(), &self.name);
        Ok(Opened {
            semaphore: Some(semaphore),
            slots_version: slots.map_or_else(|| name.slots_version(), |slots| name.record_opened(slots)),
            name,
            fork_count: process::fork_count(),
            cancel_task_after_ttl: self.cancel_task_after_ttl,
            is_in_memory: self.url.is_none(),
        })
    }
}

impl Opened {
    pub(crate) fn semaphore(&self) -> &Semaphore {
        self.semaphore.as_ref().expect("only a drop takes it")
    }

    /// False in a forked child.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.fork_count == process::fork_count()
    }

    /// False in a forked child, and in memory also if the name was since opened with another number of slots. In the other
    /// homes such a handle goes on with the new number.
    pub(crate) fn is_current(&self) -> bool {
        self.is_of_this_process() && (!self.is_in_memory || self.slots_version == self.name.slots_version())
    }

    pub(crate) fn acquire(&self, weight: u32) -> Acquire<'_> {
        match weight {
            1 => self.semaphore().acquire(),
            weight => self.semaphore().acquire().weight(weight),
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            std::mem::forget(self.semaphore.take());
        }
    }
}

pub(crate) fn span(seconds: Option<f64>) -> Span {
    seconds.map_or(Span::UNLIMITED, secs)
}
