//! Whether this thread is known to be attached to the interpreter.
//!
//! The stable ABI has no function for that. So code that is called from Python and may call a waker runs in [`with`].

use std::cell::Cell;

use pyo3::Python;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Runs `work` on this attached thread. Meanwhile [`is_known`] returns true.
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

/// True inside [`with`].
pub(crate) fn is_known() -> bool {
    DEPTH.get() > 0
}
