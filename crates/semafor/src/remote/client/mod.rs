//! What this process holds and waits for at one home: every acquisition in one table, each in one state.
//!
//! Plain data, as the core is: no I/O, no clock, no tasks. A driver passes in what users want and what the server says, takes
//! out the calls to send ([`poll_transmit`](Client::poll_transmit)) and what to do here ([`poll_event`](Client::poll_event)),
//! and calls [`handle_timeout`](Client::handle_timeout) at [`poll_timeout`](Client::poll_timeout). A call that was taken out
//! comes back exactly once, with its reply or its failure.
//!
//! ```text
//!   acquire ─► Asking ─► Waiting ─► Held ─► Leaving ─► gone
//!                │ ▲        │         │        ▲
//!                │ └────────┘         └ detach │      (a waiter that the server forgot asks again, for its old place)
//!                └─────────────────────────────┘      (cancelled, timed out, failed)
//! ```
//!
//! Invariants:
//!
//! 1. **A lease is believed for a time that counts from when its request was sent**, so a holder is told of a loss before
//!    another client can have its slot (`lease_time.rs`).
//! 2. **Whatever may have been granted is given back.** An acquisition that the server may know leaves the table only when the
//!    server has confirmed its end, or when it was silent for so long that it must have ended it by itself.
//! 3. **A waiter that the server forgot returns to its old place** in line.
//! 4. **Never twice.** A call is repeated only after its failure, under the same key, and says that it is a repetition.
//! 5. **A waiting acquisition costs its entry**: no call is on its way for it, and no task waits for it.
//! 6. **Users are told outside of locks.** Wakers and signals come out as events.

mod acquiring;
mod acquisition;
mod by_id;
mod connection;
mod heartbeat;
mod holding;
mod lease_time;
mod leaving;
mod name;
mod names;
mod operation;
mod timetable;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use semafor_core::{Loss, NotHeld};
use tokio_util::sync::CancellationToken;

pub use acquisition::Kept;
pub use holding::safe_for;
pub use operation::OperationError;

use super::Wait;
use super::call::{Call, Command, Failure, Key, Push, Reply};
use super::clock::Instant;
use super::target::Target;
use crate::error::HomeError;
use acquisition::{Acquisition, Held, State};
use heartbeat::Heartbeats;
use lease_time::Source;
use name::Name;
use operation::{Operation, What};
use timetable::Timetable;

/// Ids in one call; more would keep the server from other clients for too long.
pub const BATCH: usize = 500;

/// How a home is dealt with.
#[derive(Debug)]
pub struct Settings {
    pub liveness: Liveness,
    pub retry: Retry,
    /// How long an answer may take, all in all.
    pub answer_time: Duration,
    /// What to tell users if the server does not answer.
    pub silent: HomeError,
}

/// How the server knows that this process lives.
#[derive(Debug)]
pub enum Liveness {
    /// By heartbeats. It never ends anything here by itself, and this client watches all deadlines.
    Heartbeats,
    /// By the connection. It watches deadlines itself; this client gives up so much later.
    Connection { answer_time: Duration },
}

/// When a failed call is repeated.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    /// How often to try, all in all.
    pub attempts: u32,
    /// The pause before the first retry, in seconds; each further one is twice as long.
    pub multiplier: f64,
    pub shortest: Duration,
    pub longest: Duration,
}

impl Retry {
    /// The pause after so many failed attempts.
    pub fn pause_after(&self, attempts: u32) -> Duration {
        let exponent = i32::try_from(attempts.saturating_sub(1)).unwrap_or(i32::MAX);
        let pause = Duration::try_from_secs_f64(self.multiplier * 2f64.powi(exponent));
        pause.unwrap_or(Duration::MAX).clamp(self.shortest.min(self.longest), self.longest)
    }
}

/// How a server tells news.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hearing {
    /// It tells what our own clients do.
    pub messages: bool,
    /// It tells what clients of other libraries do.
    pub tracking: bool,
}

/// What the driver has to do here, without any lock.
#[derive(Debug)]
pub enum Event {
    Wake(Waker),
    /// Drop it: its task is polled with another one.
    Replaced(Waker),
    Lost {
        signal: CancellationToken,
        id: Arc<str>,
        why: NotHeld,
    },
    /// A user of this process has ended it by its id.
    Ended(CancellationToken),
    /// Drop it: the permit that kept it is over.
    Drop(Kept),
}

/// What a user who has acquired gets.
#[derive(Clone, Debug)]
pub struct Acquired {
    pub id: Arc<str>,
    pub slot: u32,
    pub token: u64,
    pub waited: Duration,
    pub lost: CancellationToken,
}

