//! A clock that tests move by hand.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use semafor_core::Timestamp;

use super::registry::RegistryInner;

/// A clock that stands still until it is [advanced](Self::advance), for tests that do not sleep.
///
/// ```
/// use std::time::Duration;
/// use semafor::{ManualClock, Registry, secs};
///
/// # pollster::block_on(async {
/// let clock = ManualClock::new();
/// let registry = Registry::builder().clock(&clock).build();
/// let sem = registry.named("leased").slots(1).ttl(secs(30)).build().unwrap();
///
/// let permit = sem.acquire().await.unwrap();
/// clock.advance(Duration::from_secs(29));
/// assert!(!permit.is_lost());
/// clock.advance(Duration::from_secs(1));
/// assert!(permit.is_lost());
/// # });
/// ```
#[derive(Clone, Default)]
pub struct ManualClock(Arc<ManualTime>);

/// The clock stops here: a deadline at [`Timestamp::NEVER`] is never reached.
const END_OF_TIME: Timestamp = Timestamp::from_nanos(Timestamp::NEVER.as_nanos() - 1);

#[derive(Default)]
pub(crate) struct ManualTime {
    nanos: AtomicU64,
    /// How late the rough clock is, as with a ticker thread that gets no processor time.
    #[cfg(all(test, not(semafor_loom)))]
    rough_clock_delay: AtomicU64,
    registries: Mutex<Vec<Weak<RegistryInner>>>,
}

impl ManualClock {
    /// A clock at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock. Everything that falls due on the way (leases, acquire timeouts, idle names) happens on this
    /// thread, each at its own time, before this returns. The clock stops after 584 years.
    pub fn advance(&self, by: Duration) {
        let target = self.0.now().after(by).min(END_OF_TIME);
        let registries: Vec<_> = self.0.registries.lock().iter().filter_map(Weak::upgrade).collect();
        loop {
            let due = registries.iter().map(|registry| registry.next_due()).min();
            match due.filter(|due| *due <= target) {
                Some(due) => self.0.set(due.max(self.0.now())),
                None => break,
            }
            for registry in &registries {
                registry.run_due(self.0.now());
            }
        }
        self.0.set(target);
    }

    #[cfg(all(test, not(semafor_loom)))]
    pub(super) fn delay_rough_clock(&self, behind: Duration) {
        self.0.rough_clock_delay.store(behind.as_nanos() as u64, Ordering::Release);
    }

    pub(super) fn time(&self) -> Arc<ManualTime> {
        Arc::clone(&self.0)
    }
}

impl ManualTime {
    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.nanos.load(Ordering::Acquire))
    }

    #[cfg(any(not(test), semafor_loom))]
    pub(super) fn rough(&self) -> Timestamp {
        self.now()
    }

    #[cfg(all(test, not(semafor_loom)))]
    pub(super) fn rough(&self) -> Timestamp {
        let behind = self.rough_clock_delay.load(Ordering::Acquire);
        Timestamp::from_nanos(self.now().as_nanos().saturating_sub(behind))
    }

    fn set(&self, now: Timestamp) {
        self.nanos.fetch_max(now.as_nanos(), Ordering::AcqRel);
    }

    pub(super) fn drive(&self, registry: Weak<RegistryInner>) {
        let mut registries = self.registries.lock();
        registries.retain(|known| known.strong_count() > 0);
        registries.push(registry);
    }
}
