//! Decides which request gets a slot. No other file does.
//!
//! 1. **Bound.** A grant needs `held + weight <= slots` ([`Gate::fits`]), and nothing else raises `held`.
//!    A shrink may lower `slots` below `held`; the difference is the debt. Then `held` only falls, because nothing fits
//!    until enough slots are released. [`Gate::reserve`] is the exception: it counts slots that an earlier gate of the
//!    name granted, even if that makes a debt.
//! 2. **FIFO, no barging.** A new request is granted only if the line is empty ([`Gate::admit`]). The line is served
//!    from its head, and a head that does not fit stops it ([`Gate::serve_line`]).
//! 3. **Direct transfer.** Every operation that may free weight or change the head ends with `serve_line`, so
//!    between operations a non-empty line means that its head does not fit.
//! 4. **Nothing leaks.** A grant ends only in [`Gate::end`]. If a waiter is cancelled after its grant and before its
//!    claim, the grant ends there, too.
//! 5. **Idempotent release.** An id is live or it is not ([`Slots::holds`]). For an id that is not live, [`Endings`]
//!    has the answer, and nothing changes.
//! 6. **Constant time** for acquire, release and cancel. A request's deadline costs more only if it is out of order.
//! 7. **Impossible requests fail at once.** `admit` refuses them; a shrink turns away the waiters it made impossible.
//! 8. Slot numbers: see [`slots`](crate::slots).
//!
//! An eviction is final ([`Gate::evict`]): it can only shorten a lease, no renewal undoes it, and a grant that is still
//! held when the grace or the lease ends, ends as evicted.
//!
//! [`opening`](crate::opening) decides what opening a name does.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use smallvec::SmallVec;

use crate::deadlines::Deadlines;
use crate::endings::Endings;
use crate::line::{Line, Queued, Settlement};
use crate::slots::Slots;
use crate::time::saturating_nanos;
use crate::{Histogram, Holder, Loss, NotHeld, PermitId, Stats, Ticket, Timestamp, Totals, Waiter};

/// Arenas no larger than this are kept for the next burst.
const KEPT_ENTRIES: usize = 1024;
/// Slot numbers below this one can be [reserved](Gate::reserve): a reservation allocates an entry for each number up to
/// it.
const MAX_RESERVED: u32 = 1 << 20;

/// Slots, a line of waiters, and their deadlines.
///
/// `W` is the payload of a waiter, to wake it with (a `Waker`, a task id, a connection). It is returned in
/// [`Effects::wake`] when its place in line is settled. `T` is its tag (a label, for example): it moves from the waiter
/// to the holder, and can be read in both places. A free slot has the default tag.
// Fields in the order of use: an uncontended cycle and the opening of a name touch only the first few cache lines.
#[repr(C)]
pub struct Gate<W, T> {
    slots: u32,
    held: u32,
    serial: u32,
    closed: bool,
    tokens: u64,
    /// Tokens up to this one were issued by an earlier gate of the same name.
    token_floor: u64,
    /// The earliest of `leases` and `timeouts`.
    next_deadline: Timestamp,
    grants: Slots<T>,
    line: Line<W, T>,
    holds: Histogram,
    totals: Totals,
    waits: Histogram,
    leases: Deadlines,
    timeouts: Deadlines,
    /// Waiters that ask for more than one slot: the only ones a shrink can make impossible.
    waiting_heavy: usize,
    max_waiting: usize,
    endings: Endings,
}

/// A request for slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// How many slots at once.
    pub weight: u32,
    /// How long they may be held.
    pub ttl: Option<Duration>,
    /// When to stop waiting; [`Timestamp::NEVER`] to wait for ever. If it has already passed, the next
    /// [`expire`](Gate::expire) ends the wait.
    pub deadline: Timestamp,
}

impl Default for Request {
    /// One slot, without a `ttl` and without a deadline.
    fn default() -> Self {
        Self { weight: 1, ttl: None, deadline: Timestamp::NEVER }
    }
}

