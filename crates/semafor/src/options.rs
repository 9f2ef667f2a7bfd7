use std::sync::Arc;
use std::time::Duration;

use crate::error::{BuildError, InvalidDuration, MeantAs};
use crate::{Registry, Semaphore, Span};

/// The longest name, in bytes.
pub const MAX_NAME_LEN: usize = 512;

/// How a semaphore is opened; see [`Semaphore::memory`].
///
/// The number of slots and the bound of the line belong to the name: all who open it share them. Everything else
/// belongs to this handle and its clones, and can be changed for a single acquire (see [`Acquire`](crate::Acquire)).
#[derive(Clone, Debug)]
#[must_use = "call .build()"]
pub struct Builder {
    registry: Registry,
    name: String,
    slots: Option<u32>,
    max_waiting: Option<usize>,
    ttl: Span,
    max_acquire_time: Span,
    defaults: Defaults,
}

/// What an acquire does unless it says otherwise.
#[derive(Clone, Debug)]
pub(crate) struct Defaults {
    pub(crate) ttl: Option<Duration>,
    pub(crate) max_acquire_time: Option<Duration>,
    pub(crate) cancel_on_expiry: bool,
    pub(crate) label: Option<Arc<str>>,
}

impl Builder {
    pub(crate) fn new(registry: Registry, name: String) -> Self {
        Self {
            registry,
            name,
            slots: None,
            max_waiting: None,
            ttl: Span::UNLIMITED,
            max_acquire_time: Span::UNLIMITED,
            defaults: Defaults { ttl: None, max_acquire_time: None, cancel_on_expiry: true, label: None },
        }
    }

    /// How many may hold a slot at once.
    ///
    /// May be left out for a name that is in use: then it is whatever it is there.
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = Some(slots);
        self
    }

    /// How long a slot may be held. After that it is taken back and given to the next in line.
    pub fn ttl(mut self, ttl: impl Into<Span>) -> Self {
        self.ttl = ttl.into();
        self
    }

    /// How long to wait for a slot. Zero is not to wait.
    pub fn max_acquire_time(mut self, patience: impl Into<Span>) -> Self {
        self.max_acquire_time = patience.into();
        self
    }

    /// Whether [`Semaphore::run`] and `spawn` stop their work when the slot is lost. They do by default: work that goes on
    /// without its slot runs beside that of the next holder.
    pub fn cancel_on_expiry(mut self, cancel: bool) -> Self {
        self.defaults.cancel_on_expiry = cancel;
        self
    }

    /// What holders and waiters are called in [`Semaphore::holders`] and [`Semaphore::waiters`].
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.defaults.label = Some(label.into());
        self
    }

    /// Bounds the line: who finds so many waiting is refused at once, with
    /// [`LineFull`](crate::AcquireError::LineFull).
    pub fn max_waiting(mut self, limit: usize) -> Self {
        self.max_waiting = Some(limit);
        self
    }

    /// Opens the semaphore.
    ///
    /// If the name is in use, this is another handle to it. If it is known but idle (nothing held, nobody waiting), a
    /// different number of slots takes over.
    ///
    /// # Errors
    ///
    /// [`BuildError`] for an empty or overlong name, zero slots, a number of slots that differs from the one in use,
    /// and durations that are none.
    pub fn build(mut self) -> Result<Semaphore, BuildError> {
        if self.name.is_empty() {
            return Err(BuildError::EmptyName);
        }
        if self.name.len() > MAX_NAME_LEN {
            let start = self.name.chars().take(40).collect();
            return Err(BuildError::NameTooLong { len: self.name.len(), max: MAX_NAME_LEN, start });
        }
        let (ttl, max_acquire_time) = self.spans()?;
        self.defaults.ttl = ttl;
        self.defaults.max_acquire_time = max_acquire_time;
        let handle = self.registry.open(&self.name, self.slots, self.max_waiting)?;
        Ok(Semaphore::new(handle, self.defaults))
    }

    fn spans(&self) -> Result<(Option<Duration>, Option<Duration>), InvalidDuration> {
        Ok((self.ttl.to_ttl()?, self.max_acquire_time.to_patience(MeantAs::MaxAcquireTime)?))
    }
}
