use std::sync::Arc;

use tokio_util::sync::CancellationToken;

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
    label: Option<Arc<str>>,
    /// Fires when the holder loses its slot.
    lost: Option<CancellationToken>,
    /// The task that detached the permit.
    detached_by: Option<TaskKey>,
}

impl Tag {
    #[inline]
    pub(crate) fn new(label: Option<&Arc<str>>) -> Self {
        match label {
            None => Self(None),
            Some(label) => Self::labelled(Arc::clone(label)),
        }
    }

    #[cold]
    fn labelled(label: Arc<str>) -> Self {
        Self(Some(Box::new(Details { label: Some(label), ..Details::default() })))
    }

    pub(crate) fn label(&self) -> Option<Arc<str>> {
        self.0.as_ref()?.label.clone()
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

    /// Tells whoever listens that the slot is gone. Runs their code: call it outside locks.
    pub(crate) fn signal_loss(&self) {
        if let Some(Details { lost: Some(lost), .. }) = self.0.as_deref() {
            lost.cancel();
        }
    }
}
