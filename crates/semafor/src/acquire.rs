use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use semafor_core::{Request, Ticket, Timestamp};

use crate::error::{AcquireError, InvalidDuration, MeantAs};
use crate::memory::{Enqueued, Handle, Tag};
use crate::remote::{AcquireRequest, RemoteAcquire, Wait};
use crate::stats::Who;
use crate::{Permit, Semaphore, Span};

/// A request for slots: set options that differ from the semaphore's defaults, then await it.
///
/// ```
/// # pollster::block_on(async {
/// use semafor::{Semaphore, secs};
/// let sem = Semaphore::memory("docs-acquire").slots(4).ttl(secs(60)).build().unwrap();
///
/// let one = sem.acquire().await.unwrap();
/// let two = sem.acquire().weight(2).ttl(secs(5)).timeout(secs(1)).label("resize").await.unwrap();
/// let refused = sem.acquire().weight(2).now().await.unwrap_err();
/// assert!(refused.is_busy());
/// # });
/// ```
///
/// # Fairness
///
/// First come, first served, by the time of the first poll. No request overtakes the line, not even with
/// [`now`](Self::now). A request for many slots at the head of the line holds up the requests behind it.
///
/// # Cancel safety
///
/// Dropping it leaves the line, and releases the slot if one was granted meanwhile. Acquiring again queues at the end.
///
/// A future that was granted a slot and is neither polled nor dropped holds that slot, as with every semaphore that
/// hands slots on directly. A `ttl` bounds that, too: the lease begins with the grant.
#[must_use = "nothing is acquired until this is awaited"]
pub struct Acquire<'a> {
    semaphore: &'a Semaphore,
    weight: u32,
    waits: bool,
    progress: Progress,
    /// Options that differ from the semaphore's defaults. Boxed, because most requests have none.
    overrides: Option<Box<Overrides>>,
}

enum Progress {
    NotPolled,
    InLine {
        ticket: Ticket,
        since: Timestamp,
    },
    /// The request was sent to a home outside of this process: see [`Overrides::remote`].
    Remote,
    Done,
}

struct Overrides {
    ttl: Result<Option<Duration>, InvalidDuration>,
    timeout: Result<Option<Duration>, InvalidDuration>,
    who: Option<Box<Who>>,
    /// The request to a home outside of this process. Kept here, and not in [`Progress`], so that `Progress` has
    /// nothing to drop.
    remote: Option<Pin<Box<dyn RemoteAcquire>>>,
}

impl<'a> Acquire<'a> {
    #[inline]
    pub(crate) fn new(semaphore: &'a Semaphore) -> Self {
        Self { semaphore, weight: 1, waits: true, progress: Progress::NotPolled, overrides: None }
    }

    /// How many slots to acquire at once, all or none. 1 by default.
    ///
    /// # Panics
    ///
    /// If called after the first poll: the request is already made.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-weight").slots(4).build().unwrap();
    /// let heavy = sem.acquire().weight(3).await.unwrap();
    /// assert_eq!(sem.stats().await.unwrap().held, 3);
    /// # });
    /// ```
    #[track_caller]
    pub fn weight(mut self, weight: u32) -> Self {
        self.check_not_polled("weight");
        self.weight = weight;
        self
    }

    /// How long these slots may be held, in place of the semaphore's `ttl`.
    ///
    /// # Panics
    ///
    /// If called after the first poll: the request is already made.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::{Semaphore, secs};
    /// let sem = Semaphore::memory("docs-acquire-ttl").slots(1).build().unwrap();
    /// let permit = sem.acquire().ttl(secs(30)).await.unwrap();
    /// assert!(permit.expires_at().is_some());
    /// # });
    /// ```
    #[track_caller]
    pub fn ttl(mut self, ttl: impl Into<Span>) -> Self {
        self.check_not_polled("ttl");
        self.overrides().ttl = ttl.into().to_ttl();
        self
    }

