//! Random moves on a gate, and what can be seen of each from outside.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::FileFailurePersistence;
use semafor_core::{
    Acquired, Cancelled, Claim, Effects, Gate, Loss, NotHeld, PermitId, Refusal, Request, Ticket, Timestamp,
    ZeroSlots,
};

const SERIAL: u32 = 7;
const TICK: u64 = 1_000_000;
const START: Timestamp = Timestamp::from_nanos(1_000 * TICK);

/// One operation with everything it is given but the time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    TryAcquire { request: Request, tag: u32 },
    WouldAdmit { request: Request },
    Acquire { request: Request, payload: u32, tag: u32 },
    Claim(Ticket),
    Cancel(Ticket),
    ReplacePayload(Ticket, u32),
    Release(PermitId),
    Evict(PermitId),
    Renew(PermitId, Option<Duration>),
    Expiry(PermitId),
    ReplaceTag(PermitId, u32),
    Resize(u32),
    Close,
    SetMaxWaiting(usize),
    ContinueAfter(u64),
    Expire,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Answer {
    Tried(Result<PermitId, Refusal>),
    WouldAdmit(bool),
    Acquired(Result<Acquired, Refusal>),
    Claimed(Claim),
    Cancelled(Cancelled<u32>),
    OldPayload(Option<u32>),
    Released(Result<u32, NotHeld>),
    Evicted(Result<(), NotHeld>),
    Renewed(Result<Timestamp, NotHeld>),
    Expiry(Result<Timestamp, NotHeld>),
    OldTag(Result<u32, NotHeld>),
    Resized(Result<(), ZeroSlots>),
    Nothing,
}

/// A call that was made, and everything the gate had to say.
#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) call: Call,
    pub(crate) now: Timestamp,
    pub(crate) answer: Answer,
    pub(crate) woken: Vec<u32>,
    pub(crate) lost: Vec<(PermitId, Loss, u32)>,
    /// The holders after the call: id, weight and tag.
    pub(crate) holders: Vec<(PermitId, u32, u32)>,
}

/// A call before it is known which ids and tickets there are to choose from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    ticks: i64,
    action: Action,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    TryAcquire(Wish),
    WouldAdmit(Wish),
    Acquire(Wish),
    Claim(WhichTicket),
    Cancel(WhichTicket),
    ReplacePayload(WhichTicket),
    Release(WhichId),
    Evict(WhichId),
    Renew(WhichId, Option<Duration>),
    Expiry(WhichId),
    ReplaceTag(WhichId),
    Resize(u32),
    Close,
    SetMaxWaiting(usize),
    ContinueAfter { ahead: bool, by: u64 },
    Expire,
}

#[derive(Clone, Copy, Debug)]
struct Wish {
    weight: u32,
    ttl: Option<Duration>,
    patience_ticks: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
enum WhichId {
    Live(Index),
    Seen(Index),
    OfAnotherGate(Index),
    WithoutToken(u32),
    FromTheFuture(u32, u64),
}

#[derive(Clone, Copy, Debug)]
enum WhichTicket {
    Open(Index),
    Seen(Index),
}

/// Makes moves on a gate. Tags and payloads are numbered in the order of arrival and never used twice.
pub(crate) struct Player {
    pub(crate) gate: Gate<u32, u32>,
    pub(crate) now: Timestamp,
    pub(crate) open_tickets: Vec<Ticket>,
    seen_tickets: Vec<Ticket>,
    seen_ids: Vec<PermitId>,
    names: u32,
}

impl Player {
    pub(crate) fn new(capacity: u32) -> Self {
        Self {
            gate: Gate::new(SERIAL, capacity).expect("at least one slot"),
            now: START,
            open_tickets: Vec::new(),
            seen_tickets: Vec::new(),
            seen_ids: Vec::new(),
            names: 0,
        }
    }

    /// Makes the move, unless it needs an id or a ticket and there is none.
    pub(crate) fn play(&mut self, step: &Move) -> Option<Played> {
        self.now = shifted(self.now, step.ticks);
        let call = self.resolve(step.action)?;
        let (answer, effects) = perform(&mut self.gate, call, self.now);
        let holders: Vec<_> = self.gate.holders().map(|held| (held.id, held.weight, *held.tag)).collect();
        for (id, ..) in &holders {
            if !self.seen_ids.contains(id) {
                self.seen_ids.push(*id);
            }
        }
        match (call, answer) {
            (_, Answer::Acquired(Ok(Acquired::Queued(ticket)))) => {
                self.open_tickets.push(ticket);
                self.seen_tickets.push(ticket);
            }
            (Call::Claim(_), Answer::Claimed(Claim::Waiting)) => {}
            (Call::Claim(used) | Call::Cancel(used), _) => self.open_tickets.retain(|open| *open != used),
            _ => {}
        }
        let woken = effects.wake.to_vec();
        let lost = effects.lost.into_iter().map(|lost| (lost.id, lost.loss, lost.tag)).collect();
        Some(Played { call, now: self.now, answer, woken, lost, holders })
    }

