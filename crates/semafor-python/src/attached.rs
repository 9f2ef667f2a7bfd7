//! Whether this thread has the interpreter right now.
//!
//! The stable ABI can't be asked. So whatever comes from Python and may wake somebody says so.

use std::cell::Cell;

use pyo3::Python;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Does `work` on a thread that has the interpreter, and is known to.
pub(crate) fn with<R>(_py: Python<'_>, work: impl FnOnce() -> R) -> R {
    struct Left;
    impl Drop for Left {
        fn drop(&mut self) {
            DEPTH.set(DEPTH.get() - 1);
        }
    }
    DEPTH.set(DEPTH.get() + 1);
    let _left = Left;
    work()
}

/// True within [`with`].
pub(crate) fn is_known() -> bool {
    DEPTH.get() > 0
}
