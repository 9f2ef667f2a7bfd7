use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::stats::Who;
use crate::task::TaskKey;

/// What the memory home knows about a waiter or holder beyond what the core does. Mostly nothing.
#[derive(Default)]
pub(crate) struct Tag(Option<Box<Details>>);

/// Keeps the drop of what mostly is not there out of the hot path.
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
    /// It was told to leave, and has not left yet.
    is_leaving: bool,
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

    /// The signal of this holder's loss, made on first use.
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

    /// Asks the holder to leave: how long it has for that, and the signal by which it hears of it. `None` if it need not be
    /// asked, or was asked before.
    pub(crate) fn ask_to_leave(&mut self) -> Option<(Duration, CancellationToken)> {
        let details = self.0.as_deref_mut().filter(|details| !details.is_leaving)?;
        let grace = details.who.grace?;
        details.is_leaving = true;
        Some((grace, details.lost.get_or_insert_default().clone()))
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.0.as_ref().is_some_and(|details| details.is_leaving)
    }

    /// Tells whoever listens that the slot is gone. Runs their code: call it outside locks.
    pub(crate) fn signal_loss(&self) {
        if let Some(Details { lost: Some(lost), .. }) = self.0.as_deref() {
            lost.cancel();
        }
    }
}
