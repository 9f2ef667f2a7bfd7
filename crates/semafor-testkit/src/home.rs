use std::time::Duration;

use semafor::{BuildError, Builder, Semaphore};

/// How the suite opens semaphores in one home, and lets time pass there.
///
/// Each promise is tested in a new home, without any names.
pub trait Home: Sync {
    /// Opens a semaphore with the options of `spec`.
    fn open(&self, spec: Spec) -> impl Future<Output = Result<Semaphore, BuildError>> + Send;

    /// Makes a handle with the options of `spec`, without asking the home.
    fn build(&self, spec: Spec) -> Result<Semaphore, BuildError>;

    /// Lets so much time pass: when this returns, everything that fell due has ended.
    fn pass(&self, time: Duration) -> impl Future<Output = ()> + Send;
}

/// The options of a semaphore. For `None`, the home's default is used.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Spec {
    /// Its name.
    pub name: String,
    /// How many slots it has; `None` for the current number.
    pub slots: Option<u32>,
    /// How long a slot may be held.
    pub ttl: Option<Duration>,
    /// How long to wait for a slot.
    pub timeout: Option<Duration>,
    /// How many may wait.
    pub max_waiting: Option<usize>,
    /// The label of holders and waiters.
    pub label: Option<String>,
    /// How long an evicted holder may keep its slot.
    pub grace: Option<Duration>,
}

impl Spec {
    /// A name, so many slots, and defaults for the rest.
    pub fn new(name: &str, slots: u32) -> Self {
        Self { slots: Some(slots), ..Self::without_slots(name) }
    }

    /// A name without a number of slots.
    pub fn without_slots(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            slots: None,
            ttl: None,
            timeout: None,
            max_waiting: None,
            label: None,
            grace: None,
        }
    }

    /// With a lease.
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { ttl: Some(ttl), ..self }
    }

    /// With a timeout.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// With a bound of the line.
    pub fn max_waiting(self, limit: usize) -> Self {
        Self { max_waiting: Some(limit), ..self }
    }

    /// With a label.
    pub fn label(self, label: &str) -> Self {
        Self { label: Some(label.to_owned()), ..self }
    }

    /// With a grace.
    pub fn grace(self, grace: Duration) -> Self {
        Self { grace: Some(grace), ..self }
    }

    /// Sets all options but the name on a builder.
    pub fn say_to(self, mut builder: Builder) -> Builder {
        if let Some(slots) = self.slots {
            builder = builder.slots(slots);
        }
        if let Some(ttl) = self.ttl {
            builder = builder.ttl(ttl);
        }
        if let Some(timeout) = self.timeout {
            builder = builder.timeout(timeout);
        }
        if let Some(limit) = self.max_waiting {
            builder = builder.max_waiting(limit);
        }
        if let Some(label) = self.label {
            builder = builder.label(label);
        }
        if let Some(grace) = self.grace {
            builder = builder.grace(grace);
        }
        builder
    }
}