/// What the caller must do after an operation, once it has released its lock.
#[must_use = "waiters keep sleeping until they are woken"]
pub struct Effects<W, T> {
    /// Waiters whose place is settled: each should [claim](Gate::claim) its ticket now.
    pub wake: SmallVec<[W; 2]>,
    /// Holders that lost their slot.
    pub lost: Vec<Lost<T>>,
    /// The payload of a request that did not queue: dropping it may run user code.
    pub unused: Option<W>,
}

impl<W, T> Effects<W, T> {
    /// True if there is nothing to do.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.wake.is_empty() && self.lost.is_empty() && self.unused.is_none()
    }
}

impl<W, T> Default for Effects<W, T> {
    #[inline]
    fn default() -> Self {
        Self { wake: SmallVec::new(), lost: Vec::new(), unused: None }
    }
}

/// A holder that lost its slot.
#[derive(Debug)]
pub struct Lost<T> {
    /// The id that no longer holds a slot.
    pub id: PermitId,
    /// Why the slot was lost.
    pub loss: Loss,
    /// The tag of the holder.
    pub tag: T,
}

/// The answer to [`Gate::acquire`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acquired {
    /// A slot was granted.
    Granted(PermitId),
    /// The request joined the line; this is its place.
    Queued(Ticket),
}

/// Why a request was refused at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It would have to wait, and may not.
    Busy,
    /// The line has reached its bound.
    LineFull {
        /// The bound.
        limit: usize,
    },
    /// It asks for zero slots.
    ZeroWeight,
    /// It asks for more slots than there are.
    TooHeavy {
        /// How many slots it asks for.
        weight: u32,
        /// How many slots there are.
        slots: u32,
    },
    /// The gate is closed.
    Closed,
}

/// The state of a place in line: the answer to [`Gate::claim`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// Still waiting.
    Waiting,
    /// A slot was granted.
    Granted {
        /// The id of the grant.
        id: PermitId,
        /// How long it waited in line.
        waited: Duration,
    },
    /// A slot was granted, and lost before this claim.
    Gone(NotHeld),
    /// Its deadline passed.
    TimedOut,
    /// The gate was closed.
    Closed,
    /// The gate shrank below the request.
    TooHeavy {
        /// How many slots it asked for.
        weight: u32,
        /// How many slots the shrink left.
        slots: u32,
    },
    /// No such ticket: claimed or cancelled before, or of another gate.
    Unknown,
}

/// The answer to [`Gate::evict`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evicted {
    /// The holder keeps its slot until it releases it, but at most until the time given here. The caller should notify
    /// it.
    Leaving {
        /// When the slot is taken away; [`Timestamp::NEVER`] if the grace is out of range.
        until: Timestamp,
    },
    /// The slot was taken away.
    Gone,
}

/// The answer to [`Gate::cancel`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cancelled<W> {
    /// It left the line. Its payload is returned, to be dropped outside the caller's lock.
    Left(W),
    /// A slot had been granted already; it was released for the next waiter.
    HandedOn,
    /// It had been settled already (timed out, closed, …), or its grant had ended.
    Settled,
    /// No such ticket: claimed or cancelled before.
    Unknown,
}

/// A gate needs at least one slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZeroSlots;

impl fmt::Display for ZeroSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("slots must be at least 1, got 0")
    }
}

impl std::error::Error for ZeroSlots {}

/// How a grant ends.
#[derive(Clone, Copy)]
enum End {
    Released,
    HandedOn,
    Lost(Loss),
}

impl<W, T: Default> Gate<W, T> {
    /// A gate of `slots` slots. Its ids contain `serial`, which distinguishes them from the ids of other gates.
    pub fn new(serial: u32, slots: u32) -> Result<Self, ZeroSlots> {
        if slots == 0 {
            return Err(ZeroSlots);
        }
        Ok(Self {
            serial,
            slots,
            held: 0,
            closed: false,
            max_waiting: usize::MAX,
            tokens: 0,
            token_floor: 0,
            next_deadline: Timestamp::NEVER,
            grants: Slots::new(),
            line: Line::new(serial),
            waiting_heavy: 0,
            leases: Deadlines::default(),
            timeouts: Deadlines::default(),
            endings: Endings::default(),
            totals: Totals::default(),
            waits: Histogram::default(),
            holds: Histogram::default(),
        })
    }

