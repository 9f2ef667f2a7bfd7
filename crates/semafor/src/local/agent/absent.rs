//! Slots whose holders have no connection to this agent: a former agent granted them, or their connection broke.
//!
//! They stay occupied until the holder returns and reclaims them, or returns and does not reclaim them, or no copy of its
//! process is alive. That is not guessed from time: see [`lifeline`](crate::local::lifeline). Only a client without a
//! lifeline, of which only the process id is known, has to return [in time](WITHOUT_LIFELINE).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::journal::{Client, Entry};
use crate::Permit;
use crate::local::lifeline::{Byte, Lifelines, ProcessKey};

/// How long a live client without a lifeline has to return. Its process may have copies, and may have dropped its slots.
const WITHOUT_LIFELINE: Duration = Duration::from_secs(60);
/// The pauses between checks of which clients are alive, the first and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));
/// The checks take at most one part in this many of the agent's time.
const CHECK_SHARE: u32 = 20;

/// A slot that is kept for a holder without a connection.
pub(super) struct AbsentGrant {
    pub(super) permit: Permit<'static>,
    pub(super) entry: Entry,
    pub(super) client: Client,
    pub(super) has_ttl: bool,
}

#[derive(Default)]
pub(super) struct Absent {
    by_client: Mutex<HashMap<Option<Byte>, HashMap<Key, AbsentEntry>>>,
    added: Notify,
}

/// The name, and the id by which the holder knows its grant.
type Key = (Arc<str>, Arc<str>);

struct AbsentEntry {
    grant: AbsentGrant,
    since: Instant,
}

impl Absent {
    pub(super) fn keep(&self, name: Arc<str>, id: Arc<str>, grant: AbsentGrant) {
        let mut by_client = self.by_client.lock();
        let of_client = by_client.entry(grant.client.lifeline).or_default();
        of_client.insert((name, id), AbsentEntry { grant, since: Instant::now() });
        self.added.notify_one();
    }

    /// Returns the slot to its holder, which has connected again.
    pub(super) fn take(&self, client: Client, name: &Arc<str>, id: &Arc<str>) -> Option<AbsentGrant> {
        let mut by_client = self.by_client.lock();
        let key = (Arc::clone(name), Arc::clone(id));
        // Also without a lifeline: the file of the lifelines may have been replaced.
        let mut take = |lifeline| by_client.get_mut(&lifeline)?.remove(&key);
        let entry = take(client.lifeline).or_else(|| take(None))?;
        Some(entry.grant)
    }

    /// The client has reclaimed everything that it holds: releases the rest.
    pub(super) fn release_rest(&self, lifeline: Byte) {
        let rest = self.by_client.lock().remove(&Some(lifeline));
        // Not under the lock: this may serve waiters.
        drop(rest);
    }

    /// Releases slots whose holders will not return. Never ends.
    pub(super) async fn watch(&self, lifelines: Option<&Lifelines>) {
        let mut pause = PAUSE.0;
        loop {
            if self.by_client.lock().values().all(HashMap::is_empty) {
                self.added.notified().await;
                pause = PAUSE.0;
            }
            let began = Instant::now();
            self.sweep(lifelines);
            let next_pause = (began.elapsed() * CHECK_SHARE).max(pause);
            pause = (pause * 2).min(PAUSE.1);
            tokio::time::sleep(next_pause).await;
        }
    }

    fn sweep(&self, lifelines: Option<&Lifelines>) {
        let mut gone = Vec::new();
        let mut by_client = self.by_client.lock();
        by_client.retain(|lifeline, of_client| {
            if let Some(byte) = lifeline
                && !lifelines.is_some_and(|lifelines| lifelines.is_held(*byte))
            {
                gone.extend(of_client.drain().map(|(_, entry)| entry));
            }
            // Evicted, or its lease has ended; or it has no lifeline, and has ended or is late.
            let is_over = |_: &Key, entry: &mut AbsentEntry| {
                entry.grant.permit.is_lost() || lifeline.is_none() && entry.has_timed_out()
            };
            gone.extend(of_client.extract_if(is_over).map(|(_, entry)| entry));
            !of_client.is_empty()
        });
        drop(by_client);
        drop(gone);
    }
}

impl AbsentEntry {
    fn has_timed_out(&self) -> bool {
        let may_be_alive = self.grant.client.process.is_none_or(ProcessKey::may_be_alive);
        !may_be_alive || self.since.elapsed() > WITHOUT_LIFELINE
    }
}
