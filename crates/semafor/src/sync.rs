//! The lock around a gate, exchanged for loom's when its models run.

#[cfg(not(semafor_loom))]
pub(crate) use crate::memory::short_lock::{Mutex, MutexGuard};

#[cfg(semafor_loom)]
pub(crate) use modelled::{Mutex, MutexGuard};

#[cfg(semafor_loom)]
mod modelled {
    pub(crate) use loom::sync::MutexGuard;

    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("a model that panicked has failed already")
        }
    }
}