    fn resolve(&mut self, action: Action) -> Option<Call> {
        Some(match action {
            Action::TryAcquire(wish) => Call::TryAcquire { request: self.request(wish), tag: self.name() },
            Action::WouldAdmit(wish) => Call::WouldAdmit { request: self.request(wish) },
            Action::Acquire(wish) => {
                let name = self.name();
                Call::Acquire { request: self.request(wish), payload: name, tag: name }
            }
            Action::Claim(which) => Call::Claim(self.ticket(which)?),
            Action::Cancel(which) => Call::Cancel(self.ticket(which)?),
            Action::ReplacePayload(which) => Call::ReplacePayload(self.ticket(which)?, self.name()),
            Action::Release(which) => Call::Release(self.id(which)?),
            Action::Evict(which) => Call::Evict(self.id(which)?),
            Action::Renew(which, ttl) => Call::Renew(self.id(which)?, ttl),
            Action::Expiry(which) => Call::Expiry(self.id(which)?),
            Action::ReplaceTag(which) => Call::ReplaceTag(self.id(which)?, self.name()),
            Action::Resize(capacity) => Call::Resize(capacity),
            Action::Close => Call::Close,
            Action::SetMaxWaiting(limit) => Call::SetMaxWaiting(limit),
            Action::ContinueAfter { ahead: true, by } => Call::ContinueAfter(self.gate.last_token() + by),
            Action::ContinueAfter { ahead: false, by } => {
                Call::ContinueAfter(self.gate.last_token().saturating_sub(by))
            }
            Action::Expire => Call::Expire,
        })
    }

    fn request(&self, wish: Wish) -> Request {
        let deadline = wish.patience_ticks.map_or(Timestamp::NEVER, |ticks| shifted(self.now, ticks));
        Request { weight: wish.weight, ttl: wish.ttl, deadline }
    }

    fn name(&mut self) -> u32 {
        self.names += 1;
        self.names
    }

    fn ticket(&self, which: WhichTicket) -> Option<Ticket> {
        match which {
            WhichTicket::Open(index) => pick(index, &self.open_tickets),
            WhichTicket::Seen(index) => pick(index, &self.seen_tickets),
        }
    }

    fn id(&self, which: WhichId) -> Option<PermitId> {
        match which {
            WhichId::Live(index) => {
                let live: Vec<_> = self.gate.holders().map(|held| held.id).collect();
                pick(index, &live)
            }
            WhichId::Seen(index) => pick(index, &self.seen_ids),
            WhichId::OfAnotherGate(index) => pick(index, &self.seen_ids)
                .map(|theirs| permit_id(SERIAL + 1, theirs.slot(), theirs.fencing_token())),
            WhichId::WithoutToken(slot) => Some(permit_id(SERIAL, slot, 0)),
            WhichId::FromTheFuture(slot, ahead) => {
                Some(permit_id(SERIAL, slot, self.gate.last_token() + ahead))
            }
        }
    }
}

fn perform(gate: &mut Gate<u32, u32>, call: Call, now: Timestamp) -> (Answer, Effects<u32, u32>) {
    let mut effects = Effects::default();
    let answer = match call {
        Call::TryAcquire { request, tag } => Answer::Tried(gate.try_acquire(&request, tag, now)),
        Call::WouldAdmit { request } => Answer::WouldAdmit(gate.would_admit(&request)),
        Call::Acquire { request, payload, tag } => {
            Answer::Acquired(gate.acquire(&request, payload, tag, now, &mut effects))
        }
        Call::Claim(ticket) => Answer::Claimed(gate.claim(ticket)),
        Call::Cancel(ticket) => Answer::Cancelled(gate.cancel(ticket, now, &mut effects)),
        Call::ReplacePayload(ticket, new) => {
            Answer::OldPayload(gate.payload_mut(ticket).map(|old| std::mem::replace(old, new)))
        }
        Call::Release(id) => Answer::Released(gate.release(id, now, &mut effects)),
        Call::Evict(id) => Answer::Evicted(gate.evict(id, now, &mut effects)),
        Call::Renew(id, ttl) => Answer::Renewed(gate.renew(id, ttl, now, &mut effects)),
        Call::Expiry(id) => Answer::Expiry(gate.expiry(id)),
        Call::ReplaceTag(id, new) => Answer::OldTag(gate.tag_mut(id).map(|old| std::mem::replace(old, new))),
        Call::Resize(capacity) => Answer::Resized(gate.resize(capacity, now, &mut effects)),
        Call::Close => {
            gate.close(&mut effects);
            Answer::Nothing
        }
        Call::SetMaxWaiting(limit) => {
            gate.set_max_waiting(limit);
            Answer::Nothing
        }
        Call::ContinueAfter(token) => {
            gate.continue_after(token);
            Answer::Nothing
        }
        Call::Expire => {
            gate.expire(now, &mut effects);
            Answer::Nothing
        }
    };
    (answer, effects)
}

fn permit_id(gate: u32, slot: u32, token: u64) -> PermitId {
    format!("{gate:x}-{slot:x}-{token:x}").parse().expect("the written form of an id")
}

fn shifted(time: Timestamp, ticks: i64) -> Timestamp {
    Timestamp::from_nanos(time.as_nanos().saturating_add_signed(ticks * TICK as i64))
}

fn pick<A: Copy>(index: Index, from: &[A]) -> Option<A> {
    (!from.is_empty()).then(|| *index.get(from))
}

/// At least so many cases; more if the environment asks for more. What fails is kept beside the test.
pub(crate) fn at_least(cases: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: default.cases.max(cases),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..default
    }
}

