use std::fmt;

use tokio_util::sync::CancellationToken;

/// A signal that is set when a slot is lost. From [`Permit::lost_signal`](crate::Permit::lost_signal), which says what
/// sets it.
///
/// Pass it to the work that depends on the slot: it borrows nothing, and a clone is the same signal.
///
/// # Examples
///
/// ```
/// # pollster::block_on(async {
/// # use std::time::Duration;
/// use semafor::{ManualClock, Registry, secs};
///
/// let clock = ManualClock::new();
/// let registry = Registry::builder().clock(&clock).build();
/// let sem = registry.named("images").slots(1).ttl(secs(30)).build().unwrap();
/// let permit = sem.acquire().await.unwrap();
///
/// let signal = permit.lost_signal();
/// let work = std::thread::spawn(move || pollster::block_on(signal.lost()));
/// clock.advance(Duration::from_secs(30));
/// work.join().unwrap();
/// # });
/// ```
#[derive(Clone)]
pub struct LostSignal(CancellationToken);

impl LostSignal {
    pub(crate) fn new(token: CancellationToken) -> Self {
        Self(token)
    }

    /// True once the slot is lost.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-signal-is-lost").slots(1).build().unwrap();
    /// let permit = sem.acquire().await.unwrap();
    /// let signal = permit.lost_signal();
    ///
    /// assert!(!signal.is_lost());
    /// sem.evict(&permit.id()).await.unwrap();
    /// assert!(signal.is_lost());
    /// # });
    /// ```
    pub fn is_lost(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until the slot is lost. Never returns if the permit is dropped, or released with
    /// [`Permit::release`](crate::Permit::release), before that. [`Permit::lost`](crate::Permit::lost) also returns the
    /// reason.
    ///
    /// The future borrows nothing. Pin it to poll it by hand.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop and call again.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-signal-lost").slots(1).build().unwrap();
    /// let permit = sem.acquire().await.unwrap();
    /// let lost = permit.lost_signal().lost();
    ///
    /// sem.evict(&permit.id()).await.unwrap();
    /// lost.await;
    /// # });
    /// ```
    pub fn lost(&self) -> impl Future<Output = ()> + Send + Sync + use<> {
        self.0.clone().cancelled_owned()
    }

    /// A token that is cancelled when the slot is lost, for code that takes a token of [`tokio_util`]. Cancelling the
    /// token does not set this signal.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-signal-token").slots(1).build().unwrap();
    /// let permit = sem.acquire().await.unwrap();
    /// let token = permit.lost_signal().cancellation_token();
    ///
    /// sem.evict(&permit.id()).await.unwrap();
    /// assert!(token.is_cancelled());
    /// # });
    /// ```
    #[cfg(feature = "tokio-util")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tokio-util")))]
    pub fn cancellation_token(&self) -> CancellationToken {
        self.0.child_token()
    }
}

impl fmt::Debug for LostSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LostSignal").field("is_lost", &self.is_lost()).finish()
    }
}
