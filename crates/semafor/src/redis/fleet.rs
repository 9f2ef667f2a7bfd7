//! What one process holds and waits for on one Redis, and how it keeps it.
//!
//! A thread of its own runs all of it, on a runtime of its own: holders keep their slots whatever the users' runtimes do,
//! and what users drop is given back even if their runtime is gone. Only what users wait for is done where they are, as long
//! as that goes well. Three loops turn there:
//!
//! - **heartbeat** says for all holders and waiters at once that they live, and hears what became of them;
//! - **sweeps** has the server end what is due, at the moment it is due, under names where somebody here waits for it;
//! - **leases** tells holders that their time is up.
//!
//! Nothing here decides who gets a slot: the scripts do.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use redis::{PushKind, Value};
use semafor_core::{Loss, NotHeld};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::answer::{ServerClock, Words, ending, seconds, span, text};
use super::config::Config;
use super::hold::{Granted, Hold};
use super::ids::Ids;
use super::keys::{self, Keys};
use super::link::{Answered, Event, Link};
use super::lua;
use crate::error::{HomeError, HomeErrorKind};
use crate::task::TaskKey;

/// Heartbeats come at least so often: they also keep the keys of others from expiring under the shorter times of Python's
/// scripts.
const SLOWEST_BEAT: Duration = Duration::from_secs(5);
/// As in the Python library.
const BEATS_PER_INTERVAL: u32 = 5;
/// How often to ask for waiters where the server pushes nothing at all.
const POLL: Duration = Duration::from_millis(100);
/// How often to ask where it pushes our own messages only: for grants by Python's scripts.
const POLL_FOR_OTHERS: Duration = Duration::from_secs(1);
/// Ids in one heartbeat; more would keep the server from others for too long.
const ROLL: usize = 500;
/// How long the last one to leave waits for what was dropped to be given back.
const LAST_WAIT: Duration = Duration::from_secs(2);
/// Bounds of the patience with a runtime of the user's that has to carry a heartbeat.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(200);
const LONGEST_PATIENCE: Duration = Duration::from_secs(2);
/// Pauses between attempts to connect again.
const REDIAL: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

pub(super) struct Fleet {
    pub(super) config: Arc<Config>,
    pub(super) link: Arc<Link>,
    pub(super) ids: Ids,
    pub(super) runtime: tokio::runtime::Handle,
    thread: ThreadId,
    table: Mutex<Table>,
    clock: Mutex<Option<ServerClock>>,
    rhythm_changed: Notify,
    is_beat_wanted: AtomicBool,
    /// How often heartbeats are sent right now; [`u64::MAX`] while there are none.
    interval_micros: AtomicU64,
    sweeps_changed: Notify,
    leases_changed: Notify,
    loose_ends: AtomicUsize,
    tied_up: (Mutex<()>, Condvar),
    stop: CancellationToken,
}

/// Those of this process.
static FLEETS: Mutex<Vec<(Config, Weak<Anchor>)>> = Mutex::new(Vec::new());

/// A user's hold on the fleet. When the last one goes, the thread ends, after what was dropped has been given back.
pub(super) struct Anchor(Arc<Fleet>);

#[derive(Default)]
struct Table {
    acquisitions: HashMap<Arc<str>, Acquisition>,
    names: HashMap<Arc<str>, Interest>,
    /// Ends of time to live, earliest first.
    leases: BTreeSet<(Instant, Arc<str>)>,
    detached: Vec<Detached>,
}

struct Acquisition {
    name: Arc<Name>,
    state: State,
}

enum State {
    Waiting { news: Arc<Mailbox>, weight: u32, heartbeat: Duration },
    Holding(Arc<Hold>),
}

/// A name under which somebody here waits, or holds for a limited time.
struct Interest {
    name: Arc<Name>,
    waiting: usize,
    leased: usize,
    next_sweep: Option<Instant>,
    watches_holders: bool,
}

struct Detached {
    task: TaskKey,
    hold: Arc<Hold>,
    name: Arc<Name>,
    /// It is kept alive by heartbeats, although nobody has a handle any more.
    _anchor: Option<Arc<Anchor>>,
}

/// A name and its keys.
pub(super) struct Name {
    pub(super) name: Arc<str>,
    pub(super) keys: Keys,
}

/// What a waiter is told.
#[derive(Debug)]
pub(super) enum News {
    Granted(Granted),
    /// Its grant came from somebody else's script, or so late that it may be over: it has to ask.
    LookAgain,
    /// The server does not know it any more; how it ended.
    Gone(i64),
}

