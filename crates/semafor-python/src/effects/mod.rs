//! `semafor.effects`: generators of Python on the cooperative scheduler.
//!
//! A task is a future of the scheduler's ([`driver`]) that runs a stack of generators ([`frames`]) and performs what they yield
//! ([`classes`], [`request`]). Everything of a run stays on its thread; Python holds numbers ([`handles`]).

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

/// What `semafor.effects` is made of.
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
