//! A named semaphore that an agent hosts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use semafor_core::NotHeld;
use tokio_util::sync::CancellationToken;

use super::hold::Hold;
use super::link::{Anchor, unexpected};
use super::protocol::{Ask, Complaint, Say, Target, Wanted, in_short};
use crate::error::{AcquireError, BuildError, HomeError, ReleaseError, RenewError};
use crate::remote::{Answer, Patience, RemoteLease, RemoteSemaphore, Wish};
use crate::task::TaskKey;
use crate::{HolderInfo, PermitId, Stats, WaiterInfo};

pub(crate) struct LocalSemaphore {
    anchor: Arc<Anchor>,
    of: Target,
}

impl LocalSemaphore {
    pub(super) fn new(
        anchor: Arc<Anchor>,
        name: &str,
        slots: Option<u32>,
        max_waiting: Option<usize>,
    ) -> Self {
        static HANDLES: AtomicU64 = AtomicU64::new(1);
        let handle = HANDLES.fetch_add(1, Ordering::Relaxed);
        Self { anchor, of: Target { handle, name: name.into(), slots, max_waiting } }
    }

    async fn ask_truth(&self, ask: Ask) -> Result<bool, HomeError> {
        match only(self.anchor.ask(ask, false).await?) {
            None => Ok(false),
            Some(Say::Truth(truth)) => Ok(truth),
            Some(other) => Err(failure(other)),
        }
    }

    /// Without an agent nothing is held, and nobody ever was told of an id.
    async fn end_by_id(&self, id: &PermitId, ask: Ask, why: NotHeld) -> Result<(), ReleaseError> {
        let link = self.anchor.link();
        let own = link.detached_by_id(&id.to_string());
        if let Some(over) = own.as_ref().and_then(|hold| hold.why_not_held()) {
            self.forget(own.as_deref());
            return Err(over.into());
        }
        let answer = only(self.anchor.ask(ask, false).await?);
        if let Some(hold) = &own {
            hold.end(why);
        }
        self.forget(own.as_deref());
        match answer {
            Some(Say::Done) => Ok(()),
            None => Err(NotHeld::Unknown.into()),
            Some(Say::No(Complaint::NotHeld(why))) => Err(NotHeld::from(why).into()),
            Some(other) => Err(failure(other).into()),
        }
    }

    fn forget(&self, hold: Option<&Hold>) {
        if let Some(hold) = hold {
            if self.anchor.link().let_go(hold) {
                self.anchor.link().say(Ask::Cancel { call: hold.n });
            }
            self.anchor.link().forget_detached(hold);
        }
    }

    async fn renew_id(&self, id: &str, ttl: Option<Duration>) -> Result<(), RenewError> {
        let asked = Instant::now();
        renew(&self.anchor, self.of.clone(), id, ttl).await?;
        if let Some(hold) = self.anchor.link().detached_by_id(id) {
            hold.renew(ttl, asked);
        }
        Ok(())
    }
}

async fn renew(anchor: &Arc<Anchor>, of: Target, id: &str, ttl: Option<Duration>) -> Result<(), RenewError> {
    match only(anchor.ask(Ask::Renew { of, id: id.to_owned(), ttl }, false).await?) {
        Some(Say::Done) => Ok(()),
        None => Err(NotHeld::Unknown.into()),
        Some(Say::No(Complaint::NotHeld(why))) => Err(NotHeld::from(why).into()),
        Some(other) => Err(failure(other).into()),
    }
}

impl Drop for LocalSemaphore {
    fn drop(&mut self) {
        self.anchor.link().say(Ask::Forget { handle: self.of.handle });
    }
}

/// The answer, where there is one.
fn only(mut pages: Vec<Say>) -> Option<Say> {
    pages.pop()
}

fn failure(say: Say) -> HomeError {
    match say {
        Say::No(complaint) => complaint.into_home_error(),
        other => unexpected(&other),
    }
}

impl RemoteSemaphore for LocalSemaphore {
    fn name(&self) -> &str {
        &self.of.name
    }