/// Where a waiter finds its news. A channel would cost each of ten thousand waiters a few kilobytes.
#[derive(Default)]
pub(super) struct Mailbox {
    news: Mutex<VecDeque<News>>,
    arrived: Notify,
}

impl Mailbox {
    fn put(&self, news: News) {
        self.news.lock().push_back(news);
        self.arrived.notify_one();
    }

    pub(super) fn look(&self) -> Option<News> {
        self.news.lock().pop_front()
    }

    /// For one reader.
    pub(super) async fn next(&self) -> News {
        loop {
            if let Some(news) = self.look() {
                return news;
            }
            self.arrived.notified().await;
        }
    }
}

impl Fleet {
    /// The one that the process has to the same place already, or else a new one, which will connect when it has to.
    pub(super) fn at(config: Config) -> Result<Arc<Anchor>, HomeError> {
        let mut fleets = FLEETS.lock();
        fleets.retain(|(_, anchor)| anchor.strong_count() > 0);
        let known = fleets.iter().find(|(known, _)| *known == config);
        if let Some(anchor) = known.and_then(|(_, anchor)| anchor.upgrade()) {
            return Ok(anchor);
        }
        let anchor = Arc::new(Anchor(Self::start(config.clone())?));
        fleets.push((config, Arc::downgrade(&anchor)));
        Ok(anchor)
    }

    /// The same, connected.
    pub(super) async fn connect(config: Config) -> Result<Arc<Anchor>, HomeError> {
        let anchor = Self::at(config)?;
        let fleet = Arc::clone(anchor.fleet());
        if !fleet.link.is_connected() {
            if let Ok(here) = Handle::try_current()
                && is_workplace(&here)
            {
                fleet.link.move_to(here);
            }
            fleet.on_own_thread(|fleet| async move { fleet.link.line().await.map(drop) }).await?;
        }
        Ok(anchor)
    }

    /// A forked child has none of the threads, and must not speak on connections that are its parent's.
    pub(super) fn after_fork() {
        FLEETS.lock().clear();
    }

    fn start(config: Config) -> Result<Arc<Self>, HomeError> {
        let no_thread = |error: std::io::Error| {
            HomeError::new(HomeErrorKind::Other, format!("the thread for Redis can't be started: {error}"))
        };
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
        let handle = runtime.handle().clone();
        let (config, ids) = (Arc::new(config), Ids::new());
        let channel = keys::channel(&config.namespace, ids.process());
        let address = config.address()?;
        let (send_fleet, take_fleet) = std::sync::mpsc::channel::<Arc<Self>>();
        let stop = CancellationToken::new();
        let thread = std::thread::Builder::new().name("semafor-redis".into()).spawn({
            let stop = stop.clone();
            move || {
                if let Ok(fleet) = take_fleet.recv() {
                    runtime.block_on(fleet.live(stop));
                }
            }
        });
        let thread = thread.map_err(no_thread)?.thread().id();
        let fleet = Arc::new_cyclic(|fleet: &Weak<Self>| Self {
            link: {
                let fleet = Weak::clone(fleet);
                let ear = Arc::new(move |event| {
                    if let Some(fleet) = fleet.upgrade() {
                        fleet.hear(event);
                    }
                });
                Arc::new(Link::new(Arc::clone(&config), address, channel, ear, handle.clone()))
            },
            config,
            ids,
            runtime: handle,
            thread,
            table: Mutex::default(),
            clock: Mutex::default(),
            rhythm_changed: Notify::new(),
            is_beat_wanted: AtomicBool::new(false),
            interval_micros: AtomicU64::new(u64::MAX),
            sweeps_changed: Notify::new(),
            leases_changed: Notify::new(),
            loose_ends: AtomicUsize::new(0),
            tied_up: Default::default(),
            stop,
        });
        let _ = send_fleet.send(Arc::clone(&fleet));
        Ok(fleet)
    }

