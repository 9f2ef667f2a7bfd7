use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::Thread;
use std::time::Duration;

use parking_lot::Mutex;
use semafor_core::Timestamp;

use super::clock::Clock;
use super::handle::Handle;
use super::manual_clock::ManualClock;
use super::names::Names;
use super::shared_gate::{Joined, SharedGate};
use super::timetable::{Due, Timetable};
use crate::error::BuildError;
use crate::options::Builder;
use crate::stats::Stats;

const DEFAULT_IDLE_TTL: Duration = Duration::from_secs(60);

/// A set of named semaphores, with the thread that watches their deadlines.
///
/// Within one registry a name is one semaphore. Names that nobody uses any more (no handle, no holder, no waiter)
/// are dropped after a while. A clone is another reference to the same registry.
///
/// Time to live and timeouts count while the machine is awake. A forked child does not inherit the thread that watches
/// them: let it use a registry of its own.
///
/// ```
/// use semafor::Registry;
///
/// let registry = Registry::new();
/// let a = registry.semaphore("images").slots(2).build().unwrap();
/// let b = registry.semaphore("images").slots(2).build().unwrap();
/// let _held = a.try_acquire().blocking().unwrap();
/// assert_eq!(registry.stats(&Default::default())[0].held, 1);
/// # drop(b);
/// ```
#[derive(Clone)]
pub struct Registry(Arc<Shelf>);

/// Settings of a [`Registry`].
#[must_use = "call .build()"]
pub struct RegistryBuilder {
    clock: Clock,
    empty_queue_max_ttl: Duration,
    token_floor: u64,
}

/// Which semaphores [`Registry::stats`] tells about.
///
/// ```
/// use semafor::{Registry, StatsQuery};
/// let busiest = Registry::global().stats(&StatsQuery::default().limit(10));
/// let some = Registry::global().stats(&StatsQuery::default().names(["images", "thumbnails"]));
/// # assert!(busiest.len() <= 10 && some.is_empty());
/// ```
#[derive(Clone, Default, Debug)]
pub struct StatsQuery {
    pub(crate) names: Option<Vec<String>>,
    limit: Option<usize>,
}

impl StatsQuery {
    /// Only these. Names that do not exist are left out of the answer.
    pub fn names<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.names = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// At most so many, those with the highest utilisation.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Sorts by utilisation and keeps as many as wanted.
    pub(crate) fn pick(&self, mut stats: Vec<Stats>) -> Vec<Stats> {
        stats.sort_by(|a, b| b.percent().total_cmp(&a.percent()).then_with(|| a.name.cmp(&b.name)));
        stats.truncate(self.limit.unwrap_or(usize::MAX));
        stats
    }
}

impl RegistryBuilder {
    /// How long a name is kept after its last handle, holder and waiter. 60 s by default.
    pub fn empty_queue_max_ttl(mut self, ttl: Duration) -> Self {
        self.empty_queue_max_ttl = ttl;
        self
    }

    /// Fencing tokens are above this one.
    #[cfg(feature = "local")]
    pub(crate) fn first_token(mut self, token: u64) -> Self {
        self.token_floor = token;
        self
    }

    /// Lives by a clock that is moved by hand. No thread is started then.
    pub fn clock(mut self, clock: &ManualClock) -> Self {
        self.clock = Clock::Manual(clock.hands());
        self
    }

    /// An empty registry.
    pub fn build(self) -> Registry {
        let shelf = Arc::new_cyclic(|this| Shelf {
            this: Weak::clone(this),
            clock: self.clock,
            idle_ttl: self.empty_queue_max_ttl,
            names: Names::default(),
            timetable: Mutex::default(),
            driver: Mutex::default(),
            token_floor: AtomicU64::new(self.token_floor),
        });
        if let Clock::Manual(hands) = &shelf.clock {
            hands.drive(Arc::downgrade(&shelf));
        }
        Registry(shelf)
    }
}

impl Registry {
    /// An empty registry with the default settings.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Settings for a new registry.
    pub fn builder() -> RegistryBuilder {
        RegistryBuilder { clock: Clock::System, empty_queue_max_ttl: DEFAULT_IDLE_TTL, token_floor: 0 }
    }

