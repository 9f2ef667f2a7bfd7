//! A naive model of a gate, written to be read: lists and scans, without regard to speed.

use std::time::Duration;

use semafor_core::{
    Acquired, Cancelled, Claim, Evicted, Histogram, Loss, NotHeld, OpenRefusal, Opened, Opening, PermitId,
    Refusal, Request, Ticket, Timestamp, Totals, ZeroSlots,
};

use crate::moves::{Answer, Call, Holding, Played, Snapshot, WaiterView};

pub(crate) struct Naive {
    slots: u32,
    closed: bool,
    max_waiting: usize,
    last_token: u64,
    /// In the order in which their leases were set.
    holders: Vec<Holding>,
    line: Vec<Waiting>,
    /// The outcomes that former waiters have not claimed yet.
    settlements: Vec<(Ticket, Settlement)>,
    ended: Vec<(PermitId, NotHeld)>,
    tickets: Vec<Ticket>,
    totals: Totals,
    waits: Histogram,
    holds: Histogram,
    woken: Vec<u32>,
    lost: Vec<(PermitId, Loss, u32)>,
}

#[derive(Clone, Copy)]
struct Waiting {
    request: Request,
    since: Timestamp,
    tag: u32,
    ticket: Ticket,
    payload: u32,
}

#[derive(Clone, Copy)]
enum Settlement {
    Granted(PermitId, Duration),
    TimedOut,
    Closed,
    TooHeavy { weight: u32, slots: u32 },
}

impl Naive {
    pub(crate) fn new(slots: u32) -> Self {
        Self {
            slots,
            closed: false,
            max_waiting: usize::MAX,
            last_token: 0,
            holders: Vec::new(),
            line: Vec::new(),
            settlements: Vec::new(),
            ended: Vec::new(),
            tickets: Vec::new(),
            totals: Totals::default(),
            waits: Histogram::default(),
            holds: Histogram::default(),
            woken: Vec::new(),
            lost: Vec::new(),
        }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut holders = self.holders.clone();
        holders.sort_by_key(|holder| holder.id.slot());
        let view = |waiter: &Waiting| WaiterView {
            weight: waiter.request.weight,
            since: waiter.since,
            tag: waiter.tag,
        };
        Snapshot {
            slots: self.slots,
            held: self.held(),
            debt: self.held().saturating_sub(self.slots),
            closed: self.closed,
            idle: self.holders.is_empty() && self.line.is_empty() && self.settlements.is_empty(),
            last_token: self.last_token,
            next_deadline: self.next_deadline(),
            holders,
            line: self.line.iter().map(view).collect(),
            totals: self.totals,
            waits: self.waits.clone(),
            holds: self.holds.clone(),
        }
    }