    /// Issues only fencing tokens above `token`, for a gate that follows an earlier one of the same name.
    pub fn continue_after(&mut self, token: u64) {
        let has_issued = self.tokens > self.token_floor;
        self.tokens = self.tokens.max(token);
        if !has_issued {
            self.token_floor = self.tokens;
        }
    }

    /// The newest fencing token.
    pub fn last_token(&self) -> u64 {
        self.tokens
    }

    /// Bounds the line: a request that would be number `limit + 1` in it is refused.
    pub fn set_max_waiting(&mut self, limit: usize) {
        self.max_waiting = limit;
    }

    pub(crate) fn max_waiting(&self) -> usize {
        self.max_waiting
    }

    /// Takes a slot if one is free and the line is empty.
    ///
    /// # Errors
    ///
    /// [`Refusal::Busy`] if it would have to wait; the other refusals as for [`acquire`](Self::acquire).
    pub fn try_acquire(&mut self, request: &Request, tag: T, now: Timestamp) -> Result<PermitId, Refusal> {
        match self.admit(request) {
            Ok(true) => Ok(self.grant(request.weight, lease_nanos(request), tag, now)),
            Ok(false) => Err(self.refuse(Refusal::Busy)),
            Err(refusal) => Err(self.refuse(refusal)),
        }
    }

    /// As [`try_acquire`](Self::try_acquire), but `None` is not counted as a refusal: the caller tries again with
    /// another method.
    #[inline(always)]
    pub fn take_if_free(&mut self, request: &Request, tag: T, now: Timestamp) -> Option<PermitId> {
        if !self.would_admit(request) {
            return None;
        }
        Some(self.grant(request.weight, lease_nanos(request), tag, now))
    }

    /// Counts slots as held that an earlier gate of the same name granted and that are still in use, whether they fit
    /// or not. Slots held beyond the number of slots are debt, as after a shrink. The slot number is `slot` if that is
    /// free, else the lowest free number.
    ///
    /// `None` if the weight is zero, or if the sum would overflow.
    pub fn reserve(&mut self, slot: u32, weight: u32, tag: T, now: Timestamp) -> Option<PermitId> {
        if weight == 0 || self.held.checked_add(weight).is_none() {
            return None;
        }
        let slot = if slot < MAX_RESERVED { self.grants.take(slot) } else { self.grants.take_lowest() };
        Some(self.grant_at(slot, weight, None, tag, now))
    }

    /// True if `request` would be granted at once. Counts nothing, changes nothing.
    #[inline]
    pub fn would_admit(&self, request: &Request) -> bool {
        self.admit(request) == Ok(true)
    }

    /// Takes a slot, or joins the line.
    ///
    /// # Errors
    ///
    /// A [`Refusal`] for a request that no wait could satisfy, or that finds the line full.
    pub fn acquire(
        &mut self,
        request: &Request,
        payload: W,
        tag: T,
        now: Timestamp,
        effects: &mut Effects<W, T>,
    ) -> Result<Acquired, Refusal> {
        self.expire(now, effects);
        let admitted = match self.admit(request) {
            Ok(false) if self.line.len() >= self.max_waiting => {
                Err(Refusal::LineFull { limit: self.max_waiting })
            }
            admitted => admitted,
        };
        if admitted != Ok(false) {
            effects.unused = Some(payload);
            return match admitted {
                Ok(_) => Ok(Acquired::Granted(self.grant(request.weight, lease_nanos(request), tag, now))),
                Err(refusal) => Err(self.refuse(refusal)),
            };
        }
        let ttl_nanos = lease_nanos(request);
        let has_deadline = request.deadline != Timestamp::NEVER;
        let weight = request.weight;
        let ticket = self.line.join(Queued { since: now, ttl_nanos, payload, tag, weight, has_deadline });
        if has_deadline {
            self.timeouts.set(ticket.index, request.deadline);
            self.refresh_deadline();
        }
        self.waiting_heavy += usize::from(request.weight > 1);
        self.totals.queued += 1;
        Ok(Acquired::Queued(ticket))
    }

