//! Errors: one small type per operation.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use semafor_core::{NotHeld, OpenRefusal, Refusal, ZeroSlots};

/// A duration out of range for its parameter.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
#[error("{meant_as} must be {}, got {seconds}", meant_as.allowed())]
pub struct InvalidDuration {
    pub(crate) meant_as: MeantAs,
    pub(crate) seconds: f64,
}

/// The parameter that a duration was given for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum MeantAs {
    Ttl,
    #[cfg(feature = "redis")]
    TtlOnRedis,
    Timeout,
    HeartbeatMaxInterval,
}

impl MeantAs {
    fn allowed(self) -> &'static str {
        match self {
            Self::Ttl | Self::HeartbeatMaxInterval => "longer than zero seconds",
            #[cfg(feature = "redis")]
            Self::TtlOnRedis => "longer than zero and at most 2147483637 seconds (68 years) on Redis",
            Self::Timeout => "zero seconds or longer",
        }
    }
}

impl fmt::Display for MeantAs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ttl => "ttl",
            #[cfg(feature = "redis")]
            Self::TtlOnRedis => "ttl",
            Self::Timeout => "timeout",
            Self::HeartbeatMaxInterval => "heartbeat_max_interval",
        })
    }
}

/// The home of a semaphore is unreachable, or refused the operation.
///
/// Semaphores in memory never return it. The message says what to do. [`source`](std::error::Error::source) is the
/// error of the operating system or of the Redis client, if there is one; neither contains a password.
///
/// Two errors are equal if their kinds and messages are equal.
#[derive(Clone)]
pub struct HomeError(Arc<HomeErrorInner>);

struct HomeErrorInner {
    kind: HomeErrorKind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The kind of a [`HomeError`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HomeErrorKind {
    /// The URL, or a part of it, is invalid.
    InvalidUrl,
    /// The home does not answer.
    Unreachable,
    /// The home refuses the user, the password, or a command that semafor needs.
    AccessDenied,
    /// The home accepts no writes: it is a replica.
    ReadOnly,
    /// The home lacks something that semafor needs, for example because it is too old.
    Unsupported,
    /// A key of the semaphore holds data of another type.
    WrongType,
    /// The home has no memory left.
    OutOfMemory,
    /// An unexpected answer of the home.
    Other,
}

impl HomeError {
    #[cfg_attr(
        not(any(feature = "local", feature = "redis")),
        expect(dead_code, reason = "memory returns no such error")
    )]
    pub(crate) fn new(kind: HomeErrorKind, message: impl Into<String>) -> Self {
        Self(Arc::new(HomeErrorInner { kind, message: message.into(), source: None }))
    }

    /// With the error that caused it.
    #[cfg(any(feature = "local", feature = "redis"))]
    pub(crate) fn caused_by(
        source: impl std::error::Error + Send + Sync + 'static,
        kind: HomeErrorKind,
        message: impl Into<String>,
    ) -> Self {
        Self(Arc::new(HomeErrorInner { kind, message: message.into(), source: Some(Box::new(source)) }))
    }

    /// The kind of the error.
    pub fn kind(&self) -> HomeErrorKind {
        self.0.kind
    }

    /// True if the home was unreachable or did not answer: a later attempt may work.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "redis")]
    /// # async fn example() {
    /// # use semafor::Home;
    /// match Home::connect("redis://127.0.0.1/").await {
    ///     Err(error) if error.is_unreachable() => eprintln!("try again later: {error}"),
    ///     Err(error) => eprintln!("give up: {error}"),
    ///     Ok(home) => println!("{home:?}"),
    /// }
    /// # }
    /// ```
    pub fn is_unreachable(&self) -> bool {
        self.kind() == HomeErrorKind::Unreachable
    }
}

impl fmt::Display for HomeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for HomeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HomeError").field("kind", &self.0.kind).field("message", &self.0.message).finish()
    }
}