    fn open(&self) -> Answer<'_, Result<(), BuildError>> {
        Box::pin(async move {
            match only(self.anchor.ask(Ask::Open(self.of.clone()), true).await?) {
                Some(Say::Done) => Ok(()),
                Some(Say::No(complaint)) => Err(complaint.into_build_error(&self.of.name)),
                Some(other) => Err(unexpected(&other).into()),
                None => Err(BuildError::SlotsNotSet { name: self.of.name.to_string() }),
            }
        })
    }

    fn acquire(&self, wish: Wish) -> Answer<'static, Result<Box<dyn RemoteLease>, AcquireError>> {
        let (label, command) = in_short(&wish.who);
        let (patience, waits) = match wish.patience {
            Patience::None => (None, false),
            Patience::For(patience) => (Some(patience), true),
            Patience::Unlimited => (None, true),
        };
        let Wish { weight, ttl, .. } = wish;
        let wish = Wanted { weight, ttl, patience, waits, label, command, grace: wish.who.grace };
        let lease = Arc::clone(&self.anchor).acquire(self.of.clone(), wish);
        Box::pin(async move { Ok(Box::new(lease.await?) as Box<dyn RemoteLease>) })
    }

    fn release(&self, id: &PermitId) -> Answer<'_, Result<(), ReleaseError>> {
        let id = id.clone();
        Box::pin(async move {
            let ask = Ask::ReleaseId { of: self.of.clone(), id: id.to_string() };
            self.end_by_id(&id, ask, NotHeld::Released).await
        })
    }

    fn release_latest(&self) -> Answer<'_, Result<PermitId, ReleaseError>> {
        let task = TaskKey::current();
        Box::pin(async move {
            // What was lost meanwhile is not the latest any more: then it is the one before.
            while let Some(latest) = self.anchor.link().latest_detached(task, &self.of.name) {
                let id = PermitId::remote(Arc::clone(&latest.id));
                match self.release(&id).await {
                    Err(ReleaseError::NotHeld(_)) => {}
                    released => return released.map(|()| id),
                }
            }
            Err(ReleaseError::NothingDetached)
        })
    }

    fn renew(&self, id: &PermitId, ttl: Option<Duration>) -> Answer<'_, Result<(), RenewError>> {
        let id = id.to_string();
        Box::pin(async move { self.renew_id(&id, ttl).await })
    }

    fn evict(&self, id: &PermitId) -> Answer<'_, Result<(), ReleaseError>> {
        let id = id.clone();
        Box::pin(async move {
            let ask = Ask::Evict { of: self.of.clone(), id: id.to_string() };
            self.end_by_id(&id, ask, NotHeld::Lost(semafor_core::Loss::Evicted)).await
        })
    }

    fn locked(&self) -> Answer<'_, Result<bool, HomeError>> {
        Box::pin(self.ask_truth(Ask::Locked(self.of.clone())))
    }

    fn resize(&self, slots: u32) -> Answer<'_, Result<(), HomeError>> {
        Box::pin(async move {
            match only(self.anchor.ask(Ask::Resize { of: self.of.clone(), slots }, true).await?) {
                Some(Say::Done) => Ok(()),
                Some(other) => Err(failure(other)),
                None => Ok(()),
            }
        })
    }

    fn close(&self) -> Answer<'_, Result<(), HomeError>> {
        Box::pin(async move {
            match only(self.anchor.ask(Ask::Close(self.of.clone()), true).await?) {
                Some(Say::Done) | None => Ok(()),
                Some(other) => Err(failure(other)),
            }
        })
    }

    fn is_closed(&self) -> Answer<'_, Result<bool, HomeError>> {
        Box::pin(self.ask_truth(Ask::IsClosed(self.of.clone())))
    }

    fn stats(&self) -> Answer<'_, Result<Stats, HomeError>> {
        Box::pin(async move {
            let stats = match only(self.anchor.ask(Ask::Stats(self.of.clone()), false).await?) {
                Some(Say::Stats(mut stats)) => stats.pop(),
                None => None,
                Some(other) => return Err(failure(other)),
            };
            Ok(stats.map_or_else(
                || {
                    let mut nothing = semafor_core::Stats::default();
                    nothing.capacity = self.of.slots.unwrap_or_default();
                    Stats::new(Arc::clone(&self.of.name), nothing)
                },
                Stats::from,
            ))
        })
    }

    fn holders(&self) -> Answer<'_, Result<Vec<HolderInfo>, HomeError>> {
        Box::pin(async move {
            let mut holders = Vec::new();
            for page in self.anchor.ask(Ask::Holders(self.of.clone()), false).await? {
                match page {
                    Say::Holders(page) => holders.extend(page.into_iter().map(HolderInfo::from)),
                    other => return Err(failure(other)),
                }
            }
            Ok(holders)
        })
    }

    fn waiters(&self) -> Answer<'_, Result<Vec<WaiterInfo>, HomeError>> {
        Box::pin(async move {
            let mut waiters = Vec::new();
            for page in self.anchor.ask(Ask::Waiters(self.of.clone()), false).await? {
                match page {
                    Say::Waiters(page) => waiters.extend(page.into_iter().map(WaiterInfo::from)),
                    other => return Err(failure(other)),
                }
            }
            Ok(waiters)
        })
    }
}