/// What has to be there for what is pending: see [`Client::need`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Need {
    /// Only a server that runs is of interest.
    Nothing,
    /// A successor of a server that died: it may know what is asked for.
    Successor,
    Server,
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Due {
    Acquisition(Key),
    Operation(u64),
    Name(Arc<str>),
    Heartbeat,
    /// The waiters have rested from their roll call.
    RollRest,
    Connect,
}

#[derive(Debug)]
pub struct Client {
    settings: Settings,
    last_number: u64,
    /// Boxed, so that a table that grows moves no more than it has to.
    acquisitions: HashMap<Key, Box<Acquisition>>,
    /// Of those that are held, by the id that users know.
    by_id: HashMap<Arc<str>, Key>,
    detached: HashSet<Key>,
    operations: HashMap<u64, Operation>,
    names: HashMap<Arc<str>, Name>,
    timetable: Timetable<Due>,
    heartbeats: Heartbeats,
    outbox: VecDeque<Call>,
    events: VecDeque<Event>,
    is_connected: bool,
    was_connected: bool,
    is_connecting: bool,
    reconnect_pause: Duration,
    /// Calls whose connection ended before their answer came.
    unanswered: BTreeMap<u64, Call>,
    /// When the server last answered anything.
    heard_at: Option<Instant>,
    /// Acquisitions that leave, and operations that are not done.
    loose_ends: usize,
    /// Counts what has been given back, so that it can be seen to go on.
    progress: u64,
}

