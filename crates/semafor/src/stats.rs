use std::sync::Arc;
use std::time::Duration;

use semafor_core::{Histogram, Timestamp, Totals};

use crate::PermitId;
use crate::error::HomeError;

/// A snapshot of one semaphore.
///
/// Hold times come from a clock that may be late when the process acquires more than ten thousand times a second: by a
/// millisecond or two, or by more on an overloaded machine. Wait times are precise.
///
/// # Examples
///
/// ```
/// # pollster::block_on(async {
/// use semafor::Semaphore;
/// let sem = Semaphore::memory("docs-stats").slots(4).build().unwrap();
/// let _permit = sem.acquire().await.unwrap();
/// let stats = sem.stats().await.unwrap();
/// assert_eq!((stats.held, stats.slots, stats.percent()), (1, 4, 25.0));
/// assert_eq!(stats.totals.granted, 1);
/// # });
/// ```
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// The semaphore's name.
    pub name: Arc<str>,
    /// Why the home cannot read the numbers, which are then all zero: a key of another program has the same name, for
    /// example. Normally `None`.
    pub error: Option<HomeError>,
    /// How many slots there are.
    pub slots: u32,
    /// How many slots are held; above `slots` only after a shrink, until enough slots are released.
    pub held: u32,
    /// How many permits hold them.
    pub holders: usize,
    /// How many waiters are in line.
    pub waiting: usize,
    /// How long the first in line has been waiting.
    pub longest_wait: Duration,
    /// Counts since the semaphore was created.
    pub totals: Totals,
    /// How long requests waited in line until their grant.
    pub waits: Histogram,
    /// How long slots were held.
    pub holds: Histogram,
}

impl Stats {
    pub(crate) fn new(name: Arc<str>, numbers: semafor_core::Stats) -> Self {
        Self {
            name,
            error: None,
            slots: numbers.slots,
            held: numbers.held,
            holders: numbers.holders,
            waiting: numbers.waiting,
            longest_wait: numbers.longest_wait,
            totals: numbers.totals,
            waits: numbers.waits,
            holds: numbers.holds,
        }
    }

    /// The statistics of a name that its home cannot read.
    #[cfg(feature = "redis")]
    pub(crate) fn broken(name: Arc<str>, error: HomeError) -> Self {
        Self { error: Some(error), ..Self::new(name, semafor_core::Stats::default()) }
    }

    /// How many more slots are held than there are, after a shrink. It only falls until the next shrink.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-debt").slots(4).build().unwrap();
    /// let heavy = sem.acquire().weight(4).await.unwrap();
    /// sem.resize(1).await.unwrap();
    /// assert_eq!(sem.stats().await.unwrap().debt(), 3);
    /// # });
    /// ```
    pub fn debt(&self) -> u32 {
        self.held.saturating_sub(self.slots)
    }

    /// Utilisation in percent; above 100 only while there is [debt](Self::debt).
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Semaphore;
    /// let sem = Semaphore::memory("docs-percent").slots(4).build().unwrap();
    /// let permit = sem.acquire().weight(3).await.unwrap();
    /// assert_eq!(sem.stats().await.unwrap().percent(), 75.0);
    /// # });
    /// ```
    pub fn percent(&self) -> f64 {
        f64::from(self.held) * 100.0 / f64::from(self.slots)
    }
}

/// The description of a holder or waiter that other clients read.
#[derive(Clone, Default, Debug)]
pub(crate) struct Who {
    pub(crate) label: Option<Arc<str>>,
    pub(crate) command: Option<Arc<str>>,
    /// `None` for a semaphore in memory.
    pub(crate) host: Option<Arc<str>>,
    pub(crate) pid: Option<u32>,
    /// How long it may keep its slot after an evict.
    pub(crate) grace: Option<Duration>,
}

/// A holder of a semaphore.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct HolderInfo {
    /// The permit's id: enough to renew, release or evict it.
    pub id: PermitId,
    /// Its slot number. `None` for a client of another library, which has no slot numbers.
    pub slot: Option<u32>,
    /// Its fencing token. `None` for a client of another library.
    pub fencing_token: Option<u64>,
    /// How many slots it holds.
    pub weight: u32,
    /// The label given to it.
    pub label: Option<Arc<str>>,
    /// The command it runs, if it set one.
    pub command: Option<Arc<str>>,
    /// The machine it runs on. `None` for a semaphore in memory.
    pub host: Option<Arc<str>>,
    /// Its process on that machine.
    pub pid: Option<u32>,
    /// How long it has held its slots.
    pub held_for: Duration,
    /// The rest of its lease; `None` without a `ttl`.
    pub expires_in: Option<Duration>,
}

/// A waiter of a semaphore.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct WaiterInfo {
    /// How many waiters are ahead of it in line.
    pub ahead: usize,
    /// How many slots it asks for.
    pub weight: u32,
    /// The label given to it.
    pub label: Option<Arc<str>>,
    /// The command it runs, if it set one.
    pub command: Option<Arc<str>>,
    /// The machine it runs on. `None` for a semaphore in memory.
    pub host: Option<Arc<str>>,
    /// Its process on that machine.
    pub pid: Option<u32>,
    /// How long it has been waiting.
    pub waited_for: Duration,
}

impl HolderInfo {
    pub(crate) fn new<T>(holder: &semafor_core::Holder<'_, T>, who: Who, now: Timestamp) -> Self {
        let expires = holder.expires;
        Self {
            id: PermitId::from(holder.id),
            slot: Some(holder.id.slot()),
            fencing_token: Some(holder.id.fencing_token()),
            weight: holder.weight,
            label: who.label,
            command: who.command,
            host: who.host,
            pid: who.pid,
            held_for: now.since(holder.since),
            expires_in: (expires != Timestamp::NEVER).then(|| expires.since(now)),
        }
    }
}

impl WaiterInfo {
    pub(crate) fn new<T>(
        ahead: usize,
        waiter: &semafor_core::Waiter<'_, T>,
        who: Who,
        now: Timestamp,
    ) -> Self {
        let Who { label, command, host, pid, .. } = who;
        let waited_for = now.since(waiter.since);
        Self { ahead, weight: waiter.weight, label, command, host, pid, waited_for }
    }
}