/// A slot, held until this is dropped.
pub(super) struct Lease {
    anchor: Arc<Anchor>,
    hold: Arc<Hold>,
    is_over: bool,
}

impl Lease {
    pub(super) fn new(anchor: Arc<Anchor>, hold: Arc<Hold>) -> Self {
        Self { anchor, hold, is_over: false }
    }
}

impl RemoteLease for Lease {
    fn name(&self) -> &str {
        &self.hold.of.name
    }

    fn id(&self) -> PermitId {
        PermitId::remote(Arc::clone(&self.hold.id))
    }

    fn slot(&self) -> u32 {
        self.hold.slot
    }

    fn fencing_token(&self) -> u64 {
        self.hold.token
    }

    fn waited(&self) -> Duration {
        self.hold.waited
    }

    fn expires_at(&self) -> Option<Instant> {
        self.hold.ends_at()
    }

    fn why_not_held(&self) -> Option<NotHeld> {
        self.hold.why_not_held()
    }

    fn lost_signal(&self) -> CancellationToken {
        self.hold.lost_signal()
    }

    fn renew(&self, ttl: Option<Duration>) -> Answer<'_, Result<(), RenewError>> {
        Box::pin(async move {
            if let Some(why) = self.hold.why_not_held() {
                return Err(why.into());
            }
            let asked = Instant::now();
            renew(&self.anchor, self.hold.of.clone(), &self.hold.id, ttl).await?;
            self.hold.renew(ttl, asked);
            Ok(())
        })
    }

    fn release(mut self: Box<Self>) -> Answer<'static, Result<(), ReleaseError>> {
        self.is_over = true;
        let lost = self.hold.why_not_held();
        self.hold.end(NotHeld::Released);
        let is_known = self.anchor.link().let_go(&self.hold);
        if let Some(why) = lost {
            if is_known {
                self.anchor.link().say(Ask::Cancel { call: self.hold.n });
            }
            return Box::pin(async move { Err(why.into()) });
        }
        // Said now: it counts even if nobody waits for the answer.
        let released = self.anchor.ask(Ask::Release { lease: self.hold.n }, false);
        Box::pin(async move {
            match only(released.await?) {
                Some(Say::Done) => Ok(()),
                // The agent died: so did the lease.
                None => Err(NotHeld::Lost(semafor_core::Loss::Vanished).into()),
                Some(Say::No(Complaint::NotHeld(why))) => Err(NotHeld::from(why).into()),
                Some(other) => Err(failure(other).into()),
            }
        })
    }

    fn detach(mut self: Box<Self>) -> PermitId {
        self.is_over = true;
        self.anchor.link().detach(Arc::clone(&self.hold), Arc::clone(&self.anchor));
        self.id()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.is_over {
            self.hold.end(NotHeld::Released);
            if self.anchor.link().let_go(&self.hold) {
                self.anchor.link().say(Ask::Cancel { call: self.hold.n });
            }
        }
    }
}
