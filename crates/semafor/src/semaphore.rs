use std::fmt;

use semafor_core::{Request, ZeroSlots};

use crate::error::{AcquireError, ReleaseError, RenewError, RunError};
use crate::memory::Handle;
use crate::options::{Builder, Defaults};
use crate::{Acquire, HolderInfo, Permit, PermitId, Registry, Span, Stats, WaiterInfo};

/// Limits how many do a thing at once.
///
/// A named set of slots with one line in front of it. Whoever opens the same name gets the same slots. A clone is another
/// handle, with the same defaults.
///
/// ```
/// # pollster::block_on(async {
/// use semafor::{Semaphore, secs};
///
/// let sem = Semaphore::memory("docs-images").slots(2).ttl(secs(30)).max_acquire_time(secs(5)).build().unwrap();
///
/// let first = sem.acquire().await.unwrap();
/// let second = sem.acquire().await.unwrap();
/// assert_eq!((first.slot(), second.slot()), (0, 1));
/// assert!(sem.locked().await);
///
/// drop(first);
/// let third = sem.acquire().await.unwrap();
/// assert_eq!(third.slot(), 0);
/// # });
/// ```
#[derive(Clone)]
pub struct Semaphore {
    handle: Handle,
    defaults: Defaults,
}

impl Semaphore {
    /// Opens a semaphore for the tasks and threads of this process, in the [global registry](Registry::global).
    ///
    /// ```
    /// use semafor::{BuildError, Semaphore};
    ///
    /// let a = Semaphore::memory("docs-shared").slots(3).build().unwrap();
    /// let b = Semaphore::memory("docs-shared").slots(3).build().unwrap();
    /// let held = a.try_acquire().unwrap();
    ///
    /// let mismatch = Semaphore::memory("docs-shared").slots(5).build().unwrap_err();
    /// assert!(matches!(mismatch, BuildError::SlotsMismatch { live: 3, asked: 5, .. }));
    /// # drop(b);
    /// ```
    pub fn memory(name: impl Into<String>) -> Builder {
        Registry::global().semaphore(name)
    }

    pub(crate) fn new(handle: Handle, defaults: Defaults) -> Self {
        Self { handle, defaults }
    }

    #[inline]
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    #[inline]
    pub(crate) fn defaults(&self) -> &Defaults {
        &self.defaults
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.handle.name()
    }