    /// How long to wait, in place of the semaphore's `timeout`. Counted from the first poll.
    ///
    /// # Panics
    ///
    /// If called after the first poll: the request is already made.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::{Semaphore, secs};
    /// let sem = Semaphore::memory("docs-acquire-timeout").slots(1).build().unwrap();
    /// let held = sem.acquire().await.unwrap();
    /// let error = sem.acquire().timeout(secs(0.01)).await.unwrap_err();
    /// assert!(error.is_timeout());
    /// # });
    /// ```
    #[track_caller]
    pub fn timeout(mut self, timeout: impl Into<Span>) -> Self {
        self.check_not_polled("timeout");
        self.overrides().timeout = timeout.into().to_timeout(MeantAs::Timeout);
        self
    }

    /// A label for this holder or waiter, in place of the semaphore's label.
    ///
    /// # Panics
    ///
    /// If called after the first poll: the request is already made.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-acquire-label").slots(1).build().unwrap();
    /// let permit = sem.acquire().label("resize").await.unwrap();
    /// assert_eq!(sem.holders().await.unwrap()[0].label.as_deref(), Some("resize"));
    /// # });
    /// ```
    #[track_caller]
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.check_not_polled("label");
        self.overrides().who.get_or_insert_default().label = Some(label.into());
        self
    }

    /// Acquires for a client in another process.
    #[cfg(feature = "local")]
    pub(crate) fn on_behalf_of(mut self, who: Who) -> Self {
        self.overrides().who = Some(Box::new(who));
        self
    }

    /// Does not wait in line: takes a slot if one is free right now and the line is empty.
    ///
    /// When awaited, it fails with
    /// [`AcquireError::Busy`] if it would have to wait, with [`Closed`](AcquireError::Closed), or with an error about
    /// the request. In memory, the first poll returns the answer.
    ///
    /// # Panics
    ///
    /// If called after the first poll: the request is already made.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-now").slots(1).build().unwrap();
    /// let held = sem.acquire().now().await.unwrap();
    /// assert!(sem.acquire().now().await.unwrap_err().is_busy());
    /// # });
    /// ```
    #[inline]
    #[track_caller]
    pub fn now(mut self) -> Self {
        self.check_not_polled("now");
        self.waits = false;
        self
    }

    /// Blocks this thread until the answer is there. Do not call it in an async runtime, where it blocks the other tasks
    /// of the thread, too. (In memory, `try_acquire().blocking()` does not block, so it may be called anywhere.)
    ///
    /// # Errors
    ///
    /// As when awaited.
    ///
    /// # Examples
    ///
    /// ```
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-blocking").slots(1).build().unwrap();
    ///
    /// let worker = std::thread::spawn({
    ///     let sem = sem.clone();
    ///     move || sem.acquire().blocking().unwrap().slot()
    /// });
    /// assert_eq!(worker.join().unwrap(), 0);
    /// ```
    #[inline]
    pub fn blocking(mut self) -> Result<Permit<'a>, AcquireError> {
        // A separate return: merged with the others, it would pass the permit through memory.
        if let Some(handle) = self.semaphore.in_memory()
            && matches!(self.progress, Progress::NotPolled)
            && self.uses_defaults()
            && !handle.has_line()
            && let Some(permit) = self.take_with_defaults(handle)
        {
            return Ok(permit);
        }
        let mut first_look = Context::from_waker(Waker::noop());
        match Pin::new(&mut self).poll(&mut first_look) {
            Poll::Ready(answer) => answer,
            Poll::Pending => pollster::block_on(self),
        }
    }

    /// Cancels the request, and waits until it has left the line, or until a slot that was granted meanwhile is released.
    ///
    /// Dropping the future does the same, but does not wait for the answer of a home outside of this process.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-leave").slots(1).build().unwrap();
    /// let held = sem.acquire().await.unwrap();
    /// let mut second = sem.acquire();
    /// # let poll = std::future::poll_fn(|cx| std::task::Poll::Ready(std::pin::Pin::new(&mut second).poll(cx).is_pending()));
    /// # assert!(poll.await);
    /// second.leave().await;
    /// assert!(sem.waiters().await.unwrap().is_empty());
    /// # drop(held);
    /// # });
    /// ```
    pub async fn leave(mut self) {
        let remote = self.overrides.as_mut().and_then(|overrides| overrides.remote.take());
        drop(self);
        if let Some(remote) = remote {
            remote.leave().await;
        }
    }

    /// The request is made at the first poll, so an option that is set later would be ignored.
    #[inline(always)]
    #[track_caller]
    fn check_not_polled(&self, option: &str) {
        if !matches!(self.progress, Progress::NotPolled) {
            set_too_late(option);
        }
    }

    fn overrides(&mut self) -> &mut Overrides {
        let defaults = self.semaphore.defaults();
        self.overrides.get_or_insert_with(|| {
            Box::new(Overrides {
                ttl: Ok(defaults.ttl),
                timeout: Ok(defaults.timeout),
                who: defaults.who.clone(),
                remote: None,
            })
        })
    }

    fn request(&self) -> Result<Request, InvalidDuration> {
        let ttl = match &self.overrides {
            None => self.semaphore.defaults().ttl,
            Some(overrides) => overrides.ttl?,
        };
        Ok(Request { weight: self.weight, ttl, ..Request::default() })
    }

    fn resolved_timeout(&self) -> Result<Option<Duration>, InvalidDuration> {
        match &self.overrides {
            None => Ok(self.semaphore.defaults().timeout),
            Some(overrides) => overrides.timeout,
        }
    }

    fn tag(&self) -> Tag {
        Tag::new(self.who())
    }

    fn who(&self) -> Option<&Who> {
        match &self.overrides {
            None => self.semaphore.defaults().who.as_deref(),
            Some(overrides) => overrides.who.as_deref(),
        }
    }

    /// True if the request has only a weight, and otherwise the defaults of a semaphore without label, command and
    /// grace.
    #[inline(always)]
    fn uses_defaults(&self) -> bool {
        self.overrides.is_none() && self.semaphore.defaults().who.is_none()
    }

    /// Takes a free slot for a request that [uses the defaults](Self::uses_defaults). The path without a `ttl` is
    /// inlined, so that the compiler can remove what such a request does not need.
    #[inline(always)]
    fn take_with_defaults(&self, handle: &Handle) -> Option<Permit<'a>> {
        if self.semaphore.defaults().ttl.is_some() {
            return self.take_with_default_ttl(handle);
        }
        let request = Request { weight: self.weight, ..Request::default() };
        let id = handle.take_if_free(&request, Tag::default())?;
        Some(Permit::new(self.semaphore, id, Duration::ZERO))
    }

    #[inline(never)]
    fn take_with_default_ttl(&self, handle: &Handle) -> Option<Permit<'a>> {
        let ttl = self.semaphore.defaults().ttl;
        let request = Request { weight: self.weight, ttl, ..Request::default() };
        let id = handle.take_if_free(&request, Tag::default())?;
        Some(Permit::new(self.semaphore, id, Duration::ZERO))
    }

    fn take_with_overrides(&self, handle: &Handle) -> Result<Option<Permit<'a>>, InvalidDuration> {
        self.resolved_timeout()?;
        let taken = handle.take_if_free(&self.request()?, self.tag());
        Ok(taken.map(|id| Permit::new(self.semaphore, id, Duration::ZERO)))
    }

    /// Takes a free slot, or returns the refusal. Does not queue.
    #[cold]
    fn try_without_waiting(&self, handle: &Handle) -> Result<Permit<'a>, AcquireError> {
        self.resolved_timeout()?;
        let id = handle.try_acquire(&self.request()?, self.tag())?;
        Ok(Permit::new(self.semaphore, id, Duration::ZERO))
    }

    #[inline(never)]
    fn poll_slow_path(
        &mut self,
        handle: &'a Handle,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Permit<'a>, AcquireError>> {
        match self.progress {
            Progress::NotPolled => {
                self.progress = Progress::Done;
                if handle.has_line() {
                    return self.join_line(handle, cx);
                }
                match self.take_with_overrides(handle)? {
                    Some(permit) => Poll::Ready(Ok(permit)),
                    None => self.join_line(handle, cx),
                }
            }
            Progress::InLine { ticket, since } => {
                let settled = ready!(handle.poll_ticket(ticket, since, cx));
                self.progress = Progress::Done;
                Poll::Ready(settled.map(|(id, waited)| Permit::new(self.semaphore, id, waited)))
            }
            Progress::Remote | Progress::Done => panic!("{POLLED_AFTER_READY}"),
        }
    }

    #[inline(never)]
    fn leave_line(&mut self, ticket: Ticket) {
        if let Some(handle) = self.semaphore.in_memory() {
            handle.cancel(ticket);
        }
    }

    #[inline(never)]
    fn join_line(&mut self, handle: &Handle, cx: &Context<'_>) -> Poll<Result<Permit<'a>, AcquireError>> {
        let timeout = self.resolved_timeout()?;
        if !self.waits {
            return Poll::Ready(self.try_without_waiting(handle));
        }
        if timeout == Some(Duration::ZERO) {
            let answer = self.try_without_waiting(handle).map_err(|error| match error {
                AcquireError::Busy => handle.timed_out_at_once(),
                error => error,
            });
            return Poll::Ready(answer);
        }
        let waker = cx.waker().clone();
        match handle.enqueue(self.request()?, timeout, waker, self.tag())? {
            Enqueued::Granted(id) => Poll::Ready(Ok(Permit::new(self.semaphore, id, Duration::ZERO))),
            Enqueued::Waiting { ticket, since } => {
                self.progress = Progress::InLine { ticket, since };
                Poll::Pending
            }
        }
    }

    /// Sends the request to a home outside of this process, or polls for its answer.
    #[cold]
    fn poll_remote(&mut self, cx: &mut Context<'_>) -> Poll<Result<Permit<'a>, AcquireError>> {
        let semaphore = self.semaphore;
        if matches!(self.progress, Progress::NotPolled) {
            self.progress = Progress::Done;
            let request = self.remote_request()?;
            let remote = semaphore.remote().map(|remote| remote.acquire(request));
            self.overrides().remote = remote;
            self.progress = Progress::Remote;
        }
        let Some(remote) = &mut self.overrides().remote else { panic!("{POLLED_AFTER_READY}") };
        let outcome = ready!(remote.as_mut().poll(cx));
        self.overrides().remote = None;
        self.progress = Progress::Done;
        Poll::Ready(outcome.map(|lease| Permit::remote(lease, semaphore.defaults().cancel_on_expiry)))
    }

    fn remote_request(&self) -> Result<AcquireRequest, InvalidDuration> {
        let Request { weight, ttl, .. } = self.request()?;
        let wait = match self.resolved_timeout()? {
            _ if !self.waits => Wait::No,
            Some(limit) => Wait::For(limit),
            None => Wait::Unlimited,
        };
        Ok(AcquireRequest { weight, ttl, wait, who: self.who().cloned().map(Box::new) })
    }
}

const POLLED_AFTER_READY: &str = "Acquire polled after it returned Ready";

#[cold]
#[inline(never)]
#[track_caller]
fn set_too_late(option: &str) -> ! {
    panic!("Acquire::{option}() was called after the first poll: set options before awaiting or polling it");
}

impl<'a> Future for Acquire<'a> {
    type Output = Result<Permit<'a>, AcquireError>;

    /// # Panics
    ///
    /// If polled again after it returned [`Poll::Ready`].
    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let semaphore = self.semaphore;
        let Some(handle) = semaphore.in_memory() else { return self.poll_remote(cx) };
        let is_fresh = matches!(self.progress, Progress::NotPolled);
        if !is_fresh || !self.uses_defaults() || handle.has_line() {
            return self.poll_slow_path(handle, cx);
        }
        self.progress = Progress::Done;
        match self.take_with_defaults(handle) {
            Some(permit) => Poll::Ready(Ok(permit)),
            None => self.join_line(handle, cx),
        }
    }
}

impl Drop for Acquire<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Progress::InLine { ticket, .. } = self.progress {
            self.leave_line(ticket);
        }
        if let Some(overrides) = self.overrides.take() {
            drop_overrides(overrides);
        }
    }
}

/// Not inlined into every `.await` of an acquire without overrides.
#[inline(never)]
fn drop_overrides(overrides: Box<Overrides>) {
    drop(overrides);
}

impl std::fmt::Debug for Acquire<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let in_line = matches!(self.progress, Progress::InLine { .. } | Progress::Remote);
        let name = self.semaphore.name();
        f.debug_struct("Acquire").field("name", &name).field("in_line", &in_line).finish_non_exhaustive()
    }
}
