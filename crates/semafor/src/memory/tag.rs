use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::task::TaskKey;

/// What the memory home knows about a waiter or holder beyond what the core does.
#[derive(Default)]
pub(crate) struct Tag {
    pub(crate) label: Option<Arc<str>>,
    /// What only some holders have, out of the way of the others.
    extras: Option<Box<Extras>>,
}

#[derive(Default)]
struct Extras {
    /// Fires when the holder loses its slot.
    lost: Option<CancellationToken>,
    /// The task that detached the permit.
    detached_by: Option<TaskKey>,
}

impl Tag {
    #[inline]
    pub(crate) fn new(label: Option<Arc<str>>) -> Self {
        Self { label, extras: None }
    }

    /// The signal of this holder's loss, made on first use.
    pub(crate) fn lost_signal(&mut self) -> CancellationToken {
        let extras = self.extras.get_or_insert_default();
        extras.lost.get_or_insert_default().clone()
    }

    pub(crate) fn set_detached_by(&mut self, task: TaskKey) {
        self.extras.get_or_insert_default().detached_by = Some(task);
    }

    pub(crate) fn detached_by(&self) -> Option<TaskKey> {
        self.extras.as_ref()?.detached_by
    }

    /// Tells whoever listens that the slot is gone. Runs their code: call it outside locks.
    pub(crate) fn signal_loss(&self) {
        if let Some(Extras { lost: Some(lost), .. }) = self.extras.as_deref() {
            lost.cancel();
        }
    }
}
