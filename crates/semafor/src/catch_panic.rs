use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls user code: a waker, a listener, a subscriber.
///
/// A panic in it is caught, after the panic hook has reported it: it must not lose the slot that was just granted, or
/// keep other waiters from being woken.
#[inline]
pub(crate) fn call(callback: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(callback)) {
        discard(payload);
    }
}

/// The payload of a panic is user code, too: its drop may panic.
#[cold]
fn discard(payload: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(another);
    }
}