    /// The registry that [`Semaphore::memory`](crate::Semaphore::memory) uses.
    pub fn global() -> &'static Self {
        static GLOBAL: OnceLock<Registry> = OnceLock::new();
        GLOBAL.get_or_init(Self::new)
    }

    /// Opens the semaphore of that name in this registry; see [`Semaphore::memory`](crate::Semaphore::memory).
    pub fn semaphore(&self, name: impl Into<String>) -> Builder {
        Builder::in_memory(self.clone(), name.into())
    }

    /// How many names there are, unused ones that were not dropped yet included.
    pub fn len(&self) -> usize {
        self.0.names.len()
    }

    /// True if there are no names.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Statistics of the semaphores of this registry, highest utilisation first, then by name.
    ///
    /// Each semaphore is looked at on its own; the list as a whole is no snapshot.
    pub fn stats(&self, query: &StatsQuery) -> Vec<Stats> {
        let gates = match &query.names {
            None => self.0.names.all(),
            Some(names) => {
                let names = BTreeSet::from_iter(names);
                let found = names.into_iter().map(|name| self.0.names.entry(name).get(name).cloned());
                found.flatten().collect()
            }
        };
        query.pick(gates.iter().map(|gate| gate.stats()).collect())
    }

    /// Drops the names that have been unused for long enough, and says how many.
    ///
    /// It happens by itself; this is for those who want it to have happened now.
    pub fn cleanup(&self) -> usize {
        let before = self.len();
        self.0.run_due(self.0.clock.now());
        before.saturating_sub(self.len())
    }

    /// Publishes the statistics of all semaphores through the [`metrics`](https://docs.rs/metrics) facade.
    ///
    /// Call it when metrics are scraped, or at intervals. In between they cost nothing. A name that was dropped is not
    /// published any more; if it comes back, its totals start anew.
    #[cfg(feature = "metrics")]
    pub fn publish_metrics(&self) {
        crate::observe::publish_metrics(&self.stats(&StatsQuery::default()));
    }

    pub(crate) fn open(
        &self,
        name: &str,
        slots: Option<u32>,
        max_waiting: Option<usize>,
    ) -> Result<Handle, BuildError> {
        self.0.open(name, slots, max_waiting)
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("names", &self.len()).finish_non_exhaustive()
    }
}

/// What a [`Registry`] refers to.
pub(crate) struct Shelf {
    this: Weak<Self>,
    clock: Clock,
    idle_ttl: Duration,
    names: Names,
    timetable: Mutex<Timetable>,
    driver: Mutex<Option<Thread>>,
    /// The highest fencing token of any name that was dropped. A name that comes back continues above it.
    token_floor: AtomicU64,
}

impl Shelf {
    fn open(
        self: &Arc<Self>,
        name: &str,
        slots: Option<u32>,
        max_waiting: Option<usize>,
    ) -> Result<Handle, BuildError> {
        let mut entry = self.names.entry(name);
        let mut token_floor = self.token_floor.load(Ordering::Relaxed);
        while let Some(gate) = entry.get(name).cloned() {
            match gate.join(slots, max_waiting)? {
                Joined::Here => return Ok(Handle::new(gate, Arc::clone(self))),
                Joined::ClosedForGood { last_token } => {
                    token_floor = token_floor.max(last_token);
                    break;
                }
                Joined::Overdue => {
                    // Ending a lease wakes others: not under this lock.
                    drop(entry);
                    gate.sweep();
                    entry = self.names.entry(name);
                }
            }
        }
        let slots = slots.ok_or_else(|| BuildError::SlotsNotSet { name: name.to_owned() })?;
        let gate = SharedGate::new(name, next_serial(), slots, self.clock.clone(), Weak::clone(&self.this))?;
        gate.begin(token_floor, max_waiting);
        entry.put(Arc::clone(&gate));
        Ok(Handle::new(gate, Arc::clone(self)))
    }

