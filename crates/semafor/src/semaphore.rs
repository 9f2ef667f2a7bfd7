use std::fmt;
use std::sync::Arc;

use semafor_core::{Request, ZeroSlots};

use crate::error::{HomeError, ReleaseError, RenewError, ResizeError, RunError};
use crate::memory::Handle;
use crate::options::{Builder, Defaults};
use crate::remote::RemoteSemaphore;
use crate::{Acquire, HolderInfo, PermitId, Registry, Span, Stats, WaiterInfo};

/// Limits how many tasks, processes or machines do a thing at once.
///
/// A named set of slots with one line of waiters. All handles to the same name share the slots and the line. A clone is
/// another handle, with the same defaults.
///
/// ```
/// # pollster::block_on(async {
/// use semafor::{Semaphore, secs};
///
/// let sem = Semaphore::memory("docs-images").slots(2).ttl(secs(30)).timeout(secs(5)).build().unwrap();
///
/// let first = sem.acquire().await.unwrap();
/// let second = sem.acquire().await.unwrap();
/// assert_eq!((first.slot(), second.slot()), (0, 1));
/// assert!(sem.locked().await.unwrap());
///
/// drop(first);
/// let third = sem.acquire().await.unwrap();
/// assert_eq!(third.slot(), 0);
/// # });
/// ```
///
/// A semaphore in memory answers at once and never fails with a [`HomeError`].
#[derive(Clone)]
pub struct Semaphore {
    backend: Backend,
    defaults: Defaults,
}

/// Where its slots and its line are.
#[derive(Clone)]
enum Backend {
    Memory(Handle),
    #[cfg_attr(
        not(any(feature = "local", feature = "redis")),
        expect(dead_code, reason = "memory is not a remote home")
    )]
    Remote(Arc<dyn RemoteSemaphore>),
}

impl Semaphore {
    /// Opens a semaphore for the tasks and threads of this process, in the [global registry](Registry::global).
    ///
    /// ```
    /// use semafor::{BuildError, Semaphore};
    ///
    /// let a = Semaphore::memory("docs-shared").slots(3).build().unwrap();
    /// let b = Semaphore::memory("docs-shared").slots(3).build().unwrap();
    /// let held = a.try_acquire().blocking().unwrap();
    ///
    /// let mismatch = Semaphore::memory("docs-shared").slots(5).build().unwrap_err();
    /// assert!(matches!(mismatch, BuildError::SlotsMismatch { live: 3, asked: 5, .. }));
    /// # drop(b);
    /// ```
    pub fn memory(name: impl Into<String>) -> Builder {
        Registry::global().named(name)
    }

    pub(crate) fn memory_home(handle: Handle, defaults: Defaults) -> Self {
        Self { backend: Backend::Memory(handle), defaults }
    }

    #[cfg(any(feature = "local", feature = "redis"))]
    pub(crate) fn remote_home(remote: Arc<dyn RemoteSemaphore>, defaults: Defaults) -> Self {
        Self { backend: Backend::Remote(remote), defaults }
    }

    #[inline]
    pub(crate) fn in_memory(&self) -> Option<&Handle> {
        match &self.backend {
            Backend::Memory(handle) => Some(handle),
            Backend::Remote(_) => None,
        }
    }

    pub(crate) fn remote(&self) -> Option<&Arc<dyn RemoteSemaphore>> {
        match &self.backend {
            Backend::Memory(_) => None,
            Backend::Remote(remote) => Some(remote),
        }
    }

