//! A server that keeps one semaphore, in a few lists: as little as the client has to have.

use std::sync::Arc;
use std::time::Duration;

use semafor::__client::{
    Call, Command, EndReason, Ended, Grant, HolderState, Key, LeaseEnd, NameState, NotInLine, Push,
    PythonClients, Reply, ServerClock, WaiterState,
};
use semafor::{AcquireError, Loss, NotHeld};

use super::{HEARTBEAT, MakeReply};

/// One semaphore. Times are seconds on its own clock.
pub struct Server {
    slots: u32,
    last_token: u64,
    holders: Vec<Holder>,
    line: Vec<Waiting>,
    /// Those that left before their request came.
    unwanted: Vec<Id>,
    pushes: Vec<(usize, Push)>,
}

/// Which process, and which of its acquisitions.
type Id = (usize, Key);

#[derive(Clone)]
struct Holder {
    id: Id,
    slot: u32,
    token: u64,
    dead_at: f64,
    ends: Option<f64>,
}

#[derive(Clone)]
struct Waiting {
    id: Id,
    place: f64,
    ttl: Option<Duration>,
    dead_at: f64,
}

impl Server {
    pub(super) fn new(slots: u32) -> Self {
        Self {
            slots,
            last_token: 0,
            holders: Vec::new(),
            line: Vec::new(),
            unwanted: Vec::new(),
            pushes: Vec::new(),
        }
    }

    /// How many hold a slot.
    pub fn held(&self) -> usize {
        self.holders.len()
    }

    /// True if that acquisition of that process holds a slot.
    pub fn has_slot(&self, id: (usize, Key)) -> bool {
        self.holder(id).is_some()
    }

    /// How many stand in line.
    pub fn waiting(&self) -> usize {
        self.line.len()
    }

    /// The waiters in line, in order.
    pub fn line(&self) -> Vec<(usize, Key)> {
        self.line.iter().map(|waiting| waiting.id).collect()
    }

    /// Loses the line, as a server may that restarts from an old copy.
    pub fn forget_line(&mut self) {
        self.line.clear();
    }

    /// Evicts the holder of that slot.
    pub fn evict(&mut self, slot: u32, now: f64) {
        if let Some(at) = self.holders.iter().position(|holder| holder.slot == slot) {
            let (process, key) = self.holders.remove(at).id;
            let why = NotHeld::Lost(Loss::Evicted);
            self.pushes.push((process, Push::Lost { key, why, is_kept: false }));
            self.serve(now);
        }
    }

    pub(super) fn take_pushes(&mut self) -> Vec<(usize, Push)> {
        std::mem::take(&mut self.pushes)
    }

    pub(super) fn answer(&mut self, process: usize, call: &Call, now: f64) -> MakeReply {
        match &call.command {
            Command::Heartbeat { holders, waiters, .. } => {
                // Late, but alive: a heartbeat counts before the dead are swept.
                for key in holders.iter().map(|it| it.key).chain(waiters.iter().map(|it| it.key)) {
                    self.touch((process, key), now);
                }
                self.sweep(now);
                let holders: Vec<_> =
                    holders.iter().map(|holder| self.state_of_holder((process, holder.key))).collect();
                let waiters: Vec<_> =
                    waiters.iter().map(|waiter| self.state_of_waiter((process, waiter.key))).collect();
                let state = self.state();
                Box::new(move |clock| Reply::Heartbeat { state: state(clock), holders, waiters })
            }
            command => {
                self.sweep(now);
                self.answer_to(process, call, command, now)
            }
        }
    }

