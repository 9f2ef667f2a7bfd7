use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::stats::Who;
use crate::task::TaskKey;

/// Data of the memory home about a waiter or holder that the core does not need. Usually empty.
#[derive(Default)]
pub(crate) struct Tag(Option<Box<Details>>);

/// Keeps the drop of the details, which are usually absent, out of the hot path.
impl Drop for Tag {
    #[inline]
    fn drop(&mut self) {
        #[cold]
        #[inline(never)]
        fn drop_details(details: Box<Details>) {
            drop(details);
        }
        if let Some(details) = self.0.take() {
            drop_details(details);
        }
    }
}

#[derive(Default)]
struct Details {
    who: Who,
    /// Fires when the holder loses its slot.
    lost: Option<CancellationToken>,
    /// The task that detached the permit.
    detached_by: Option<TaskKey>,
}

impl Tag {
    #[inline]
    pub(crate) fn new(who: Option<&Who>) -> Self {
        match who {
            None => Self(None),
            Some(who) => Self::named(who.clone()),
        }
    }

    #[cold]
    fn named(who: Who) -> Self {
        Self(Some(Box::new(Details { who, ..Details::default() })))
    }

    pub(crate) fn who(&self) -> Who {
        self.0.as_ref().map_or_else(Who::default, |details| details.who.clone())
    }

    /// The signal of this holder's loss, created on first use.
    pub(crate) fn lost_signal(&mut self) -> CancellationToken {
        self.0.get_or_insert_default().lost.get_or_insert_default().clone()
    }

    pub(crate) fn set_detached_by(&mut self, task: TaskKey) {
        self.0.get_or_insert_default().detached_by = Some(task);
    }

    #[inline]
    pub(crate) fn detached_by(&self) -> Option<TaskKey> {
        self.0.as_ref()?.detached_by
    }

    /// How long the holder may keep its slot after an evict.
    pub(crate) fn grace(&self) -> Duration {
        self.0.as_ref().and_then(|details| details.who.grace).unwrap_or_default()
    }

    /// Notifies the listeners that the slot is lost. Runs user code: never call it under a lock.
    pub(crate) fn signal_loss(&self) {
        if let Some(Details { lost: Some(lost), .. }) = self.0.as_deref() {
            lost.cancel();
        }
    }
}
