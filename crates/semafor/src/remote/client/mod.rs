//! Everything that this process holds and waits for at one home: each acquisition is an entry of one table, in one
//! state.
//!
//! Like the core, it does no I/O, reads no clock and starts no tasks. A driver passes in the users' requests and the
//! server's messages, takes out the calls to send ([`poll_transmit`](Client::poll_transmit)) and the events to carry
//! out ([`poll_event`](Client::poll_event)), and calls [`handle_timeout`](Client::handle_timeout) at
//! [`poll_timeout`](Client::poll_timeout). The driver returns each call exactly once, with its reply or its failure.
//!
//! ```text
//!   acquire ─► Requesting ─► Waiting ─► Held ─► Leaving ─► removed
//!                 │ ▲           │         │        ▲
//!                 │ └───────────┘         └ detach │   (a waiter that the server forgot requests its old place again)
//!                 └────────────────────────────────┘   (cancelled, timed out, failed)
//!
//!   Requesting, Waiting, Leaving ─► Failed ─► removed  (when the user has fetched the error)
//! ```
//!
//! Invariants:
//!
//! 1. **A lease is trusted for a time that counts from when its request was sent**, so a holder learns of a loss
//!    before another client can get its slot (`lease_time.rs`).
//! 2. **Everything that may have been granted is released.** An acquisition that the server may know leaves the
//!    table only when the server has confirmed its end, or was silent for so long that it must have ended it by
//!    itself.
//! 3. **A waiter that the server forgot returns to its old place** in line.
//! 4. **No call is carried out twice.** A call is repeated only after its failure, under the same key, and is marked
//!    as a repetition.
//! 5. **A waiting acquisition costs only its entry**: no call is pending for it, and no task waits for it.
//! 6. **No user code runs under a lock.** Wakers and signals come out as events.

mod acquiring;
mod acquisition;

mod connection;
mod heartbeat;
mod holding;
mod lease_time;
mod leaving;
mod name_entry;

mod operation;
mod operations;
mod sweeps;
mod timetable;

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use semafor_core::{Loss, NotHeld};
use tokio_util::sync::CancellationToken;

pub use acquisition::KeepAlive;
pub use holding::safe_for;
pub use operation::OperationError;

use super::Wait;
use super::call::{Call, Command, Failure, Key, Push, Reply};
use super::clock::Instant;
use super::target::Target;
use crate::error::HomeError;
use acquisition::{Acquisition, Held, State};
use heartbeat::Heartbeats;
use lease_time::EndSource;
use name_entry::NameEntry;
use operation::{Operation, OperationKind};
use timetable::Timetable;

/// Maps whose order depends on their history alone, so that a simulation repeats exactly. All keys are of this process.
pub(super) type HashMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<DefaultHasher>>;
type HashSet<K> = std::collections::HashSet<K, BuildHasherDefault<DefaultHasher>>;

/// Ids in one call; more would block the server for other clients for too long.
pub const BATCH: usize = 500;

/// How the client works with a home.
#[derive(Debug)]
pub struct Settings {
    pub liveness: Liveness,
    pub retry: Retry,
    /// How long a reply may take in total, with all retries.
    pub reply_timeout: Duration,
    /// The error for users if the server does not reply.
    pub no_reply_error: HomeError,
}

/// How the server knows that this process is alive.
#[derive(Debug)]
pub enum Liveness {
    /// By heartbeats. The server sends no timeouts, so this client watches all deadlines.
    Heartbeats,
    /// By the connection. The server watches the deadlines; this client gives up only `reply_timeout` after them.
    Connection { reply_timeout: Duration },
}

/// When a failed call is repeated.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    /// Attempts in total.
    pub attempts: u32,
    /// The pause before the first retry, in seconds; each further one is twice as long.
    pub multiplier: f64,
    pub shortest: Duration,
    pub longest: Duration,
}

impl Retry {
    /// The pause after this many failed attempts.
    pub fn pause_after(&self, attempts: u32) -> Duration {
        let exponent = i32::try_from(attempts.saturating_sub(1)).unwrap_or(i32::MAX);
        let pause = Duration::try_from_secs_f64(self.multiplier * 2f64.powi(exponent));
        pause.unwrap_or(Duration::MAX).clamp(self.shortest.min(self.longest), self.longest)
    }
}