pub(crate) fn capacity() -> impl Strategy<Value = u32> {
    1..=6u32
}

pub(crate) fn moves() -> impl Strategy<Value = Vec<Move>> {
    let step = (ticks(), action()).prop_map(|(ticks, action)| Move { ticks, action });
    proptest::collection::vec(step, 1..120)
}

fn ticks() -> impl Strategy<Value = i64> {
    prop_oneof![8 => 0..=2i64, 1 => 5..=40i64, 1 => -2..=-1i64]
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        40 => wish().prop_map(Action::Acquire),
        15 => wish().prop_map(Action::TryAcquire),
        5 => wish().prop_map(Action::WouldAdmit),
        15 => ticket().prop_map(Action::Claim),
        12 => ticket().prop_map(Action::Cancel),
        4 => ticket().prop_map(Action::ReplacePayload),
        25 => id().prop_map(Action::Release),
        5 => id().prop_map(Action::Evict),
        10 => (id(), ttl()).prop_map(|(id, ttl)| Action::Renew(id, ttl)),
        4 => id().prop_map(Action::Expiry),
        3 => id().prop_map(Action::ReplaceTag),
        10 => (0..=8u32).prop_map(Action::Resize),
        1 => Just(Action::Close),
        5 => prop_oneof![0..=5usize, Just(usize::MAX)].prop_map(Action::SetMaxWaiting),
        2 => (any::<bool>(), 0..=3u64).prop_map(|(ahead, by)| Action::ContinueAfter { ahead, by }),
        15 => Just(Action::Expire),
    ]
}

fn wish() -> impl Strategy<Value = Wish> {
    let weight = prop_oneof![3 => Just(1u32), 2 => 0..=5u32];
    let patience = prop_oneof![1 => Just(None), 2 => (-1..=12i64).prop_map(Some)];
    (weight, ttl(), patience).prop_map(|(weight, ttl, patience_ticks)| Wish { weight, ttl, patience_ticks })
}

fn ttl() -> impl Strategy<Value = Option<Duration>> {
    prop_oneof![
        8 => Just(None),
        8 => (1..=12u64).prop_map(|ticks| Some(Duration::from_nanos(ticks * TICK))),
        1 => Just(Some(Duration::ZERO)),
        1 => Just(Some(Duration::MAX)),
    ]
}

fn ticket() -> impl Strategy<Value = WhichTicket> {
    prop_oneof![
        4 => any::<Index>().prop_map(WhichTicket::Open),
        1 => any::<Index>().prop_map(WhichTicket::Seen),
    ]
}

fn id() -> impl Strategy<Value = WhichId> {
    prop_oneof![
        8 => any::<Index>().prop_map(WhichId::Live),
        3 => any::<Index>().prop_map(WhichId::Seen),
        1 => any::<Index>().prop_map(WhichId::OfAnotherGate),
        1 => (0..8u32).prop_map(WhichId::WithoutToken),
        1 => (0..8u32, 1_000..1_004u64).prop_map(|(slot, ahead)| WhichId::FromTheFuture(slot, ahead)),
    ]
}
