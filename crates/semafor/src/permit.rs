use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::str::FromStr;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use semafor_core::NotHeld;
use tokio_util::sync::CancellationToken;

use crate::error::{ParsePermitIdError, ReleaseError, RenewError, RunError};
use crate::memory::Handle;
use crate::remote::RemoteLease;
use crate::{LostSignal, Semaphore, Span};

/// The id of one acquisition. It is never used again. A late call with it fails and says why the slot is not held, or
/// [`NotHeld::Unknown`] if that is long ago.
///
/// It can be written as text and parsed again, to pass it through files, flags and queues.
///
/// # Examples
///
/// ```
/// # pollster::block_on(async {
/// use semafor::{PermitId, Semaphore};
/// let sem = Semaphore::memory("docs-permit-id").slots(1).build().unwrap();
/// let text = sem.acquire().await.unwrap().detach().to_string();
///
/// let id: PermitId = text.parse().unwrap();
/// sem.release(&id).await.unwrap();
/// # });
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PermitId(IdKind);

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum IdKind {
    InMemory(semafor_core::PermitId),
    Remote(Arc<str>),
}

/// The longest text that is accepted as an id of a remote home.
const MAX_REMOTE_ID_LEN: usize = 64;

impl PermitId {
    /// The id in memory. For the id of a remote home, an id that memory never issues.
    pub(crate) fn in_memory(&self) -> semafor_core::PermitId {
        match &self.0 {
            IdKind::InMemory(id) => *id,
            IdKind::Remote(_) => NO_ID,
        }
    }

    #[cfg_attr(
        not(any(feature = "local", feature = "redis")),
        expect(dead_code, reason = "memory has its own ids")
    )]
    pub(crate) fn remote(id: impl Into<Arc<str>>) -> Self {
        let id = id.into();
        // The ids of an agent are ids of its memory home. Parsing the text of one must give an equal id.
        Self(id.parse().map_or(IdKind::Remote(id), IdKind::InMemory))
    }
}

impl From<semafor_core::PermitId> for PermitId {
    fn from(id: semafor_core::PermitId) -> Self {
        Self(IdKind::InMemory(id))
    }
}

impl fmt::Display for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            IdKind::InMemory(id) => id.fmt(f),
            IdKind::Remote(id) => f.write_str(id),
        }
    }
}

impl fmt::Debug for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PermitId({self})")
    }
}

impl FromStr for PermitId {
    type Err = ParsePermitIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let in_memory = text.parse().map(|id| Self(IdKind::InMemory(id)));
        let is_word = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        match in_memory {
            Err(_) if is_word && text.len() <= MAX_REMOTE_ID_LEN => Ok(Self(IdKind::Remote(text.into()))),
            parsed => parsed.map_err(ParsePermitIdError),
        }
    }
}

/// Holds a slot until it is dropped or the slot is lost.
///
/// Borrows its semaphore. [`into_owned`](Self::into_owned) ends the borrow, for example to move the permit into a
/// spawned task.
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
#[must_use = "the slot is released when the permit is dropped: bind it, `let _permit = …`"]
pub struct Permit<'a> {
    owner: Owner<'a>,
    /// [`NO_ID`] once drop must no longer release the slot, and always for the slot of a remote home.
    id: semafor_core::PermitId,
    waited_nanos: u64,
}

/// The id of a permit that was detached, released or moved. It is never issued.
const NO_ID: semafor_core::PermitId = semafor_core::PermitId::NONE;

enum Owner<'a> {
    Borrowed(&'a Semaphore),
    Owned(Box<Semaphore>),
    Remote(Box<RemotePermit>),
}

/// A slot of a home outside of this process.
struct RemotePermit {
    /// `None` once it was released or detached.
    lease: Option<Box<dyn RemoteLease>>,
    cancel_on_expiry: bool,
}