    /// The state of a place in line. Any answer but [`Claim::Waiting`] uses the ticket up.
    #[inline]
    pub fn claim(&mut self, ticket: Ticket) -> Claim {
        let Some(settlement) = self.line.take_settlement(ticket) else {
            return if self.line.is_waiting(ticket) { Claim::Waiting } else { Claim::Unknown };
        };
        self.trim();
        match settlement {
            Settlement::Granted { id, waited_nanos } => match self.held_slot(id) {
                Ok(_) => Claim::Granted { id, waited: Duration::from_nanos(waited_nanos) },
                Err(why) => Claim::Gone(why),
            },
            Settlement::TimedOut => Claim::TimedOut,
            Settlement::Closed => Claim::Closed,
            Settlement::TooHeavy { weight, slots } => Claim::TooHeavy { weight, slots },
        }
    }

    /// The payload of a waiter, to read or replace; `None` once its place is settled.
    #[inline]
    pub fn payload_mut(&mut self, ticket: Ticket) -> Option<&mut W> {
        self.line.payload_mut(ticket)
    }

    /// Leaves the line, and releases the slot if one was granted meanwhile.
    pub fn cancel(&mut self, ticket: Ticket, now: Timestamp, effects: &mut Effects<W, T>) -> Cancelled<W> {
        if let Some(queued) = self.line.leave(ticket) {
            self.forget_waiter(ticket.index, &queued);
            self.totals.cancelled += 1;
            self.serve_line(now, effects);
            self.trim();
            return Cancelled::Left(queued.payload);
        }
        let Some(settlement) = self.line.take_settlement(ticket) else { return Cancelled::Unknown };
        let unclaimed = match settlement {
            Settlement::Granted { id, .. } => self.held_slot(id).ok(),
            _ => None,
        };
        if let Some(slot) = unclaimed {
            self.end(slot, End::HandedOn, now, effects);
            self.serve_line(now, effects);
        }
        self.trim();
        if unclaimed.is_some() { Cancelled::HandedOn } else { Cancelled::Settled }
    }

    /// Releases a slot, and serves the line. Returns the tag of the holder.
    ///
    /// # Errors
    ///
    /// [`NotHeld`] says why the id holds nothing; then nothing changes.
    #[inline(always)]
    pub fn release(
        &mut self,
        id: PermitId,
        now: Timestamp,
        effects: &mut Effects<W, T>,
    ) -> Result<T, NotHeld> {
        let slot = self.held_slot(id)?;
        let tag = self.end(slot, End::Released, now, effects);
        self.serve_line(now, effects);
        Ok(tag)
    }

    /// Takes a slot away from its holder when `grace` or its lease ends, whichever is first, unless the holder releases
    /// it before. At once if there is no grace, or if the holder was evicted before.
    ///
    /// # Errors
    ///
    /// [`NotHeld`] if the slot is no longer held, or its lease has ended by now.
    pub fn evict(
        &mut self,
        id: PermitId,
        grace: Duration,
        now: Timestamp,
        effects: &mut Effects<W, T>,
    ) -> Result<Evicted, NotHeld> {
        self.expire(now, effects);
        let slot = self.held_slot(id)?;
        if grace.is_zero() || self.grants.is_leaving(slot) {
            self.end(slot, End::Lost(Loss::Evicted), now, effects);
            self.serve_line(now, effects);
            return Ok(Evicted::Gone);
        }
        self.grants.set_leaving(slot);
        let until = now.after(grace);
        if until < self.grants.expiry(slot) {
            self.set_expiry(slot, until);
        }
        Ok(Evicted::Leaving { until: self.grants.expiry(slot) })
    }

    /// Sets the lease of a holder to `ttl` from now, or to no limit; returns the new deadline.
    ///
    /// # Errors
    ///
    /// [`NotHeld`] if the slot is no longer held, its lease has ended by now, or its holder was evicted.
    pub fn renew(
        &mut self,
        id: PermitId,
        ttl: Option<Duration>,
        now: Timestamp,
        effects: &mut Effects<W, T>,
    ) -> Result<Timestamp, NotHeld> {
        self.expire(now, effects);
        let slot = self.held_slot(id)?;
        if self.grants.is_leaving(slot) {
            return Err(NotHeld::Lost(Loss::Evicted));
        }
        let expires = expiry(now, nonzero_nanos(ttl));
        self.set_expiry(slot, expires);
        Ok(expires)
    }

