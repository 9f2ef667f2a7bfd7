//! Homes outside of this process.
//!
//! What this process holds and waits for there is decided in [`client`], which is plain data. A driver of each home carries
//! its calls to the server and brings back the answers; an engine knows the server's language.
//!
//! The traits here are what the public types see. Memory is not behind them: it answers without waiting, and without a box
//! around the answer. For the others, that box is nothing beside the way to the server.

#[cfg(any(feature = "local", feature = "redis"))]
pub(crate) mod call;
#[cfg(any(feature = "local", feature = "redis"))]
pub(crate) mod client;
#[cfg(any(feature = "local", feature = "redis"))]
pub(crate) mod clock;
#[cfg(any(feature = "local", feature = "redis"))]
pub(crate) mod driver;
#[cfg(any(feature = "local", feature = "redis"))]
mod lease;
#[cfg(any(feature = "local", feature = "redis"))]
pub(crate) mod per_process;
#[cfg(any(feature = "local", feature = "redis"))]
pub(crate) mod semaphore;
#[cfg(any(feature = "local", feature = "redis"))]
pub(crate) mod target;

use std::pin::Pin;
use std::time::{Duration, Instant};

use semafor_core::NotHeld;
use tokio_util::sync::CancellationToken;

use crate::error::{AcquireError, BuildError, HomeError, ReleaseError, RenewError};
use crate::stats::Who;
use crate::{HolderInfo, PermitId, Stats, WaiterInfo};

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Everything that an acquire asks for.
#[derive(Clone, Debug)]
pub struct AcquireRequest {
    pub weight: u32,
    pub ttl: Option<Duration>,
    pub wait: Wait,
    pub(crate) who: Option<Box<Who>>,
}

impl AcquireRequest {
    pub fn new(weight: u32, ttl: Option<Duration>, wait: Wait) -> Self {
        Self { weight, ttl, wait, who: None }
    }
}

/// For how long to stand in line.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Wait {
    /// Not at all, and to be told [`AcquireError::Busy`].
    No,
    /// For so long, zero included, and to be told [`AcquireError::TimedOut`].
    For(Duration),
    /// For as long as it takes.
    Unlimited,
}

impl Wait {
    /// The time it may stand in line. `None` if it does not, or without a limit.
    pub fn limit(self) -> Option<Duration> {
        match self {
            Self::For(limit) if !limit.is_zero() => Some(limit),
            Self::No | Self::For(_) | Self::Unlimited => None,
        }
    }

    /// True if it takes a slot at once or not at all.
    pub fn is_try(self) -> bool {
        matches!(self, Self::No | Self::For(Duration::ZERO))
    }
}

/// A named semaphore that lives elsewhere.
pub(crate) trait RemoteSemaphore: Send + Sync {
    fn name(&self) -> &str;

    /// Opens the name at the home, and checks that its number of slots fits.
    fn open(&self) -> BoxFuture<'_, Result<(), BuildError>>;

    /// Asks for slots. Dropping the answer gives the place in line back, and the slots that came meanwhile.
    fn acquire(&self, request: AcquireRequest) -> Pin<Box<dyn RemoteAcquire>>;

    fn release(&self, id: &PermitId) -> BoxFuture<'_, Result<(), ReleaseError>>;
    fn release_latest(&self) -> BoxFuture<'_, Result<PermitId, ReleaseError>>;
    fn renew(&self, id: &PermitId, ttl: Option<Duration>) -> BoxFuture<'_, Result<(), RenewError>>;
    fn evict(&self, id: &PermitId) -> BoxFuture<'_, Result<(), ReleaseError>>;

    fn locked(&self) -> BoxFuture<'_, Result<bool, HomeError>>;
    fn resize(&self, slots: u32) -> BoxFuture<'_, Result<(), HomeError>>;
    fn close(&self) -> BoxFuture<'_, Result<(), HomeError>>;
    fn is_closed(&self) -> BoxFuture<'_, Result<bool, HomeError>>;
    fn stats(&self) -> BoxFuture<'_, Result<Stats, HomeError>>;
    fn holders(&self) -> BoxFuture<'_, Result<Vec<HolderInfo>, HomeError>>;
    fn waiters(&self) -> BoxFuture<'_, Result<Vec<WaiterInfo>, HomeError>>;
}

/// An acquire that is on its way.
pub(crate) trait RemoteAcquire:
    Future<Output = Result<Box<dyn RemoteLease>, AcquireError>> + Send + Sync
{
    /// Gives up, and waits until the home has confirmed it.
    fn leave(self: Pin<Box<Self>>) -> BoxFuture<'static, ()>;
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
    fn safe_until(&self) -> Option<Instant>;

    fn why_not_held(&self) -> Option<NotHeld>;
    fn lost_signal(&self) -> CancellationToken;

    fn renew(&self, ttl: Option<Duration>) -> BoxFuture<'_, Result<(), RenewError>>;

    /// Goes on in the background if the future is dropped.
    fn release(self: Box<Self>) -> BoxFuture<'static, Result<(), ReleaseError>>;
    fn detach(self: Box<Self>) -> PermitId;
}
