//! Time as a parameter, so that no test sleeps.

use std::pin::Pin;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use semafor::{Registry, Semaphore};

/// What time it is, and how to wait until it is later.
///
/// A test brings one that moves when it is told to; everybody else has [`SystemClock`].
pub trait Clock: Send + Sync {
    /// The time since some fixed moment. Never goes back.
    fn now(&self) -> Duration;

    /// Waits so long. Dropping it is how not to.
    fn delay(&self, span: Duration) -> Delay;
}

/// What [`Clock::delay`] waits with.
pub type Delay = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The clock of the machine.
///
/// Its delays need no runtime: they work in any executor and on plain threads.
#[derive(Clone, Copy, Default, Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);
        EPOCH.elapsed()
    }

    fn delay(&self, span: Duration) -> Delay {
        /// No one ever gets its slot: who waits for it is told when the time is over, by the thread that watches the
        /// deadlines of its registry.
        static NEVER_FREE: LazyLock<Semaphore> = LazyLock::new(|| {
            let timer = Registry::new().named("timer").slots(1).build();
            let timer = timer.expect("the name and the number of slots are valid");
            timer.try_acquire().blocking().expect("nobody else knows of it").detach();
            timer
        });
        Box::pin(async move {
            let _ = NEVER_FREE.acquire().timeout(span).await;
        })
    }
}
