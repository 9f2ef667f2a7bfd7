use std::sync::Arc;
use std::time::Duration;

use semafor_core::ZeroSlots;

use crate::error::{BuildError, MeantAs};
use crate::stats::Who;
use crate::{Registry, Semaphore, Span};

/// The longest name, in bytes.
pub const MAX_NAME_LEN: usize = 512;

/// Opens a semaphore; see [`Semaphore::memory`].
///
/// [`slots`](Self::slots) and [`max_waiting`](Self::max_waiting) belong to the name: all handles to it share them. The
/// other options belong to this handle and its clones. [`Acquire`](crate::Acquire) can set `ttl`, `timeout` and `label`
/// for a single request.
#[derive(Clone, Debug)]
#[must_use = "call .build()"]
pub struct Builder {
    backend: Backend,
    name: String,
    slots: Option<u32>,
    max_waiting: Option<usize>,
    ttl: Span,
    timeout: Span,
    heartbeat_max_interval: Span,
    defaults: Defaults,
}

/// Where the semaphore will be.
#[derive(Clone, Debug)]
enum Backend {
    Memory(Registry),
    #[cfg(any(feature = "local", feature = "redis"))]
    Remote(crate::Home),
}

/// As in the Python library asyncio-advanced-semaphores.
const HEARTBEAT_MAX_INTERVAL: Duration = Duration::from_secs(180);

/// The options of an acquire that sets none itself.
#[derive(Clone, Debug)]
pub(crate) struct Defaults {
    pub(crate) ttl: Option<Duration>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) cancel_on_expiry: bool,
    pub(crate) who: Option<Box<Who>>,
}

impl Builder {
    pub(crate) fn in_memory(registry: Registry, name: String) -> Self {
        Self::new(Backend::Memory(registry), name)
    }

    #[cfg(any(feature = "local", feature = "redis"))]
    pub(crate) fn remote(home: crate::Home, name: String) -> Self {
        Self::new(Backend::Remote(home), name)
    }

    fn new(backend: Backend, name: String) -> Self {
        Self {
            backend,
            name,
            slots: None,
            max_waiting: None,
            ttl: Span::UNLIMITED,
            timeout: Span::UNLIMITED,
            heartbeat_max_interval: Span::from(HEARTBEAT_MAX_INTERVAL),
            defaults: Defaults { ttl: None, timeout: None, cancel_on_expiry: true, who: None },
        }
    }

