//! The table of names and their semaphores.
//!
//! A name is found and dropped under the lock of one of [`SHARDS`] tables. So no thread can open a name between the
//! check that it is unused and its removal.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::{Mutex, MutexGuard};

use super::shared_gate::SharedGate;

const SHARDS: usize = 16;

#[derive(Default)]
pub(super) struct Names {
    shards: [Mutex<HashTable<Arc<SharedGate>>>; SHARDS],
    hasher: DefaultHashBuilder,
}

/// One name's entry, with its shard locked.
pub(super) struct Entry<'a> {
    names: &'a Names,
    shard: MutexGuard<'a, HashTable<Arc<SharedGate>>>,
    hash: u64,
}

impl Names {
    pub(super) fn entry(&self, name: &str) -> Entry<'_> {
        let hash = self.hasher.hash_one(name);
        // The table indexes by the low bits and tags by the top seven; the bits between choose the shard.
        let shard = self.shards[(hash >> 32) as usize % SHARDS].lock();
        Entry { names: self, shard, hash }
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// All names; each shard is read at its own moment.
    pub(super) fn all(&self) -> Vec<Arc<SharedGate>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(shard.lock().iter().cloned());
        }
        all
    }
}

impl Entry<'_> {
    pub(super) fn get(&self, name: &str) -> Option<&Arc<SharedGate>> {
        self.shard.find(self.hash, |gate| gate.name() == name)
    }

    /// Puts `gate` under its name, in place of any other.
    pub(super) fn put(&mut self, gate: Arc<SharedGate>) {
        self.take(gate.name());
        let hasher = &self.names.hasher;
        self.shard.insert_unique(self.hash, gate, |gate| hasher.hash_one(gate.name()));
    }

    pub(super) fn take(&mut self, name: &str) -> Option<Arc<SharedGate>> {
        let entry = self.shard.find_entry(self.hash, |gate| gate.name() == name).ok()?;
        let (gate, _) = entry.remove();
        self.shrink();
        Some(gate)
    }

    fn shrink(&mut self) {
        let hasher = &self.names.hasher;
        let (len, capacity) = (self.shard.len(), self.shard.capacity());
        if capacity > 1024 && len < capacity / 8 {
            self.shard.shrink_to(len * 2, |gate| hasher.hash_one(gate.name()));
        }
    }
}
