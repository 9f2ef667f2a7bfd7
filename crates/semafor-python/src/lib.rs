//! The engine of the Python package `semafor`.
//!
//! Python polls its calls itself ([`call`]), so there is no runtime in between. The threads that wake a call must never
//! wait for the interpreter: they put a callback into the queue of the event loop ([`loop_queue`]). [`process`] handles
//! forks and the exit of the interpreter.

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

/// The extension module that the modules in `python/semafor` use.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_export]
    use super::call::Call;
    #[pymodule_export]
    use super::effects::effects;
    #[pymodule_export]
    use super::process::{after_fork, at_exit, check_redis_url};
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
