use std::time::Duration;

use semafor::{BuildError, Builder, Semaphore};

/// How the suite gets semaphores of one home, and how time passes there.
///
/// Each promise is tested in a home of its own: no name is known in it yet.
pub trait Home: Sync {
    /// Opens the semaphore of that name, as `spec` says.
    fn open(&self, spec: Spec) -> impl Future<Output = Result<Semaphore, BuildError>> + Send;

    /// Lets so much time pass: deadlines within it have been acted upon when this returns.
    fn pass(&self, time: Duration) -> impl Future<Output = ()> + Send;
}

/// What a semaphore is opened with. What is `None` is left to the home's defaults.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Spec {
    /// Its name.
    pub name: String,
    /// How many slots it has; `None` for the current number.
    pub slots: Option<u32>,
    /// How long a slot may be held.
    pub ttl: Option<Duration>,
    /// How long to wait for one.
    pub timeout: Option<Duration>,
    /// How many may wait.
    pub max_waiting: Option<usize>,
    /// What holders and waiters are called.
    pub label: Option<String>,
    /// How long an evicted holder has to leave.
    pub grace: Option<Duration>,
}

impl Spec {
    /// A name, so many slots, and defaults for the rest.
    pub fn new(name: &str, slots: u32) -> Self {
        Self { slots: Some(slots), ..Self::without_slots(name) }
    }

    /// A name whose number of slots is not said.
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

    /// With a time to live.
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { ttl: Some(ttl), ..self }
    }

    /// With a limit on the wait.
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

    /// With time to leave.
    pub fn grace(self, grace: Duration) -> Self {
        Self { grace: Some(grace), ..self }
    }

    /// Says all of it but the name to a builder.
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
