//! The borrow rule: nothing of the user's runs or is dropped while the state is borrowed, because whatever is dropped
//! may release a permit, and that borrows it again.

use std::cell::{RefCell, RefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::inbox::Inbox;
use crate::state::State;

/// Drops something of the user's on behalf of somebody else, who is not to fail if that panics.
pub(crate) fn drop_ignoring_panic<V>(value: V) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
}

/// What all handles of a run share.
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
