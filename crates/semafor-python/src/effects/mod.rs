//! `semafor.effects`: Python generators on the cooperative scheduler.
//!
//! A task is a future of the scheduler ([`driver`]) that runs a stack of generators ([`frames`]) and performs the
//! effects they yield ([`classes`], [`request`]). The objects of a run stay on its thread; Python holds numbers
//! ([`handles`]).

mod arguments;
mod classes;
mod driver;
mod exceptions;
mod frames;
mod handles;
mod log;
mod outcome;
mod program;
mod request;
mod running;

/// The native part of `semafor.effects`.
#[pyo3::pymodule(submodule)]
pub(crate) mod effects {
    #[pymodule_export]
    use super::classes::{
        AcquireSemaphore, Cancel, CompletePromise, CreateExternalPromise, CreatePromise, CreateSemaphore,
        Delay, FailPromise, Gather, Log, Now, Race, ReleaseSemaphore, Shield, Spawn, TryAcquire, Wait,
        WithHandler, WithSemaphore, Yield,
    };
    #[pymodule_export]
    use super::handles::{ExternalPromiseHandle, FutureHandle, PromiseHandle, SemaphoreHandle, TaskHandle};
    #[pymodule_export]
    use super::program::Program;
    #[pymodule_export]
    use super::running::{explore, run};
}
