use std::sync::atomic::{AtomicPtr, Ordering};

/// Something that a process has once, made when it is first needed. A forked child begins anew.
///
/// It is never freed: the child leaves its parent's as it is, with a lock that another thread may have held just then.
pub(crate) struct PerProcess<T>(AtomicPtr<T>);

impl<T: Default + Send + Sync + 'static> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    pub(crate) fn get(&self) -> &'static T {
        let known = self.0.load(Ordering::Acquire);
        if !known.is_null() {
            // SAFETY: it was leaked below, for good.
            return unsafe { &*known };
        }
        let new: *mut T = Box::leak(Box::default());
        match self.0.compare_exchange(known, new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: it was leaked, for good.
            Ok(_) => unsafe { &*new },
            Err(quicker) => {
                // SAFETY: no other thread has seen this one.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: the other thread has leaked its own, for good.
                unsafe { &*quicker }
            }
        }
    }

    /// For a forked child: begins anew, and returns its parent's, if there was one.
    pub(crate) fn begin_anew(&self) -> Option<&'static T> {
        let parents = self.0.swap(std::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: if there is one, it was leaked, for good.
        unsafe { parents.as_ref() }
    }
}