    fn answer_to(&mut self, process: usize, call: &Call, command: &Command, now: f64) -> MakeReply {
        match command {
            Command::Acquire { request, place, .. } => {
                let id = (process, Key(call.number));
                let is_try = request.wait.is_try();
                self.acquire(id, request.ttl, is_try, *place, call.is_repeat, now)
            }
            Command::CheckWaiter { key } => {
                let id = (process, *key);
                self.touch(id, now);
                if let Some(holder) = self.holder(id) {
                    return granted(holder, LeaseEnd::At(holder.ends));
                }
                let waits = self.line.iter().any(|waiting| waiting.id == id);
                Box::new(move |_| if waits { Reply::Waiting } else { Reply::NotInLine(NotInLine::Forgotten) })
            }
            Command::Subscribe { waiters } => {
                let is_granted = |key: &Key| self.holder((process, *key)).is_some();
                let granted = waiters.iter().map(|(key, _)| *key).filter(is_granted).collect();
                Box::new(move |_| Reply::Subscribed { granted })
            }
            Command::Release { key } => {
                let outcome = self.end((process, *key), call.is_repeat, now);
                self.ended(vec![outcome])
            }
            Command::End { leavers } => {
                let outcomes =
                    leavers.iter().map(|leaver| self.end((process, leaver.key), true, now)).collect();
                self.ended(outcomes)
            }
            Command::EndById { id, reason } => {
                let found =
                    self.holders.iter().find(|holder| id_of(holder.id) == *id).map(|holder| holder.id);
                let outcome = found.map_or(Err(NotHeld::Unknown), |id| self.end(id, call.is_repeat, now));
                if let Some((owner, key)) = found.filter(|(owner, _)| *owner != process) {
                    let is_evicted = *reason == EndReason::Evicted;
                    let why = if is_evicted { NotHeld::Lost(Loss::Evicted) } else { NotHeld::Released };
                    self.pushes.push((owner, Push::Lost { key, why, is_kept: false }));
                }
                self.ended(vec![outcome])
            }
            Command::Renew { id, ttl } => {
                let holder = self.holders.iter_mut().find(|holder| id_of(holder.id) == *id);
                let Some(holder) = holder else { return Box::new(|_| Reply::NotHeld(NotHeld::Unknown)) };
                holder.ends = ttl.map(|ttl| now + ttl.as_secs_f64());
                holder.dead_at = now + HEARTBEAT.as_secs_f64();
                let ends = holder.ends;
                Box::new(move |clock| Reply::Renewed { clock, ends })
            }
            Command::Sweep => {
                let state = self.state();
                Box::new(move |clock| Reply::Swept(state(clock)))
            }
            Command::Watch => Box::new(|_| Reply::Watched { is_watched: false, state: None }),
            _ => Box::new(|_| Reply::Done),
        }
    }

    fn acquire(
        &mut self,
        id: Id,
        ttl: Option<Duration>,
        is_try: bool,
        place: f64,
        again: bool,
        now: f64,
    ) -> MakeReply {
        if again {
            self.touch(id, now);
        }
        if let Some(holder) = self.holder(id).filter(|_| again) {
            return granted(holder, LeaseEnd::At(holder.ends));
        }
        let known = self.line.iter().find(|waiting| waiting.id == id).map(|waiting| waiting.place);
        if let Some(place) = known {
            return self.queued(place);
        }
        if self.unwanted.contains(&id) {
            return Box::new(|_| Reply::Refused(AcquireError::Closed));
        }
        if self.line.is_empty() && self.holders.len() < self.slots as usize {
            let holder = self.grant(id, ttl, now);
            return granted(&holder, LeaseEnd::AfterTtl);
        }
        if is_try {
            let (held, slots, waiting) = self.numbers();
            return Box::new(move |_| Reply::Busy { held, slots, waiting });
        }
        let last = self.line.last().map_or(0.0, |waiting| waiting.place);
        let place = if place > 0.0 { place } else { now.max(last + 1e-6) };
        self.line.push(Waiting { id, place, ttl, dead_at: now + HEARTBEAT.as_secs_f64() });
        self.line.sort_by(|one, other| one.place.total_cmp(&other.place));
        self.serve(now);
        self.queued(place)
    }

    fn queued(&self, place: f64) -> MakeReply {
        let state = self.state();
        Box::new(move |clock| Reply::Queued { place, state: state(clock) })
    }

    fn grant(&mut self, id: Id, ttl: Option<Duration>, now: f64) -> Holder {
        let is_free = |slot: &u32| self.holders.iter().all(|holder| holder.slot != *slot);
        let slot = (0..).find(is_free).expect("some number is free");
        self.last_token += 1;
        let ends = ttl.map(|ttl| now + ttl.as_secs_f64());
        let holder =
            Holder { id, slot, token: self.last_token, dead_at: now + HEARTBEAT.as_secs_f64(), ends };
        self.holders.push(holder.clone());
        holder
    }