/// Which messages the server pushes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServerPushes {
    /// Messages of our own scripts, about what clients of this library do.
    pub messages: bool,
    /// Changes of tracked keys, which show what clients of other libraries do.
    pub tracking: bool,
}

/// Something that the driver has to carry out, without holding a lock.
#[derive(Debug)]
pub enum Event {
    Wake(Waker),
    /// To be dropped: its task has registered another waker.
    DropWaker(Waker),
    Lost {
        signal: CancellationToken,
        id: Arc<str>,
        why: NotHeld,
    },
    /// A user of this process has released or evicted the grant by its id.
    EndedById(CancellationToken),
    /// To be dropped: the permit that needed it has ended.
    DropKeepAlive(KeepAlive),
}

/// A grant, for the user that acquired it.
#[derive(Clone, Debug)]
pub struct Acquired {
    pub id: Arc<str>,
    pub slot: u32,
    pub token: u64,
    pub waited: Duration,
    pub lost: CancellationToken,
}

/// When to start a server if none is running: see [`Client::server_start`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ServerStart {
    /// The pending work needs only a server that is already running.
    Never,
    /// Only if a server died here: its successor may know the grant in question.
    IfOneDied,
    Always,
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Due {
    Acquisition(Key),
    Operation(u64),
    Name(Arc<str>),
    Heartbeat,
    /// The pause after the waiters' heartbeat is over.
    WaiterHeartbeatPause,
    Connect,
}

#[derive(Debug)]
pub struct Client {
    settings: Settings,
    last_number: u64,
    /// Boxed, so that a growing table moves little.
    acquisitions: HashMap<Key, Box<Acquisition>>,
    /// The acquisitions that are held, by the id that users know.
    by_id: HashMap<Arc<str>, Key>,
    detached: HashSet<Key>,
    operations: HashMap<u64, Operation>,
    names: HashMap<Arc<str>, NameEntry>,
    timetable: Timetable<Due>,
    heartbeats: Heartbeats,
    outbox: VecDeque<Call>,
    events: VecDeque<Event>,
    is_connected: bool,
    was_connected: bool,
    is_connecting: bool,
    reconnect_pause: Duration,
    /// Calls whose connection ended before their reply came.
    unanswered: BTreeMap<u64, Call>,
    /// When the server last replied to any call.
    last_reply_at: Option<Instant>,
    /// The number of acquisitions in state `Leaving`, and of operations that are not done yet.
    unfinished: usize,
    /// Counts finished releases and operations, so that a caller can see progress.
    progress: u64,
}

