//! The memory home passes the conformance suite.

use std::time::Duration;

use semafor::{BuildError, ManualClock, Registry, Semaphore};
use semafor_testkit::{Home, Spec};

/// A registry of its own, whose clock is moved by hand.
struct Memory {
    clock: ManualClock,
    registry: Registry,
}

impl Memory {
    fn new() -> Self {
        let clock = ManualClock::new();
        let registry = Registry::builder().clock(&clock).build();
        Self { clock, registry }
    }
}

impl Home for Memory {
    async fn open(&self, spec: Spec) -> Result<Semaphore, BuildError> {
        self.build(spec)
    }

    fn build(&self, spec: Spec) -> Result<Semaphore, BuildError> {
        spec.clone().say_to(self.registry.named(spec.name)).build()
    }

    async fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }
}

semafor_testkit::conformance!(Memory::new());