    /// Makes the call that the gate has answered. Takes from `played` what the model cannot know: the token of a grant
    /// and the ticket.
    pub(crate) fn answer(&mut self, played: &Played) -> Answer {
        let now = played.now;
        match played.call {
            Call::TryAcquire { request, tag } => Answer::Tried(self.try_acquire(request, tag, played)),
            Call::WouldAdmit { request } => Answer::WouldAdmit(self.admits(request) == Ok(true)),
            Call::Acquire { request, payload, tag } => {
                Answer::Acquired(self.acquire(request, payload, tag, played))
            }
            Call::Claim(ticket) => Answer::Claimed(self.claim(ticket)),
            Call::Cancel(ticket) => Answer::Cancelled(self.cancel(ticket, played)),
            Call::ReplacePayload(ticket, new) => {
                let waiter = self.line.iter_mut().find(|waiter| waiter.ticket == ticket);
                Answer::OldPayload(waiter.map(|waiter| std::mem::replace(&mut waiter.payload, new)))
            }
            Call::Release(id) => Answer::Released(self.end(id, NotHeld::Released, now).map(|held| {
                self.totals.released += 1;
                self.serve_line(played);
                held.tag
            })),
            Call::Evict(id, grace) => Answer::Evicted(self.evict(id, grace, played)),
            Call::Renew(id, ttl) => Answer::Renewed(self.renew(id, ttl, played)),
            Call::Expiry(id) => Answer::Expiry(self.held_by(id).map(|holder| holder.expires)),
            Call::ReplaceTag(id, new) => {
                Answer::OldTag(self.held_by(id).map(|holder| std::mem::replace(&mut holder.tag, new)))
            }
            Call::Resize(0) => Answer::Resized(Err(ZeroSlots)),
            Call::Resize(slots) => {
                self.slots = slots;
                let too_heavy = |waiter: &Waiting| waiter.request.weight > slots;
                while let Some(place) = self.line.iter().position(too_heavy) {
                    let weight = self.line[place].request.weight;
                    self.turn_away(place, Settlement::TooHeavy { weight, slots });
                    self.totals.refused += 1;
                }
                self.serve_line(played);
                Answer::Resized(Ok(()))
            }
            Call::Open(opening) => Answer::Opened(self.open(opening, played)),
            Call::Reserve { slot, weight, tag } => Answer::Reserved(self.reserve(slot, weight, tag, played)),
            Call::Close => {
                self.closed = true;
                while !self.line.is_empty() {
                    self.turn_away(0, Settlement::Closed);
                    self.totals.refused += 1;
                }
                Answer::Nothing
            }
            Call::SetMaxWaiting(limit) => {
                self.max_waiting = limit;
                Answer::Nothing
            }
            Call::ContinueAfter(token) => {
                self.last_token = self.last_token.max(token);
                Answer::Nothing
            }
            Call::Expire => {
                self.expire(played);
                Answer::Nothing
            }
        }
    }

