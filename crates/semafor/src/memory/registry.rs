use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::Thread;
use std::time::Duration;

use parking_lot::Mutex;
use semafor_core::{Gate, OpenRefusal, Opened, Opening, Timestamp};

use super::clock::Clock;
use super::handle::Handle;
use super::manual_clock::ManualClock;
use super::names::Names;
use super::notifier::Notifier;
use super::shared_gate::{Fx, SharedGate};
use super::timetable::{Due, Timetable};
use crate::error::BuildError;
use crate::options::Builder;
use crate::stats::Stats;

const DEFAULT_IDLE_TTL: Duration = Duration::from_secs(60);

/// Set once per process: see [`after_fork`].
static GLOBAL: AtomicPtr<Registry> = AtomicPtr::new(null_mut());

/// The global registry belongs to the parent: its threads do not run in the child, and its locks may stay locked for
/// ever.
pub(super) fn after_fork() {
    GLOBAL.store(null_mut(), Ordering::Release);
}

/// A set of named semaphores, with the thread that watches their deadlines.
///
/// Within one registry a name is one semaphore. Unused names (no handle, no holder, no waiter) are dropped after a
/// while. A clone is another reference to the same registry.
///
/// That thread calls no wakers and sets no signals of a loss: other threads do, which run only while they are needed. So
/// a waker that blocks does not delay the deadlines of others.
///
/// Leases and timeouts do not count the time in which the machine is suspended. A forked child must not use a registry
/// of its parent, because it has none of these threads; see [`after_fork`](crate::after_fork).
///
/// ```
/// use semafor::Registry;
///
/// let registry = Registry::new();
/// let a = registry.named("images").slots(2).build().unwrap();
/// let b = registry.named("images").slots(2).build().unwrap();
/// let _held = a.try_acquire().blocking().unwrap();
/// assert_eq!(registry.stats(&Default::default())[0].held, 1);
/// # drop(b);
/// ```
#[derive(Clone)]
pub struct Registry(Arc<RegistryInner>);

/// Settings of a [`Registry`].
#[must_use = "call .build()"]
pub struct RegistryBuilder {
    clock: Clock,
    empty_queue_max_ttl: Duration,
    token_floor: u64,
}

/// Which semaphores [`Registry::stats`] returns.
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
    /// Only these names. Names that do not exist are left out of the answer.
    ///
    /// # Examples
    ///
    /// ```
    /// use semafor::{Registry, StatsQuery};
    /// let registry = Registry::new();
    /// let images = registry.named("images").slots(1).build().unwrap();
    /// let some = registry.stats(&StatsQuery::default().names(["images", "no such name"]));
    /// assert_eq!(some.len(), 1);
    /// ```
    pub fn names<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.names = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// At most so many semaphores, those with the highest utilisation.
    ///
    /// # Examples
    ///
    /// ```
    /// use semafor::{Registry, StatsQuery};
    /// let registry = Registry::new();
    /// let (a, b) = (registry.named("a").slots(1).build().unwrap(), registry.named("b").slots(1).build().unwrap());
    /// let held = b.try_acquire().blocking().unwrap();
    /// let busiest = registry.stats(&StatsQuery::default().limit(1));
    /// assert_eq!(&*busiest[0].name, "b");
    /// # drop(a);
    /// ```
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Sorts by utilisation and applies the limit.
    pub(crate) fn pick(&self, mut stats: Vec<Stats>) -> Vec<Stats> {
        // A name whose slots are not known has no utilisation.
        let percent = |stats: &Stats| if stats.slots == 0 { 0.0 } else { stats.percent() };
        stats.sort_by(|a, b| percent(b).total_cmp(&percent(a)).then_with(|| a.name.cmp(&b.name)));
        stats.truncate(self.limit.unwrap_or(usize::MAX));
        stats
    }
}

impl RegistryBuilder {
    /// How long a name is kept after its last handle, holder and waiter. 60 s by default.
    ///
    /// # Examples
    ///
    /// ```
    /// use semafor::Registry;
    /// use std::time::Duration;
    /// let registry = Registry::builder().empty_queue_max_ttl(Duration::ZERO).build();
    /// drop(registry.named("brief").slots(1).build().unwrap());
    /// registry.cleanup();
    /// assert!(registry.is_empty());
    /// ```
    pub fn empty_queue_max_ttl(mut self, ttl: Duration) -> Self {
        self.empty_queue_max_ttl = ttl;
        self
    }

    /// All fencing tokens will be above `token`.
    #[cfg(feature = "local")]
    pub(crate) fn first_token(mut self, token: u64) -> Self {
        self.token_floor = token;
        self
    }

    /// Uses a clock that is moved by hand. No thread is started then.
    ///
    /// # Examples
    ///
    /// ```
    /// use semafor::{ManualClock, Registry, secs};
    /// use std::time::Duration;
    /// let clock = ManualClock::new();
    /// let registry = Registry::builder().clock(&clock).build();
    /// let sem = registry.named("leased").slots(1).ttl(secs(30)).build().unwrap();
    /// let permit = sem.try_acquire().blocking().unwrap();
    /// clock.advance(Duration::from_secs(30));
    /// assert!(permit.is_lost());
    /// ```
    pub fn clock(mut self, clock: &ManualClock) -> Self {
        self.clock = Clock::Manual(clock.time());
        self
    }

