//! What can go wrong, one small type per operation.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use semafor_core::{NotHeld, Refusal, ZeroSlots};

/// A number that is no length of time for what it was given as.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
#[error("{meant_as} must be {}, got {seconds}", meant_as.allowed())]
pub struct InvalidDuration {
    pub(crate) meant_as: MeantAs,
    pub(crate) seconds: f64,
}

/// What a duration was given as.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum MeantAs {
    Ttl,
    Timeout,
    MaxAcquireTime,
    HeartbeatMaxInterval,
}

impl MeantAs {
    fn allowed(self) -> &'static str {
        match self {
            Self::Ttl | Self::HeartbeatMaxInterval => "longer than zero seconds",
            Self::Timeout | Self::MaxAcquireTime => "zero seconds or longer",
        }
    }
}

impl fmt::Display for MeantAs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ttl => "ttl",
            Self::Timeout => "timeout",
            Self::MaxAcquireTime => "max_acquire_time",
            Self::HeartbeatMaxInterval => "heartbeat_max_interval",
        })
    }
}

/// The home of a semaphore could not be asked, or would not do what it was asked for.
///
/// Memory never gives one. The message says what to do about it.
#[derive(Clone, PartialEq, Eq)]
pub struct HomeError(Arc<Trouble>);

#[derive(PartialEq, Eq)]
struct Trouble {
    kind: HomeErrorKind,
    message: String,
}

/// What kind of trouble there is with a home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HomeErrorKind {
    /// The URL, or something in it, is no address of a home.
    InvalidUrl,
    /// Nobody answers.
    Unreachable,
    /// It refuses the user, the password, or a command that is needed.
    AccessDenied,
    /// It takes no writes: a replica.
    ReadOnly,
    /// It is too old for what is needed, or lacks it.
    Unsupported,
    /// It holds something else where the semaphore's data should be.
    WrongType,
    /// It has no memory left.
    OutOfMemory,
    /// It says something that was not foreseen.
    Other,
}

impl HomeError {
    #[cfg_attr(
        not(any(feature = "local", feature = "redis")),
        expect(dead_code, reason = "memory gives no such error")
    )]
    pub(crate) fn new(kind: HomeErrorKind, message: impl Into<String>) -> Self {
        Self(Arc::new(Trouble { kind, message: message.into() }))
    }

    /// What kind of trouble it is.
    pub fn kind(&self) -> HomeErrorKind {
        self.0.kind
    }

    /// True if nobody answered: later, it may work.
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

impl std::error::Error for HomeError {}

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
    /// The name is new and the number of slots was not said.
    #[error("semaphore {name:?} does not exist yet: say how many slots it has with .slots(n)")]
    SlotsNotSet {
        /// The name.
        name: String,
    },
    /// The name is in use with another number of slots.
    #[error(
        "semaphore {name:?} is in use with {live} slots, not {asked}: \
         ask for {live}, or change it for everybody with resize({asked})"
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
    /// A duration makes no sense.
    #[error(transparent)]
    InvalidDuration(#[from] InvalidDuration),
    /// Its home gives no answer, or none that would do.
    #[error(transparent)]
    Home(#[from] HomeError),
}

/// No slot was acquired.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// No slot is free, or others are waiting for it. Only from attempts that do not wait.
    #[error("no slot is free right now")]
    Busy,
    /// No slot came free in time.
    #[error("no slot {}: {held} of {capacity} slots held, {waiting} waiting", within(*waited))]
    TimedOut {
        /// How long it waited.
        waited: Duration,
        /// How many slots were held when it gave up.
        held: u32,
        /// How many there are.
        capacity: u32,
        /// How many others were waiting.
        waiting: usize,
    },
    /// The line has reached the bound set with `max_waiting`.
    #[error("the line is full: {limit} are waiting already")]
    LineFull {
        /// The bound.
        limit: usize,
    },
    /// More slots were asked for than there are; also when the semaphore shrank meanwhile.
    #[error("weight {weight} can never be acquired from {capacity} slots")]
    TooHeavy {
        /// What was asked for.
        weight: u32,
        /// What there is.
        capacity: u32,
    },
    /// A weight of zero was asked for.
    #[error("weight must be at least 1, got 0")]
    ZeroWeight,
    /// The semaphore is closed.
    #[error("the semaphore is closed")]
    Closed,
    /// A slot was granted, and lost before the acquiring task got round to looking.
    #[error("a slot was granted, but gone before the task looked: {0}")]
    Lost(NotHeld),
    /// A duration makes no sense.
    #[error(transparent)]
    InvalidDuration(#[from] InvalidDuration),
    /// The semaphore was built without asking its home, and now that it is asked, it can't be opened.
    #[error(transparent)]
    Open(Box<BuildError>),
    /// Its home gives no answer, or none that would do.
    #[error(transparent)]
    Home(#[from] HomeError),
}

/// Without digits that say nothing.
fn within(waited: Duration) -> String {
    match waited.as_millis().try_into().unwrap_or(u64::MAX) {
        0 => "without waiting".into(),
        millis => format!("within {:?}", Duration::from_millis(millis)),
    }
}

impl AcquireError {
    /// True if no slot came free in the time there was: [`Busy`](Self::Busy) or [`TimedOut`](Self::TimedOut).
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Busy | Self::TimedOut { .. })
    }

    /// True if the semaphore is closed: no later attempt will succeed.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed)
    }
}

impl From<Refusal> for AcquireError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::LineFull { limit } => Self::LineFull { limit },
            Refusal::ZeroWeight => Self::ZeroWeight,
            Refusal::TooHeavy { weight, capacity } => Self::TooHeavy { weight, capacity },
            Refusal::Closed => Self::Closed,
            _ => Self::Busy,
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
    /// Its home gives no answer. A guard's slot is given back as soon as it does; if that takes long, the home takes it back by
    /// itself.
    #[error(transparent)]
    Home(#[from] HomeError),
}

impl ReleaseError {
    /// True if the permit's time to live ran out first.
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
    /// The duration makes no sense.
    #[error(transparent)]
    InvalidDuration(#[from] InvalidDuration),
    /// Its home gives no answer.
    #[error(transparent)]
    Home(#[from] HomeError),
}

/// The number of slots was not changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResizeError {
    /// To zero; to stop a semaphore, [close](crate::Semaphore::close) it.
    #[error(transparent)]
    ZeroSlots(#[from] ZeroSlots),
    /// Its home gives no answer.
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

/// Text that is no permit id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParsePermitIdError(pub(crate) semafor_core::ParsePermitIdError);

impl fmt::Display for ParsePermitIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for ParsePermitIdError {}
