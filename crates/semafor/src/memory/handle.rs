use std::ops::Deref;
use std::sync::Arc;

use super::registry::Shelf;
use super::shared_gate::SharedGate;

/// A user's hold on a semaphore. While there is one, its name stays in the registry, and the registry stays.
pub(crate) struct Handle {
    gate: Arc<SharedGate>,
    shelf: Arc<Shelf>,
}

impl Handle {
    /// Call with the name's shard locked, so that it cannot be dropped meanwhile.
    pub(super) fn new(gate: Arc<SharedGate>, shelf: Arc<Shelf>) -> Self {
        gate.add_handle();
        Self { gate, shelf }
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.gate), Arc::clone(&self.shelf))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.gate.drop_handle() {
            self.shelf.note_unused(&self.gate);
        }
    }
}

impl Deref for Handle {
    type Target = SharedGate;

    #[inline]
    fn deref(&self) -> &SharedGate {
        &self.gate
    }
}