    fn set_expiry(&mut self, slot: u32, expires: Timestamp) {
        self.grants.set_expiry(slot, expires);
        self.leases.set(slot, expires);
        self.refresh_deadline();
    }

    /// Ends what is due: leases of holders, timeouts of waiters, in the order of their deadlines.
    ///
    /// A late call does not change the outcome: a slot whose lease ended before a waiter's deadline is granted to that
    /// waiter, although both times have passed by now. The new lease starts at `now`, when the grant really happens.
    /// Leases that end at the same time end together, before the line is served, so their order does not matter.
    ///
    /// [`acquire`](Self::acquire), [`renew`](Self::renew) and [`evict`](Self::evict) do this first. The
    /// other operations do not: if a release comes before the call that expires its lease, the release wins.
    pub fn expire(&mut self, now: Timestamp, effects: &mut Effects<W, T>) {
        while self.next_deadline() <= now {
            let due = self.leases.next();
            if due <= self.timeouts.next() {
                while self.leases.next() == due
                    && let Some(slot) = self.leases.pop()
                {
                    let loss = if self.grants.is_leaving(slot) { Loss::Evicted } else { Loss::Expired };
                    self.end(slot, End::Lost(loss), now, effects);
                }
                self.refresh_deadline();
                self.serve_line(now, effects);
            } else {
                let Some(index) = self.timeouts.pop() else { break };
                self.refresh_deadline();
                self.turn_away(index, Settlement::TimedOut, effects);
                self.totals.timed_out += 1;
                self.serve_line(now, effects);
            }
        }
    }

    /// When [`expire`](Self::expire) has something to do; [`Timestamp::NEVER`] if nothing is due.
    #[inline]
    pub fn next_deadline(&self) -> Timestamp {
        self.next_deadline
    }

    /// Changes the number of slots.
    ///
    /// When shrinking, holders keep their slots; new grants wait until enough slots are released. Waiters that ask for
    /// more slots than are left are turned away.
    ///
    /// # Errors
    ///
    /// [`ZeroSlots`]: use [`close`](Self::close) to stop a gate.
    pub fn resize(
        &mut self,
        slots: u32,
        now: Timestamp,
        effects: &mut Effects<W, T>,
    ) -> Result<(), ZeroSlots> {
        if slots == 0 {
            return Err(ZeroSlots);
        }
        if slots < self.slots {
            self.grants.shrink(slots);
        }
        self.slots = slots;
        if self.waiting_heavy > 0 {
            let line = self.line.iter().map(|(index, queued)| (index, queued.weight));
            let impossible: Vec<_> = line.filter(|(_, weight)| *weight > slots).collect();
            for (index, weight) in impossible {
                self.turn_away(index, Settlement::TooHeavy { weight, slots }, effects);
                self.totals.refused += 1;
            }
        }
        self.serve_line(now, effects);
        Ok(())
    }

    /// Refuses all waiters in line, and every request from now on. Holders keep their slots.
    pub fn close(&mut self, effects: &mut Effects<W, T>) {
        self.closed = true;
        while let Some((index, _)) = self.line.first() {
            self.turn_away(index, Settlement::Closed, effects);
            self.totals.refused += 1;
        }
    }

    /// True after [`close`](Self::close).
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// True if there are no holders, no waiters, and no unclaimed tickets.
    pub fn is_idle(&self) -> bool {
        self.grants.live() == 0 && self.line.has_no_entries()
    }

    /// How many slots there are.
    #[inline]
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// How many slots are held.
    #[inline]
    pub fn held(&self) -> u32 {
        self.held
    }