impl std::error::Error for HomeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.source {
            Some(source) => Some(source.as_ref()),
            None => None,
        }
    }
}

impl PartialEq for HomeError {
    fn eq(&self, other: &Self) -> bool {
        (self.0.kind, &self.0.message) == (other.0.kind, &other.0.message)
    }
}

impl Eq for HomeError {}

/// A semaphore could not be opened.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The name is empty.
    #[error("a semaphore needs a name: the given one is empty")]
    EmptyName,
    /// The name is longer than [`MAX_NAME_LEN`](crate::MAX_NAME_LEN) bytes.
    #[error("the name is {len} bytes long, the limit is {max}: {start:?}…")]
    NameTooLong {
        /// Its length in bytes.
        len: usize,
        /// The limit.
        max: usize,
        /// How it starts.
        start: String,
    },
    /// Zero slots were asked for.
    #[error("{0}")]
    ZeroSlots(#[from] ZeroSlots),
    /// The name is new and the number of slots was not set.
    #[error("semaphore {name:?} does not exist yet: say how many slots it has with .slots(n)")]
    SlotsNotSet {
        /// The name.
        name: String,
    },
    /// The name is in use with another number of slots.
    #[error(
        "semaphore {name:?} is in use with {live} slots, not {asked}: \
         ask for {live}, or change it for all users with resize({asked})"
    )]
    SlotsMismatch {
        /// The name.
        name: String,
        /// How many slots it has.
        live: u32,
        /// How many were asked for.
        asked: u32,
    },
    /// The name is closed, and some of its slots are still held.
    #[error("semaphore {name:?} was closed, and {held} of its slots are still held")]
    Closed {
        /// The name.
        name: String,
        /// How many slots are still held.
        held: u32,
    },
    /// A duration is out of range.
    #[error(transparent)]
    InvalidDuration(#[from] InvalidDuration),
    /// The home is unreachable, or refused the operation.
    #[error(transparent)]
    Home(#[from] HomeError),
}

impl BuildError {
    pub(crate) fn refused(name: &str, refusal: OpenRefusal) -> Self {
        let name = name.to_owned();
        match refusal {
            OpenRefusal::ZeroSlots => Self::ZeroSlots(ZeroSlots),
            OpenRefusal::SlotsNotSet => Self::SlotsNotSet { name },
            OpenRefusal::SlotsMismatch { live, asked } => Self::SlotsMismatch { name, live, asked },
            OpenRefusal::Closing { held } => Self::Closed { name, held },
        }
    }
}

/// No slot was acquired.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// No slot is free, or other waiters are in line. Only from attempts that do not wait.
    #[error("no slot is free right now")]
    Busy,
    /// No slot came free in time.
    #[error("no slot {}: {held} of {slots} slots held, {waiting} waiting", within(*waited))]
    TimedOut {
        /// How long it waited.
        waited: Duration,
        /// How many slots were held when it gave up.
        held: u32,
        /// How many there are.
        slots: u32,
        /// How many others were waiting.
        waiting: usize,
    },
    /// The line has reached the bound set with `max_waiting`.
    #[error("the line is full: {limit} are waiting already")]
    LineFull {
        /// The bound.
        limit: usize,
    },
    /// More slots were asked for than the semaphore has, or has left after a shrink.
    #[error("weight {weight} can never be acquired from {slots} slots")]
    TooHeavy {
        /// How many slots were asked for.
        weight: u32,
        /// How many slots there are.
        slots: u32,
    },
    /// A weight of zero was asked for.
    #[error("weight must be at least 1, got 0")]
    ZeroWeight,
    /// The semaphore is closed.
    #[error("the semaphore is closed")]
    Closed,
    /// A slot was granted, and lost before the acquiring task was polled again.
    #[error("a slot was granted, but lost before the task saw it: {0}")]
    Lost(NotHeld),
    /// A duration is out of range.
    #[error(transparent)]
    InvalidDuration(#[from] InvalidDuration),
    /// The semaphore was built without contacting its home, and the first operation could not open it there.
    #[error(transparent)]
    Open(Box<BuildError>),
    /// The home is unreachable, or refused the operation.
    #[error(transparent)]
    Home(#[from] HomeError),
}

/// In whole milliseconds: finer digits do not matter.
fn within(waited: Duration) -> String {
    match waited.as_millis().try_into().unwrap_or(u64::MAX) {
        0 => "without waiting".into(),
        millis => format!("within {:?}", Duration::from_millis(millis)),
    }
}

impl AcquireError {
    /// True if the request timed out: [`TimedOut`](Self::TimedOut). A timeout of zero counts.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::{Semaphore, secs};
    /// let sem = Semaphore::memory("docs-is-timeout").slots(1).build().unwrap();
    /// let held = sem.acquire().await.unwrap();
    ///
    /// let error = sem.acquire().timeout(secs(0.01)).await.unwrap_err();
    /// assert!(error.is_timeout() && !error.is_busy());
    /// # });
    /// ```
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut { .. })
    }

    /// True if an attempt that does not wait found no free slot: [`Busy`](Self::Busy).
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-is-busy").slots(1).build().unwrap();
    /// let held = sem.acquire().await.unwrap();
    ///
    /// let error = sem.try_acquire().await.unwrap_err();
    /// assert!(error.is_busy() && !error.is_timeout());
    /// # });
    /// ```
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Busy)
    }

    /// True if the semaphore is closed: no later attempt through this handle will succeed.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed)
    }
}

