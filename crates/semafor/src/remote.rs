//! What a home outside of this process has to do.
//!
//! Memory is not one of them: it answers without waiting, and without a box around the answer. For all others, that box
//! is nothing beside the way to the home.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use semafor_core::NotHeld;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::error::{AcquireError, BuildError, HomeError, ReleaseError, RenewError};
use crate::stats::Who;
use crate::{HolderInfo, PermitId, Stats, WaiterInfo};

pub(crate) type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What is asked for, in full.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) weight: u32,
    pub(crate) ttl: Option<Duration>,
    pub(crate) patience: Patience,
    pub(crate) who: Who,
    /// Kept by whatever is still done about it. Who dropped an acquire of the local home has nothing left to do.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "only Redis is told later"))]
    pub(crate) errand: Errand,
}

/// Something that is done on behalf of an acquire. When all copies are dropped, nothing is left to be done.
#[derive(Clone, Debug)]
pub(crate) struct Errand(#[expect(dead_code, reason = "it is there to be dropped")] Arc<DropGuard>);

impl Errand {
    /// The second one is cancelled when the errand is done.
    pub(crate) fn new() -> (Self, CancellationToken) {
        let done = CancellationToken::new();
        (Self(Arc::new(done.clone().drop_guard())), done)
    }
}

/// For how long to stand in line.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Patience {
    /// Not at all, and to be told [`AcquireError::Busy`].
    None,
    /// For so long, zero included, and to be told [`AcquireError::TimedOut`].
    For(Duration),
    /// For as long as it takes.
    Unlimited,
}

/// A named semaphore that lives elsewhere.
pub(crate) trait RemoteSemaphore: Send + Sync {
    fn name(&self) -> &str;

    /// Agrees with the home on what the name is.
    fn open(&self) -> Answer<'_, Result<(), BuildError>>;

    /// Asks for slots. Dropping the answer gives the place in line back, and the slots that came meanwhile.
    fn acquire(&self, wish: Wish) -> Answer<'static, Result<Box<dyn RemoteLease>, AcquireError>>;

    fn release(&self, id: &PermitId) -> Answer<'_, Result<(), ReleaseError>>;
    fn release_latest(&self) -> Answer<'_, Result<PermitId, ReleaseError>>;
    fn renew(&self, id: &PermitId, ttl: Option<Duration>) -> Answer<'_, Result<(), RenewError>>;
    fn evict(&self, id: &PermitId) -> Answer<'_, Result<(), ReleaseError>>;

    fn locked(&self) -> Answer<'_, Result<bool, HomeError>>;
    fn resize(&self, slots: u32) -> Answer<'_, Result<(), HomeError>>;
    fn close(&self) -> Answer<'_, Result<(), HomeError>>;
    fn is_closed(&self) -> Answer<'_, Result<bool, HomeError>>;
    fn stats(&self) -> Answer<'_, Result<Stats, HomeError>>;
    fn holders(&self) -> Answer<'_, Result<Vec<HolderInfo>, HomeError>>;
    fn waiters(&self) -> Answer<'_, Result<Vec<WaiterInfo>, HomeError>>;
}

/// Slots held elsewhere. Dropping it gives them back, in the background.
pub(crate) trait RemoteLease: Send + Sync {
    fn name(&self) -> &str;
    fn id(&self) -> PermitId;
    fn slot(&self) -> u32;
    fn fencing_token(&self) -> u64;
    fn waited(&self) -> Duration;

    /// As far as is known here; on the safe side.
    fn expires_at(&self) -> Option<Instant>;

    /// For homes that take silence for death. Others know at once.
    fn safe_until(&self) -> Option<Instant> {
        None
    }

    fn why_not_held(&self) -> Option<NotHeld>;
    fn lost_signal(&self) -> CancellationToken;

    fn renew(&self, ttl: Option<Duration>) -> Answer<'_, Result<(), RenewError>>;

    /// Goes on in the background if the answer is dropped.
    fn release(self: Box<Self>) -> Answer<'static, Result<(), ReleaseError>>;
    fn detach(self: Box<Self>) -> PermitId;
}
