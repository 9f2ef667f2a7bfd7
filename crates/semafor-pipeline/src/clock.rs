//! Time as a parameter, so that no test sleeps.

use std::pin::Pin;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use semafor::{Registry, Semaphore};

/// Tells the time and waits.
///
/// Tests can pass a clock that they move themselves. The default is [`SystemClock`].
pub trait Clock: Send + Sync {
    /// The time since a fixed moment. Never goes back.
    fn now(&self) -> Duration;

    /// Waits so long. Dropping the future ends the wait.
    fn delay(&self, span: Duration) -> Delay;
}

/// The future of [`Clock::delay`].
pub type Delay = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The clock of the machine.
///
/// Its delays need no runtime: they work under any executor and on plain threads.
#[derive(Clone, Copy, Default, Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);
        EPOCH.elapsed()
    }

    fn delay(&self, span: Duration) -> Delay {
        /// A semaphore whose only slot is never released. A delay waits for it with a timeout, and the deadline thread
        /// of the registry ends the wait.
        static NEVER_FREE: LazyLock<Semaphore> = LazyLock::new(|| {
            let timer = Registry::new().named("timer").slots(1).build();
            let timer = timer.expect("the name and the number of slots are valid");
            timer.try_acquire().blocking().expect("the semaphore is new, so its slot is free").detach();
            timer
        });
        Box::pin(async move {
            let _ = NEVER_FREE.acquire().timeout(span).await;
        })
    }
}
