use std::ops::Deref;
use std::sync::Arc;

use super::registry::RegistryInner;
use super::shared_gate::SharedGate;

/// A reference to a semaphore. While a handle exists, its name stays in the registry, and the registry stays alive.
pub(crate) struct Handle {
    gate: Arc<SharedGate>,
    registry: Arc<RegistryInner>,
}

impl Handle {
    /// Call with the name's shard locked, so that the name cannot be dropped meanwhile.
    pub(super) fn new(gate: Arc<SharedGate>, registry: Arc<RegistryInner>) -> Self {
        gate.add_handle();
        Self { gate, registry }
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.gate), Arc::clone(&self.registry))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.gate.drop_handle() {
            self.registry.note_unused(&self.gate);
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