impl Client {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            last_number: 0,
            acquisitions: HashMap::new(),
            by_id: HashMap::new(),
            detached: HashSet::new(),
            operations: HashMap::new(),
            names: HashMap::new(),
            timetable: Timetable::default(),
            heartbeats: Heartbeats::default(),
            outbox: VecDeque::new(),
            events: VecDeque::new(),
            is_connected: false,
            was_connected: false,
            is_connecting: false,
            reconnect_pause: connection::FIRST_PAUSE,
            unanswered: BTreeMap::new(),
            heard_at: None,
            loose_ends: 0,
            progress: 0,
        }
    }

    /// The next call to send. The driver that takes it brings it back, with [`handle_reply`](Self::handle_reply) or
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

    /// Brings a call up to date. False if it is not wanted any more.
    fn prepare(&mut self, call: &mut Call, now: Instant) -> bool {
        match &mut call.ask {
            Command::Acquire { place, wait_left, request } => {
                let Some(acquisition) = self.acquisitions.get_mut(&Key(call.number)) else { return false };
                if !matches!(acquisition.state, State::Asking) {
                    return false;
                }
                acquisition.is_asked = true;
                acquisition.is_sent = self.is_connected;
                call.again = acquisition.may_be_known;
                *place = acquisition.place;
                let waited = now.saturating_duration_since(acquisition.started);
                *wait_left = match request.wait {
                    Wait::For(limit) => Some(limit.saturating_sub(waited)),
                    Wait::No | Wait::Unlimited => None,
                };
                true
            }
            Command::Confirm { key } => self.is_in_line(*key),
            Command::Renew { ttl, .. } => {
                let Some(operation) = self.operations.get(&call.number) else { return true };
                call.again = operation.again;
                // Before the server can carry it out.
                if let (Some(ttl), What::Renew { key: Some(key), .. }) = (*ttl, &operation.what) {
                    let (key, number) = (*key, call.number);
                    self.change_lease(key, |held, _| held.time.note_renewal(number, ttl, now));
                }
                true
            }
            Command::Release { .. } | Command::EndById { .. } => {
                call.again = self.operations.get(&call.number).is_some_and(|operation| operation.again);
                true
            }
            _ => true,
        }
    }

    /// True if something is left to be given back, or to be done for a user that waits.
    pub fn has_loose_ends(&self) -> bool {
        self.loose_ends > 0
    }

    pub fn progress(&self) -> u64 {
        self.progress
    }

    pub fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    // What the server says

    /// The answer to a call.
    pub fn handle_reply(&mut self, call: Call, reply: Reply, now: Instant) {
        self.heard_at = Some(now);
        let Call { number, target, ask, .. } = call;
        match ask {
            Command::Acquire { request, .. } => {
                if matches!(reply, Reply::Granted(_) | Reply::Queued { .. }) {
                    self.give_back_orphan(Key(number), &target, request, now);
                }
                self.acquire_answered(Key(number), reply, now);
            }
            Command::Confirm { key } => self.confirm_answered(key, reply, now),
            Command::Listen { .. } => {
                if let Reply::Listening { granted } = reply {
                    granted.into_iter().for_each(|key| self.confirm(key));
                }
            }
            Command::Release { .. } | Command::EndById { .. } | Command::Renew { .. } => {
                self.operation_answered(number, reply, now);
            }
            Command::End { those } => {
                let ended = if let Reply::Ended(ended) = reply { ended } else { Vec::new() };
                self.end_answered(&target.name, &those, &ended, now);
            }
            Command::Heartbeat { holders, waiters, part } => {
                if let Reply::Heartbeat { next, holders: of_holders, waiters: of_waiters } = reply {
                    self.note_next(&target, &next);
                    self.heartbeat_answered(
                        &next.clock,
                        (&holders, &of_holders),
                        (&waiters, &of_waiters),
                        now,
                    );
                }
                self.roll_goes_on(part, now);
            }
            Command::Sweep => {
                let next = if let Reply::Swept(next) = reply { Some(next) } else { None };
                self.swept(&target, next.as_ref(), now);
            }
            Command::Watch => {
                if let Reply::Watched { is_watched, next } = reply {
                    self.watched(&target, is_watched, next.as_ref());
                }
            }
            Command::Connect => self.is_connecting = false,
            Command::Detach { .. } | Command::Occupy { .. } | Command::Back { .. } => {}
        }
    }

    /// A call that brought no answer.
    pub fn handle_failure(&mut self, call: Call, failure: &Failure, now: Instant) {
        let Call { number, target, ask, .. } = call;
        match ask {
            Command::Acquire { request, .. } => {
                if failure.was_sent {
                    self.give_back_orphan(Key(number), &target, request, now);
                }
                self.acquire_failed(Key(number), failure, now);
            }
            Command::Confirm { key } => self.confirm_failed(key, failure, now),
            Command::Release { .. } | Command::EndById { .. } | Command::Renew { .. } => {
                self.operation_failed(number, failure, now);
            }
            Command::End { those } => self.end_failed(&target.name, those, failure, now),
            // Holders give up in time by themselves; a new connection starts with a heartbeat.
            Command::Heartbeat { part, .. } => self.roll_goes_on(part, now),
            Command::Sweep => self.swept(&target, None, now),
            Command::Watch => self.watched(&target, false, None),
            Command::Connect => {
                self.is_connecting = false;
                self.connect_later(now);
            }
            // A new connection starts with this call, too.
            Command::Listen { .. } => {}
            Command::Detach { .. } | Command::Occupy { .. } | Command::Back { .. } => {}
        }
    }

    /// What the server tells without being asked.
    pub fn handle_push(&mut self, push: Push, now: Instant) {
        match push {
            Push::Granted { key, grant } => {
                let state = self.acquisitions.get(&key).map(|acquisition| &acquisition.state);
                if matches!(state, Some(State::Asking | State::Waiting(_))) && !self.grant(key, grant, now) {
                    self.confirm(key);
                }
            }
            Push::MayBeGranted { key } => self.confirm(key),
            Push::WaiterGone { key, how } => self.waiter_gone(key, how, now),
            Push::Lost { key, why, is_kept } => self.lose(key, why, is_kept),
            Push::Renewed { key, end: Some((clock, ends)) } => {
                self.learn_end(key, ends, &clock, Source::Message, now);
            }
            Push::Renewed { key, end: None } => {
                let held = self.acquisitions.get(&key).filter(|acquisition| acquisition.held().is_some());
                if let Some(name) = held.map(|acquisition| Arc::clone(&acquisition.target.name)) {
                    self.check_leases(&name, &[key]);
                }
            }
            Push::AllForgotten => self.beat(true, now),
            Push::WatchNeeded { key } => {
                if let Some(acquisition) = self.acquisitions.get(&key) {
                    let name = Arc::clone(&acquisition.target.name);
                    self.watch(&name);
                }
            }
            Push::HoldersChanged { name } => {
                if let Some(known) = self.names.get_mut(&name)
                    && std::mem::take(&mut known.is_watched)
                {
                    self.watch(&name);
                }
            }
        }
    }

    // Time

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        let mut checks: BTreeMap<Arc<str>, Vec<Key>> = BTreeMap::new();
        while let Some(due) = self.timetable.take_due(now) {
            match due {
                Due::Acquisition(key) => self.acquisition_due(key, &mut checks, now),
                Due::Operation(number) => self.operation_due(number, now),
                Due::Name(name) => self.name_due(&name, now),
                Due::Heartbeat => self.beat(false, now),
                Due::RollRest => self.roll_is_over(now),
                Due::Connect => self.connect(),
            }
        }
        for (name, keys) in checks {
            self.check_leases(&name, &keys);
        }
    }

    fn acquisition_due(&mut self, key: Key, checks: &mut BTreeMap<Arc<str>, Vec<Key>>, now: Instant) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        let name = Arc::clone(&acquisition.target.name);
        match &mut acquisition.state {
            State::Asking | State::Waiting(_) => {
                let is_retry = acquisition.retry_at.is_some_and(|at| at <= now);
                let is_in_line = acquisition.is_in_line();
                let is_over = acquisition.deadline.is_some_and(|deadline| deadline <= now);
                if is_over {
                    return self.time_out(key, now);
                }
                if is_retry && is_in_line {
                    self.confirm(key);
                } else if is_retry {
                    self.ask(key);
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
            State::Leaving(leaving) if leaving.silent_at.is_some_and(|at| at <= now) => {
                self.note_silence(key, now);
            }
            State::Leaving(_) | State::Over => {}
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

    pub(super) fn send(&mut self, target: Arc<Target>, ask: Command) {
        let number = self.next_number();
        self.outbox.push_back(Call { number, target, ask, again: false });
    }

    fn wake(&mut self, waker: Option<Waker>) {
        self.events.extend(waker.map(Event::Wake));
    }

    /// The one place where the state of an acquisition changes.
    fn set_state(&mut self, key: Key, state: State) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        let name = Arc::clone(&acquisition.target.name);
        let before = std::mem::replace(&mut acquisition.state, state);
        let is_leaving = matches!(acquisition.state, State::Leaving(_));
        let is_waiting = acquisition.is_in_line();
        if let Some(known) = self.names.get_mut(&name) {
            known.waiting += usize::from(is_waiting);
        }
        self.loose_ends += usize::from(is_leaving);
        self.forget_state(key, &name, before);
        self.tidy(&name);
    }

    /// Takes a state out of all counts.
    fn forget_state(&mut self, key: Key, name: &Arc<str>, state: State) {
        match state {
            State::Waiting(_) => {
                if let Some(known) = self.names.get_mut(name) {
                    known.waiting = known.waiting.saturating_sub(1);
                }
            }
            State::Held(held) => {
                self.by_id.remove(&held.id);
                self.detached.remove(&key);
                if let Some(known) = self.names.get_mut(name).filter(|_| held.is_leased) {
                    known.leased = known.leased.saturating_sub(1);
                }
                if let Some(kept) = held.detached.and_then(|detached| detached.kept) {
                    self.events.push_back(Event::Drop(kept));
                }
            }
            State::Leaving(_) => {
                self.loose_ends = self.loose_ends.saturating_sub(1);
                self.progress += 1;
            }
            State::Asking | State::Over => {}
        }
    }

    fn remove(&mut self, key: Key) {
        let Some(mut acquisition) = self.acquisitions.remove(&key) else { return };
        let name = Arc::clone(&acquisition.target.name);
        self.timetable.set(Due::Acquisition(key), None);
        if let Some(known) = self.names.get_mut(&name) {
            known.acquisitions = known.acquisitions.saturating_sub(1);
        }
        self.forget_state(key, &name, acquisition.state);
        self.wake(acquisition.waker.take());
        self.tidy(&name);
    }

    /// Notes when something has to be done about it next.
    fn reschedule(&mut self, key: Key) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        let due = if acquisition.failure.is_some() && !matches!(acquisition.state, State::Held(_)) {
            None
        } else {
            acquisition.next_due(&self.settings.liveness)
        };
        let name = Arc::clone(&acquisition.target.name);
        if let Some(held) = acquisition.held_mut() {
            let is_leased = held.over.is_none() && held.time.ends_at().is_some();
            let before = std::mem::replace(&mut held.is_leased, is_leased);
            if let Some(known) = self.names.get_mut(&name) {
                known.leased = known.leased + usize::from(is_leased) - usize::from(before);
            }
        }
        self.timetable.set(Due::Acquisition(key), due);
    }

    /// True if nothing is held, waited for, or to be given back. (A heartbeat that finds nothing is the last one.)
    pub fn is_empty(&self) -> bool {
        self.acquisitions.is_empty()
            && self.operations.is_empty()
            && self.names.is_empty()
            && self.by_id.is_empty()
            && self.detached.is_empty()
            && self.loose_ends == 0
            && !self
                .timetable
                .all()
                .any(|due| matches!(due, Due::Acquisition(_) | Due::Operation(_) | Due::Name(_)))
    }
}