impl From<Refusal> for AcquireError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::LineFull { limit } => Self::LineFull { limit },
            Refusal::ZeroWeight => Self::ZeroWeight,
            Refusal::TooHeavy { weight, slots } => Self::TooHeavy { weight, slots },
            Refusal::Closed => Self::Closed,
            Refusal::Busy => Self::Busy,
        }
    }
}

/// Nothing was released.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The id holds nothing; the inner value says why.
    #[error(transparent)]
    NotHeld(#[from] NotHeld),
    /// The current task has detached no permit of this semaphore that is still held.
    #[error("the current task holds no detached permit of this semaphore")]
    NothingDetached,
    /// The home is unreachable, or refused the operation. After [`Permit::release`](crate::Permit::release), the slot is
    /// released as soon as the home answers again; after a long silence, the home releases it by itself.
    #[error(transparent)]
    Home(#[from] HomeError),
}

impl ReleaseError {
    /// True if the permit's lease ended first.
    pub fn is_expired(&self) -> bool {
        matches!(self, Self::NotHeld(why) if why.is_expired())
    }
}

/// A permit was not renewed.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RenewError {
    /// The id holds nothing; the inner value says why.
    #[error(transparent)]
    NotHeld(#[from] NotHeld),
    /// The duration is out of range.
    #[error(transparent)]
    InvalidDuration(#[from] InvalidDuration),
    /// The home is unreachable, or refused the operation.
    #[error(transparent)]
    Home(#[from] HomeError),
}

/// The number of slots was not changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResizeError {
    /// Zero slots were asked for. To stop a semaphore, [close](crate::Semaphore::close) it.
    #[error(transparent)]
    ZeroSlots(#[from] ZeroSlots),
    /// The home is unreachable, or refused the operation.
    #[error(transparent)]
    Home(#[from] HomeError),
}

/// The work under a permit was not run to its end.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// It never started.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// Its permit was lost, so it was dropped.
    #[error("the work was stopped: {0}")]
    Lost(NotHeld),
}

impl RunError {
    /// True if the work was stopped because its permit was lost.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_))
    }
}

/// The text is not a permit id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParsePermitIdError(pub(crate) semafor_core::ParsePermitIdError);

impl fmt::Display for ParsePermitIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for ParsePermitIdError {}