/// Where the slot is.
enum Backend<'a> {
    Memory(&'a Handle),
    Remote(&'a dyn RemoteLease),
    /// Released, detached or moved, and not dropped yet. Users never see this state.
    Empty,
}

impl<'a> Permit<'a> {
    #[inline]
    pub(crate) fn new(semaphore: &'a Semaphore, id: semafor_core::PermitId, waited: Duration) -> Self {
        let waited_nanos = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        Self { owner: Owner::Borrowed(semaphore), id, waited_nanos }
    }

    pub(crate) fn remote(lease: Box<dyn RemoteLease>, cancel_on_expiry: bool) -> Self {
        let remote = RemotePermit { lease: Some(lease), cancel_on_expiry };
        Self { owner: Owner::Remote(Box::new(remote)), id: NO_ID, waited_nanos: 0 }
    }

    fn disarm(&mut self) -> semafor_core::PermitId {
        std::mem::replace(&mut self.id, NO_ID)
    }

    #[inline]
    fn backend(&self) -> Backend<'_> {
        match &self.owner {
            Owner::Borrowed(semaphore) => semaphore.in_memory().map_or(Backend::Empty, Backend::Memory),
            Owner::Owned(semaphore) => semaphore.in_memory().map_or(Backend::Empty, Backend::Memory),
            Owner::Remote(remote) => match &remote.lease {
                Some(lease) => Backend::Remote(lease.as_ref()),
                None => Backend::Empty,
            },
        }
    }

    fn take_lease(&mut self) -> Option<Box<dyn RemoteLease>> {
        match &mut self.owner {
            Owner::Remote(remote) => remote.lease.take(),
            _ => None,
        }
    }

    /// The id of this acquisition.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::{PermitId, Semaphore};
    /// let sem = Semaphore::memory("docs-id").slots(1).build().unwrap();
    /// let permit = sem.acquire().await.unwrap();
    /// let id: PermitId = permit.id().to_string().parse().unwrap();
    /// assert_eq!(id, permit.id());
    /// # });
    /// ```
    pub fn id(&self) -> PermitId {
        match self.backend() {
            Backend::Remote(lease) => lease.id(),
            _ => PermitId::from(self.id),
        }
    }

    /// The slot number: 0-based, and no other live permit of the semaphore has it. It is below the number of slots at
    /// the time of the grant.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-slot").slots(2).build().unwrap();
    /// let (a, b) = (sem.acquire().await.unwrap(), sem.acquire().await.unwrap());
    /// assert_eq!((a.slot(), b.slot()), (0, 1));
    /// # });
    /// ```
    pub fn slot(&self) -> u32 {
        match self.backend() {
            Backend::Remote(lease) => lease.slot(),
            _ => self.id.slot(),
        }
    }

    /// A number that grows with every grant of the semaphore's name: in memory as long as the process lives, in other
    /// homes longer. The module `redis` says when a Redis server may lose it.
    ///
    /// A resource that refuses numbers below the highest it has seen is safe from holders that lost their slot and do
    /// not know it yet. If the semaphore has several slots, the resource keeps one highest number for each
    /// [slot number](Self::slot), because several holders are valid at once.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-token").slots(1).build().unwrap();
    /// let earlier = sem.acquire().await.unwrap().fencing_token();
    /// let later = sem.acquire().await.unwrap().fencing_token();
    /// assert!(later > earlier);
    /// # });
    /// ```
    pub fn fencing_token(&self) -> u64 {
        match self.backend() {
            Backend::Remote(lease) => lease.fencing_token(),
            _ => self.id.fencing_token(),
        }
    }

    /// How long the request waited in line. Zero if a slot was free.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-waited").slots(1).build().unwrap();
    /// let permit = sem.acquire().await.unwrap();
    /// assert!(permit.waited().is_zero());
    /// # });
    /// ```
    pub fn waited(&self) -> Duration {
        match self.backend() {
            Backend::Remote(lease) => lease.waited(),
            _ => Duration::from_nanos(self.waited_nanos),
        }
    }

    /// When the lease ends. `None` without a `ttl`, and once the slot is lost. In memory, an evicted holder with a
    /// [grace](crate::Builder::grace) gets the end of its grace.
    ///
    /// A home outside of this process ends the lease by its own clock. This is the earliest moment, on the clock of
    /// this process, at which it can do so.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::{Semaphore, secs};
    /// let sem = Semaphore::memory("docs-expires").slots(1).ttl(secs(30)).build().unwrap();
    /// let permit = sem.acquire().await.unwrap();
    /// assert!(permit.expires_at().unwrap() > std::time::Instant::now());
    /// # });
    /// ```
    pub fn expires_at(&self) -> Option<Instant> {
        match self.backend() {
            Backend::Memory(gate) => gate.expires_at(self.id),
            Backend::Remote(lease) => lease.expires_at(),
            Backend::Empty => None,
        }
    }

    /// The time before which no other holder can get the slot, even if the connection to the home breaks. Every answer
    /// of the home to a heartbeat moves it on; see [`heartbeat_max_interval`](crate::Builder::heartbeat_max_interval).
    ///
    /// For work that takes a while to stop: when the home falls silent, [`lost`](Self::lost) fires at most half a second
    /// before this time. `None` in memory and in the local home, which have no heartbeats, and once the slot is lost for
    /// any other reason than a silent home.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-safe").slots(1).build().unwrap();
    /// let permit = sem.acquire().await.unwrap();
    /// assert_eq!(permit.safe_until(), None, "memory needs no heartbeats");
    /// # });
    /// ```
    pub fn safe_until(&self) -> Option<Instant> {
        match self.backend() {
            Backend::Remote(lease) => lease.safe_until(),
            Backend::Memory(_) | Backend::Empty => None,
        }
    }

    /// True once the slot is lost: its lease ended, it was evicted, or it was released by id. An evicted holder with a
    /// [grace](crate::Builder::grace) has lost it from the eviction on, although no other holder gets the slot before
    /// the grace ends or the permit is released.
    ///
    /// For a home outside of this process: as far as this process knows by now.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-is-lost").slots(1).build().unwrap();
    /// let permit = sem.acquire().await.unwrap();
    /// assert!(!permit.is_lost());
    /// sem.evict(&permit.id()).await.unwrap();
    /// assert!(permit.is_lost());
    /// # });
    /// ```
    pub fn is_lost(&self) -> bool {
        self.why_not_held().is_some()
    }

    /// Its semaphore, if that is in memory.
    #[cfg(feature = "local")]
    pub(crate) fn gate(&self) -> Option<&Handle> {
        match self.backend() {
            Backend::Memory(gate) => Some(gate),
            Backend::Remote(_) | Backend::Empty => None,
        }
    }

    /// True if it was evicted and still holds its slot, because its grace has not ended.
    #[cfg(feature = "local")]
    pub(crate) fn is_leaving(&self) -> bool {
        match self.backend() {
            Backend::Memory(gate) => gate.is_leaving(self.id),
            Backend::Remote(_) | Backend::Empty => false,
        }
    }

    /// Why the slot [is lost](Self::is_lost); `None` while it is not.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::{Loss, NotHeld, Semaphore};
    /// let sem = Semaphore::memory("docs-why").slots(1).build().unwrap();
    /// let permit = sem.acquire().await.unwrap();
    /// assert_eq!(permit.why_not_held(), None);
    /// sem.evict(&permit.id()).await.unwrap();
    /// assert_eq!(permit.why_not_held(), Some(NotHeld::Lost(Loss::Evicted)));
    /// # });
    /// ```
    pub fn why_not_held(&self) -> Option<NotHeld> {
        match self.backend() {
            Backend::Memory(gate) => gate.why_not_held(self.id),
            Backend::Remote(lease) => lease.why_not_held(),
            Backend::Empty => Some(NotHeld::Released),
        }
    }

    /// Waits until the slot [is lost](Self::is_lost), and returns the reason.
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
    /// # let sem = registry.named("docs-lost").slots(1).ttl(secs(30)).build().unwrap();
    /// let permit = sem.acquire().await.unwrap();
    /// clock.advance(Duration::from_secs(30));
    /// assert!(permit.lost().await.is_expired());
    /// # });
    /// ```
    pub async fn lost(&self) -> NotHeld {
        self.loss_token().cancelled().await;
        self.why_not_held().unwrap_or(NotHeld::Unknown)
    }

    /// A signal that is set when the slot [is lost](Self::is_lost), for the work that depends on the slot. A release by
    /// id sets it (in the local home only if the permit is not [detached](Self::detach)). Dropping the permit or calling
    /// its [`release`](Self::release) does not.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-lost-signal").slots(1).build().unwrap();
    /// let permit = sem.acquire().await.unwrap();
    /// let signal = permit.lost_signal();
    ///
    /// sem.evict(&permit.id()).await.unwrap();
    /// assert!(signal.is_lost());
    /// signal.lost().await;
    /// # });
    /// ```
    pub fn lost_signal(&self) -> LostSignal {
        LostSignal::new(self.loss_token())
    }

    /// Cancelled when the slot is lost.
    fn loss_token(&self) -> CancellationToken {
        match self.backend() {
            Backend::Memory(gate) => gate.lost_signal(self.id),
            Backend::Remote(lease) => lease.lost_signal(),
            Backend::Empty => CancellationToken::new(),
        }
    }

    /// Sets the lease to `ttl` from now, whatever time was left. [`Span::UNLIMITED`] means that it never ends.
    ///
    /// # Errors
    ///
    /// [`RenewError::NotHeld`] if the slot is lost already: a lost slot cannot be renewed, also not during a grace.
    /// [`RenewError::InvalidDuration`]. [`RenewError::Home`]; not from memory.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::{Semaphore, Span, secs};
    /// let sem = Semaphore::memory("docs-permit-renew").slots(1).ttl(secs(1)).build().unwrap();
    /// let permit = sem.acquire().await.unwrap();
    /// permit.renew(Span::UNLIMITED).await.unwrap();
    /// assert_eq!(permit.expires_at(), None);
    /// # });
    /// ```
    pub async fn renew(&self, ttl: impl Into<Span>) -> Result<(), RenewError> {
        let ttl = ttl.into().to_ttl()?;
        match self.backend() {
            Backend::Memory(gate) => Ok(gate.renew(self.id, ttl)?),
            Backend::Remote(lease) => lease.renew(ttl).await,
            Backend::Empty => Err(NotHeld::Released.into()),
        }
    }

    /// Releases the slot, and returns an error if it was no longer held.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::NotHeld`] if the slot was lost before. The holder that has the slot now keeps it. During the
    /// [grace](crate::Builder::grace) after an eviction, the release succeeds; the local home also frees the slot then,
    /// but returns `NotHeld`. [`ReleaseError::Home`]; not from memory.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the slot is released all the same.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-permit-release").slots(1).build().unwrap();
    /// let permit = sem.acquire().await.unwrap();
    /// permit.release().await.unwrap();
    /// assert!(!sem.locked().await.unwrap());
    /// # });
    /// ```
    pub async fn release(mut self) -> Result<(), ReleaseError> {
        if let Some(lease) = self.take_lease() {
            return lease.release().await;
        }
        let id = self.disarm();
        match self.backend() {
            Backend::Memory(gate) => Ok(gate.release(id)?),
            _ => Err(NotHeld::Released.into()),
        }
    }

    /// Keeps the slot without a guard, and returns its id. From now on
    /// [`Semaphore::release`](crate::Semaphore::release), [`release_latest`](crate::Semaphore::release_latest) or the
    /// end of the lease releases it.
    ///
    /// Outside of memory, the end of this process may also release it: the module of each home says when.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-detach").slots(1).build().unwrap();
    /// let id = sem.acquire().await.unwrap().detach();
    /// assert!(sem.locked().await.unwrap());
    /// sem.release(&id).await.unwrap();
    /// # });
    /// ```
    pub fn detach(mut self) -> PermitId {
        if let Some(lease) = self.take_lease() {
            return lease.detach();
        }
        let id = self.disarm();
        if let Backend::Memory(gate) = self.backend() {
            gate.detach(id);
        }
        PermitId::from(id)
    }

    /// The same permit, without the borrow of its semaphore.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-into-owned").slots(1).build().unwrap();
    /// let permit = sem.acquire().await.unwrap().into_owned();
    /// let holder = std::thread::spawn(move || permit.slot());
    /// assert_eq!(holder.join().unwrap(), 0);
    /// # });
    /// ```
    pub fn into_owned(mut self) -> Permit<'static> {
        let (id, waited_nanos) = (self.disarm(), self.waited_nanos);
        let cancel_on_expiry = self.cancels_on_expiry();
        if let Some(lease) = self.take_lease() {
            return Permit::remote(lease, cancel_on_expiry);
        }
        let owner = match &mut self.owner {
            Owner::Borrowed(semaphore) => Owner::Owned(Box::new(semaphore.clone())),
            Owner::Owned(semaphore) => Owner::Owned(Box::new(Semaphore::clone(semaphore))),
            Owner::Remote(_) => Owner::Remote(Box::new(RemotePermit { lease: None, cancel_on_expiry })),
        };
        Permit { owner, id, waited_nanos }
    }

    fn cancels_on_expiry(&self) -> bool {
        match &self.owner {
            Owner::Borrowed(semaphore) => semaphore.defaults().cancel_on_expiry,
            Owner::Owned(semaphore) => semaphore.defaults().cancel_on_expiry,
            Owner::Remote(remote) => remote.cancel_on_expiry,
        }
    }

    /// Runs `work` under this permit, then releases it. If the slot is lost first, `work` is dropped where it awaits, as
    /// soon as its task is polled (unless the semaphore was opened with `cancel_on_expiry(false)`). Work that does not
    /// await any more ends normally, and its output is returned.
    ///
    /// # Errors
    ///
    /// [`RunError::Lost`] if the work was dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work` and releases the slot.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-permit-run").slots(1).build().unwrap();
    /// let permit = sem.acquire().label("resize").await.unwrap();
    /// assert_eq!(permit.run(async { 6 * 7 }).await, Ok(42));
    /// assert!(!sem.locked().await.unwrap());
    /// # });
    /// ```
    pub async fn run<F: Future>(self, work: F) -> Result<F::Output, RunError> {
        if !self.cancels_on_expiry() {
            return Ok(work.await);
        }
        let signal = self.loss_token();
        let mut lost = pin!(signal.cancelled());
        let mut work = pin!(work);
        poll_fn(|cx| {
            if lost.as_mut().poll(cx).is_ready() {
                let why = self.why_not_held().unwrap_or(NotHeld::Unknown);
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
        if self.id != NO_ID
            && let Backend::Memory(gate) = self.backend()
        {
            // An error means that it was lost or released by id meanwhile.
            let _ = gate.release(self.id);
        }
    }
}

impl fmt::Debug for Permit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.backend() {
            Backend::Memory(gate) => gate.name(),
            Backend::Remote(lease) => lease.name(),
            Backend::Empty => "",
        };
        f.debug_struct("Permit").field("name", &name).field("id", &self.id()).finish_non_exhaustive()
    }
}
