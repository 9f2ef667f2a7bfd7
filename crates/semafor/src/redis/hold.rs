use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use semafor_core::{Loss, NotHeld};
use tokio_util::sync::CancellationToken;

/// A slot that this process holds, as far as it knows.
///
/// Known from here, and always on the safe side: the server counts from when it carried a command out, this from when the
/// command was sent.
pub(super) struct Hold {
    pub(super) id: Arc<str>,
    pub(super) slot: u32,
    pub(super) token: u64,
    pub(super) waited: Duration,
    pub(super) weight: u32,
    /// How long it stays held without a heartbeat.
    pub(super) heartbeat: Duration,
    lost: CancellationToken,
    tenure: Mutex<Tenure>,
}

struct Tenure {
    ttl: Option<Duration>,
    ends_at: Option<Instant>,
    /// Until then nobody else can have it, whatever happens to the connection.
    safe_until: Instant,
    over: Option<NotHeld>,
}

/// What a grant says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    pub(super) slot: u32,
    pub(super) token: u64,
    pub(super) waited: Duration,
    /// The earliest time, here, at which the server can have granted it.
    pub(super) since: Instant,
    pub(super) safe_until: Instant,
}

impl Granted {
    /// False if it may be over by now: the process may have slept between the answer and its reading.
    pub(super) fn is_fresh(&self) -> bool {
        self.safe_until > Instant::now() + Duration::from_millis(1)
    }
}

impl Hold {
    pub(super) fn new(
        id: Arc<str>,
        granted: Granted,
        weight: u32,
        ttl: Option<Duration>,
        heartbeat: Duration,
    ) -> Self {
        let Granted { slot, token, waited, since, safe_until } = granted;
        let ends_at = ttl.and_then(|ttl| since.checked_add(ttl));
        let tenure = Mutex::new(Tenure { ttl, ends_at, safe_until, over: None });
        Self { id, slot, token, waited, weight, heartbeat, lost: CancellationToken::new(), tenure }
    }

    /// How long the server lets it go without a heartbeat.
    pub(super) fn lease(&self) -> Duration {
        self.tenure.lock().ttl.map_or(self.heartbeat, |ttl| ttl.min(self.heartbeat))
    }

    pub(super) fn ends_at(&self) -> Option<Instant> {
        let tenure = self.tenure.lock();
        if tenure.over.is_some() { None } else { tenure.ends_at }
    }

    /// `None` once others may have it. When it is only given up, for want of an answer, they can't yet.
    pub(super) fn safe_until(&self) -> Option<Instant> {
        let tenure = self.tenure.lock();
        match tenure.over {
            None | Some(NotHeld::Lost(Loss::OutOfTouch)) => {
                Some(tenure.ends_at.map_or(tenure.safe_until, |end| end.min(tenure.safe_until)))
            }
            Some(_) => None,
        }
    }

    /// When to give it up for want of an answer: before anybody else can have it.
    pub(super) fn give_up_at(&self) -> Option<Instant> {
        let margin = (self.lease() / 10).min(Duration::from_millis(500));
        let tenure = self.tenure.lock();
        // Its end comes first, and is looked after elsewhere.
        let is_moot = tenure.over.is_some() || tenure.ends_at.is_some_and(|end| end <= tenure.safe_until);
        if is_moot { None } else { tenure.safe_until.checked_sub(margin) }
    }

    pub(super) fn why_not_held(&self) -> Option<NotHeld> {
        self.tenure.lock().over
    }

    pub(super) fn lost_signal(&self) -> CancellationToken {
        self.lost.clone()
    }

    /// The server answered a heartbeat that was sent then.
    pub(super) fn confirm(&self, sent: Instant) {
        let lease = self.lease();
        let mut tenure = self.tenure.lock();
        if let Some(safe_until) = sent.checked_add(lease) {
            tenure.safe_until = tenure.safe_until.max(safe_until);
        }
    }

    /// The server lets it have another `ttl` from then.
    pub(super) fn renew(&self, ttl: Option<Duration>, sent: Instant) {
        let mut tenure = self.tenure.lock();
        tenure.ttl = ttl;
        tenure.ends_at = ttl.and_then(|ttl| sent.checked_add(ttl));
        let lease = ttl.map_or(self.heartbeat, |ttl| ttl.min(self.heartbeat));
        tenure.safe_until = sent.checked_add(lease).unwrap_or(tenure.safe_until);
    }

    /// It ended, and its holder did not do it. Tells it, the first time.
    pub(super) fn lose(&self, why: NotHeld) -> bool {
        let is_news = {
            let mut tenure = self.tenure.lock();
            let is_news = tenure.over.is_none();
            tenure.over.get_or_insert(why);
            is_news
        };
        self.lost.cancel();
        is_news
    }

    /// Its holder gives it back.
    pub(super) fn end(&self) {
        self.tenure.lock().over.get_or_insert(NotHeld::Released);
    }
}