    /// How many waiters are in line.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.line.len()
    }

    /// False if [cancelling](Self::cancel) this ticket grants no slot to other waiters: then it needs no precise time.
    #[inline]
    pub fn may_grant_on_cancel(&self, ticket: Ticket) -> bool {
        // A waiter that leaves frees no slot, but it may have blocked the waiters behind it.
        !self.line.is_empty() && (self.held < self.slots || !self.line.is_waiting(ticket))
    }

    /// When the lease of a holder ends.
    ///
    /// # Errors
    ///
    /// [`NotHeld`] if the id holds nothing.
    pub fn expiry(&self, id: PermitId) -> Result<Timestamp, NotHeld> {
        Ok(self.grants.expiry(self.held_slot(id)?))
    }

    /// True if a holder was [evicted](Self::evict) and has not released its slot yet.
    ///
    /// # Errors
    ///
    /// [`NotHeld`] if the id holds nothing.
    pub fn is_leaving(&self, id: PermitId) -> Result<bool, NotHeld> {
        Ok(self.grants.is_leaving(self.held_slot(id)?))
    }

    /// The tag of a holder.
    ///
    /// # Errors
    ///
    /// [`NotHeld`] if the id holds nothing.
    pub fn tag_mut(&mut self, id: PermitId) -> Result<&mut T, NotHeld> {
        let slot = self.held_slot(id)?;
        Ok(self.grants.tag_mut(slot))
    }

    /// Live holders, by slot number.
    pub fn holders(&self) -> impl Iterator<Item = Holder<'_, T>> {
        self.grants.holders(self.serial)
    }

    /// The line, first to last.
    pub fn waiters(&self) -> impl Iterator<Item = Waiter<'_, T>> {
        let line = self.line.iter();
        line.map(|(_, queued)| Waiter { weight: queued.weight, since: queued.since, tag: &queued.tag })
    }

    /// A snapshot of all counts.
    pub fn stats(&self, now: Timestamp) -> Stats {
        Stats {
            slots: self.slots,
            held: self.held,
            holders: self.grants.live(),
            waiting: self.line.len(),
            longest_wait: self.line.first().map_or(Duration::ZERO, |(_, first)| now.since(first.since)),
            totals: self.totals,
            waits: self.waits.clone(),
            holds: self.holds.clone(),
        }
    }

    /// Whether this request can have a slot right now. An error if no wait could satisfy it.
    #[inline]
    fn admit(&self, request: &Request) -> Result<bool, Refusal> {
        if self.closed {
            return Err(Refusal::Closed);
        }
        if request.weight == 0 {
            return Err(Refusal::ZeroWeight);
        }
        if request.weight > self.slots {
            return Err(Refusal::TooHeavy { weight: request.weight, slots: self.slots });
        }
        Ok(self.line.is_empty() && self.fits(request.weight))
    }

    #[inline]
    fn fits(&self, weight: u32) -> bool {
        self.slots.saturating_sub(self.held) >= weight
    }

    #[cold]
    fn refuse(&mut self, refusal: Refusal) -> Refusal {
        self.totals.refused += 1;
        refusal
    }

    #[inline(always)]
    fn grant(&mut self, weight: u32, ttl_nanos: Option<NonZeroU64>, tag: T, now: Timestamp) -> PermitId {
        let slot = self.grants.take_lowest();
        self.grant_at(slot, weight, ttl_nanos, tag, now)
    }

    #[inline(always)]
    fn grant_at(
        &mut self,
        slot: u32,
        weight: u32,
        ttl_nanos: Option<NonZeroU64>,
        tag: T,
        now: Timestamp,
    ) -> PermitId {
        self.held += weight;
        self.tokens += 1;
        self.totals.granted += 1;
        let expires = expiry(now, ttl_nanos);
        self.grants.occupy(slot, self.tokens, weight, now, expires, tag);
        if ttl_nanos.is_some() {
            self.leases.set(slot, expires);
            self.next_deadline = self.next_deadline.min(expires);
        }
        PermitId::new(self.serial, slot, self.tokens)
    }

    /// Grants to the head of the line as long as it fits.
    #[inline]
    fn serve_line(&mut self, now: Timestamp, effects: &mut Effects<W, T>) {
        if !self.line.is_empty() {
            self.serve_waiters(now, effects);
        }
    }

    #[inline(never)]
    fn serve_waiters(&mut self, now: Timestamp, effects: &mut Effects<W, T>) {
        while let Some((index, first)) = self.line.first()
            && self.fits(first.weight)
            && let Some(queued) = self.line.take_waiter(index)
        {
            self.forget_waiter(index, &queued);
            let waited_nanos = now.nanos_since(queued.since);
            self.waits.record_nanos(waited_nanos);
            let id = self.grant(queued.weight, queued.ttl_nanos, queued.tag, now);
            self.line.settle(index, Settlement::Granted { id, waited_nanos });
            effects.wake.push(queued.payload);
        }
    }

    /// Takes a waiter out of the line without a grant.
    fn turn_away(&mut self, index: u32, settlement: Settlement, effects: &mut Effects<W, T>) {
        if let Some(queued) = self.line.take_waiter(index) {
            self.forget_waiter(index, &queued);
            self.line.settle(index, settlement);
            effects.wake.push(queued.payload);
        }
    }

    fn forget_waiter(&mut self, index: u32, queued: &Queued<W, T>) {
        if queued.has_deadline {
            self.timeouts.remove(index);
            self.refresh_deadline();
        }
        self.waiting_heavy -= usize::from(queued.weight > 1);
    }

    #[inline]
    fn refresh_deadline(&mut self) {
        self.next_deadline = self.leases.next().min(self.timeouts.next());
    }

    /// The slot that an id holds.
    #[inline]
    fn held_slot(&self, id: PermitId) -> Result<u32, NotHeld> {
        if id.gate() == self.serial && self.grants.holds(id.slot(), id.fencing_token()) {
            Ok(id.slot())
        } else {
            Err(self.why_not_held(id))
        }
    }

    #[cold]
    fn why_not_held(&self, id: PermitId) -> NotHeld {
        let token = id.fencing_token();
        let issued = id.gate() == self.serial && token > self.token_floor && token <= self.tokens;
        if issued { self.endings.look_up(token) } else { NotHeld::Unknown }
    }

    /// Ends the grant of a held slot. Returns its tag, unless the tag went into [`Effects::lost`].
    #[inline(always)]
    fn end(&mut self, slot: u32, end: End, now: Timestamp, effects: &mut Effects<W, T>) -> T {
        let token = self.grants.token(slot);
        let mut vacated = self.grants.vacate(slot);
        if vacated.expires != Timestamp::NEVER {
            self.leases.remove(slot);
            if vacated.expires == self.next_deadline {
                self.refresh_deadline();
            }
        }
        self.held -= vacated.weight;
        self.holds.record_nanos(now.nanos_since(vacated.since));
        match end {
            End::Released => self.totals.released += 1,
            End::HandedOn => self.totals.handed_on += 1,
            End::Lost(loss) => {
                match loss {
                    Loss::Evicted => self.totals.evicted += 1,
                    Loss::Expired | Loss::Vanished | Loss::OutOfTouch => self.totals.expired += 1,
                }
                self.endings.record(token, loss);
                let id = PermitId::new(self.serial, slot, token);
                effects.lost.push(Lost { id, loss, tag: std::mem::take(&mut vacated.tag) });
            }
        }
        if self.held == 0 && self.grants.is_oversized(KEPT_ENTRIES) {
            self.trim_slots();
        }
        vacated.tag
    }

    #[cold]
    fn trim_slots(&mut self) {
        self.grants = Slots::new();
        self.leases.trim(KEPT_ENTRIES);
    }

    fn trim(&mut self) {
        self.line.trim(KEPT_ENTRIES);
        self.timeouts.trim(KEPT_ENTRIES);
    }
}

/// The `ttl` of a request as the line stores it.
#[inline]
fn lease_nanos(request: &Request) -> Option<NonZeroU64> {
    nonzero_nanos(request.ttl)
}

/// Zero counts as one nanosecond.
#[inline]
fn nonzero_nanos(ttl: Option<Duration>) -> Option<NonZeroU64> {
    Some(NonZeroU64::new(saturating_nanos(ttl?)).unwrap_or(NonZeroU64::MIN))
}

#[inline]
fn expiry(now: Timestamp, ttl_nanos: Option<NonZeroU64>) -> Timestamp {
    let Some(nanos) = ttl_nanos else { return Timestamp::NEVER };
    Timestamp::from_nanos(now.as_nanos().saturating_add(nanos.get()))
}
