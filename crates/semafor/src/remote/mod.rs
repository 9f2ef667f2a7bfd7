//! Homes outside of this process.
//!
//! [`client`] decides what this process holds and waits for there; it does no I/O. The driver of each home carries
//! its calls to the server and returns the replies; an engine encodes them for the server.
//!
//! The public types use the traits in this module. The memory home is not behind them: it answers without waiting,
//! and needs no boxed future. For the other homes, the cost of the box is nothing compared to the round trip.

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

/// The parameters of an acquire.
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

    /// With a grace after an eviction.
    pub fn with_grace(self, grace: Duration) -> Self {
        Self { who: Some(Box::new(Who { grace: Some(grace), ..Who::default() })), ..self }
    }
}

/// How long to wait in line.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Wait {
    /// Not at all; fails with [`AcquireError::Busy`].
    No,
    /// For this time, which may be zero; fails with [`AcquireError::TimedOut`].
    For(Duration),
    /// Without a timeout.
    Unlimited,
}

impl Wait {
    /// The longest time in line. `None` without a limit, and if it does not wait at all.
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

/// A named semaphore at a home outside of this process.
pub(crate) trait RemoteSemaphore: Send + Sync {
    fn name(&self) -> &str;

    /// Opens the name at the home, and checks that its number of slots fits.
    fn open(&self) -> BoxFuture<'_, Result<(), BuildError>>;

    /// Asks for slots. Dropping the future releases the place in line, and slots that were granted meanwhile.
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

/// An acquire that has not finished.
pub(crate) trait RemoteAcquire:
    Future<Output = Result<Box<dyn RemoteLease>, AcquireError>> + Send + Sync
{
    /// Cancels the acquire, and waits until the home has confirmed that.
    fn leave(self: Pin<Box<Self>>) -> BoxFuture<'static, ()>;
}

/// Slots at a home outside of this process. Drop releases them in the background.
pub(crate) trait RemoteLease: Send + Sync {
    fn name(&self) -> &str;
    fn id(&self) -> PermitId;
    fn slot(&self) -> u32;
    fn fencing_token(&self) -> u64;
    fn waited(&self) -> Duration;

    /// As far as this process knows; never later than the true end.
    fn expires_at(&self) -> Option<Instant>;

    /// For homes where a client without heartbeats counts as dead; `None` for other homes.
    fn safe_until(&self) -> Option<Instant>;

    fn why_not_held(&self) -> Option<NotHeld>;
    fn lost_signal(&self) -> CancellationToken;

    fn renew(&self, ttl: Option<Duration>) -> BoxFuture<'_, Result<(), RenewError>>;

    /// Goes on in the background if the future is dropped.
    fn release(self: Box<Self>) -> BoxFuture<'static, Result<(), ReleaseError>>;
    fn detach(self: Box<Self>) -> PermitId;
}