    async fn live(self: Arc<Self>, stop: CancellationToken) {
        let mut loops = JoinSet::new();
        loops.spawn(Arc::clone(&self).send_heartbeats());
        loops.spawn(Arc::clone(&self).sweep_when_due());
        loops.spawn(Arc::clone(&self).end_leases());
        stop.cancelled().await;
        let patience = Instant::now() + LAST_WAIT;
        while self.loose_ends.load(Ordering::SeqCst) > 0 && Instant::now() < patience {
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Runs `work` on the fleet's thread, to its end, even if nobody waits for it any more.
    pub(super) async fn on_own_thread<T, F>(
        self: &Arc<Self>,
        work: impl FnOnce(Arc<Self>) -> F,
    ) -> Result<T, HomeError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, HomeError>> + Send + 'static,
    {
        let (answer, answered) = tokio::sync::oneshot::channel();
        let work = work(Arc::clone(self));
        self.runtime.spawn(async move {
            let _ = answer.send(work.await);
        });
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    /// As [`on_own_thread`](Self::on_own_thread), and the process is not to end before it is done, if it can be helped.
    pub(super) fn give_back(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        self.finish(&self.runtime, work);
    }

    /// Does it where the caller is, if one can work there: no other thread has to be woken. It may be dropped halfway, with
    /// the caller's runtime.
    pub(super) fn carry_out(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        match Handle::try_current() {
            Ok(here) if is_workplace(&here) && self.link.is_hosted() => self.finish(&here, work),
            _ => self.finish(&self.runtime, work),
        }
    }

    fn finish(self: &Arc<Self>, place: &Handle, work: impl Future<Output = ()> + Send + 'static) {
        self.loose_ends.fetch_add(1, Ordering::SeqCst);
        let end = LooseEnd(Arc::clone(self));
        place.spawn(async move {
            let _end = end;
            work.await;
        });
    }

    pub(super) fn note_clock(&self, clock: ServerClock) {
        *self.clock.lock() = Some(clock);
    }

    // Waiters and holders

    /// Puts a waiter on the list of those to whom news are taken.
    pub(super) fn enlist(
        &self,
        id: &Arc<str>,
        name: &Arc<Name>,
        weight: u32,
        heartbeat: Duration,
    ) -> Arc<Mailbox> {
        let mailbox = Arc::<Mailbox>::default();
        let state = State::Waiting { news: Arc::clone(&mailbox), weight, heartbeat };
        let mut table = self.table.lock();
        table.interest(name).waiting += 1;
        table.acquisitions.insert(Arc::clone(id), Acquisition { name: Arc::clone(name), state });
        drop(table);
        self.mind_rhythm(heartbeat);
        mailbox
    }

    /// Strikes it off the list again, if it is still on it as a waiter.
    pub(super) fn discharge(&self, id: &str) {
        let mut table = self.table.lock();
        if let Some(Acquisition { state: State::Waiting { .. }, .. }) = table.acquisitions.get(id) {
            table.remove(id);
        }
    }

    /// From now on it is a holder.
    pub(super) fn hold(&self, name: &Arc<Name>, hold: &Arc<Hold>) {
        let mut table = self.table.lock();
        table.remove(&hold.id);
        let acquisition = Acquisition { name: Arc::clone(name), state: State::Holding(Arc::clone(hold)) };
        table.acquisitions.insert(Arc::clone(&hold.id), acquisition);
        if let Some(end) = hold.ends_at() {
            table.interest(name).leased += 1;
            table.leases.insert((end, Arc::clone(&hold.id)));
            drop(table);
            self.leases_changed.notify_one();
        }
        self.mind_rhythm(hold.heartbeat);
    }

    /// A lease has another end now.
    pub(super) fn move_end(&self, hold: &Hold, change: impl FnOnce(&Hold)) {
        let mut table = self.table.lock();
        let before = hold.ends_at();
        change(hold);
        let after = hold.ends_at();
        if let Some(before) = before {
            table.leases.remove(&(before, Arc::clone(&hold.id)));
        }
        if let Some(after) = after {
            table.leases.insert((after, Arc::clone(&hold.id)));
        }
        if before.is_some() != after.is_some()
            && let Some(name) = table.acquisitions.get(&hold.id).map(|found| Arc::clone(&found.name))
        {
            let interest = table.interest(&name);
            interest.leased = interest.leased + usize::from(after.is_some()) - usize::from(before.is_some());
        }
        drop(table);
        self.leases_changed.notify_one();
    }

    /// What this process knows under an id.
    pub(super) fn held(&self, id: &str) -> Option<Arc<Hold>> {
        match &self.table.lock().acquisitions.get(id)?.state {
            State::Holding(hold) => Some(Arc::clone(hold)),
            State::Waiting { .. } => None,
        }
    }

    /// It is not held any more, as far as this process is concerned: no more heartbeats for it.
    pub(super) fn let_go(&self, id: &str) {
        let mut table = self.table.lock();
        table.remove(id);
        let detached = {
            let at = table.detached.iter().position(|detached| *detached.hold.id == *id);
            at.map(|at| table.detached.swap_remove(at))
        };
        drop(table);
        if detached.is_some() {
            // Its anchor may be the last one, and nobody is to wait here for the others.
            self.runtime.spawn(async move { drop(detached) });
        }
    }

    fn lose(&self, id: &str, why: NotHeld) {
        let Some(hold) = self.held(id) else {
            // Granted and lost before it knew.
            return self.tell(id, News::LookAgain);
        };
        self.let_go(id);
        if hold.lose(why) {
            crate::observe::remote_loss(&self.config.shown(), id, why);
        }
    }

    pub(super) fn detach(&self, name: &Arc<Name>, hold: &Arc<Hold>, anchor: Option<Arc<Anchor>>) {
        let (name, hold) = (Arc::clone(name), Arc::clone(hold));
        let detached = Detached { task: TaskKey::current(), hold, name, _anchor: anchor };
        self.table.lock().detached.push(detached);
    }

    /// The latest acquisition that `task` detached under `name` and still holds.
    pub(super) fn latest_detached(&self, task: TaskKey, name: &Name) -> Option<Arc<str>> {
        let table = self.table.lock();
        let own = table.detached.iter().filter(|detached| {
            detached.task == task && detached.name.name == name.name && detached.hold.why_not_held().is_none()
        });
        own.max_by_key(|detached| detached.hold.token).map(|detached| Arc::clone(&detached.hold.id))
    }

    // News

    /// Called from wherever the connection lives.
    fn hear(self: &Arc<Self>, event: Event) {
        let Event::Push { generation, push } = event else {
            let fleet = Arc::clone(self);
            self.runtime.spawn(async move { fleet.take_stock().await });
            return;
        };
        match push.kind {
            PushKind::Message | PushKind::SMessage => {
                if let Some(message) = push.data.into_iter().nth(1).and_then(|message| text(message).ok()) {
                    self.hear_message(&message);
                }
            }
            PushKind::Invalidate => match push.data.into_iter().next() {
                Some(Value::Array(keys)) => {
                    for key in keys.into_iter().filter_map(|key| text(key).ok()) {
                        self.hear_change(&key);
                    }
                }
                // All keys are gone.
                _ => self.beat_now(),
            },
            PushKind::Disconnection => {
                self.link.hang_up(generation);
                let fleet = Arc::clone(self);
                self.runtime.spawn(async move { fleet.redial().await });
            }
            _ => {}
        }
    }

    fn hear_message(self: &Arc<Self>, message: &str) {
        let mut words = message.split(' ');
        let (Some(kind), Some(id)) = (words.next(), words.next()) else { return };
        match kind {
            "granted" => self.tell(id, self.read_grant(words).map_or(News::LookAgain, News::Granted)),
            "closed" => self.tell(id, News::Gone(super::answer::CLOSED)),
            "too_heavy" => self.tell(id, News::Gone(super::answer::TOO_HEAVY)),
            "watch" => {
                let name = self.table.lock().acquisitions.get(id).map(|found| Arc::clone(&found.name));
                if let Some(name) = name {
                    let fleet = Arc::clone(self);
                    self.runtime.spawn(async move { fleet.watch_holders(&name).await });
                }
            }
            "lost" => {
                let code = words.next().and_then(|code| code.parse().ok());
                self.lose(id, code.map_or(NotHeld::Unknown, ending));
            }
            _ => {}
        }
    }

    fn read_grant<'a>(&self, mut words: impl Iterator<Item = &'a str>) -> Option<Granted> {
        let (slot, token) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let [waited, now, until] = [(); 3].map(|()| words.next().and_then(|word| word.parse::<f64>().ok()));
        let clock = (*self.clock.lock())?;
        let (since, safe_until) = (clock.earliest(now?)?, clock.earliest(until?)?);
        Some(Granted { slot, token, waited: span(waited?), since, safe_until })
    }

    fn hear_change(self: &Arc<Self>, key: &str) {
        let namespace = &self.config.namespace;
        if let Some(id) = keys::notified(namespace, key) {
            self.tell(id, News::LookAgain);
        } else if let Some(name) = keys::name_of_main(namespace, key) {
            let watched = {
                let mut table = self.table.lock();
                let interest = table.names.get_mut(name);
                interest.and_then(|interest| {
                    std::mem::take(&mut interest.watches_holders).then(|| Arc::clone(&interest.name))
                })
            };
            if let Some(name) = watched {
                let fleet = Arc::clone(self);
                self.runtime.spawn(async move { fleet.watch_holders(&name).await });
            }
        }
    }

    fn tell(&self, id: &str, news: News) {
        let table = self.table.lock();
        if let Some(Acquisition { state: State::Waiting { news: mailbox, .. }, .. }) =
            table.acquisitions.get(id)
        {
            mailbox.put(news);
        }
    }

    // The connection

    async fn redial(&self) {
        let mut pause = REDIAL.0;
        while !self.link.is_connected() && !self.table.lock().acquisitions.is_empty() {
            if self.link.line().await.is_ok() {
                return;
            }
            sleep(pause).await;
            pause = (pause * 2).min(REDIAL.1);
        }
    }

    /// Whatever happened while there was no connection, all waiters and holders learn what became of them.
    async fn take_stock(self: &Arc<Self>) {
        let (waiting, watched) = {
            let mut table = self.table.lock();
            let lists = |(id, acquisition): (&Arc<str>, &Acquisition)| match acquisition.state {
                State::Waiting { weight, .. } => keys::notifications(&self.config.namespace, id, weight),
                State::Holding(_) => Vec::new(),
            };
            let waiting: Vec<_> = table.acquisitions.iter().flat_map(lists).collect();
            for interest in table.names.values_mut() {
                interest.watches_holders = false;
            }
            (waiting, table.names.values().map(|interest| Arc::clone(&interest.name)).collect::<Vec<_>>())
        };
        for some in waiting.chunks(ROLL) {
            // If this fails, there will be another connection, and another stock-taking.
            let _ = self.link.track(some).await;
        }
        if !waiting.is_empty() || !self.table.lock().acquisitions.is_empty() {
            self.beat_now();
        }
        for name in watched {
            self.note_deadline(&name, Some(Instant::now()));
        }
    }

    // Heartbeats

    fn beat_now(&self) {
        self.is_beat_wanted.store(true, Ordering::SeqCst);
        self.rhythm_changed.notify_one();
    }

    /// Somebody is new who may need more heartbeats than there are.
    fn mind_rhythm(&self, heartbeat: Duration) {
        let needs = (heartbeat / BEATS_PER_INTERVAL).min(SLOWEST_BEAT);
        let needs = u64::try_from(needs.as_micros()).unwrap_or(u64::MAX);
        if needs < self.interval_micros.load(Ordering::SeqCst) {
            self.rhythm_changed.notify_one();
        }
    }

    /// How often, and when the first holder has to be told that nobody answers.
    fn rhythm(&self) -> Option<(Duration, Option<Instant>)> {
        let table = self.table.lock();
        let mut fastest = SLOWEST_BEAT;
        let mut give_up_at: Option<Instant> = None;
        let mut waits = false;
        for acquisition in table.acquisitions.values() {
            let heartbeat = match &acquisition.state {
                State::Waiting { heartbeat, .. } => {
                    waits = true;
                    *heartbeat
                }
                State::Holding(hold) => {
                    give_up_at = [give_up_at, hold.give_up_at()].into_iter().flatten().min();
                    hold.heartbeat
                }
            };
            fastest = fastest.min(heartbeat / BEATS_PER_INTERVAL);
        }
        if waits {
            let hearing = self.link.hearing();
            if !hearing.messages {
                fastest = fastest.min(POLL);
            } else if !hearing.tracking {
                fastest = fastest.min(POLL_FOR_OTHERS);
            }
        }
        (!table.acquisitions.is_empty()).then_some((fastest, give_up_at))
    }

    async fn send_heartbeats(self: Arc<Self>) {
        let mut last = Instant::now();
        loop {
            // Who comes after this was stored looks at it, and says so if it is too slow.
            self.interval_micros.store(u64::MAX, Ordering::SeqCst);
            let Some((interval, give_up_at)) = self.rhythm() else {
                self.rhythm_changed.notified().await;
                last = Instant::now();
                continue;
            };
            let micros = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX);
            self.interval_micros.store(micros, Ordering::SeqCst);
            let next = give_up_at.map_or(last + interval, |give_up| give_up.min(last + interval));
            if !self.is_beat_wanted.load(Ordering::SeqCst) {
                tokio::select! {
                    () = self.rhythm_changed.notified() => {}
                    () = sleep_until(next.into()) => {}
                }
            }
            self.give_up_who_is_out_of_touch();
            if self.is_beat_wanted.swap(false, Ordering::SeqCst) || last.elapsed() >= interval {
                last = Instant::now();
                let fleet = Arc::clone(&self);
                tokio::spawn(async move { fleet.beat().await });
            }
        }
    }

    fn give_up_who_is_out_of_touch(&self) {
        let now = Instant::now();
        let out_of_touch: Vec<_> = {
            let table = self.table.lock();
            let holds = table.acquisitions.values().filter_map(|acquisition| match &acquisition.state {
                State::Holding(hold) => Some(hold),
                State::Waiting { .. } => None,
            });
            let late = holds.filter(|hold| hold.give_up_at().is_some_and(|give_up| give_up <= now));
            late.map(|hold| Arc::clone(&hold.id)).collect()
        };
        for id in out_of_touch {
            self.lose(&id, NotHeld::Lost(Loss::OutOfTouch));
        }
    }

    async fn beat(self: Arc<Self>) {
        let mut rolls = JoinSet::new();
        for (name, holders, waiters) in self.roll_call() {
            let mut holders = holders.chunks(ROLL).map(<[_]>::to_vec);
            let mut waiters = waiters.chunks(ROLL).map(<[_]>::to_vec);
            loop {
                let roll = (holders.next().unwrap_or_default(), waiters.next().unwrap_or_default());
                if roll.0.is_empty() && roll.1.is_empty() {
                    break;
                }
                let (fleet, name) = (Arc::clone(&self), Arc::clone(&name));
                rolls.spawn(async move { fleet.call_roll(&name, roll.0, roll.1).await });
            }
        }
        while rolls.join_next().await.is_some() {}
    }

    #[expect(clippy::type_complexity, reason = "used once, right below")]
    fn roll_call(&self) -> Vec<(Arc<Name>, Vec<Arc<Hold>>, Vec<(Arc<str>, u32, Duration)>)> {
        let mut rolls: HashMap<Arc<str>, (Arc<Name>, Vec<_>, Vec<_>)> = HashMap::new();
        for (id, Acquisition { name, state }) in &self.table.lock().acquisitions {
            let roll = rolls
                .entry(Arc::clone(&name.name))
                .or_insert_with(|| (Arc::clone(name), Vec::new(), Vec::new()));
            match state {
                State::Holding(hold) => roll.1.push(Arc::clone(hold)),
                State::Waiting { weight, heartbeat, .. } => {
                    roll.2.push((Arc::clone(id), *weight, *heartbeat));
                }
            }
        }
        // Ids count up: those whom the server has forgotten come back in the order in which they came.
        rolls.values_mut().for_each(|(_, _, waiters)| waiters.sort_unstable());
        rolls.into_values().collect()
    }

    async fn call_roll(
        self: &Arc<Self>,
        name: &Arc<Name>,
        holders: Vec<Arc<Hold>>,
        waiters: Vec<(Arc<str>, u32, Duration)>,
    ) {
        let answered = self.link.run_once(&lua::PING, &name.keys, |command| {
            command.arg(holders.len());
            for hold in &holders {
                command.arg(&*hold.id).arg(hold.weight).arg(seconds(hold.lease()));
            }
            for (id, weight, heartbeat) in &waiters {
                command.arg(&**id).arg(*weight).arg(seconds(*heartbeat));
            }
        });
        let mut answered = pin!(answered);
        let answered = loop {
            match timeout(self.patience_with_host(), answered.as_mut()).await {
                Ok(Ok(answered)) => break answered,
                // Holders give up in time by themselves; a new connection begins with a heartbeat.
                Ok(Err(_)) => return,
                Err(_) if self.link.is_host_at_work().await => {}
                Err(_) => return self.link.leave_host(),
            }
        };
        let Ok(mut words) = Words::of(answered.value.clone()) else { return };
        let Ok(next) = self.note_next(name, &mut words, &answered) else { return };
        let sent = answered.sent;
        let mut states = words.rest();
        for (hold, state) in holders.iter().zip(states.by_ref()) {
            match read_state(state) {
                RollState::Present => hold.confirm(sent),
                RollState::Gone(0) => self.lose(&hold.id, NotHeld::Lost(Loss::Vanished)),
                RollState::Gone(code) => self.lose(&hold.id, ending(code)),
                RollState::Granted => {}
            }
        }
        for ((id, ..), state) in waiters.iter().zip(states) {
            match read_state(state) {
                RollState::Present => {}
                RollState::Granted => self.tell(id, News::LookAgain),
                RollState::Gone(code) => self.tell(id, News::Gone(code)),
            }
        }
        if next.is_watch_needed {
            self.watch_holders(name).await;
        }
    }

    /// How long to wait for a heartbeat's answer before looking whether somebody is there to bring it.
    fn patience_with_host(&self) -> Duration {
        let interval = Duration::from_micros(self.interval_micros.load(Ordering::SeqCst));
        (interval * 2).clamp(SHORTEST_PATIENCE, LONGEST_PATIENCE)
    }

    // Deadlines

    /// Something will be due under `name` at that time.
    pub(super) fn note_deadline(&self, name: &Name, deadline: Option<Instant>) {
        let mut table = self.table.lock();
        let Some(interest) = table.names.get_mut(&name.name) else { return };
        if interest.next_sweep != deadline {
            let is_sooner = deadline.is_some_and(|new| interest.next_sweep.is_none_or(|known| new < known));
            interest.next_sweep = deadline;
            drop(table);
            if is_sooner {
                self.sweeps_changed.notify_one();
            }
        }
    }

    async fn sweep_when_due(self: Arc<Self>) {
        loop {
            let next = self.table.lock().names.values().filter_map(|interest| interest.next_sweep).min();
            match next {
                None => self.sweeps_changed.notified().await,
                Some(next) => tokio::select! {
                    () = self.sweeps_changed.notified() => {}
                    () = sleep_until(next.into()) => {}
                },
            }
            for name in self.names_due() {
                let fleet = Arc::clone(&self);
                tokio::spawn(async move { fleet.sweep(&name).await });
            }
        }
    }

    fn names_due(&self) -> Vec<Arc<Name>> {
        let now = Instant::now();
        let mut table = self.table.lock();
        let due = table.names.values_mut().filter(|interest| interest.next_sweep.is_some_and(|at| at <= now));
        due.map(|interest| {
            interest.next_sweep = None;
            Arc::clone(&interest.name)
        })
        .collect()
    }

    /// Has the server end what is due and serve the line.
    pub(super) async fn sweep(self: &Arc<Self>, name: &Arc<Name>) {
        if let Ok(Next { is_watch_needed: true, .. }) = self.wake_up_nexts(name).await {
            self.watch_holders(name).await;
        }
    }

    async fn wake_up_nexts(&self, name: &Name) -> Result<Next, HomeError> {
        let answered = self.link.run_once(&lua::WAKE_UP_NEXTS, &name.keys, |_| {}).await?;
        self.note_next(name, &mut Words::of(answered.value.clone())?, &answered)
    }

    /// Reads the server's time, its next deadline, and whether holders have to be watched, as several scripts tell them.
    fn note_next(&self, name: &Name, words: &mut Words, answered: &Answered) -> Result<Next, HomeError> {
        let clock = ServerClock::new(words.some_seconds()?, answered);
        let deadline = words.seconds()?.and_then(|then| clock.latest(then));
        self.note_clock(clock);
        self.note_deadline(name, deadline);
        Ok(Next { deadline, is_watch_needed: words.number::<u8>()? == 1 })
    }

    /// Some hold slots whose releases tell nobody. So the set of holders is watched, once, for any change; and what changed
    /// before it was watched is not missed: it is swept right after.
    pub(super) async fn watch_holders(&self, name: &Arc<Name>) {
        let is_worth_it = {
            let mut table = self.table.lock();
            let interest = table.names.get_mut(&name.name);
            interest.is_some_and(|interest| {
                interest.waiting > 0 && !std::mem::replace(&mut interest.watches_holders, true)
            })
        };
        if !is_worth_it {
            return;
        }
        let is_watched = self.link.track(&[name.keys.main().to_owned()]).await.is_ok();
        let is_still_needed = self.wake_up_nexts(name).await.is_ok_and(|next| next.is_watch_needed);
        if let Some(interest) = self.table.lock().names.get_mut(&name.name) {
            interest.watches_holders &= is_watched && is_still_needed;
        }
    }

    async fn end_leases(self: Arc<Self>) {
        loop {
            let next = self.table.lock().leases.first().map(|(end, _)| *end);
            match next {
                None => self.leases_changed.notified().await,
                Some(next) => tokio::select! {
                    () = self.leases_changed.notified() => {}
                    () = sleep_until(next.into()) => {}
                },
            }
            self.end_due_leases();
        }
    }

    fn end_due_leases(self: &Arc<Self>) {
        let now = Instant::now();
        loop {
            let due = {
                let mut table = self.table.lock();
                match table.leases.first() {
                    Some((end, _)) if *end <= now => table.leases.pop_first(),
                    _ => None,
                }
            };
            let Some((_, id)) = due else { return };
            let name = self.table.lock().acquisitions.get(&id).map(|found| Arc::clone(&found.name));
            self.lose(&id, NotHeld::Lost(Loss::Expired));
            if let Some(name) = name {
                // The server counts from a little later: it will say when.
                let fleet = Arc::clone(self);
                tokio::spawn(async move { fleet.sweep_for_expired(&name).await });
            }
        }
    }

    /// Sweeps until what has expired here has expired there, even if nobody here waits under the name.
    async fn sweep_for_expired(self: &Arc<Self>, name: &Arc<Name>) {
        if let Ok(Next { deadline: Some(soon), .. }) = self.wake_up_nexts(name).await
            && soon < Instant::now() + Duration::from_secs(1)
        {
            sleep_until(soon.into()).await;
            self.sweep(name).await;
        }
    }
}

impl Table {
    fn interest(&mut self, name: &Arc<Name>) -> &mut Interest {
        self.names.entry(Arc::clone(&name.name)).or_insert_with(|| Interest {
            name: Arc::clone(name),
            waiting: 0,
            leased: 0,
            next_sweep: None,
            watches_holders: false,
        })
    }

