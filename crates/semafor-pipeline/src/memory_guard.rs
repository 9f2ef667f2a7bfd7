//! Is there memory left? Cheap enough to ask before every item.
//!
//! It reads at most once per interval, whoever asks how often: one of those who ask reads, the others have its last
//! answer and never wait for it.

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

/// Watches how much memory is used. Clones are the same guard.
///
/// What counts is whichever is closer to its limit: the process to the limit given here, or its container (control
/// groups, version 2 or 1) to its own.
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
/// println!("{} bytes at most", guard.peak());
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
    /// Less than it should be: at 85 % of the limit, unless set otherwise. Do fewer things at once.
    Tight,
    /// Almost none: at 95 % of the limit, unless set otherwise. Begin nothing more.
    Critical,
}

/// What the last reading said. Each number is right by itself; together they may be of two readings.
#[derive(Default)]
struct Sampled {
    /// Held by the one who reads, so that no reading is overwritten by an older one.
    reading: Mutex<()>,
    /// The earliest time of the next reading in nanoseconds, plus one; 0 before the first.
    next: AtomicU64,
    resident: AtomicU64,
    peak: AtomicU64,
    /// Used of the limit, as the bits of an `f64`.
    share: AtomicU64,
}

impl MemoryGuard {
    /// Guards this limit, in bytes; 0 is no limit: it then only watches.
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

    /// The share of the limit from which on memory is [tight](Level::Tight), in place of 0.85.
    pub fn tight_at(mut self, share: f64) -> Self {
        self.tight = share;
        self.with_own_readings()
    }

    /// The share of the limit from which on memory is [critical](Level::Critical), in place of 0.95.
    pub fn critical_at(mut self, share: f64) -> Self {
        self.critical = share;
        self.with_own_readings()
    }

    /// Reads at most so often, in place of every 5 ms.
    pub fn sample_every(mut self, interval: Duration) -> Self {
        self.every = interval;
        self.with_own_readings()
    }

    /// Reads from somewhere else.
    pub fn source(mut self, source: impl MemorySource + 'static) -> Self {
        self.source = Arc::new(source);
        self.with_own_readings()
    }

    /// Goes by another clock.
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

    /// The share of the limit that is used: of its own or of the container's, whichever is higher. 0 without a limit.
    pub fn share(&self) -> f64 {
        self.refresh();
        self.last_share()
    }

    /// What the process has in memory, in bytes.
    pub fn now(&self) -> u64 {
        self.refresh();
        self.sampled.resident.load(Ordering::Relaxed)
    }

    /// The most that the process was seen to have in memory, in bytes.
    pub fn peak(&self) -> u64 {
        self.refresh();
        self.sampled.peak.load(Ordering::Relaxed)
    }

    /// The limit it was given, in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The level at the last [look](Self::look).
    pub(crate) fn last_level(&self) -> Level {
        match self.last_share() {
            share if share >= self.critical => Level::Critical,
            share if share >= self.tight => Level::Tight,
            _ => Level::Fine,
        }
    }

    /// How far from tight (0) to critical (1) it was at the last [look](Self::look): below 0 while it is fine.
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
        // Before the first reading there is no last answer: then everybody waits for it.
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
