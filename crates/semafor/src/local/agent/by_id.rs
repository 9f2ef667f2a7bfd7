//! Slots that are held by an id, without a client.
//!
//! The agent keeps their permits until they are released by id, evicted, or their lease ends. The journal has them, too,
//! with the end of their lease: the shell script that has the id can't learn that an agent died, so the next agent keeps
//! holding the slot. There the permit has another id, and the old id still works.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Shared;
use super::journal::{Entry, StoredLease};
use crate::{Permit, PermitId};

/// The pause between two checks of whether an evicted holder's grace has ended.
const GRACE_PAUSE: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(super) struct ById(Mutex<Table>);

#[derive(Default)]
struct Table {
    held: HashMap<PermitId, Held>,
    /// The current id, by the name and the id that a former agent issued.
    former: HashMap<(Arc<str>, Arc<str>), PermitId>,
}

struct Held {
    permit: Permit<'static>,
    name: Arc<str>,
    /// The id by which the holder knows it.
    client_id: Arc<str>,
    // Dropped after the permit: until the permit is released, the grant is live.
    entry: Entry,
}

impl ById {
    /// Keeps a slot that was detached from its client. It is in the journal when this returns.
    pub(super) fn keep(
        &self,
        permit: Permit<'static>,
        client_id: Arc<str>,
        mut entry: Entry,
    ) -> Option<PermitId> {
        let name = permit.gate()?.shared_name();
        let left = permit.expires_at().map(|end| end.saturating_duration_since(Instant::now()));
        if permit.is_lost() {
            return None;
        }
        entry.held_by_id(StoredLease::of(left));
        let id = permit.id();
        let mut table = self.0.lock();
        if *client_id != *id.to_string() {
            table.former.insert((Arc::clone(&name), Arc::clone(&client_id)), id.clone());
        }
        table.held.insert(id.clone(), Held { permit, name, client_id, entry });
        Some(id)
    }

    /// The current id of a slot for which a former agent issued `id`.
    pub(super) fn current_id(&self, name: &Arc<str>, id: &PermitId) -> Option<PermitId> {
        let table = self.0.lock();
        if table.former.is_empty() {
            return None;
        }
        table.former.get(&(Arc::clone(name), id.to_string().into())).cloned()
    }

    /// The lease of the slot was renewed.
    pub(super) fn note_renewal(&self, id: &PermitId) {
        if let Some(held) = self.0.lock().held.get_mut(id) {
            let left = held.permit.expires_at().map(|end| end.saturating_duration_since(Instant::now()));
            held.entry.held_by_id(StoredLease::of(left));
        }
    }

    /// Removes it if it is not held any more. An evicted slot is held until its grace ends.
    pub(super) fn remove_if_ended(&self, id: &PermitId) {
        let ended = {
            let mut table = self.0.lock();
            let is_over = |held: &Held| held.permit.is_lost() && !held.permit.is_leaving();
            let ended = table.held.get(id).is_some_and(is_over).then(|| table.held.remove(id)).flatten();
            if let Some(Held { name, client_id, .. }) = &ended {
                table.former.remove(&(Arc::clone(name), Arc::clone(client_id)));
            }
            ended
        };
        // Not under the lock: this may serve waiters.
        drop(ended);
    }

    fn is_leaving(&self, id: &PermitId) -> bool {
        self.0.lock().held.get(id).is_some_and(|held| held.permit.is_leaving())
    }

    fn ids(&self) -> Vec<PermitId> {
        self.0.lock().held.keys().cloned().collect()
    }
}

/// Removes each slot that a former agent had granted when it is lost.
pub(super) fn watch_all(shared: &Arc<Shared>) {
    shared.by_id.ids().into_iter().for_each(|id| watch(shared, id));
}

/// Removes it when it is lost.
pub(super) fn watch(shared: &Arc<Shared>, id: PermitId) {
    let Some(lost) = shared.by_id.0.lock().held.get(&id).map(|held| held.permit.lost_signal()) else {
        return;
    };
    let shared = Arc::downgrade(shared);
    tokio::spawn(async move {
        lost.lost().await;
        // An evicted holder keeps its slot until its grace ends.
        while shared.upgrade().is_some_and(|shared| shared.by_id.is_leaving(&id)) {
            tokio::time::sleep(GRACE_PAUSE).await;
        }
        if let Some(shared) = shared.upgrade() {
            shared.by_id.remove_if_ended(&id);
        }
    });
}
