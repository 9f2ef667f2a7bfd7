use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls what somebody else wrote: a waker, a listener, a subscriber.
///
/// If it panics, that is its owner's trouble, and the panic hook has told about it. The slot that was just granted, and
/// the others that have to be woken, are not to be lost over it.
#[inline]
pub(crate) fn call(callback: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(callback)) {
        discard(payload);
    }
}

/// Users wrote the payload of a panic, too: its drop may panic.
#[cold]
fn discard(payload: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(another);
    }
}
