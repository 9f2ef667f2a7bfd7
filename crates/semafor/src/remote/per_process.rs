use std::sync::atomic::{AtomicPtr, Ordering};

/// A value that exists once per process, created on first use. A forked child gets a new one.
///
/// It is never freed. The child leaves its parent's value alone, because another thread may have held its lock during
/// the fork.
pub(crate) struct PerProcess<T>(AtomicPtr<T>);

impl<T: Default + Send + Sync + 'static> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    pub(crate) fn get(&self) -> &'static T {
        let known = self.0.load(Ordering::Acquire);
        if !known.is_null() {
            // SAFETY: it was leaked below and is never freed.
            return unsafe { &*known };
        }
        let new: *mut T = Box::leak(Box::default());
        match self.0.compare_exchange(known, new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: it was leaked and is never freed.
            Ok(_) => unsafe { &*new },
            Err(quicker) => {
                // SAFETY: no other thread has seen this one.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: the other thread has leaked its value, which is never freed.
                unsafe { &*quicker }
            }
        }
    }

    /// For a forked child: starts with a new value, and returns its parent's, if there was one.
    pub(crate) fn begin_anew(&self) -> Option<&'static T> {
        let parents = self.0.swap(std::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: if not null, it was leaked and is never freed.
        unsafe { parents.as_ref() }
    }
}
