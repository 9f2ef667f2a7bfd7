//! Watches how much memory is used. Cheap enough to ask before each item.
//!
//! Memory is read at most once per interval, however many threads ask: one of them reads, the others use the last
//! reading without waiting.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, SystemClock};
use crate::memory_source::{MemorySource, SystemMemory};

const TIGHT: f64 = 0.85;
const CRITICAL: f64 = 0.95;
const SAMPLE_EVERY: Duration = Duration::from_millis(5);

/// Watches the resident memory of the process and compares it with a limit. Clones are the same guard.
///
/// If the process runs in a container with a memory limit (control groups, version 2 or 1), the guard watches that as
/// well; the one closer to its limit counts.
///
/// ```
/// use semafor_pipeline::{Level, MemoryGuard};
///
/// let guard = MemoryGuard::new(4_500 * 1024 * 1024); // tight at 3825 MiB, critical at 4275 MiB
/// match guard.level() {
///     Level::Fine => { /* carry on */ }
///     Level::Tight => { /* with fewer at once */ }
///     Level::Critical => { /* begin nothing more */ }
/// }
/// println!("the most so far: {} bytes", guard.peak());
/// ```
#[derive(Clone)]
pub struct MemoryGuard {
    limit: u64,
    tight: f64,
    critical: f64,
    every: Duration,
    source: Arc<dyn MemorySource>,
    clock: Arc<dyn Clock>,
    sampled: Arc<Sampled>,
}

/// How much memory is left.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// Enough.
    Fine,
    /// Little: from 85 % of the limit, unless set otherwise. Do fewer things at once.
    Tight,
    /// Almost none: from 95 % of the limit, unless set otherwise. Begin nothing more.
    Critical,
}

/// The last reading. Each number is consistent by itself; two of them may be of different readings.
#[derive(Default)]
struct Sampled {
    /// Held while reading, so that an older reading never overwrites a newer one.
    reading: Mutex<()>,
    /// The earliest time of the next reading in nanoseconds, plus one; 0 before the first.
    next: AtomicU64,
    resident: AtomicU64,
    peak: AtomicU64,
    /// The share of the limit that is used, as the bits of an `f64`.
    share: AtomicU64,
}

impl MemoryGuard {
    /// Watches this limit, in bytes; 0: no limit, only [`now`](Self::now) and [`peak`](Self::peak) are measured.
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            tight: TIGHT,
            critical: CRITICAL,
            every: SAMPLE_EVERY,
            source: Arc::new(SystemMemory::new()),
            clock: Arc::new(SystemClock),
            sampled: Arc::default(),
        }
    }

    /// The share of the limit from which memory is [tight](Level::Tight); 0.85 by default.
    pub fn tight_at(mut self, share: f64) -> Self {
        self.tight = share;
        self.with_own_readings()
    }

    /// The share of the limit from which memory is [critical](Level::Critical); 0.95 by default.
    pub fn critical_at(mut self, share: f64) -> Self {
        self.critical = share;
        self.with_own_readings()
    }

    /// The shortest interval between two readings; 5 ms by default.
    pub fn sample_every(mut self, interval: Duration) -> Self {
        self.every = interval;
        self.with_own_readings()
    }

    /// Reads from this source instead of [`SystemMemory`].
    pub fn source(mut self, source: impl MemorySource + 'static) -> Self {
        self.source = Arc::new(source);
        self.with_own_readings()
    }

    /// Uses this clock instead of [`SystemClock`].
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self.with_own_readings()
    }

    /// Settings of a clone differ from now on, so it no longer shares its readings with earlier clones.
    fn with_own_readings(mut self) -> Self {
        self.sampled = Arc::default();
        self
    }

    /// How much memory is left.
    pub fn level(&self) -> Level {
        self.refresh();
        self.last_level()
    }

    /// The share of the limit that is used, by the process or by the container, whichever is higher. 0 without a limit.
    pub fn share(&self) -> f64 {
        self.refresh();
        self.last_share()
    }

    /// The resident memory of the process, in bytes.
    pub fn now(&self) -> u64 {
        self.refresh();
        self.sampled.resident.load(Ordering::Relaxed)
    }

    /// The highest resident memory read so far, in bytes.
    pub fn peak(&self) -> u64 {
        self.refresh();
        self.sampled.peak.load(Ordering::Relaxed)
    }

    /// The limit, in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The level at the last [reading](Self::refresh).
    pub(crate) fn last_level(&self) -> Level {
        match self.last_share() {
            share if share >= self.critical => Level::Critical,
            share if share >= self.tight => Level::Tight,
            _ => Level::Fine,
        }
    }

    /// Memory at the last [reading](Self::refresh), from tight (0) to critical (1); below 0 while it is fine.
    pub(crate) fn last_pressure(&self) -> f64 {
        (self.last_share() - self.tight) / (self.critical - self.tight).max(f64::EPSILON)
    }

    fn last_share(&self) -> f64 {
        f64::from_bits(self.sampled.share.load(Ordering::Relaxed))
    }

    /// Reads memory if the interval is over.
    pub(crate) fn refresh(&self) {
        let now = u64::try_from(self.clock.now().as_nanos()).unwrap_or(u64::MAX).saturating_add(1);
        let due = self.sampled.next.load(Ordering::Acquire);
        if now < due {
            return;
        }
        // Before the first reading there is no last one to use, so all callers wait for it.
        let reading = match due {
            0 => Some(self.sampled.reading.lock()),
            _ => self.sampled.reading.try_lock(),
        };
        let is_due = || now >= self.sampled.next.load(Ordering::Acquire);
        if reading.is_some() && is_due() {
            self.read();
            let every = u64::try_from(self.every.as_nanos()).unwrap_or(u64::MAX);
            self.sampled.next.store(now.saturating_add(every), Ordering::Release);
        }
    }

    fn read(&self) {
        let resident = self.source.resident();
        let mut share = 0.0;
        if self.limit > 0 {
            let container = self.source.container().map_or(0.0, |memory| memory.share());
            share = container.max(resident as f64 / self.limit as f64);
        }
        self.sampled.resident.store(resident, Ordering::Relaxed);
        self.sampled.peak.fetch_max(resident, Ordering::Relaxed);
        self.sampled.share.store(share.to_bits(), Ordering::Relaxed);
    }
}

impl fmt::Debug for MemoryGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryGuard")
            .field("limit", &self.limit)
            .field("tight_at", &self.tight)
            .field("critical_at", &self.critical)
            .finish_non_exhaustive()
    }
}
