//! The lock around a gate, and the primitives that threads wait with. Replaced by loom's when its models run.

#[cfg(not(semafor_loom))]
pub(crate) use crate::memory::short_lock::{Mutex, MutexGuard};

/// For threads that wait.
#[cfg(not(semafor_loom))]
pub(crate) mod waiting {
    use std::time::Duration;

    pub(crate) use parking_lot::{Mutex, MutexGuard};

    #[derive(Default)]
    pub(crate) struct Condvar(parking_lot::Condvar);

    impl Condvar {
        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }

        /// Also returns whether it timed out.
        pub(crate) fn wait_for<'a, T>(
            &self,
            mut guard: MutexGuard<'a, T>,
            time: Duration,
        ) -> (MutexGuard<'a, T>, bool) {
            let is_over = self.0.wait_for(&mut guard, time).timed_out();
            (guard, is_over)
        }
    }

    pub(crate) use std::thread::sleep;

    /// False if no thread could be started.
    pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> bool {
        std::thread::Builder::new().name(name.into()).spawn(work).is_ok()
    }
}

#[cfg(semafor_loom)]
pub(crate) use modelled::{Mutex, MutexGuard};

/// For threads that wait. No time passes in a model.
#[cfg(semafor_loom)]
pub(crate) mod waiting {
    use std::time::Duration;

    pub(crate) use super::modelled::{Mutex, MutexGuard};

    #[derive(Default)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }

        pub(crate) fn wait_for<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            _: Duration,
        ) -> (MutexGuard<'a, T>, bool) {
            (self.0.wait(guard).expect("a model that panicked has failed already"), false)
        }
    }

    pub(crate) fn sleep(_: Duration) {
        loom::thread::yield_now();
    }

    pub(crate) fn spawn(_: &str, work: impl FnOnce() + Send + 'static) -> bool {
        loom::thread::spawn(work);
        true
    }
}

#[cfg(semafor_loom)]
mod modelled {
    pub(crate) use loom::sync::MutexGuard;

    #[derive(Default)]
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
