//! Random moves on a gate, and what each changes as seen from outside.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{FileFailurePersistence, RngAlgorithm};
use semafor_core::{
    Acquired, Cancelled, Claim, Effects, Evicted, Gate, Histogram, Loss, NotHeld, OpenRefusal, Opened,
    Opening, PermitId, Refusal, Request, Ticket, Timestamp, Totals, ZeroSlots,
};

const SERIAL: u32 = 7;
const ANOTHER_SERIAL: u32 = 8;
const TICK: u64 = 1_000_000;
const START: Timestamp = Timestamp::from_nanos(1_000 * TICK);

/// One operation with all its arguments except the time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    TryAcquire { request: Request, tag: u32 },
    WouldAdmit { request: Request },
    Acquire { request: Request, payload: u32, tag: u32 },
    Claim(Ticket),
    Cancel(Ticket),
    ReplacePayload(Ticket, u32),
    Release(PermitId),
    Evict(PermitId, Duration),
    Renew(PermitId, Option<Duration>),
    Expiry(PermitId),
    ReplaceTag(PermitId, u32),
    Reserve { slot: u32, weight: u32, tag: u32 },
    Open(Opening),
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
    Evicted(Result<Evicted, NotHeld>),
    Renewed(Result<Timestamp, NotHeld>),
    Expiry(Result<Timestamp, NotHeld>),
    OldTag(Result<u32, NotHeld>),
    Reserved(Option<PermitId>),
    Opened(Result<Opened, OpenRefusal>),
    Resized(Result<(), ZeroSlots>),
    Nothing,
}

/// A call that was made, and all its visible results.
#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) call: Call,
    pub(crate) now: Timestamp,
    pub(crate) answer: Answer,
    pub(crate) woken: Vec<u32>,
    pub(crate) lost: Vec<(PermitId, Loss, u32)>,
    pub(crate) after: Snapshot,
}

/// The visible state of a gate between two calls.
#[derive(PartialEq, Debug)]
pub(crate) struct Snapshot {
    pub(crate) slots: u32,
    pub(crate) held: u32,
    pub(crate) debt: u32,
    pub(crate) closed: bool,
    pub(crate) idle: bool,
    pub(crate) last_token: u64,
    pub(crate) next_deadline: Timestamp,
    /// By slot number.
    pub(crate) holders: Vec<Holding>,
    /// First to last.
    pub(crate) line: Vec<WaiterView>,
    pub(crate) totals: Totals,
    pub(crate) waits: Histogram,
    pub(crate) holds: Histogram,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Holding {
    pub(crate) id: PermitId,
    pub(crate) weight: u32,
    pub(crate) since: Timestamp,
    pub(crate) expires: Timestamp,
    pub(crate) is_leaving: bool,
    pub(crate) tag: u32,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct WaiterView {
    pub(crate) weight: u32,
    pub(crate) since: Timestamp,
    pub(crate) tag: u32,
}

impl Snapshot {
    pub(crate) fn of(gate: &Gate<u32, u32>) -> Self {
        let stats = gate.stats(START);
        let holders = gate.holders().map(|held| Holding {
            id: held.id,
            weight: held.weight,
            since: held.since,
            expires: held.expires,
            is_leaving: held.is_leaving,
            tag: *held.tag,
        });
        let line = gate.waiters().map(|waiter| WaiterView {
            weight: waiter.weight,
            since: waiter.since,
            tag: *waiter.tag,
        });
        Self {
            slots: gate.slots(),
            held: gate.held(),
            debt: stats.debt(),
            closed: gate.is_closed(),
            idle: gate.is_idle(),
            last_token: gate.last_token(),
            next_deadline: gate.next_deadline(),
            holders: holders.collect(),
            line: line.collect(),
            totals: stats.totals,
            waits: stats.waits,
            holds: stats.holds,
        }
    }
}

/// The slots of a gate, and the moves to make on it.
#[derive(Debug)]
pub(crate) struct Game {
    pub(crate) slots: u32,
    pub(crate) moves: Vec<Move>,
}

/// A call whose id or ticket is chosen when it is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    ticks: i64,
    action: Action,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    TryAcquire(AcquireRequest),
    WouldAdmit(AcquireRequest),
    Acquire(AcquireRequest),
    Claim(WhichTicket),
    Cancel(WhichTicket),
    ReplacePayload(WhichTicket),
    Release(WhichId),
    Evict(WhichId, Duration),
    Renew(WhichId, Option<Duration>),
    Expiry(WhichId),
    ReplaceTag(WhichId),
    Reserve { slot: u32, weight: u32 },
    Open(Opening),
    Resize(u32),
    Close,
    SetMaxWaiting(usize),
    ContinueAfter { ahead: bool, by: u64 },
    Expire,
}

#[derive(Clone, Copy, Debug)]
struct AcquireRequest {
    weight: u32,
    ttl: Option<Duration>,
    timeout_ticks: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
enum WhichId {
    Live(Index),
    Seen(Index),
    OfAnotherGate(Index),
    FromThePast { slot: u32, back: u64 },
    FromTheFuture { slot: u32, ahead: u64 },
}

#[derive(Clone, Copy, Debug)]
enum WhichTicket {
    Open(Index),
    Seen(Index),
    OfAnotherGate(Index),
}

/// Makes moves on a gate. Tags and payloads are numbered in the order of arrival and never used twice.
pub(crate) struct Player {
    pub(crate) gate: Gate<u32, u32>,
    pub(crate) now: Timestamp,
    pub(crate) open_tickets: Vec<Ticket>,
    seen_tickets: Vec<Ticket>,
    foreign_tickets: Vec<Ticket>,
    seen_ids: Vec<PermitId>,
    names: u32,
}

impl Player {
    pub(crate) fn new(slots: u32) -> Self {
        Self {
            gate: Gate::new(SERIAL, slots).expect("at least one slot"),
            now: START,
            open_tickets: Vec::new(),
            seen_tickets: Vec::new(),
            foreign_tickets: tickets_of_another_gate(),
            seen_ids: Vec::new(),
            names: 0,
        }
    }

