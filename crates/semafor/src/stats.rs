use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use semafor_core::Timestamp;

use crate::PermitId;

/// A snapshot of one semaphore: the numbers of [`semafor_core::Stats`], and its name.
///
/// Held and hold times are read off a clock that may be a millisecond or two late when the process acquires more than
/// ten thousand times a second.
///
/// ```
/// # pollster::block_on(async {
/// use semafor::Semaphore;
/// let sem = Semaphore::memory("docs-stats").slots(4).build().unwrap();
/// let _permit = sem.acquire().await.unwrap();
/// let stats = sem.stats().await.unwrap();
/// assert_eq!((stats.held, stats.capacity, stats.percent()), (1, 4, 25.0));
/// assert_eq!(stats.totals.granted, 1);
/// # });
/// ```
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// The semaphore's name.
    pub name: Arc<str>,
    numbers: semafor_core::Stats,
}

impl Stats {
    pub(crate) fn new(name: Arc<str>, numbers: semafor_core::Stats) -> Self {
        Self { name, numbers }
    }
}

impl Deref for Stats {
    type Target = semafor_core::Stats;

    fn deref(&self) -> &semafor_core::Stats {
        &self.numbers
    }
}

/// Who somebody is, as others will read it.
#[derive(Clone, Default, Debug)]
pub(crate) struct Who {
    pub(crate) label: Option<Arc<str>>,
    pub(crate) command: Option<Arc<str>>,
    /// Not for what lives in this process.
    pub(crate) host: Option<Arc<str>>,
    pub(crate) pid: Option<u32>,
    /// How long it takes to leave when it is evicted.
    pub(crate) grace: Option<Duration>,
}

/// Who holds a slot.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct HolderInfo {
    /// The permit's id: enough to renew, release or evict it.
    pub id: PermitId,
    /// Its slot number. `None` for a client of another library, which has none.
    pub slot: Option<u32>,
    /// Its fencing token, likewise.
    pub fencing_token: Option<u64>,
    /// How many slots it holds.
    pub weight: u32,
    /// The label given to it.
    pub label: Option<Arc<str>>,
    /// What it runs, if it said so.
    pub command: Option<Arc<str>>,
    /// The machine it runs on, unless it is a part of this process by necessity.
    pub host: Option<Arc<str>>,
    /// Its process there.
    pub pid: Option<u32>,
    /// For how long it has been held.
    pub held_for: Duration,
    /// How long it may still be held; `None` without a time to live.
    pub expires_in: Option<Duration>,
}

/// Who waits for a slot.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct WaiterInfo {
    /// How many stand in front of it.
    pub ahead: usize,
    /// How many slots it asks for.
    pub weight: u32,
    /// The label given to it.
    pub label: Option<Arc<str>>,
    /// What it runs, if it said so.
    pub command: Option<Arc<str>>,
    /// The machine it runs on, unless it is a part of this process by necessity.
    pub host: Option<Arc<str>>,
    /// Its process there.
    pub pid: Option<u32>,
    /// For how long it has been waiting.
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