    fn serve(&mut self, now: f64) {
        while self.holders.len() < self.slots as usize && !self.line.is_empty() {
            let Waiting { id, ttl, .. } = self.line.remove(0);
            let holder = self.grant(id, ttl, now);
            let clock =
                ServerClock::new(now, super::Instant::at(Duration::ZERO), super::Instant::at(Duration::ZERO));
            let grant = grant_of(&holder, LeaseEnd::AfterTtl, clock);
            self.pushes.push((id.0, Push::Granted { key: id.1, grant }));
        }
    }

    /// `may_be_unknown` if its request may still be on its way, or an earlier attempt has ended it.
    fn end(&mut self, id: Id, may_be_unknown: bool, now: f64) -> Result<(), NotHeld> {
        let before = (self.holders.len(), self.line.len());
        self.holders.retain(|holder| holder.id != id);
        self.line.retain(|waiting| waiting.id != id);
        let found = before != (self.holders.len(), self.line.len());
        if !found {
            self.unwanted.push(id);
        }
        self.serve(now);
        if found || may_be_unknown { Ok(()) } else { Err(NotHeld::Unknown) }
    }

    fn ended(&self, outcomes: Vec<Result<(), NotHeld>>) -> MakeReply {
        let (held, slots, waiting) = self.numbers();
        let ended = outcomes.into_iter().map(|outcome| Ended { outcome, held, slots, waiting }).collect();
        Box::new(move |_| Reply::Ended(ended))
    }

    fn numbers(&self) -> (u32, u32, usize) {
        (self.holders.len() as u32, self.slots, self.line.len())
    }

    fn touch(&mut self, id: Id, now: f64) {
        let dead_at = now + HEARTBEAT.as_secs_f64();
        self.holders.iter_mut().filter(|holder| holder.id == id).for_each(|holder| holder.dead_at = dead_at);
        self.line.iter_mut().filter(|waiting| waiting.id == id).for_each(|waiting| waiting.dead_at = dead_at);
    }

    fn sweep(&mut self, now: f64) {
        self.holders.retain(|holder| holder.dead_at > now && holder.ends.is_none_or(|ends| ends > now));
        self.line.retain(|waiting| waiting.dead_at > now);
        self.serve(now);
    }

    fn holder(&self, id: Id) -> Option<&Holder> {
        self.holders.iter().find(|holder| holder.id == id)
    }

    fn state_of_holder(&self, id: Id) -> HolderState {
        match self.holder(id) {
            Some(holder) => HolderState::Leased { ends: holder.ends },
            None => HolderState::Gone(NotHeld::Lost(Loss::Vanished)),
        }
    }

    fn state_of_waiter(&self, id: Id) -> WaiterState {
        if self.holder(id).is_some() {
            WaiterState::Granted
        } else if self.line.iter().any(|waiting| waiting.id == id) {
            WaiterState::Present
        } else {
            WaiterState::Gone(NotInLine::Forgotten)
        }
    }

    /// When something is due next.
    fn state(&self) -> impl FnOnce(ServerClock) -> NameState + use<> {
        let holders = self
            .holders
            .iter()
            .map(|holder| holder.ends.map_or(holder.dead_at, |ends| ends.min(holder.dead_at)));
        let waiters = self.line.iter().map(|waiting| waiting.dead_at);
        let due = holders.chain(waiters).min_by(f64::total_cmp);
        move |clock| {
            let deadline = due.and_then(|due| clock.latest(due));
            NameState { clock, deadline, python_clients: PythonClients::None }
        }
    }
}

fn granted(holder: &Holder, ends: LeaseEnd) -> MakeReply {
    let holder = holder.clone();
    Box::new(move |clock| Reply::Granted(grant_of(&holder, ends, clock)))
}

fn grant_of(holder: &Holder, ends: LeaseEnd, clock: ServerClock) -> Grant {
    Grant {
        id: id_of(holder.id),
        slot: holder.slot,
        token: holder.token,
        waited: Duration::ZERO,
        slots: None,
        clock,
        ends,
        safe_until: clock.sent() + HEARTBEAT,
        python_clients: None,
    }
}

fn id_of((process, Key(key)): Id) -> Arc<str> {
    format!("{process}x{key}").into()
}
