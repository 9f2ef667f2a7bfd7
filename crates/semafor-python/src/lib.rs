//! The engine of the Python package `semafor`: what decides who gets a slot, for event loops and threads of Python.
//!
//! Python asks, and polls the answer itself ([`call`]), so there is no runtime in between. Whatever wakes it comes from
//! threads that must not wait for the interpreter, and rings a [`queue`]. A child made by `fork` and an interpreter that ends
//! are looked after in [`process`].

mod attached;
mod call;
mod effects;
mod errors;
mod held;
mod loop_queue;
mod opened;
mod process;
#[cfg(target_os = "linux")]
mod purge;
mod result;
mod semaphore;
mod stats;
mod wake;

/// What the modules in `python/semafor` are made of.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_export]
    use super::call::Call;
    #[pymodule_export]
    use super::effects::effects;
    #[pymodule_export]
    use super::process::{after_fork, at_exit};
    #[cfg(target_os = "linux")]
    #[pymodule_export]
    use super::purge::{Progress, Summary, purge};
    #[pymodule_export]
    use super::result::{AcquisitionResult, Lost};
    #[pymodule_export]
    use super::semaphore::Semaphore;
    #[pymodule_export]
    use super::stats::stats;
}