    /// Waits for a slot, first come, first served. See [`Acquire`] for what can be said before awaiting it.
    ///
    /// # Errors
    ///
    /// [`AcquireError`] if no slot came free in time, the line was full, the semaphore is or was closed, the request could
    /// never be met, or a slot was granted and its time to live was over before the task was polled again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the place in line back, and the slot that may have been granted meanwhile.
    #[inline]
    pub fn acquire(&self) -> Acquire<'_> {
        Acquire::new(self)
    }

    /// Takes a slot if one is free right now: short for `acquire().now()`.
    ///
    /// # Errors
    ///
    /// As for [`Acquire::now`].
    #[inline]
    pub fn try_acquire(&self) -> Result<Permit<'_>, AcquireError> {
        self.acquire().now()
    }

    /// Runs `work` under a permit. If the slot is lost, `work` is dropped where it awaits, as soon as its task is polled
    /// (unless opened with `cancel_on_expiry(false)`). Where an overlap with the next holder's work must be ruled out, hand
    /// the resource the [fencing token](Permit::fencing_token).
    ///
    /// # Errors
    ///
    /// [`RunError::Acquire`] if the work never started, [`RunError::Lost`] if it was dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work` and gives the slot, or the place in line, back.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::{Semaphore, secs};
    /// let sem = Semaphore::memory("docs-run").slots(1).ttl(secs(0.02)).build().unwrap();
    ///
    /// assert_eq!(sem.run(async { 6 * 7 }).await, Ok(42));
    /// let hung = sem.run(std::future::pending::<()>()).await;
    /// assert!(hung.unwrap_err().is_lost());
    /// # });
    /// ```
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, RunError> {
        self.acquire().await?.run(work).await
    }

    /// Runs `work` under a permit in a tokio task of its own. If the slot is lost, the task's work is aborted, and the
    /// handle gives [`RunError::Lost`] (unless opened with `cancel_on_expiry(false)`). The task takes its place in line when
    /// the runtime first polls it.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, as [`tokio::spawn`] does.
    #[cfg(feature = "tokio")]
    pub fn spawn<F>(&self, work: F) -> tokio::task::JoinHandle<Result<F::Output, RunError>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let semaphore = self.clone();
        tokio::spawn(async move { semaphore.run(work).await })
    }

    /// Gives the slot of a [detached](Permit::detach) permit back. Works from any task, thread or handle of the same name.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::NotHeld`] if the id holds nothing: released before, lost, or never issued by this semaphore. Nothing
    /// has changed then.
    pub async fn release(&self, id: &PermitId) -> Result<(), ReleaseError> {
        Ok(self.handle.release_by_id(id.in_memory())?)
    }

    /// Gives back what the current task acquired last of all that it detached and still holds, and says what it was.
    ///
    /// Nested acquires come back in reverse order. What the current task is, [`task`](crate::task) says.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::NothingDetached`] if the current task holds nothing of this semaphore by id.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-latest").slots(2).build().unwrap();
    /// let outer = sem.acquire().await.unwrap().detach();
    /// let inner = sem.acquire().await.unwrap().detach();
    /// assert_eq!(sem.release_latest().await, Ok(inner));
    /// assert_eq!(sem.release_latest().await, Ok(outer));
    /// # });
    /// ```
    pub async fn release_latest(&self) -> Result<PermitId, ReleaseError> {
        self.handle.release_latest().map(PermitId::from).ok_or(ReleaseError::NothingDetached)
    }

    /// Lets the holder of `id` keep its slot for `ttl` from now; [`Span::UNLIMITED`] for as long as it takes.
    ///
    /// # Errors
    ///
    /// [`RenewError::NotHeld`] if the id holds nothing any more.
    pub async fn renew(&self, id: &PermitId, ttl: impl Into<Span>) -> Result<(), RenewError> {
        let ttl = ttl.into().to_ttl()?;
        Ok(self.handle.renew(id.in_memory(), ttl)?)
    }

    /// Takes the slot away from whoever holds it by `id`, and tells them: [`Permit::lost`] fires.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::NotHeld`] if the id holds nothing.
    pub async fn evict(&self, id: &PermitId) -> Result<(), ReleaseError> {
        Ok(self.handle.evict(id.in_memory())?)
    }

    /// True if an [`acquire`](Self::acquire) of one slot would have to wait right now, or would fail.
    pub async fn locked(&self) -> bool {
        !self.handle.would_admit(&Request::default())
    }

    /// How many slots there are.
    pub async fn capacity(&self) -> u32 {
        self.handle.capacity()
    }

    /// Changes the number of slots, for everybody who uses the name.
    ///
    /// Growing serves the line at once. Shrinking takes nothing from anybody: slots above the new number vanish as they
    /// are released, and nobody is admitted until then.
    ///
    /// # Errors
    ///
    /// [`ZeroSlots`]; to stop a semaphore, [`close`](Self::close) it.
    pub async fn resize(&self, slots: u32) -> Result<(), ZeroSlots> {
        self.handle.resize(slots)
    }

    /// Turns everybody in line away, and whoever comes later. Holders keep their slots.
    ///
    /// For good: the name can be opened anew once all slots have been given back.
    pub async fn close(&self) {
        self.handle.close();
    }

    /// True after [`close`](Self::close).
    pub async fn is_closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// Held, waiting, totals and histograms, all of one moment.
    pub async fn stats(&self) -> Stats {
        self.handle.stats()
    }

    /// Who holds the slots, by slot number.
    pub async fn holders(&self) -> Vec<HolderInfo> {
        self.handle.holders()
    }

    /// Who waits for them, first to last.
    pub async fn waiters(&self) -> Vec<WaiterInfo> {
        self.handle.waiters()
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore").field("name", &self.name()).finish_non_exhaustive()
    }
}
