use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use semafor_core::NotHeld;
use tokio_util::sync::CancellationToken;

use super::protocol::Target;

/// A slot that this process holds, as far as the agent has said.
pub(super) struct Hold {
    /// The number of the call that acquired it, by which the agent knows it.
    pub(super) n: u64,
    pub(super) id: Arc<str>,
    pub(super) slot: u32,
    pub(super) token: u64,
    pub(super) waited: Duration,
    pub(super) weight: u32,
    pub(super) of: Target,
    lost: CancellationToken,
    tenure: Mutex<Tenure>,
}

struct Tenure {
    ends_at: Option<Instant>,
    over: Option<NotHeld>,
}

impl Hold {
    #[expect(clippy::too_many_arguments, reason = "what a grant consists of, said once")]
    pub(super) fn new(
        n: u64,
        id: String,
        slot: u32,
        token: u64,
        waited: Duration,
        weight: u32,
        of: Target,
        ttl: Option<Duration>,
    ) -> Self {
        let ends_at = ttl.and_then(|ttl| Instant::now().checked_add(ttl));
        let tenure = Mutex::new(Tenure { ends_at, over: None });
        Self { n, id: id.into(), slot, token, waited, weight, of, lost: CancellationToken::new(), tenure }
    }

    pub(super) fn ends_at(&self) -> Option<Instant> {
        let tenure = self.tenure.lock();
        if tenure.over.is_some() { None } else { tenure.ends_at }
    }

    pub(super) fn why_not_held(&self) -> Option<NotHeld> {
        self.tenure.lock().over
    }

    pub(super) fn lost_signal(&self) -> CancellationToken {
        self.lost.clone()
    }

    pub(super) fn renew(&self, ttl: Option<Duration>, asked: Instant) {
        self.tenure.lock().ends_at = ttl.and_then(|ttl| asked.checked_add(ttl));
    }

    /// It ended, and its holder did not do it. Runs the code of whoever listens: call it outside locks.
    pub(super) fn lose(&self, why: NotHeld) {
        self.tenure.lock().over.get_or_insert(why);
        self.lost.cancel();
    }

    /// Its holder ended it, and need not be told.
    pub(super) fn end(&self, how: NotHeld) {
        self.tenure.lock().over.get_or_insert(how);
    }
}