    /// The number of slots: how many holders there may be at once.
    ///
    /// May be left out for a name that exists: its number of slots then stays as it is.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let first = Semaphore::memory("docs-slots").slots(2).build().unwrap();
    /// let same = Semaphore::memory("docs-slots").build().unwrap();
    /// assert_eq!(same.slots().await, Ok(2));
    /// # });
    /// ```
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = Some(slots);
        self
    }

    /// How long a slot may be held. When the lease ends, the slot goes to the first waiter in line.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::{Semaphore, secs};
    /// let sem = Semaphore::memory("docs-ttl").slots(1).ttl(secs(30)).build().unwrap();
    /// let permit = sem.acquire().await.unwrap();
    /// assert!(permit.expires_at().is_some());
    /// # });
    /// ```
    pub fn ttl(mut self, ttl: impl Into<Span>) -> Self {
        self.ttl = ttl.into();
        self
    }

    /// How long to wait for a slot. Zero means not to wait; the error is [`TimedOut`](crate::AcquireError::TimedOut) all
    /// the same.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::{Semaphore, secs};
    /// let sem = Semaphore::memory("docs-timeout").slots(1).timeout(secs(0.01)).build().unwrap();
    /// let held = sem.acquire().await.unwrap();
    /// assert!(sem.acquire().await.unwrap_err().is_timeout());
    /// # });
    /// ```
    pub fn timeout(mut self, timeout: impl Into<Span>) -> Self {
        self.timeout = timeout.into();
        self
    }

    /// Whether [`Semaphore::run`] and `spawn` stop their work when the slot is lost. They do by default: work that
    /// continued without its slot would run beside the work of the next holder.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::{Semaphore, secs};
    /// let builder = Semaphore::memory("docs-expiry").slots(1).ttl(secs(0.01));
    /// let sem = builder.cancel_on_expiry(false).build().unwrap();
    /// let slow = async { std::thread::sleep(std::time::Duration::from_millis(20)) };
    /// assert_eq!(sem.run(slow).await, Ok(()), "it ran to its end");
    /// # });
    /// ```
    pub fn cancel_on_expiry(mut self, cancel: bool) -> Self {
        self.defaults.cancel_on_expiry = cancel;
        self
    }

    /// A label for holders and waiters, shown by [`Semaphore::holders`] and [`Semaphore::waiters`].
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-label").slots(1).label("resize").build().unwrap();
    /// let permit = sem.acquire().await.unwrap();
    /// assert_eq!(sem.holders().await.unwrap()[0].label.as_deref(), Some("resize"));
    /// # });
    /// ```
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.defaults.who.get_or_insert_default().label = Some(label.into());
        self
    }

    /// The command that holders and waiters run, shown by [`Semaphore::holders`] and [`Semaphore::waiters`].
    ///
    /// Every client that can read the home can read it. So do not put a command line with secrets on a Redis: set only
    /// the program's name there.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-command").slots(1).command("convert").build().unwrap();
    /// let permit = sem.acquire().await.unwrap();
    /// assert_eq!(sem.holders().await.unwrap()[0].command.as_deref(), Some("convert"));
    /// # });
    /// ```
    pub fn command(mut self, command: impl Into<Arc<str>>) -> Self {
        self.defaults.who.get_or_insert_default().command = Some(command.into());
        self
    }

    /// How long an [evicted](Semaphore::evict) holder has to release its slot. It is notified at once, and the slot
    /// goes to the next waiter only when the holder releases it or the grace ends.
    ///
    /// Without it, the next waiter gets the slot at once, whatever the evicted holder is doing.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// use std::time::Duration;
    /// let sem = Semaphore::memory("docs-grace").slots(1).grace(Duration::from_secs(5)).build().unwrap();
    /// let permit = sem.acquire().await.unwrap();
    ///
    /// sem.evict(&permit.id()).await.unwrap();
    /// assert!(permit.is_lost(), "it is notified at once");
    /// assert!(sem.try_acquire().await.is_err(), "but still has the slot");
    /// drop(permit);
    /// sem.try_acquire().await.unwrap();
    /// # });
    /// ```
    pub fn grace(mut self, grace: Duration) -> Self {
        if !grace.is_zero() {
            self.defaults.who.get_or_insert_default().grace = Some(grace);
        }
        self
    }

    /// Bounds the line: a request that would have to wait behind so many waiters fails at once, with
    /// [`LineFull`](crate::AcquireError::LineFull). The latest handle that sets a bound sets it for all.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::{AcquireError, Semaphore};
    /// let sem = Semaphore::memory("docs-max-waiting").slots(1).max_waiting(0).build().unwrap();
    /// let held = sem.acquire().await.unwrap();
    /// let error = sem.acquire().await.unwrap_err();
    /// assert_eq!(error, AcquireError::LineFull { limit: 0 });
    /// # });
    /// ```
    pub fn max_waiting(mut self, limit: usize) -> Self {
        self.max_waiting = Some(limit);
        self
    }

    /// How long a holder or waiter may send no heartbeat before Redis counts it as dead; 180 seconds by default. The
    /// library sends a heartbeat five times in that time, and at least every five seconds.
    ///
    /// For a slot with a shorter `ttl`, the `ttl` counts instead. Only Redis needs heartbeats; the other homes ignore
    /// this.
    pub fn heartbeat_max_interval(mut self, interval: impl Into<Span>) -> Self {
        self.heartbeat_max_interval = interval.into();
        self
    }

    /// Opens the semaphore.
    ///
    /// In memory, the name is open when this returns. A home outside of this process is not contacted yet: the first
    /// acquire opens the name there, and may fail with [`AcquireError::Open`](crate::AcquireError::Open).
    /// [`open`](Self::open) contacts it at once.
    ///
    /// If the name is in use, this is another handle to it. If the name exists but is idle (no holders, no waiters), it
    /// takes the number of slots given here.
    ///
    /// # Errors
    ///
    /// [`BuildError`] for an empty or overlong name, zero slots, a number of slots that differs from the one in use,
    /// and durations out of range.
    ///
    /// # Examples
    ///
    /// ```
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-build").slots(10).build().unwrap();
    /// let error = Semaphore::memory("docs-build-none").slots(0).build().unwrap_err();
    /// assert_eq!(error.to_string(), "slots must be at least 1, got 0");
    /// ```
    pub fn build(self) -> Result<Semaphore, BuildError> {
        let defaults = self.check()?;
        match self.backend {
            Backend::Memory(registry) => {
                let handle = registry.open(&self.name, self.slots, self.max_waiting)?;
                Ok(Semaphore::memory_home(handle, defaults))
            }
            #[cfg(any(feature = "local", feature = "redis"))]
            Backend::Remote(home) => {
                let heartbeat = self.heartbeat_max_interval.to_heartbeat()?;
                let remote = home.semaphore(&self.name, self.slots, self.max_waiting, heartbeat);
                Ok(Semaphore::remote_home(remote, defaults))
            }
        }
    }

    /// Opens the semaphore at its home: like [`build`](Self::build), but a mismatch of slots or an unreachable home is
    /// reported now.
    ///
    /// # Errors
    ///
    /// As for `build`, and [`BuildError::Home`].
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-open").slots(10).open().await.unwrap();
    /// # drop(sem);
    /// # });
    /// ```
    pub async fn open(self) -> Result<Semaphore, BuildError> {
        let semaphore = self.build()?;
        if let Some(remote) = semaphore.remote() {
            remote.open().await?;
        }
        Ok(semaphore)
    }

    /// Checks the options that every kind of home checks.
    fn check(&self) -> Result<Defaults, BuildError> {
        if self.name.is_empty() {
            return Err(BuildError::EmptyName);
        }
        if self.name.len() > MAX_NAME_LEN {
            let start = self.name.chars().take(40).collect();
            return Err(BuildError::NameTooLong { len: self.name.len(), max: MAX_NAME_LEN, start });
        }
        if self.slots == Some(0) {
            return Err(ZeroSlots.into());
        }
        let mut defaults = self.defaults.clone();
        defaults.ttl = self.ttl.to_ttl()?;
        defaults.timeout = self.timeout.to_timeout(MeantAs::Timeout)?;
        self.heartbeat_max_interval.to_heartbeat()?;
        Ok(defaults)
    }
}