    /// Counts slots as held that an earlier agent granted, even if there are not enough slots. The slot number is
    /// `slot` if that is free. `None` if they can't be counted.
    #[cfg(feature = "local")]
    pub(crate) fn reserve(
        &self,
        slot: u32,
        weight: u32,
        who: &crate::stats::Who,
    ) -> Option<crate::Permit<'static>> {
        let id = self.in_memory()?.reserve(slot, weight, crate::memory::Tag::new(Some(who)))?;
        Some(crate::Permit::new(self, id, std::time::Duration::ZERO).into_owned())
    }

    #[inline]
    pub(crate) fn defaults(&self) -> &Defaults {
        &self.defaults
    }

    /// Its name.
    ///
    /// # Examples
    ///
    /// ```
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-name").slots(1).build().unwrap();
    /// assert_eq!(sem.name(), "docs-name");
    /// ```
    pub fn name(&self) -> &str {
        match &self.backend {
            Backend::Memory(handle) => handle.name(),
            Backend::Remote(remote) => remote.name(),
        }
    }

    /// Waits for a slot, first come, first served. See [`Acquire`] for the options to set before awaiting it.
    ///
    /// # Errors
    ///
    /// [`AcquireError`](crate::AcquireError) if no slot came free in time, the line was full, the semaphore is closed,
    /// the weight or a duration is invalid, the slot was granted and lost before the task was polled again, or the home
    /// failed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line, and releases the slot if one was granted meanwhile.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-wait-in-line").slots(1).build().unwrap();
    /// let permit = sem.acquire().await.unwrap();
    /// assert_eq!(permit.slot(), 0);
    /// # });
    /// ```
    #[inline]
    pub fn acquire(&self) -> Acquire<'_> {
        Acquire::new(self)
    }

    /// Takes a slot if one is free right now and the line is empty: short for [`acquire().now()`](Acquire::now). It is
    /// awaited, because the home may be outside of this process, but it does not wait in line. On a thread without a
    /// runtime, call `try_acquire().blocking()`.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-try").slots(1).build().unwrap();
    /// let held = sem.try_acquire().await.unwrap();
    /// assert!(sem.try_acquire().await.unwrap_err().is_busy());
    /// # });
    /// ```
    #[inline]
    pub fn try_acquire(&self) -> Acquire<'_> {
        self.acquire().now()
    }

    /// Runs `work` under a permit, as [`Permit::run`](crate::Permit::run) does. If the slot is lost, `work` is dropped
    /// where it awaits, as soon as its task is polled (unless opened with `cancel_on_expiry(false)`). If the work must
    /// never overlap with the work of the next holder, let the resource check the
    /// [fencing token](crate::Permit::fencing_token).
    ///
    /// # Errors
    ///
    /// [`RunError::Acquire`] if the work never started, [`RunError::Lost`] if it was dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work`, and releases the slot or leaves the line.
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

    /// [Runs](Self::run) `work` in a tokio task of its own. If the slot is lost, `work` is dropped, and the handle
    /// returns [`RunError::Lost`] (unless opened with `cancel_on_expiry(false)`). The task joins the line when the
    /// runtime first polls it.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, as [`tokio::spawn`] does.
    ///
    /// # Examples
    ///
    /// ```
    /// use semafor::Semaphore;
    /// # let runtime = tokio::runtime::Runtime::new().unwrap();
    /// # runtime.block_on(async {
    /// let sem = Semaphore::memory("docs-spawn").slots(1).build().unwrap();
    /// let task = sem.spawn(async { 6 * 7 });
    /// assert_eq!(task.await.unwrap(), Ok(42));
    /// # });
    /// ```
    #[cfg(feature = "tokio")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
    pub fn spawn<F>(&self, work: F) -> tokio::task::JoinHandle<Result<F::Output, RunError>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let semaphore = self.clone();
        tokio::spawn(async move { semaphore.run(work).await })
    }

    /// Releases the slot of a [detached](crate::Permit::detach) permit. Works from any task, thread or handle of the
    /// same name.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::NotHeld`] if the id holds nothing: released before, lost, or never issued by this semaphore.
    /// Then nothing changes. [`ReleaseError::Home`]; not from memory.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-release").slots(1).build().unwrap();
    /// let id = sem.acquire().await.unwrap().detach();
    /// sem.release(&id).await.unwrap();
    /// assert!(sem.release(&id).await.is_err(), "only once");
    /// # });
    /// ```
    pub async fn release(&self, id: &PermitId) -> Result<(), ReleaseError> {
        match &self.backend {
            Backend::Memory(handle) => Ok(handle.release_by_id(id.in_memory())?),
            Backend::Remote(remote) => remote.release(id).await,
        }
    }

    /// Of the slots that the current task [detached](crate::Permit::detach) and that are still held, releases the one
    /// that was granted last, and returns its id. So nested acquires are released in reverse order.
    ///
    /// The module [`task`](crate::task) says what the current task is.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::NothingDetached`] if there is none. [`ReleaseError::Home`]; not from memory.
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
        match &self.backend {
            Backend::Memory(handle) => {
                handle.release_latest().map(PermitId::from).ok_or(ReleaseError::NothingDetached)
            }
            Backend::Remote(remote) => remote.release_latest().await,
        }
    }

    /// Sets the lease of `id` to `ttl` from now. [`Span::UNLIMITED`] means that it never ends.
    ///
    /// # Errors
    ///
    /// [`RenewError::NotHeld`] if the id no longer holds a slot, or was evicted. [`RenewError::InvalidDuration`].
    /// [`RenewError::Home`]; not from memory.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::{Semaphore, secs};
    /// let sem = Semaphore::memory("docs-renew").slots(1).build().unwrap();
    /// let id = sem.acquire().ttl(secs(1)).await.unwrap().detach();
    /// sem.renew(&id, secs(60)).await.unwrap();
    /// let left = sem.holders().await.unwrap()[0].expires_in.unwrap();
    /// assert!(left.as_secs() >= 50);
    /// # });
    /// ```
    pub async fn renew(&self, id: &PermitId, ttl: impl Into<Span>) -> Result<(), RenewError> {
        let ttl = ttl.into().to_ttl()?;
        match &self.backend {
            Backend::Memory(handle) => Ok(handle.renew(id.in_memory(), ttl)?),
            Backend::Remote(remote) => remote.renew(id, ttl).await,
        }
    }

    /// Takes the slot away from the holder of `id`, and notifies it: [`Permit::lost`](crate::Permit::lost) fires.
    ///
    /// The next waiter gets the slot immediately. If the holder has a [grace](Builder::grace), the next waiter gets it
    /// when the holder releases it or the grace ends; a second eviction ends the grace at once.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::NotHeld`] if the id holds nothing. [`ReleaseError::Home`]; not from memory.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-evict").slots(1).build().unwrap();
    /// let permit = sem.acquire().await.unwrap();
    /// sem.evict(&permit.id()).await.unwrap();
    /// assert!(permit.is_lost());
    /// let next = sem.try_acquire().await.unwrap();
    /// # });
    /// ```
    pub async fn evict(&self, id: &PermitId) -> Result<(), ReleaseError> {
        match &self.backend {
            Backend::Memory(handle) => Ok(handle.evict(id.in_memory())?),
            Backend::Remote(remote) => remote.evict(id).await,
        }
    }

    /// True if an [`acquire`](Self::acquire) of one slot would have to wait right now, or would fail.
    ///
    /// # Errors
    ///
    /// [`HomeError`]; not from memory.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-locked").slots(1).build().unwrap();
    /// assert!(!sem.locked().await.unwrap());
    /// let permit = sem.acquire().await.unwrap();
    /// assert!(sem.locked().await.unwrap());
    /// # });
    /// ```
    pub async fn locked(&self) -> Result<bool, HomeError> {
        match &self.backend {
            Backend::Memory(handle) => Ok(!handle.would_admit(&Request::default())),
            Backend::Remote(remote) => remote.locked().await,
        }
    }

    /// How many slots there are.
    ///
    /// # Errors
    ///
    /// [`HomeError`]; not from memory.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-capacity").slots(3).build().unwrap();
    /// assert_eq!(sem.slots().await, Ok(3));
    /// # });
    /// ```
    pub async fn slots(&self) -> Result<u32, HomeError> {
        match &self.backend {
            Backend::Memory(handle) => Ok(handle.slots()),
            Backend::Remote(remote) => remote.stats().await.map(|stats| stats.slots),
        }
    }

    /// Changes the number of slots, for all handles to the name.
    ///
    /// Growing serves the line at once. When shrinking, holders keep their slots, and nothing is granted until enough
    /// slots are released. Waiters whose weight no longer fits fail with
    /// [`TooHeavy`](crate::AcquireError::TooHeavy).
    ///
    /// # Errors
    ///
    /// [`ResizeError::ZeroSlots`]; to stop a semaphore, [`close`](Self::close) it. [`HomeError`]; not from memory.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-resize").slots(1).build().unwrap();
    /// let first = sem.acquire().await.unwrap();
    /// sem.resize(2).await.unwrap();
    /// let second = sem.try_acquire().await.unwrap();
    /// # });
    /// ```
    pub async fn resize(&self, slots: u32) -> Result<(), ResizeError> {
        match &self.backend {
            Backend::Memory(handle) => Ok(handle.resize(slots)?),
            Backend::Remote(_) if slots == 0 => Err(ZeroSlots.into()),
            Backend::Remote(remote) => Ok(remote.resize(slots).await?),
        }
    }

    /// All waiters and all later requests fail with [`Closed`](crate::AcquireError::Closed). Holders keep their slots.
    ///
    /// This handle and all others stay closed. Once all slots are released, the name can be opened anew.
    ///
    /// # Errors
    ///
    /// [`HomeError`]; not from memory.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-close").slots(1).build().unwrap();
    /// let permit = sem.acquire().await.unwrap();
    /// sem.close().await.unwrap();
    /// assert!(sem.acquire().await.unwrap_err().is_closed());
    /// permit.release().await.unwrap();
    /// # });
    /// ```
    pub async fn close(&self) -> Result<(), HomeError> {
        match &self.backend {
            Backend::Memory(handle) => {
                handle.close();
                Ok(())
            }
            Backend::Remote(remote) => remote.close().await,
        }
    }

    /// True after [`close`](Self::close).
    ///
    /// # Errors
    ///
    /// [`HomeError`]; not from memory.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-is-closed").slots(1).build().unwrap();
    /// sem.close().await.unwrap();
    /// assert!(sem.is_closed().await.unwrap());
    /// # });
    /// ```
    pub async fn is_closed(&self) -> Result<bool, HomeError> {
        match &self.backend {
            Backend::Memory(handle) => Ok(handle.is_closed()),
            Backend::Remote(remote) => remote.is_closed().await,
        }
    }

    /// A snapshot of what is held and waiting, totals and histograms.
    ///
    /// # Errors
    ///
    /// [`HomeError`]; not from memory.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-sem-stats").slots(4).build().unwrap();
    /// let permit = sem.acquire().await.unwrap();
    /// let stats = sem.stats().await.unwrap();
    /// println!("{} of {} slots held, {} waiting", stats.held, stats.slots, stats.waiting);
    /// # assert_eq!((stats.held, stats.slots, stats.waiting), (1, 4, 0));
    /// # });
    /// ```
    pub async fn stats(&self) -> Result<Stats, HomeError> {
        match &self.backend {
            Backend::Memory(handle) => Ok(handle.stats()),
            Backend::Remote(remote) => remote.stats().await,
        }
    }

    /// The holders, by slot number.
    ///
    /// # Errors
    ///
    /// [`HomeError`]; not from memory.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-holders").slots(1).build().unwrap();
    /// let permit = sem.acquire().label("resize").await.unwrap();
    /// for holder in sem.holders().await.unwrap() {
    ///     println!("{} holds slot {:?} for {:?}", holder.id, holder.slot, holder.held_for);
    ///     # assert_eq!(holder.id, permit.id());
    /// }
    /// # });
    /// ```
    pub async fn holders(&self) -> Result<Vec<HolderInfo>, HomeError> {
        match &self.backend {
            Backend::Memory(handle) => Ok(handle.holders()),
            Backend::Remote(remote) => remote.holders().await,
        }
    }

    /// The waiters, first to last.
    ///
    /// Redis lists holders and waiters in pages, and reads each page at a different time. A waiter that stays in line all
    /// that time is listed once, in order; so is a holder that keeps its slot. Others may be missing.
    ///
    /// # Errors
    ///
    /// [`HomeError`]; not from memory.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-waiters").slots(1).build().unwrap();
    /// let held = sem.acquire().await.unwrap();
    /// let waiting = sem.acquire().label("thumbnails");
    /// # let mut waiting = waiting;
    /// # let first_poll = std::future::poll_fn(|cx| std::task::Poll::Ready(std::pin::Pin::new(&mut waiting).poll(cx).is_pending()));
    /// # assert!(first_poll.await);
    /// for waiter in sem.waiters().await.unwrap() {
    ///     println!("{:?} has waited for {:?}, behind {}", waiter.label, waiter.waited_for, waiter.ahead);
    ///     # assert_eq!(waiter.label.as_deref(), Some("thumbnails"));
    /// }
    /// # });
    /// ```
    pub async fn waiters(&self) -> Result<Vec<WaiterInfo>, HomeError> {
        match &self.backend {
            Backend::Memory(handle) => Ok(handle.waiters()),
            Backend::Remote(remote) => remote.waiters().await,
        }
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore").field("name", &self.name()).finish_non_exhaustive()
    }
}