    fn remove(&mut self, id: &str) {
        let Some(Acquisition { name, state }) = self.acquisitions.remove(id) else { return };
        let Some(interest) = self.names.get_mut(&name.name) else { return };
        match state {
            State::Waiting { .. } => interest.waiting = interest.waiting.saturating_sub(1),
            State::Holding(hold) => {
                if let Some(end) = hold.ends_at() {
                    self.leases.remove(&(end, Arc::clone(&hold.id)));
                    interest.leased = interest.leased.saturating_sub(1);
                }
            }
        }
        if interest.waiting == 0 && interest.leased == 0 {
            self.names.remove(&name.name);
        }
    }
}

/// What a script says comes next under a name.
struct Next {
    deadline: Option<Instant>,
    /// Some hold slots whose releases tell nobody.
    is_watch_needed: bool,
}

enum RollState {
    Present,
    Granted,
    Gone(i64),
}

fn read_state(state: Value) -> RollState {
    let Ok(mut words) = Words::of(state) else { return RollState::Present };
    match words.text().as_deref() {
        Ok("gone") => RollState::Gone(words.number().unwrap_or(0)),
        _ => RollState::Granted,
    }
}

struct LooseEnd(Arc<Fleet>);

impl Drop for LooseEnd {
    fn drop(&mut self) {
        if self.0.loose_ends.fetch_sub(1, Ordering::SeqCst) == 1 {
            let _turn = self.0.tied_up.0.lock();
            self.0.tied_up.1.notify_all();
        }
    }
}

impl Anchor {
    pub(super) fn fleet(&self) -> &Arc<Fleet> {
        &self.0
    }
}

impl Drop for Anchor {
    fn drop(&mut self) {
        let fleet = &self.0;
        let is_own_thread = std::thread::current().id() == fleet.thread;
        if fleet.loose_ends.load(Ordering::SeqCst) > 0 && !is_own_thread {
            fleet.wait_for_loose_ends();
        }
        fleet.stop.cancel();
    }
}

impl Fleet {
    fn wait_for_loose_ends(&self) {
        let has_waited = Cell::new(false);
        let wait = || {
            let mut turn = self.tied_up.0.lock();
            let patience = Instant::now() + LAST_WAIT;
            while self.loose_ends.load(Ordering::SeqCst) > 0 {
                if self.tied_up.1.wait_until(&mut turn, patience).timed_out() {
                    break;
                }
            }
            has_waited.set(true);
        };
        let is_in_task = tokio::task::try_id().is_some();
        if is_in_task && Handle::try_current().is_ok_and(|here| is_workplace(&here)) {
            // This may be the very thread that has to do it: it leaves its work to another. In a `LocalSet` that is not
            // allowed, and not needed.
            crate::foreign::call(|| tokio::task::block_in_place(wait));
        }
        if !has_waited.get() {
            wait();
        }
    }
}

/// True if connections can live in that runtime. One with a single thread is too easily kept from it.
fn is_workplace(runtime: &Handle) -> bool {
    runtime.runtime_flavor() == RuntimeFlavor::MultiThread
}

pub(super) fn gone() -> HomeError {
    HomeError::new(HomeErrorKind::Other, "the connection to Redis was shut down meanwhile")
}