    /// An empty registry.
    pub fn build(self) -> Registry {
        let registry = Arc::new_cyclic(|this| RegistryInner {
            this: Weak::clone(this),
            clock: self.clock,
            idle_ttl: self.empty_queue_max_ttl,
            names: Names::default(),
            timetable: Mutex::default(),
            driver: Mutex::default(),
            notifier: Notifier::default(),
            token_floor: AtomicU64::new(self.token_floor),
        });
        if let Clock::Manual(time) = &registry.clock {
            time.drive(Arc::downgrade(&registry));
        }
        Registry(registry)
    }
}

impl Registry {
    /// An empty registry with the default settings.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::Registry;
    /// let (here, there) = (Registry::new(), Registry::new());
    /// let one = here.named("images").slots(1).build().unwrap();
    /// let other = there.named("images").slots(5).build().unwrap();
    /// assert_ne!(one.slots().await, other.slots().await);
    /// # });
    /// ```
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Settings for a new registry.
    pub fn builder() -> RegistryBuilder {
        RegistryBuilder { clock: Clock::System, empty_queue_max_ttl: DEFAULT_IDLE_TTL, token_floor: 0 }
    }

    /// The registry that [`Semaphore::memory`](crate::Semaphore::memory) uses.
    ///
    /// A forked child has another one, from [`after_fork`](crate::after_fork) on.
    ///
    /// # Examples
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use semafor::{Registry, Semaphore};
    /// let sem = Semaphore::memory("docs-global").slots(1).build().unwrap();
    /// let same = Registry::global().named("docs-global").build().unwrap();
    /// assert_eq!(same.slots().await, Ok(1));
    /// # });
    /// ```
    pub fn global() -> &'static Self {
        // SAFETY: the registry stored there is never freed.
        if let Some(known) = unsafe { GLOBAL.load(Ordering::Acquire).as_ref() } {
            return known;
        }
        let new = Box::into_raw(Box::new(Self::new()));
        let stored = match GLOBAL.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => new,
            Err(others) => {
                // SAFETY: it came from a box, and no other thread knows it.
                drop(unsafe { Box::from_raw(new) });
                others
            }
        };
        // SAFETY: the registry stored there is never freed.
        unsafe { &*stored }
    }

    /// Opens the semaphore of this name in this registry; see [`Semaphore::memory`](crate::Semaphore::memory).
    ///
    /// # Examples
    ///
    /// ```
    /// use semafor::Registry;
    /// let registry = Registry::new();
    /// let sem = registry.named("images").slots(2).build().unwrap();
    /// assert_eq!(sem.name(), "images");
    /// ```
    pub fn named(&self, name: impl Into<String>) -> Builder {
        Builder::in_memory(self.clone(), name.into())
    }

    /// How many names there are, including unused names that were not dropped yet.
    ///
    /// # Examples
    ///
    /// ```
    /// use semafor::Registry;
    /// let registry = Registry::new();
    /// let sem = registry.named("images").slots(2).build().unwrap();
    /// assert_eq!(registry.len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.0.names.len()
    }

    /// True if there are no names.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Statistics of the semaphores of this registry, highest utilisation first, then by name.
    ///
    /// Each semaphore is read at its own moment; the list as a whole is not a snapshot.
    ///
    /// # Examples
    ///
    /// ```
    /// use semafor::{Registry, StatsQuery};
    /// let registry = Registry::new();
    /// let sem = registry.named("images").slots(2).build().unwrap();
    /// for stats in registry.stats(&StatsQuery::default()) {
    ///     println!("{}: {} of {} slots held", stats.name, stats.held, stats.slots);
    ///     # assert_eq!(&*stats.name, "images");
    /// }
    /// ```
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

    /// Drops the names that have been unused for long enough, and returns how many.
    ///
    /// The registry does it by itself; call this to do it now.
    pub fn cleanup(&self) -> usize {
        let before = self.len();
        self.0.run_due(self.0.clock.now());
        before.saturating_sub(self.len())
    }

    /// Publishes the statistics of the semaphores of this registry through the [`metrics`](https://docs.rs/metrics)
    /// facade. Semaphores of other homes are not among them: read those with `Home::stats`.
    ///
    /// Call it when metrics are scraped, or at intervals. In between, metrics cost nothing. A dropped name is no longer
    /// published; if it is opened again, its totals start anew.
    #[cfg(feature = "metrics")]
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    pub fn publish_metrics(&self) {
        crate::observe::publish_metrics(&self.stats(&StatsQuery::default()));
    }

    pub(crate) fn open(
        &self,
        name: &str,
        slots: Option<u32>,
        max_waiting: Option<usize>,
    ) -> Result<Handle, BuildError> {
        self.0.open(name, Opening { slots, max_waiting })
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

/// A gate, and the effects of ending its overdue leases and waits.
type Ended = (Arc<SharedGate>, Fx);

/// The shared state of a [`Registry`] and its clones.
pub(crate) struct RegistryInner {
    this: Weak<Self>,
    clock: Clock,
    idle_ttl: Duration,
    names: Names,
    timetable: Mutex<Timetable>,
    driver: Mutex<Option<Thread>>,
    notifier: Notifier,
    /// The highest fencing token of any dropped name. A name that is opened again continues above it.
    token_floor: AtomicU64,
}

impl RegistryInner {
    fn open(self: &Arc<Self>, name: &str, opening: Opening) -> Result<Handle, BuildError> {
        let (opened, ended) = self.open_locked(name, opening);
        // Ending a lease calls wakers: not while the name is locked.
        if let Some((gate, effects)) = ended {
            gate.carry_out(effects);
        }
        opened.map_err(|refusal| BuildError::refused(name, refusal))
    }

    /// Also returns the effects to carry out, if opening the name ended overdue leases or waits.
    fn open_locked(
        self: &Arc<Self>,
        name: &str,
        mut opening: Opening,
    ) -> (Result<Handle, OpenRefusal>, Option<Ended>) {
        let mut entry = self.names.entry(name);
        // This name is dropped under the lock that we hold now, so its own last token is already in the floor.
        let mut last_token = self.token_floor.load(Ordering::Relaxed);
        let mut ended = None;
        if let Some(known) = entry.get(name).cloned() {
            let (opened, effects) = known.open(opening);
            ended = effects.map(|effects| (Arc::clone(&known), effects));
            match opened {
                Ok(Opened::Joined) => return (Ok(Handle::new(known, Arc::clone(self))), ended),
                Ok(Opened::Succeeded { opening: again, last_token: newest }) => {
                    opening = again;
                    last_token = last_token.max(newest);
                }
                Err(refusal) => return (Err(refusal), ended),
            }
        }
        let handle = Gate::begin(next_serial(), opening, last_token).map(|gate| {
            let gate = SharedGate::new(name, gate, self.clock.clone(), Weak::clone(&self.this));
            entry.put(Arc::clone(&gate));
            Handle::new(gate, Arc::clone(self))
        });
        (handle, ended)
    }

    /// Moves `gate` in the timetable from `from` to `to`. Called with the gate locked. Returns the time it is armed
    /// for: `NEVER` if the driver thread could not be started; then its next deadline tries again.
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

    /// Called when the last handle or holder of `gate` has ended: its name is dropped after a while, unless it is used
    /// again.
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

    /// Does everything that is due, and calls user code on this thread.
    pub(super) fn run_due(&self, now: Timestamp) {
        self.end_due(now, |gate, effects| gate.carry_out(effects));
    }

    /// Does everything that is due, and passes the effects to `notify`, which calls user code.
    fn end_due(&self, now: Timestamp, notify: impl Fn(&Arc<SharedGate>, Fx)) {
        loop {
            let due = self.timetable.lock().pop_due(now);
            match due {
                Some(Due::Gate(gate)) => {
                    if let Some(gate) = gate.upgrade() {
                        notify(&gate, gate.expire_due(self, now));
                        self.note_unused(&gate);
                    }
                }
                Some(Due::Idle(gate)) => self.drop_if_unused(&gate, now),
                None => return,
            }
        }
    }

    /// Wakes the driver, or starts it. False if it could not be started.
    fn wake_driver(&self) -> bool {
        if matches!(self.clock, Clock::Manual(_)) {
            return true;
        }
        let mut driver = self.driver.lock();
        if driver.is_none() {
            let registry = Weak::clone(&self.this);
            let thread =
                std::thread::Builder::new().name("semafor-driver".into()).spawn(move || drive(&registry));
            *driver = thread.ok().map(|handle| handle.thread().clone());
        }
        driver.as_ref().map(Thread::unpark).is_some()
    }
}

impl Drop for RegistryInner {
    fn drop(&mut self) {
        if let Some(thread) = self.driver.get_mut() {
            thread.unpark();
        }
    }
}

/// The deadline driver: one thread per registry, from its first deadline until the registry is dropped. It calls no
/// user code.
fn drive(registry: &Weak<RegistryInner>) {
    while let Some(alive) = registry.upgrade() {
        alive.end_due(alive.clock.now(), |gate, effects| alive.notifier.notify(gate, effects));
        let look_after = alive.notifier.check_stuck();
        let next = alive.next_due();
        let until_next = (next != Timestamp::NEVER).then(|| next.since(alive.clock.now()));
        drop(alive);
        match until_next.into_iter().chain(look_after).min() {
            Some(sleep) => std::thread::park_timeout(sleep),
            None => std::thread::park(),
        }
    }
}

/// Serial numbers of gates, so that an id of one gate is not taken for an id of another. They start at a random number,
/// so that an id kept in a file by an earlier process is not taken for an id of this process either.
fn next_serial() -> u32 {
    static NEXT: OnceLock<AtomicU32> = OnceLock::new();
    let next = NEXT.get_or_init(|| AtomicU32::new(RandomState::new().hash_one(std::process::id()) as u32));
    next.fetch_add(1, Ordering::Relaxed)
}
