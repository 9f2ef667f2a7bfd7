//! Tells a client that another client has renewed one of its leases by id.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::PermitId;

/// The connections of holders, by the ids of their permits.
#[derive(Clone, Default)]
pub(super) struct Renewals(Arc<Mutex<HashMap<PermitId, Holder>>>);

/// Where to send a message, and the number by which the client knows its lease.
#[derive(Clone)]
pub(super) struct Holder {
    pub(super) out: mpsc::Sender<Vec<u8>>,
    pub(super) number: u64,
}

/// A registered holder. Drop removes it.
pub(super) struct Registered {
    renewals: Renewals,
    id: PermitId,
}

impl Renewals {
    pub(super) fn register(&self, id: PermitId, holder: Holder) -> Registered {
        self.0.lock().insert(id.clone(), holder);
        Registered { renewals: self.clone(), id }
    }

    pub(super) fn holder(&self, id: &PermitId) -> Option<Holder> {
        self.0.lock().get(id).cloned()
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.renewals.0.lock().remove(&self.id);
    }
}
