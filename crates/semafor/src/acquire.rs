use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use semafor_core::{Refusal, Request, Ticket, Timestamp};

use crate::error::{AcquireError, InvalidDuration};
use crate::memory::{Enqueued, Tag};
use crate::{Permit, Semaphore, Span};

/// An acquire: await it, or first say what differs from the semaphore's defaults.
///
/// ```
/// # pollster::block_on(async {
/// use semafor::{Semaphore, secs};
/// let sem = Semaphore::memory("docs-acquire").slots(4).ttl(secs(60)).build().unwrap();
///
/// let one = sem.acquire().await.unwrap();
/// let two = sem.acquire().weight(2).ttl(secs(5)).timeout(secs(1)).label("resize").await.unwrap();
/// let refused = sem.acquire().weight(2).now().unwrap_err();
/// assert!(refused.is_timeout());
/// # });
/// ```
///
/// # Fairness
///
/// First come, first served, by the time of the first poll. Nobody overtakes the line, [`now`](Self::now) included; a
/// request for many slots at its head holds up those behind it.
///
/// # Cancel safety
///
/// Dropping it gives the place in line back, and the slot that may have been granted meanwhile. Acquiring again queues
/// at the end.
///
/// A future that was granted a slot and is neither polled nor dropped holds that slot, as with every semaphore that
/// hands slots on directly. A time to live bounds that, too: it begins with the grant.
#[must_use = "nothing is acquired until this is awaited"]
pub struct Acquire<'a> {
    semaphore: &'a Semaphore,
    weight: u32,
    ttl: Option<Duration>,
    patience: Option<Duration>,
    label: Option<Arc<str>>,
    invalid: Option<Box<InvalidDuration>>,
    progress: Progress,
}

#[derive(Clone, Copy)]
enum Progress {
    NotPolled,
    InLine { ticket: Ticket, since: Timestamp },
    Done,
}

impl<'a> Acquire<'a> {
    #[inline]
    pub(crate) fn new(semaphore: &'a Semaphore) -> Self {
        let defaults = semaphore.defaults();
        Self {
            semaphore,
            weight: 1,
            ttl: defaults.ttl,
            patience: defaults.max_acquire_time,
            label: None,
            invalid: None,
            progress: Progress::NotPolled,
        }
    }

    /// So many slots at once, all or none. 1 by default.
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// How long these slots may be held, in place of the semaphore's `ttl`.
    pub fn ttl(mut self, ttl: impl Into<Span>) -> Self {
        match ttl.into().to_ttl() {
            Ok(ttl) => self.ttl = ttl,
            Err(invalid) => self.invalid = Some(Box::new(invalid)),
        }
        self
    }

    /// How long to wait, in place of the semaphore's `max_acquire_time`. Counted from the first poll.
    pub fn timeout(mut self, patience: impl Into<Span>) -> Self {
        match patience.into().to_patience("timeout") {
            Ok(patience) => self.patience = patience,
            Err(invalid) => self.invalid = Some(Box::new(invalid)),
        }
        self
    }

    /// What this holder or waiter is called, in place of the semaphore's label.
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Takes a slot if one is free right now and nobody is waiting for it. Does not wait.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Busy`] if it would have to wait, [`Closed`](AcquireError::Closed), and what is wrong with the
    /// request.
    #[inline]
    pub fn now(mut self) -> Result<Permit<'a>, AcquireError> {
        self.attempt()
    }

    /// Waits on this thread. For threads outside of any async runtime: in a runtime it would block the other tasks too.
    ///
    /// # Errors
    ///
    /// As when awaited.
    pub fn blocking(self) -> Result<Permit<'a>, AcquireError> {
        pollster::block_on(self)
    }

    fn request(&self) -> Request {
        Request { weight: self.weight, ttl: self.ttl, deadline: Timestamp::NEVER }
    }

    fn tag(&self) -> Tag {
        Tag::new(self.label.as_ref().or(self.semaphore.defaults().label.as_ref()).cloned())
    }

    fn permit(&self, id: semafor_core::PermitId, waited: Duration) -> Permit<'a> {
        let semaphore = self.semaphore;
        Permit::new(semaphore.handle(), id, waited, semaphore.defaults().cancel_on_expiry)
    }

    #[inline]
    fn attempt(&mut self) -> Result<Permit<'a>, AcquireError> {
        if let Some(invalid) = self.invalid.take() {
            return Err(AcquireError::InvalidDuration(*invalid));
        }
        let handle = self.semaphore.handle();
        match handle.try_acquire(&self.request(), self.tag()) {
            Ok(id) => Ok(self.permit(id, Duration::ZERO)),
            Err(refusal) => self.attempt_again(refusal),
        }
    }

    /// The slot may be that of a holder whose time is up, but whom the driver has not come round to yet.
    #[cold]
    fn attempt_again(&self, refusal: Refusal) -> Result<Permit<'a>, AcquireError> {
        let handle = self.semaphore.handle();
        if refusal == Refusal::Busy && handle.sweep() {
            let again = handle.try_acquire(&self.request(), self.tag());
            return Ok(again.map(|id| self.permit(id, Duration::ZERO))?);
        }
        Err(refusal.into())
    }

    #[cold]
    fn join_line(&mut self, cx: &Context<'_>) -> Poll<Result<Permit<'a>, AcquireError>> {
        let handle = self.semaphore.handle();
        if self.patience == Some(Duration::ZERO) {
            return Poll::Ready(Err(handle.impatient()));
        }
        let waker = cx.waker().clone();
        match handle.enqueue(self.request(), self.patience, waker, self.tag()) {
            Ok(Enqueued::Granted(id)) => Poll::Ready(Ok(self.permit(id, Duration::ZERO))),
            Ok(Enqueued::Waiting { ticket, since }) => {
                self.progress = Progress::InLine { ticket, since };
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl<'a> Future for Acquire<'a> {
    type Output = Result<Permit<'a>, AcquireError>;

    /// # Panics
    ///
    /// If polled again after it returned [`Poll::Ready`].
    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match this.progress {
            Progress::NotPolled => {
                this.progress = Progress::Done;
                match this.attempt() {
                    Err(AcquireError::Busy) => this.join_line(cx),
                    answer => Poll::Ready(answer),
                }
            }
            Progress::InLine { ticket, since } => {
                let handle = this.semaphore.handle();
                let Poll::Ready(settled) = handle.poll_ticket(ticket, since, cx) else {
                    return Poll::Pending;
                };
                this.progress = Progress::Done;
                Poll::Ready(settled.map(|(id, waited)| this.permit(id, waited)))
            }
            Progress::Done => panic!("Acquire polled after it returned Ready"),
        }
    }
}

impl Drop for Acquire<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Progress::InLine { ticket, .. } = self.progress {
            self.semaphore.handle().cancel(ticket);
        }
    }
}

impl std::fmt::Debug for Acquire<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let in_line = matches!(self.progress, Progress::InLine { .. });
        let name = self.semaphore.name();
        f.debug_struct("Acquire").field("name", &name).field("in_line", &in_line).finish_non_exhaustive()
    }
}