    /// Looks at `gate` at `to` instead of at `from`. Called with the gate locked. Returns the time it is armed for, which
    /// is never if there is no driver to be had: then its next deadline tries again.
    #[cold]
    pub(super) fn rearm(&self, gate: &Weak<SharedGate>, from: Timestamp, to: Timestamp) -> Timestamp {
        let is_next = {
            let mut timetable = self.timetable.lock();
            timetable.rearm(gate, from, to);
            timetable.next_due() >= to
        };
        if to != Timestamp::NEVER && is_next && !self.wake_driver() {
            self.timetable.lock().rearm(gate, to, Timestamp::NEVER);
            return Timestamp::NEVER;
        }
        to
    }

    /// The last handle of `gate` is gone, or its last holder: drop its name after a while, unless it is used again.
    pub(super) fn note_unused(&self, gate: &Arc<SharedGate>) {
        if let Some(since) = gate.mark_unused() {
            self.list_unused(gate, since);
        }
    }

    fn list_unused(&self, gate: &Arc<SharedGate>, since: Timestamp) {
        let is_first = {
            let mut timetable = self.timetable.lock();
            let before = timetable.next_due();
            timetable.list_idle(Arc::clone(gate), since.after(self.idle_ttl));
            timetable.next_due() < before
        };
        if is_first {
            self.wake_driver();
        }
    }

    fn drop_if_unused(&self, gate: &Arc<SharedGate>, now: Timestamp) {
        let mut entry = self.names.entry(gate.name());
        match gate.unused_since() {
            Some(since) if since.after(self.idle_ttl) <= now => {
                // A closed semaphore may have been replaced under its name already.
                if entry.get(gate.name()).is_some_and(|current| Arc::ptr_eq(current, gate)) {
                    entry.take(gate.name());
                }
                self.token_floor.fetch_max(gate.retire(self), Ordering::Relaxed);
            }
            Some(since) => self.list_unused(gate, since),
            None => {}
        }
    }

    pub(super) fn next_due(&self) -> Timestamp {
        self.timetable.lock().next_due()
    }

    /// Does all that is due.
    pub(super) fn run_due(&self, now: Timestamp) {
        loop {
            let due = self.timetable.lock().pop_due(now);
            match due {
                Some(Due::Gate(gate)) => {
                    if let Some(gate) = gate.upgrade() {
                        gate.expire_due(self, now);
                        self.note_unused(&gate);
                    }
                }
                Some(Due::Idle(gate)) => self.drop_if_unused(&gate, now),
                None => return,
            }
        }
    }

    /// Has the driver look at the timetable, started if need be; false if there is none to be had.
    fn wake_driver(&self) -> bool {
        if matches!(self.clock, Clock::Manual(_)) {
            return true;
        }
        let mut driver = self.driver.lock();
        if driver.is_none() {
            let shelf = Weak::clone(&self.this);
            let thread =
                std::thread::Builder::new().name("semafor-driver".into()).spawn(move || drive(&shelf));
            *driver = thread.ok().map(|handle| handle.thread().clone());
        }
        driver.as_ref().map(Thread::unpark).is_some()
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        if let Some(thread) = self.driver.get_mut() {
            thread.unpark();
        }
    }
}

/// The deadline driver: one thread per registry, from its first deadline until the registry goes.
fn drive(shelf: &Weak<Shelf>) {
    while let Some(alive) = shelf.upgrade() {
        alive.run_due(alive.clock.now());
        let next = alive.next_due();
        let sleep = (next != Timestamp::NEVER).then(|| next.since(alive.clock.now()));
        drop(alive);
        match sleep {
            Some(sleep) => std::thread::park_timeout(sleep),
            None => std::thread::park(),
        }
    }
}

/// Serial numbers of gates, so that an id of one is not taken for an id of another. They start anywhere, so that an id that
/// was kept in a file is not taken for one of this process either.
fn next_serial() -> u32 {
    static NEXT: OnceLock<AtomicU32> = OnceLock::new();
    let next = NEXT.get_or_init(|| AtomicU32::new(RandomState::new().hash_one(std::process::id()) as u32));
    next.fetch_add(1, Ordering::Relaxed)
}
