use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::str::FromStr;
use std::task::Poll;
use std::time::{Duration, Instant};

use semafor_core::NotHeld;
use tokio_util::sync::CancellationToken;

use crate::error::{ParsePermitIdError, ReleaseError, RenewError, RunError};
use crate::memory::Handle;
use crate::{Semaphore, Span};

/// Names one acquisition: never used again, and recognised when it comes too late.
///
/// Text both ways, so that it can be passed through files, flags and queues.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PermitId(semafor_core::PermitId);

impl PermitId {
    pub(crate) fn in_memory(&self) -> semafor_core::PermitId {
        self.0
    }
}

impl From<semafor_core::PermitId> for PermitId {
    fn from(id: semafor_core::PermitId) -> Self {
        Self(id)
    }
}

impl fmt::Display for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for PermitId {
    type Err = ParsePermitIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self).map_err(ParsePermitIdError)
    }
}

/// A slot, held until this is dropped or the slot is lost.
///
/// Borrows the semaphore it came from; [`into_owned`](Self::into_owned) makes it free of that, to be moved into a
/// spawned task, say.
///
/// ```
/// # pollster::block_on(async {
/// use semafor::Semaphore;
/// let sem = Semaphore::memory("docs-permit").slots(2).build().unwrap();
/// let permit = sem.acquire().await.unwrap();
/// assert_eq!(permit.slot(), 0);
/// permit.release().await.unwrap();
/// # });
/// ```
#[must_use = "the slot is given back when the permit is dropped: bind it, `let _permit = …`"]
pub struct Permit<'a> {
    owner: Owner<'a>,
    /// [`NOTHING`] once dropping it shall not give the slot back.
    id: semafor_core::PermitId,
    waited_nanos: u64,
}

/// The id of a permit that was detached, released or moved elsewhere. No such id is ever issued.
const NOTHING: semafor_core::PermitId = semafor_core::PermitId::NONE;

enum Owner<'a> {
    Borrowed(&'a Semaphore),
    Owned(Box<Semaphore>),
}

impl Owner<'_> {
    #[inline]
    fn semaphore(&self) -> &Semaphore {
        match self {
            Self::Borrowed(semaphore) => semaphore,
            Self::Owned(semaphore) => semaphore,
        }
    }
}

impl<'a> Permit<'a> {
    #[inline]
    pub(crate) fn new(semaphore: &'a Semaphore, id: semafor_core::PermitId, waited: Duration) -> Self {
        let waited_nanos = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        Self { owner: Owner::Borrowed(semaphore), id, waited_nanos }
    }

    fn disarm(&mut self) -> semafor_core::PermitId {
        std::mem::replace(&mut self.id, NOTHING)
    }

    #[inline]
    fn gate(&self) -> &Handle {
        self.owner.semaphore().handle()
    }

    /// The id of this acquisition.
    pub fn id(&self) -> PermitId {
        PermitId(self.id)
    }

    /// The slot number: 0-based, and no other live permit of the semaphore has it. Below the number of slots there were
    /// when it was granted.
    pub fn slot(&self) -> u32 {
        self.id.slot()
    }

    /// A number that grows with every grant of the semaphore's name, for as long as the process lives. A resource that
    /// refuses numbers below the highest it has seen is safe from holders that lost their slot and do not know it yet.
    pub fn fencing_token(&self) -> u64 {
        self.id.fencing_token()
    }

    /// How long the line took. Zero if a slot was free.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited_nanos)
    }

    /// When the slot will be taken back. `None` without a time to live, and once it is lost.
    pub fn expires_at(&self) -> Option<Instant> {
        self.gate().expires_at(self.id)
    }

    /// True once the slot is not held any more: its time to live is up, it was evicted, or released by id.
    pub fn is_lost(&self) -> bool {
        self.gate().why_not_held(self.id).is_some()
    }

    /// Waits until the slot is lost, and says why. Never returns while it is held.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop and call again.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use std::time::Duration;
    /// # use semafor::{Registry, Semaphore, ManualClock, secs};
    /// # let clock = ManualClock::new();
    /// # let registry = Registry::builder().clock(&clock).build();
    /// # let sem = registry.semaphore("docs-lost").slots(1).ttl(secs(30)).build().unwrap();
    /// let permit = sem.acquire().await.unwrap();
    /// clock.advance(Duration::from_secs(30));
    /// assert!(permit.lost().await.is_expired());
    /// # });
    /// ```
    pub async fn lost(&self) -> NotHeld {
        let gate = self.gate();
        gate.lost_signal(self.id).cancelled().await;
        gate.why_not_held(self.id).unwrap_or(NotHeld::Unknown)
    }

    /// A token that is cancelled when the slot is lost, to hand to the work that depends on it. It is not cancelled when
    /// the permit is dropped or released.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.gate().lost_signal(self.id)
    }

    /// Keeps the slot for `ttl` from now, whatever was left; [`Span::UNLIMITED`] for as long as it takes.
    ///
    /// # Errors
    ///
    /// [`RenewError::NotHeld`] if the slot is lost already; it does not come back.
    pub async fn renew(&self, ttl: impl Into<Span>) -> Result<(), RenewError> {
        let ttl = ttl.into().to_ttl()?;
        Ok(self.gate().renew(self.id, ttl)?)
    }

    /// Gives the slot back and says whether it was still there to give.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::NotHeld`] if it was lost before. Nobody is harmed: whoever has the slot now keeps it.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the slot is given back all the same.
    pub async fn release(mut self) -> Result<(), ReleaseError> {
        let id = self.disarm();
        Ok(self.gate().release(id)?)
    }

    /// Holds the slot without a guard, by id. From now on it is up to [`Semaphore::release`](crate::Semaphore::release),
    /// [`release_latest`](crate::Semaphore::release_latest) or the time to live to give it back.
    pub fn detach(mut self) -> PermitId {
        let id = self.disarm();
        self.gate().detach(id);
        PermitId(id)
    }

    /// The same permit, free of the borrow of its semaphore.
    pub fn into_owned(mut self) -> Permit<'static> {
        let owner = Owner::Owned(Box::new(self.owner.semaphore().clone()));
        Permit { owner, id: self.disarm(), waited_nanos: self.waited_nanos }
    }

    /// Runs `work` under this permit, then releases it. If the slot is lost first, `work` is dropped at once (unless the
    /// semaphore was opened with `cancel_on_expiry(false)`).
    ///
    /// # Errors
    ///
    /// [`RunError::Lost`] if the work was dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work` and gives the slot back.
    pub async fn run<F: Future>(self, work: F) -> Result<F::Output, RunError> {
        if !self.owner.semaphore().defaults().cancel_on_expiry {
            return Ok(work.await);
        }
        let signal = self.cancellation_token();
        let mut lost = pin!(signal.cancelled());
        let mut work = pin!(work);
        poll_fn(|cx| {
            if lost.as_mut().poll(cx).is_ready() {
                let why = self.gate().why_not_held(self.id).unwrap_or(NotHeld::Unknown);
                return Poll::Ready(Err(RunError::Lost(why)));
            }
            work.as_mut().poll(cx).map(Ok)
        })
        .await
    }
}

impl Drop for Permit<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.id != NOTHING {
            // Lost or released by id meanwhile: then there is nothing to give back.
            let _ = self.gate().release(self.id);
        }
    }
}

impl fmt::Debug for Permit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.gate().name();
        f.debug_struct("Permit").field("name", &name).field("id", &self.id()).finish_non_exhaustive()
    }
}