impl Client {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            last_number: 0,
            acquisitions: HashMap::default(),
            by_id: HashMap::default(),
            detached: HashSet::default(),
            operations: HashMap::default(),
            names: HashMap::default(),
            timetable: Timetable::default(),
            heartbeats: Heartbeats::default(),
            outbox: VecDeque::new(),
            events: VecDeque::new(),
            is_connected: false,
            was_connected: false,
            is_connecting: false,
            reconnect_pause: connection::FIRST_PAUSE,
            unanswered: BTreeMap::new(),
            last_reply_at: None,
            unfinished: 0,
            progress: 0,
        }
    }

    /// The next call to send. The driver that takes it returns it with [`handle_reply`](Self::handle_reply) or
    /// [`handle_failure`](Self::handle_failure).
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Call> {
        if !self.is_connected && matches!(self.settings.liveness, Liveness::Connection { .. }) {
            return None;
        }
        while let Some(mut call) = self.outbox.pop_front() {
            if self.prepare(&mut call, now) {
                return Some(call);
            }
        }
        None
    }

    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timetable.next()
    }

    /// Updates a call before it is sent. False if the call is not needed any more.
    fn prepare(&mut self, call: &mut Call, now: Instant) -> bool {
        match &mut call.command {
            Command::Acquire { place, wait_left, request } => {
                let Some(acquisition) = self.acquisitions.get_mut(&Key(call.number)) else { return false };
                if !matches!(acquisition.state, State::Requesting) {
                    return false;
                }
                acquisition.is_request_pending = true;
                acquisition.may_have_arrived = self.is_connected;
                call.is_repeat = acquisition.may_be_known;
                *place = acquisition.place;
                let waited = now.saturating_duration_since(acquisition.started);
                *wait_left = match request.wait {
                    Wait::For(limit) => Some(limit.saturating_sub(waited)),
                    Wait::No | Wait::Unlimited => None,
                };
                true
            }
            Command::CheckWaiter { key } => self.is_in_line(*key),
            Command::Renew { ttl, .. } => {
                let Some(operation) = self.operations.get(&call.number) else { return true };
                call.is_repeat = operation.is_repeat;
                // Before the server can carry it out.
                if let (Some(ttl), OperationKind::Renew { key: Some(key), .. }) = (*ttl, &operation.kind) {
                    let (key, number) = (*key, call.number);
                    self.change_lease(key, |held, _| held.time.note_renewal(number, ttl, now));
                }
                true
            }
            Command::Release { .. } | Command::EndById { .. } => {
                call.is_repeat =
                    self.operations.get(&call.number).is_some_and(|operation| operation.is_repeat);
                true
            }
            _ => true,
        }
    }

    /// True if slots have still to be released, or an operation of a user is not done yet.
    pub fn has_unfinished_work(&self) -> bool {
        self.unfinished > 0
    }

    pub fn progress(&self) -> u64 {
        self.progress
    }

    pub fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    // Messages of the server

    /// The reply to a call.
    pub fn handle_reply(&mut self, call: Call, reply: Reply, now: Instant) {
        self.last_reply_at = Some(now);
        let Call { number, target, command, .. } = call;
        match command {
            Command::Acquire { request, .. } => {
                if matches!(reply, Reply::Granted(_) | Reply::Queued { .. }) {
                    self.release_orphan(Key(number), &target, request, now);
                }
                self.handle_acquire_reply(Key(number), reply, now);
            }
            Command::CheckWaiter { key } => self.handle_waiter_check_reply(key, reply, now),
            Command::Subscribe { .. } => {
                if let Reply::Subscribed { granted } = reply {
                    granted.into_iter().for_each(|key| self.check_waiter(key));
                }
            }
            Command::Release { .. } | Command::EndById { .. } | Command::Renew { .. } => {
                self.handle_operation_reply(number, reply, now);
            }
            Command::End { leavers } => {
                let ended = if let Reply::Ended(ended) = reply { ended } else { Vec::new() };
                self.handle_end_reply(&target.name, &leavers, &ended, now);
            }
            Command::Heartbeat { holders, waiters, part } => {
                if let Reply::Heartbeat { state, holders: of_holders, waiters: of_waiters } = reply {
                    self.note_name_state(&target, &state);
                    self.handle_heartbeat_reply(
                        &state.clock,
                        (&holders, &of_holders),
                        (&waiters, &of_waiters),
                        now,
                    );
                }
                self.continue_waiter_heartbeat(part, now);
            }
            Command::Sweep => {
                let state = if let Reply::Swept(state) = reply { Some(state) } else { None };
                self.handle_sweep_reply(&target, state.as_ref(), now);
            }
            Command::Watch => {
                if let Reply::Watched { is_watched, state } = reply {
                    self.handle_watch_reply(&target, is_watched, state.as_ref());
                }
            }
            Command::Connect => self.is_connecting = false,
            Command::Detach { .. } | Command::Reclaim { .. } | Command::Reconnected { .. } => {}
        }
    }

    /// A call failed without a reply.
    pub fn handle_failure(&mut self, call: Call, failure: &Failure, now: Instant) {
        let Call { number, target, command, .. } = call;
        match command {
            Command::Acquire { request, .. } => {
                if failure.was_sent {
                    self.release_orphan(Key(number), &target, request, now);
                }
                self.handle_acquire_failure(Key(number), failure, now);
            }
            Command::CheckWaiter { key } => self.handle_waiter_check_failure(key, failure, now),
            Command::Release { .. } | Command::EndById { .. } | Command::Renew { .. } => {
                self.handle_operation_failure(number, failure, now);
            }
            Command::End { leavers } => {
                self.handle_end_failure(&target.name, leavers, failure, now);
            }
            // Holders give up in time by themselves; a new connection starts with a heartbeat.
            Command::Heartbeat { part, .. } => self.continue_waiter_heartbeat(part, now),
            Command::Sweep => self.handle_sweep_reply(&target, None, now),
            Command::Watch => self.handle_watch_reply(&target, false, None),
            Command::Connect => {
                self.is_connecting = false;
                self.connect_later(now);
            }
            // A new connection starts with this call, too.
            Command::Subscribe { .. } => {}
            Command::Detach { .. } | Command::Reclaim { .. } | Command::Reconnected { .. } => {}
        }
    }

    /// A message that the server sends without a call.
    pub fn handle_push(&mut self, push: Push, now: Instant) {
        match push {
            Push::Granted { key, grant } => {
                let state = self.acquisitions.get(&key).map(|acquisition| &acquisition.state);
                if matches!(state, Some(State::Requesting | State::Waiting(_)))
                    && !self.grant(key, grant, now)
                {
                    self.check_waiter(key);
                }
            }
            Push::MayBeGranted { key } => self.check_waiter(key),
            Push::WaiterRemoved { key, why } => self.waiter_removed(key, why, now),
            Push::Lost { key, why, is_kept } => self.lose(key, why, is_kept),
            Push::Renewed { key, end: Some((clock, ends)) } => {
                self.learn_end(key, ends, &clock, EndSource::Message, now);
            }
            Push::Renewed { key, end: None } => {
                let held = self.acquisitions.get(&key).filter(|acquisition| acquisition.held().is_some());
                if let Some(name) = held.map(|acquisition| Arc::clone(&acquisition.target.name)) {
                    self.check_leases(&name, &[key]);
                }
            }
            Push::AllForgotten => self.send_heartbeat(true, now),
            Push::WatchNeeded { key } => {
                if let Some(acquisition) = self.acquisitions.get(&key) {
                    let name = Arc::clone(&acquisition.target.name);
                    self.watch(&name);
                }
            }
            Push::HoldersChanged { name } => {
                if let Some(entry) = self.names.get_mut(&name)
                    && std::mem::take(&mut entry.is_watched)
                {
                    self.watch(&name);
                }
            }
        }
    }

    // Time

    /// Does everything that is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        let mut checks: BTreeMap<Arc<str>, Vec<Key>> = BTreeMap::new();
        while let Some(due) = self.timetable.take_due(now) {
            match due {
                Due::Acquisition(key) => self.handle_acquisition_timeout(key, &mut checks, now),
                Due::Operation(number) => self.handle_operation_timeout(number, now),
                Due::Name(name) => self.handle_name_timeout(&name, now),
                Due::Heartbeat => self.send_heartbeat(false, now),
                Due::WaiterHeartbeatPause => self.end_waiter_heartbeat(now),
                Due::Connect => self.connect(),
            }
        }
        for (name, keys) in checks {
            self.check_leases(&name, &keys);
        }
    }

    fn handle_acquisition_timeout(
        &mut self,
        key: Key,
        checks: &mut BTreeMap<Arc<str>, Vec<Key>>,
        now: Instant,
    ) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        let name = Arc::clone(&acquisition.target.name);
        match &mut acquisition.state {
            State::Requesting | State::Waiting(_) => {
                let is_retry = acquisition.retry_at.is_some_and(|at| at <= now);
                let is_in_line = acquisition.is_in_line();
                let is_over = acquisition.deadline.is_some_and(|deadline| deadline <= now);
                if is_over {
                    return self.time_out(key, now);
                }
                if is_retry && is_in_line {
                    self.check_waiter(key);
                } else if is_retry {
                    self.send_request(key);
                }
                self.reschedule(key);
            }
            State::Held(held) => {
                let heartbeat = acquisition.target.heartbeat;
                if held.time.ends_at().is_some_and(|end| end <= now) {
                    self.lose(key, NotHeld::Lost(Loss::Expired), false);
                    self.sweep_for_expired(&name, now);
                } else if held.time.give_up_at(heartbeat).is_some_and(|give_up| give_up <= now) {
                    self.lose(key, NotHeld::Lost(Loss::OutOfTouch), false);
                } else {
                    if held.time.check_at().is_some_and(|check| check <= now) {
                        held.time.note_check();
                        checks.entry(name).or_default().push(key);
                    }
                    self.reschedule(key);
                }
            }
            State::Leaving(leaving) if leaving.no_reply_at.is_some_and(|at| at <= now) => {
                self.report_no_reply(key, now);
            }
            State::Leaving(_) | State::Failed => {}
        }
    }

    // The table

    fn held(&self, key: Key) -> Option<&Held> {
        self.acquisitions.get(&key)?.held()
    }

    fn held_mut(&mut self, key: Key) -> Option<&mut Held> {
        self.acquisitions.get_mut(&key)?.held_mut()
    }

    fn is_in_line(&self, key: Key) -> bool {
        self.acquisitions.get(&key).is_some_and(|acquisition| acquisition.is_in_line())
    }

    pub(super) fn send(&mut self, target: Arc<Target>, command: Command) {
        let number = self.next_number();
        self.outbox.push_back(Call { number, target, command, is_repeat: false });
    }

    fn wake(&mut self, waker: Option<Waker>) {
        self.events.extend(waker.map(Event::Wake));
    }

    /// The only place that changes the state of an acquisition.
    fn set_state(&mut self, key: Key, state: State) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        let name = Arc::clone(&acquisition.target.name);
        let before = std::mem::replace(&mut acquisition.state, state);
        let is_leaving = matches!(acquisition.state, State::Leaving(_));
        let is_waiting = acquisition.is_in_line();
        if let Some(entry) = self.names.get_mut(&name) {
            entry.waiting += usize::from(is_waiting);
        }
        self.unfinished += usize::from(is_leaving);
        self.uncount_state(key, &name, before);
        self.remove_name_if_unused(&name);
    }

    /// Removes a state from all counts.
    fn uncount_state(&mut self, key: Key, name: &Arc<str>, state: State) {
        match state {
            State::Waiting(_) => {
                if let Some(entry) = self.names.get_mut(name) {
                    entry.waiting = entry.waiting.saturating_sub(1);
                }
            }
            State::Held(held) => {
                self.by_id.remove(&held.id);
                self.detached.remove(&key);
                if let Some(entry) = self.names.get_mut(name).filter(|_| held.is_leased) {
                    entry.leased = entry.leased.saturating_sub(1);
                }
                if let Some(keep_alive) = held.detached.and_then(|detached| detached.keep_alive) {
                    self.events.push_back(Event::DropKeepAlive(keep_alive));
                }
            }
            State::Leaving(_) => {
                self.unfinished = self.unfinished.saturating_sub(1);
                self.progress += 1;
            }
            State::Requesting | State::Failed => {}
        }
    }

    fn remove(&mut self, key: Key) {
        let Some(mut acquisition) = self.acquisitions.remove(&key) else { return };
        let name = Arc::clone(&acquisition.target.name);
        self.timetable.set(Due::Acquisition(key), None);
        if let Some(entry) = self.names.get_mut(&name) {
            entry.acquisitions = entry.acquisitions.saturating_sub(1);
        }
        self.uncount_state(key, &name, acquisition.state);
        self.wake(acquisition.waker.take());
        self.remove_name_if_unused(&name);
    }

    /// Sets the next timeout of the acquisition.
    fn reschedule(&mut self, key: Key) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        let due = if acquisition.failure.is_some() && !matches!(acquisition.state, State::Held(_)) {
            None
        } else {
            acquisition.next_due(&self.settings.liveness)
        };
        let name = Arc::clone(&acquisition.target.name);
        if let Some(held) = acquisition.held_mut() {
            let is_leased = held.not_held.is_none() && held.time.ends_at().is_some();
            let before = std::mem::replace(&mut held.is_leased, is_leased);
            if let Some(entry) = self.names.get_mut(&name) {
                entry.leased = entry.leased + usize::from(is_leased) - usize::from(before);
            }
        }
        self.timetable.set(Due::Acquisition(key), due);
    }

    /// True if nothing is held, waited for, or still to be released. (A pending heartbeat does not count: it would be
    /// the last.)
    pub fn is_empty(&self) -> bool {
        self.acquisitions.is_empty()
            && self.operations.is_empty()
            && self.names.is_empty()
            && self.by_id.is_empty()
            && self.detached.is_empty()
            && self.unfinished == 0
            && !self
                .timetable
                .all()
                .any(|due| matches!(due, Due::Acquisition(_) | Due::Operation(_) | Due::Name(_)))
    }
}
