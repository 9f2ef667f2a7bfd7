//! The borrow rule: no user code runs, and no user value is dropped, while the state is borrowed. A drop may release a
//! permit, which borrows the state again.

use std::cell::{RefCell, RefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::inbox::Inbox;
use crate::state::State;

/// Drops a user value for a task that must not fail if the drop panics.
pub(crate) fn drop_ignoring_panic<V>(value: V) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
}

/// Shared by all handles of a run.
pub(crate) struct Scheduler {
    state: RefCell<State>,
    pub(crate) inbox: Arc<Inbox>,
}

impl Scheduler {
    pub(crate) fn new(state: State) -> Self {
        Self { state: RefCell::new(state), inbox: Arc::default() }
    }

    #[inline(always)]
    pub(crate) fn borrow(&self) -> RefMut<'_, State> {
        self.state.borrow_mut()
    }
}