    /// Makes the move, unless it needs an id or a ticket and there is none.
    pub(crate) fn play(&mut self, step: &Move) -> Option<Played> {
        self.now = shifted(self.now, step.ticks);
        let call = self.resolve(step.action)?;
        let (answer, effects) = perform(&mut self.gate, call, self.now);
        let after = Snapshot::of(&self.gate);
        for Holding { id, .. } in &after.holders {
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
        Some(Played { call, now: self.now, answer, woken, lost, after })
    }

    fn resolve(&mut self, action: Action) -> Option<Call> {
        Some(match action {
            Action::TryAcquire(request) => {
                Call::TryAcquire { request: self.request(request), tag: self.name() }
            }
            Action::WouldAdmit(request) => Call::WouldAdmit { request: self.request(request) },
            Action::Acquire(request) => {
                let name = self.name();
                Call::Acquire { request: self.request(request), payload: name, tag: name }
            }
            Action::Claim(which) => Call::Claim(self.ticket(which)?),
            Action::Cancel(which) => Call::Cancel(self.ticket(which)?),
            Action::ReplacePayload(which) => Call::ReplacePayload(self.ticket(which)?, self.name()),
            Action::Release(which) => Call::Release(self.id(which)?),
            Action::Evict(which, grace) => Call::Evict(self.id(which)?, grace),
            Action::Renew(which, ttl) => Call::Renew(self.id(which)?, ttl),
            Action::Expiry(which) => Call::Expiry(self.id(which)?),
            Action::ReplaceTag(which) => Call::ReplaceTag(self.id(which)?, self.name()),
            Action::Reserve { slot, weight } => Call::Reserve { slot, weight, tag: self.name() },
            Action::Open(opening) => Call::Open(opening),
            Action::Resize(slots) => Call::Resize(slots),
            Action::Close => Call::Close,
            Action::SetMaxWaiting(limit) => Call::SetMaxWaiting(limit),
            Action::ContinueAfter { ahead: true, by } => Call::ContinueAfter(self.gate.last_token() + by),
            Action::ContinueAfter { ahead: false, by } => {
                Call::ContinueAfter(self.gate.last_token().saturating_sub(by))
            }
            Action::Expire => Call::Expire,
        })
    }

    fn request(&self, request: AcquireRequest) -> Request {
        let deadline = request.timeout_ticks.map_or(Timestamp::NEVER, |ticks| shifted(self.now, ticks));
        Request { weight: request.weight, ttl: request.ttl, deadline }
    }

    fn name(&mut self) -> u32 {
        self.names += 1;
        self.names
    }

    fn ticket(&self, which: WhichTicket) -> Option<Ticket> {
        match which {
            WhichTicket::Open(index) => pick(index, &self.open_tickets),
            WhichTicket::Seen(index) => pick(index, &self.seen_tickets),
            WhichTicket::OfAnotherGate(index) => pick(index, &self.foreign_tickets),
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
                .map(|ours| permit_id(ANOTHER_SERIAL, ours.slot(), ours.fencing_token())),
            WhichId::FromThePast { slot, back } => {
                let first = self.seen_ids.first().map(|id| id.fencing_token());
                let newest_before = first.map_or(self.gate.last_token(), |token| token - 1);
                Some(permit_id(SERIAL, slot, newest_before.saturating_sub(back)))
            }
            WhichId::FromTheFuture { slot, ahead } => {
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
        Call::Cancel(ticket) => {
            let (may_grant, before) = (gate.may_grant_on_cancel(ticket), gate.last_token());
            let answer = Answer::Cancelled(gate.cancel(ticket, now, &mut effects));
            assert!(may_grant || gate.last_token() == before, "{ticket:?} was said to free nothing");
            answer
        }
        Call::ReplacePayload(ticket, new) => {
            Answer::OldPayload(gate.payload_mut(ticket).map(|old| std::mem::replace(old, new)))
        }
        Call::Release(id) => Answer::Released(gate.release(id, now, &mut effects)),
        Call::Evict(id, grace) => Answer::Evicted(gate.evict(id, grace, now, &mut effects)),
        Call::Renew(id, ttl) => Answer::Renewed(gate.renew(id, ttl, now, &mut effects)),
        Call::Expiry(id) => Answer::Expiry(gate.expiry(id)),
        Call::ReplaceTag(id, new) => Answer::OldTag(gate.tag_mut(id).map(|old| std::mem::replace(old, new))),
        Call::Reserve { slot, weight, tag } => Answer::Reserved(gate.reserve(slot, weight, tag, now)),
        Call::Open(opening) => Answer::Opened(gate.open(opening, now, &mut effects)),
        Call::Resize(slots) => Answer::Resized(gate.resize(slots, now, &mut effects)),
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

/// Tickets that differ only in their gate from the first tickets of a player.
fn tickets_of_another_gate() -> Vec<Ticket> {
    let mut gate: Gate<(), ()> = Gate::new(ANOTHER_SERIAL, 1).expect("at least one slot");
    let mut effects = Effects::default();
    let mut ask = || gate.acquire(&Request::default(), (), (), START, &mut effects);
    let answers = (0..=8).map(|_| ask());
    let tickets = answers.filter_map(|answer| match answer {
        Ok(Acquired::Queued(ticket)) => Some(ticket),
        _ => None,
    });
    tickets.collect()
}

fn shifted(time: Timestamp, ticks: i64) -> Timestamp {
    Timestamp::from_nanos(time.as_nanos().saturating_add_signed(ticks * TICK as i64))
}

fn pick<A: Copy>(index: Index, from: &[A]) -> Option<A> {
    (!from.is_empty()).then(|| *index.get(from))
}

/// At least so many cases; more if the environment asks for more. Failures are saved beside the test.
pub(crate) fn at_least(cases: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: default.cases.max(cases),
        // ChaCha, the default, takes most of the time in a debug build.
        rng_algorithm: RngAlgorithm::XorShift,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..default
    }
}

pub(crate) fn game() -> impl Strategy<Value = Game> {
    let step = (ticks(), action()).prop_map(|(ticks, action)| Move { ticks, action });
    let opening = continue_after().prop_map(|action| Move { ticks: 0, action });
    let moves = (vec(opening, 0..=2), vec(step, 1..120)).prop_map(|(opening, rest)| [opening, rest].concat());
    (1..=6u32, moves).prop_map(|(slots, moves)| Game { slots, moves })
}

fn ticks() -> impl Strategy<Value = i64> {
    prop_oneof![8 => 0..=2i64, 1 => 5..=40i64, 1 => -2..=-1i64]
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        40 => request().prop_map(Action::Acquire),
        15 => request().prop_map(Action::TryAcquire),
        5 => request().prop_map(Action::WouldAdmit),
        15 => ticket().prop_map(Action::Claim),
        12 => ticket().prop_map(Action::Cancel),
        4 => ticket().prop_map(Action::ReplacePayload),
        25 => id().prop_map(Action::Release),
        12 => (id(), grace()).prop_map(|(id, grace)| Action::Evict(id, grace)),
        10 => (id(), ttl()).prop_map(|(id, ttl)| Action::Renew(id, ttl)),
        4 => id().prop_map(Action::Expiry),
        3 => id().prop_map(Action::ReplaceTag),
        2 => (0..=9u32, 0..=3u32).prop_map(|(slot, weight)| Action::Reserve { slot, weight }),
        8 => opening().prop_map(Action::Open),
        10 => (0..=8u32).prop_map(Action::Resize),
        1 => Just(Action::Close),
        5 => bound().prop_map(Action::SetMaxWaiting),
        2 => continue_after(),
        15 => Just(Action::Expire),
    ]
}

fn bound() -> impl Strategy<Value = usize> {
    prop_oneof![0..=5usize, Just(usize::MAX)]
}

fn opening() -> impl Strategy<Value = Opening> {
    let slots = prop::option::of(0..=8u32);
    (slots, prop::option::of(bound())).prop_map(|(slots, max_waiting)| Opening { slots, max_waiting })
}

fn continue_after() -> impl Strategy<Value = Action> {
    (any::<bool>(), 0..=3u64).prop_map(|(ahead, by)| Action::ContinueAfter { ahead, by })
}

fn request() -> impl Strategy<Value = AcquireRequest> {
    let weight = prop_oneof![3 => Just(1u32), 2 => 0..=5u32];
    let timeout = prop_oneof![1 => Just(None), 2 => (-1..=12i64).prop_map(Some)];
    (weight, ttl(), timeout).prop_map(|(weight, ttl, timeout_ticks)| AcquireRequest {
        weight,
        ttl,
        timeout_ticks,
    })
}

fn ttl() -> impl Strategy<Value = Option<Duration>> {
    prop_oneof![
        8 => Just(None),
        8 => (1..=12u64).prop_map(|ticks| Some(Duration::from_nanos(ticks * TICK))),
        1 => Just(Some(Duration::ZERO)),
        1 => Just(Some(Duration::MAX)),
    ]
}

fn grace() -> impl Strategy<Value = Duration> {
    prop_oneof![
        6 => (1..=12u64).prop_map(|ticks| Duration::from_nanos(ticks * TICK)),
        4 => Just(Duration::ZERO),
        1 => Just(Duration::MAX),
    ]
}

fn ticket() -> impl Strategy<Value = WhichTicket> {
    prop_oneof![
        6 => any::<Index>().prop_map(WhichTicket::Open),
        1 => any::<Index>().prop_map(WhichTicket::Seen),
        1 => any::<Index>().prop_map(WhichTicket::OfAnotherGate),
    ]
}

fn id() -> impl Strategy<Value = WhichId> {
    prop_oneof![
        8 => any::<Index>().prop_map(WhichId::Live),
        3 => any::<Index>().prop_map(WhichId::Seen),
        1 => any::<Index>().prop_map(WhichId::OfAnotherGate),
        1 => (0..8u32, 0..3u64).prop_map(|(slot, back)| WhichId::FromThePast { slot, back }),
        1 => (0..8u32, 1_000..1_004u64).prop_map(|(slot, ahead)| WhichId::FromTheFuture { slot, ahead }),
    ]
}