    /// The waiters woken since the last call, in order.
    pub(crate) fn take_woken(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.woken)
    }

    /// The holders that lost their slot since the last call, in order.
    pub(crate) fn take_lost(&mut self) -> Vec<(PermitId, Loss, u32)> {
        std::mem::take(&mut self.lost)
    }

    fn held(&self) -> u32 {
        self.holders.iter().map(|holder| holder.weight).sum()
    }

    fn next_deadline(&self) -> Timestamp {
        let leases = self.holders.iter().map(|holder| holder.expires);
        let timeouts = self.line.iter().map(|waiter| waiter.request.deadline);
        leases.chain(timeouts).min().unwrap_or(Timestamp::NEVER)
    }

    fn fits(&self, weight: u32) -> bool {
        self.held() + weight <= self.slots
    }

    fn admits(&self, request: Request) -> Result<bool, Refusal> {
        let Request { weight, .. } = request;
        if self.closed {
            Err(Refusal::Closed)
        } else if weight == 0 {
            Err(Refusal::ZeroWeight)
        } else if weight > self.slots {
            Err(Refusal::TooHeavy { weight, slots: self.slots })
        } else {
            Ok(self.line.is_empty() && self.fits(weight))
        }
    }

    fn try_acquire(&mut self, request: Request, tag: u32, played: &Played) -> Result<PermitId, Refusal> {
        match self.admits(request) {
            Ok(true) => Ok(self.grant(request, tag, played)),
            Ok(false) => self.refuse(Refusal::Busy),
            Err(refusal) => self.refuse(refusal),
        }
    }

    fn acquire(
        &mut self,
        request: Request,
        payload: u32,
        tag: u32,
        played: &Played,
    ) -> Result<Acquired, Refusal> {
        self.expire(played);
        match self.admits(request) {
            Ok(true) => Ok(Acquired::Granted(self.grant(request, tag, played))),
            Ok(false) if self.line.len() >= self.max_waiting => {
                self.refuse(Refusal::LineFull { limit: self.max_waiting })
            }
            Ok(false) => {
                let Answer::Acquired(Ok(Acquired::Queued(ticket))) = played.answer else {
                    panic!("{tag} has to queue, and was answered {:?}", played.answer);
                };
                assert!(!self.tickets.contains(&ticket), "{ticket:?} was issued twice");
                self.tickets.push(ticket);
                self.totals.queued += 1;
                self.line.push(Waiting { request, since: played.now, tag, ticket, payload });
                Ok(Acquired::Queued(ticket))
            }
            Err(refusal) => self.refuse(refusal),
        }
    }

    fn refuse<A>(&mut self, refusal: Refusal) -> Result<A, Refusal> {
        self.totals.refused += 1;
        Err(refusal)
    }

    fn claim(&mut self, ticket: Ticket) -> Claim {
        match self.take_settlement(ticket) {
            Some(Settlement::Granted(id, waited)) => match self.held_by(id) {
                Ok(_) => Claim::Granted { id, waited },
                Err(why) => Claim::Gone(why),
            },
            Some(Settlement::TimedOut) => Claim::TimedOut,
            Some(Settlement::Closed) => Claim::Closed,
            Some(Settlement::TooHeavy { weight, slots }) => Claim::TooHeavy { weight, slots },
            None if self.line.iter().any(|waiter| waiter.ticket == ticket) => Claim::Waiting,
            None => Claim::Unknown,
        }
    }

    fn cancel(&mut self, ticket: Ticket, played: &Played) -> Cancelled<u32> {
        if let Some(place) = self.line.iter().position(|waiter| waiter.ticket == ticket) {
            let waiter = self.line.remove(place);
            self.totals.cancelled += 1;
            self.serve_line(played);
            return Cancelled::Left(waiter.payload);
        }
        match self.take_settlement(ticket) {
            None => Cancelled::Unknown,
            Some(Settlement::Granted(id, _)) if self.end(id, NotHeld::Released, played.now).is_ok() => {
                self.totals.handed_on += 1;
                self.serve_line(played);
                Cancelled::HandedOn
            }
            Some(_) => Cancelled::Settled,
        }
    }

    fn evict(&mut self, id: PermitId, grace: Duration, played: &Played) -> Result<Evicted, NotHeld> {
        self.expire(played);
        let holder = self.held_by(id)?;
        if holder.is_leaving || grace.is_zero() {
            self.lose(id, Loss::Evicted, played)?;
            self.serve_line(played);
            return Ok(Evicted::Gone);
        }
        holder.is_leaving = true;
        let until = holder.expires.min(played.now.after(grace));
        if until < holder.expires {
            self.set_lease(id, until);
        }
        Ok(Evicted::Leaving { until })
    }

    fn open(&mut self, opening: Opening, played: &Played) -> Result<Opened, OpenRefusal> {
        self.expire(played);
        let asked = opening.slots.unwrap_or(self.slots);
        let limit = opening.max_waiting.unwrap_or(self.max_waiting);
        if asked == 0 {
            return Err(OpenRefusal::ZeroSlots);
        }
        if self.closed && !self.holders.is_empty() {
            return Err(OpenRefusal::Closing { held: self.held() });
        }
        if self.closed {
            let opening = Opening { slots: Some(asked), max_waiting: Some(limit) };
            return Ok(Opened::Succeeded { opening, last_token: self.last_token });
        }
        if asked != self.slots && !(self.holders.is_empty() && self.line.is_empty()) {
            return Err(OpenRefusal::SlotsMismatch { live: self.slots, asked });
        }
        (self.slots, self.max_waiting) = (asked, limit);
        Ok(Opened::Joined)
    }

    /// The slot number is `slot` if that is free, else the lowest free number.
    fn reserve(&mut self, slot: u32, weight: u32, tag: u32, played: &Played) -> Option<PermitId> {
        if weight == 0 {
            return None;
        }
        let is_free = !self.holders.iter().any(|holder| holder.id.slot() == slot);
        let slot = if is_free { slot } else { self.lowest_free() };
        Some(self.grant_at(slot, Request { weight, ..Request::default() }, tag, played))
    }

    fn lowest_free(&self) -> u32 {
        let is_free = |slot: &u32| self.holders.iter().all(|holder| holder.id.slot() != *slot);
        (0..).find(is_free).expect("not all numbers are taken")
    }

    fn renew(&mut self, id: PermitId, ttl: Option<Duration>, played: &Played) -> Result<Timestamp, NotHeld> {
        self.expire(played);
        if self.held_by(id)?.is_leaving {
            return Err(NotHeld::Lost(Loss::Evicted));
        }
        let expires = lease_end(ttl, played.now);
        self.set_lease(id, expires);
        Ok(expires)
    }

    fn set_lease(&mut self, id: PermitId, expires: Timestamp) {
        let place = self.holders.iter().position(|holder| holder.id == id).expect("a holder holds");
        let holder = self.holders.remove(place);
        self.holders.push(Holding { expires, ..holder });
    }

    fn take_settlement(&mut self, ticket: Ticket) -> Option<Settlement> {
        let at = self.settlements.iter().position(|(of, _)| *of == ticket)?;
        Some(self.settlements.remove(at).1)
    }

    fn expire(&mut self, played: &Played) {
        while self.next_deadline() <= played.now {
            let due = self.next_deadline();
            let overdue: Vec<_> =
                self.holders.iter().filter(|holder| holder.expires == due).copied().collect();
            if !overdue.is_empty() {
                for holder in overdue {
                    let loss = if holder.is_leaving { Loss::Evicted } else { Loss::Expired };
                    self.lose(holder.id, loss, played).expect("a holder holds");
                }
                self.serve_line(played);
            } else {
                let place = self.line.iter().position(|waiter| waiter.request.deadline == due);
                self.turn_away(place.expect("a waiter is due"), Settlement::TimedOut);
                self.totals.timed_out += 1;
                self.serve_line(played);
            }
        }
    }

    fn turn_away(&mut self, place: usize, settlement: Settlement) {
        let waiter = self.line.remove(place);
        self.settlements.push((waiter.ticket, settlement));
        self.woken.push(waiter.payload);
    }

    fn serve_line(&mut self, played: &Played) {
        while let Some(&head) = self.line.first()
            && self.fits(head.request.weight)
        {
            self.line.remove(0);
            let id = self.grant(head.request, head.tag, played);
            let waited = played.now.since(head.since);
            self.waits.record(waited);
            self.settlements.push((head.ticket, Settlement::Granted(id, waited)));
            self.woken.push(head.payload);
        }
    }

    fn grant(&mut self, request: Request, tag: u32, played: &Played) -> PermitId {
        let slot = self.lowest_free();
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        self.grant_at(slot, request, tag, played)
    }

    /// Grants `slot`, and takes over the token that the gate has issued, after checking it.
    fn grant_at(&mut self, slot: u32, request: Request, tag: u32, played: &Played) -> PermitId {
        let issued = played.after.holders.iter().find(|holder| holder.tag == tag);
        let &Holding { id, .. } = issued.unwrap_or_else(|| panic!("{tag} should hold a slot"));
        assert_eq!(id.slot(), slot, "the slot of {id}");
        assert!(id.fencing_token() > self.last_token, "{id} after token {}", self.last_token);
        self.last_token = id.fencing_token();
        self.totals.granted += 1;
        let expires = lease_end(request.ttl, played.now);
        let (weight, since) = (request.weight, played.now);
        self.holders.push(Holding { id, weight, since, expires, is_leaving: false, tag });
        id
    }

    fn held_by(&mut self, id: PermitId) -> Result<&mut Holding, NotHeld> {
        let ended = self.ended.iter().find(|(gone, _)| *gone == id);
        let why = ended.map_or(NotHeld::Unknown, |(_, why)| *why);
        self.holders.iter_mut().find(|holder| holder.id == id).ok_or(why)
    }

    fn end(&mut self, id: PermitId, why: NotHeld, now: Timestamp) -> Result<Holding, NotHeld> {
        let held = *self.held_by(id)?;
        self.holders.retain(|holder| holder.id != id);
        self.ended.push((id, why));
        self.holds.record(now.since(held.since));
        Ok(held)
    }

    fn lose(&mut self, id: PermitId, loss: Loss, played: &Played) -> Result<(), NotHeld> {
        let held = self.end(id, NotHeld::Lost(loss), played.now)?;
        match loss {
            Loss::Evicted => self.totals.evicted += 1,
            Loss::Expired | Loss::Vanished | Loss::OutOfTouch => self.totals.expired += 1,
        }
        self.lost.push((id, loss, held.tag));
        Ok(())
    }
}

fn lease_end(ttl: Option<Duration>, now: Timestamp) -> Timestamp {
    let shortest = Duration::from_nanos(1);
    ttl.map_or(Timestamp::NEVER, |ttl| now.after(ttl.max(shortest)))
}
