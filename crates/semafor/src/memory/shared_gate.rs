//! One named semaphore: a core gate behind a lock.
//!
//! The core decides; this file locks, reads the clock, and carries out the [`Effects`]. User code (wakers, listeners of
//! a loss, tracing) runs only after the lock is released: see [`SharedGate::finish`].

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use semafor_core::{
    Acquired, Cancelled, Claim, Effects, Evicted, Gate, Loss, Lost, NotHeld, OpenRefusal, Opened, Opening,
    PermitId, Refusal, Request, Ticket, Timestamp, ZeroSlots,
};
use tokio_util::sync::CancellationToken;

use super::clock::Clock;
use super::registry::RegistryInner;
use super::tag::Tag;
use crate::error::AcquireError;
use crate::stats::{HolderInfo, Stats, WaiterInfo};
use crate::sync::{Mutex, MutexGuard};
use crate::task::TaskKey;
use crate::{catch_panic, observe};

// The order of the fields keeps finding a name among many, and opening it, to few cache lines.
#[repr(C)]
pub(crate) struct SharedGate {
    handles: AtomicUsize,
    name: Arc<str>,
    clock: Clock,
    /// Whether the line has waiters, to read without the lock. Changed only under the lock.
    has_waiters: AtomicBool,
    state: Mutex<State>,
    this: Weak<Self>,
    registry: Weak<RegistryInner>,
}

#[repr(C)]
struct State {
    /// When the driver will look at this gate.
    armed: Timestamp,
    gate: Gate<Waker, Tag>,
    /// The effects of the current operation. Empty whenever the lock is free.
    effects: Fx,
    detached: Detached,
    unused_since: Timestamp,
    /// Whether it is in the timetable's list of unused names.
    is_listed: bool,
}

pub(super) type Fx = Effects<Waker, Tag>;

/// Ids by the task that detached them, and by their token, so that the latest is last.
type Detached = HashMap<TaskKey, BTreeMap<u64, PermitId>>;

/// The result of [`SharedGate::enqueue`].
pub(crate) enum Enqueued {
    Granted(PermitId),
    Waiting { ticket: Ticket, since: Timestamp },
}

impl SharedGate {
    pub(super) fn new(
        name: &str,
        gate: Gate<Waker, Tag>,
        clock: Clock,
        registry: Weak<RegistryInner>,
    ) -> Arc<Self> {
        let state = State {
            gate,
            effects: Fx::default(),
            armed: Timestamp::NEVER,
            detached: HashMap::new(),
            unused_since: Timestamp::NEVER,
            is_listed: false,
        };
        Arc::new_cyclic(|this| Self {
            state: Mutex::new(state),
            clock,
            handles: AtomicUsize::new(0),
            has_waiters: AtomicBool::new(false),
            this: Weak::clone(this),
            registry,
            name: name.into(),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// Opens the name for one more handle. First ends overdue leases and waits: the caller [carries
    /// out](Self::carry_out) the effects once it has unlocked the name.
    pub(super) fn open(&self, opening: Opening) -> (Result<Opened, OpenRefusal>, Option<Fx>) {
        let mut state = self.state.lock();
        let is_timed = state.gate.next_deadline() != Timestamp::NEVER;
        let now = if is_timed { self.clock.now() } else { self.clock.rough() };
        let (gate, effects) = state.parts();
        let opened = gate.open(opening, now, effects);
        self.arm(&mut state);
        self.note_line(&state);
        let effects = (!state.effects.is_empty()).then(|| state.take_effects());
        (opened, effects)
    }

    /// Takes a free slot. An uncontended acquire does nothing else.
    #[inline(always)]
    pub(crate) fn take_if_free(&self, request: &Request, tag: Tag) -> Option<PermitId> {
        let now = if request.ttl.is_some() { self.clock.now() } else { self.clock.rough() };
        let mut state = self.state.lock();
        let taken = state.gate.take_if_free(request, tag, now);
        if request.ttl.is_some() {
            self.arm(&mut state);
        }
        drop(state);
        observe::taken(self, taken);
        taken
    }

    /// Takes a free slot, or returns the refusal. First ends overdue leases that the driver has not ended yet.
    pub(crate) fn try_acquire(&self, request: &Request, tag: Tag) -> Result<PermitId, Refusal> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.expire(now);
        let answer = state.gate.try_acquire(request, tag, now);
        self.finish(state);
        observe::tried(self, &answer);
        answer
    }

    /// Counts slots as held that an earlier agent granted; see [`Gate::reserve`].
    #[cfg(feature = "local")]
    pub(crate) fn reserve(&self, slot: u32, weight: u32, tag: Tag) -> Option<PermitId> {
        let now = self.clock.now();
        let reserved = self.state.lock().gate.reserve(slot, weight, tag, now);
        observe::taken(self, reserved);
        reserved
    }

    /// True if the line has waiters, so an attempt to acquire at once would most likely fail.
    #[inline]
    pub(crate) fn has_line(&self) -> bool {
        self.has_waiters.load(Ordering::Relaxed)
    }

    /// True if the request would be granted at once.
    pub(crate) fn would_admit(&self, request: &Request) -> bool {
        self.view(|gate, _| gate.would_admit(request))
    }

    /// Takes a slot, or joins the line until `timeout`.
    pub(crate) fn enqueue(
        &self,
        mut request: Request,
        timeout: Option<Duration>,
        waker: Waker,
        tag: Tag,
    ) -> Result<Enqueued, AcquireError> {
        let now = self.clock.now();
        request.deadline = timeout.map_or(Timestamp::NEVER, |timeout| now.after(timeout));
        let mut state = self.state.lock();
        let (gate, effects) = state.parts();
        let acquired = gate.acquire(&request, waker, tag, now, effects);
        self.finish(state);
        observe::enqueued(self, &acquired);
        match acquired? {
            Acquired::Granted(id) => Ok(Enqueued::Granted(id)),
            Acquired::Queued(ticket) => Ok(Enqueued::Waiting { ticket, since: now }),
        }
    }

    /// Polls a place in line, and stores the waker while it is waiting.
    pub(crate) fn poll_ticket(
        &self,
        ticket: Ticket,
        since: Timestamp,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(PermitId, Duration), AcquireError>> {
        let mut spare;
        let mut state = self.state.lock();
        let mut claim = state.gate.claim(ticket);
        if let (Claim::Waiting, Some(waker)) = (claim, state.gate.payload_mut(ticket)) {
            if waker.will_wake(cx.waker()) {
                return Poll::Pending;
            }
            // Cloning or dropping a waker runs user code: do both without the lock, then look again.
            drop(state);
            spare = cx.waker().clone();
            state = self.state.lock();
            claim = state.gate.claim(ticket);
            if let (Claim::Waiting, Some(stale)) = (claim, state.gate.payload_mut(ticket)) {
                std::mem::swap(stale, &mut spare);
                drop(state);
                return Poll::Pending;
            }
        }
        let settled = match claim {
            Claim::Granted { id, waited } => Ok((id, waited)),
            Claim::Gone(why) => Err(AcquireError::Lost(why)),
            Claim::TimedOut => {
                let waited = self.clock.now().since(since);
                Err(timed_out(&state, waited))
            }
            Claim::TooHeavy { weight, slots } => Err(AcquireError::TooHeavy { weight, slots }),
            // A future polls only its own ticket, and only until it is settled, so it is neither waiting nor unknown
            // here.
            Claim::Closed | Claim::Waiting | Claim::Unknown => Err(AcquireError::Closed),
        };
        drop(state);
        observe::settled(self, &settled);
        Poll::Ready(settled)
    }

    /// The error of a request with a timeout of zero.
    pub(crate) fn timed_out_at_once(&self) -> AcquireError {
        timed_out(&self.state.lock(), Duration::ZERO)
    }

    /// Leaves the line, and releases the slot if one was granted meanwhile.
    pub(crate) fn cancel(&self, ticket: Ticket) {
        let mut now = self.clock.rough();
        let mut state = self.state.lock();
        if state.gate.may_grant_on_cancel(ticket) {
            now = self.precise_now();
        }
        let (gate, effects) = state.parts();
        let cancelled = gate.cancel(ticket, now, effects);
        self.finish(state);
        observe::cancelled(self, &cancelled);
        // The waker in it may be dropped only now, without the lock.
        drop::<Cancelled<Waker>>(cancelled);
    }

    /// Releases a slot for its guard.
    #[inline]
    pub(crate) fn release(&self, id: PermitId) -> Result<(), NotHeld> {
        let now = self.clock.rough();
        let state = self.state.lock();
        self.end(state, id, now).map(drop)
    }

    /// Releases a slot by id. A guard that still holds it is notified.
    pub(crate) fn release_by_id(&self, id: PermitId) -> Result<(), NotHeld> {
        let now = self.clock.rough();
        let state = self.state.lock();
        let tag = self.end(state, id, now)?;
        catch_panic::call(|| tag.signal_loss());
        Ok(())
    }

    /// Releases the slot that the current task acquired last, of those it detached.
    pub(crate) fn release_latest(&self) -> Option<PermitId> {
        let task = TaskKey::current();
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.expire(now);
        state.forget_lost_detached();
        let latest = state.detached.get(&task).and_then(|held| held.values().next_back().copied());
        let Some(id) = latest else {
            self.finish(state);
            return None;
        };
        let tag = self.end(state, id, now).ok()?;
        catch_panic::call(|| tag.signal_loss());
        Some(id)
    }

    #[inline(always)]
    fn end(
        &self,
        mut state: MutexGuard<'_, State>,
        id: PermitId,
        mut now: Timestamp,
    ) -> Result<Tag, NotHeld> {
        if state.gate.waiting() > 0 {
            now = self.precise_now();
        }
        let (gate, effects) = state.parts();
        let released = gate.release(id, now, effects);
        if let Ok(tag) = &released {
            state.forget_detached(id, tag);
        }
        if state.effects.is_empty() {
            drop(state);
        } else {
            self.finish(state);
        }
        observe::released(self, id, &released);
        released
    }

    /// Takes the slot away: at once, or when the holder's grace ends. A second evict ends the grace.
    pub(crate) fn evict(&self, id: PermitId) -> Result<(), NotHeld> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let grace = state.gate.tag_mut(id)?.grace();
        let (gate, effects) = state.parts();
        let evicted = gate.evict(id, grace, now, effects);
        let notice = match evicted {
            Ok(Evicted::Leaving { .. }) => gate.tag_mut(id).map(Tag::lost_signal).ok(),
            _ => None,
        };
        self.finish(state);
        if let Some(lost) = notice {
            catch_panic::call(|| lost.cancel());
        }
        evicted.map(drop)
    }

    pub(crate) fn renew(&self, id: PermitId, ttl: Option<Duration>) -> Result<(), NotHeld> {
        let mut state = self.state.lock();
        let (gate, effects) = state.parts();
        let renewed = gate.renew(id, ttl, self.clock.now(), effects);
        self.finish(state);
        renewed.map(drop)
    }

    pub(crate) fn expires_at(&self, id: PermitId) -> Option<Instant> {
        let expires = self.view(|gate, _| gate.expiry(id)).ok()?;
        if expires == Timestamp::NEVER {
            return None;
        }
        self.clock.instant(expires)
    }

    /// Why `id` holds nothing, or was evicted; `None` while it holds its slot.
    pub(crate) fn why_not_held(&self, id: PermitId) -> Option<NotHeld> {
        match self.view(|gate, _| gate.is_leaving(id)) {
            Ok(false) => None,
            Ok(true) => Some(NotHeld::Lost(Loss::Evicted)),
            Err(why) => Some(why),
        }
    }

    /// Whether `id` was evicted and still holds its slot.
    #[cfg(feature = "local")]
    pub(crate) fn is_leaving(&self, id: PermitId) -> bool {
        self.view(|gate, _| gate.is_leaving(id)) == Ok(true)
    }

    /// Fires when `id` no longer holds its slot, although its guard did not release it.
    pub(crate) fn lost_signal(&self, id: PermitId) -> CancellationToken {
        let signal = self.state.lock().gate.tag_mut(id).map(Tag::lost_signal);
        signal.unwrap_or_else(|_| {
            let lost = CancellationToken::new();
            lost.cancel();
            lost
        })
    }

    /// Records that the current task holds `id` without a guard.
    pub(crate) fn detach(&self, id: PermitId) {
        let task = TaskKey::current();
        let mut state = self.state.lock();
        if let Ok(tag) = state.gate.tag_mut(id) {
            tag.set_detached_by(task);
            state.detached.entry(task).or_default().insert(id.fencing_token(), id);
        }
    }

    pub(crate) fn resize(&self, slots: u32) -> Result<(), ZeroSlots> {
        let mut state = self.state.lock();
        let before = state.gate.slots();
        let (gate, effects) = state.parts();
        let resized = gate.resize(slots, self.clock.now(), effects);
        self.finish(state);
        if resized.is_ok() {
            observe::resized(self, before, slots);
        }
        resized
    }

    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        let (gate, effects) = state.parts();
        gate.close(effects);
        self.finish(state);
        observe::closed(self);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().gate.is_closed()
    }

    pub(crate) fn slots(&self) -> u32 {
        self.state.lock().gate.slots()
    }

    pub(crate) fn stats(&self) -> Stats {
        let numbers = self.view(Gate::stats);
        Stats::new(self.shared_name(), numbers)
    }

    pub(crate) fn holders(&self) -> Vec<HolderInfo> {
        self.view(|gate, now| {
            gate.holders().map(|holder| HolderInfo::new(&holder, holder.tag.who(), now)).collect()
        })
    }

    pub(crate) fn waiters(&self) -> Vec<WaiterInfo> {
        self.view(|gate, now| {
            let waiters = gate.waiters().enumerate();
            waiters.map(|(ahead, waiter)| WaiterInfo::new(ahead, &waiter, waiter.tag.who(), now)).collect()
        })
    }

    /// Reads the gate after ending overdue leases and waits.
    fn view<R>(&self, view: impl FnOnce(&Gate<Waker, Tag>, Timestamp) -> R) -> R {
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.expire(now);
        let seen = view(&state.gate, now);
        self.finish(state);
        seen
    }

    /// Called when this gate was taken off the timetable because it is due. The caller carries out the effects.
    pub(super) fn expire_due(&self, registry: &RegistryInner, now: Timestamp) -> Fx {
        let mut state = self.state.lock();
        state.expire(now);
        // It is no longer in the timetable, so it must be put back, even for a later time.
        let next = state.gate.next_deadline();
        state.armed = registry.rearm(&self.this, state.armed, next);
        self.note_line(&state);
        state.take_effects()
    }

    pub(super) fn add_handle(&self) {
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    /// True if that was the last handle.
    pub(super) fn drop_handle(&self) -> bool {
        self.handles.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Marks the gate as unused from now on, if it is. `Some` if it must still be listed for dropping.
    pub(super) fn mark_unused(&self) -> Option<Timestamp> {
        let mut state = self.state.lock();
        if !self.is_unused(&state) {
            return None;
        }
        state.unused_since = self.clock.rough();
        let newly_listed = !std::mem::replace(&mut state.is_listed, true);
        newly_listed.then_some(state.unused_since)
    }

    /// Since when this gate is unused. If it is used again, it is no longer listed, and this is `None`.
    pub(super) fn unused_since(&self) -> Option<Timestamp> {
        let mut state = self.state.lock();
        state.is_listed = self.is_unused(&state);
        state.is_listed.then_some(state.unused_since)
    }

    fn is_unused(&self, state: &State) -> bool {
        self.handles.load(Ordering::Acquire) == 0 && state.gate.is_idle()
    }

    /// Leaves the timetable for ever; returns the newest fencing token.
    pub(super) fn retire(&self, registry: &RegistryInner) -> u64 {
        let mut state = self.state.lock();
        let armed = std::mem::replace(&mut state.armed, Timestamp::NEVER);
        registry.rearm(&self.this, armed, Timestamp::NEVER);
        state.gate.last_token()
    }

    /// The time for an operation that may grant a slot to a waiter. With the rough clock, the wait would seem longer or
    /// shorter than it was, and a new lease might end early.
    #[cold]
    fn precise_now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Makes sure that the driver looks at this gate when its next deadline is due.
    #[inline]
    fn arm(&self, state: &mut State) {
        if state.gate.next_deadline() < state.armed {
            self.rearm(state);
        }
    }

    #[cold]
    fn rearm(&self, state: &mut State) {
        let next = state.gate.next_deadline();
        if let Some(registry) = self.registry.upgrade() {
            state.armed = registry.rearm(&self.this, state.armed, next);
        }
    }

    /// Releases the lock, then carries out the effects.
    fn finish(&self, mut state: MutexGuard<'_, State>) {
        self.arm(&mut state);
        self.note_line(&state);
        if state.effects.lost.is_empty() && state.effects.wake.len() <= 1 {
            let (waker, unused) = (state.effects.wake.pop(), state.effects.unused.take());
            drop(state);
            waker.into_iter().for_each(wake);
            unused.into_iter().for_each(|waker| catch_panic::call(|| drop(waker)));
            return;
        }
        let effects = state.take_effects();
        drop(state);
        self.carry_out(effects);
    }

    #[inline]
    fn note_line(&self, state: &State) {
        let has_line = state.gate.waiting() > 0;
        if has_line != self.has_line() {
            self.has_waiters.store(has_line, Ordering::Relaxed);
        }
    }

    /// Calls user code: never under a lock, and not on the driver thread.
    pub(super) fn carry_out(&self, effects: Fx) {
        effects.lost.iter().for_each(|lost| self.signal_loss(lost));
        effects.wake.into_iter().for_each(wake);
        catch_panic::call(|| drop(effects.unused));
    }

    pub(super) fn signal_loss(&self, lost: &Lost<Tag>) {
        observe::lost(self, lost.id, lost.loss);
        catch_panic::call(|| lost.tag.signal_loss());
    }
}

pub(super) fn wake(waker: Waker) {
    catch_panic::call(|| waker.wake());
}

fn timed_out(state: &State, waited: Duration) -> AcquireError {
    AcquireError::TimedOut {
        waited,
        held: state.gate.held(),
        slots: state.gate.slots(),
        waiting: state.gate.waiting(),
    }
}

impl State {
    #[inline]
    fn parts(&mut self) -> (&mut Gate<Waker, Tag>, &mut Fx) {
        (&mut self.gate, &mut self.effects)
    }

    fn expire(&mut self, now: Timestamp) {
        self.gate.expire(now, &mut self.effects);
    }

    #[inline]
    fn forget_detached(&mut self, id: PermitId, tag: &Tag) {
        if let Some(task) = tag.detached_by() {
            forget_detached_by(&mut self.detached, task, id);
        }
    }

    fn take_effects(&mut self) -> Fx {
        self.forget_lost_detached();
        std::mem::take(&mut self.effects)
    }

    /// Removes the permits that were lost from the detached permits of their tasks.
    fn forget_lost_detached(&mut self) {
        for lost in &self.effects.lost {
            if let Some(task) = lost.tag.detached_by() {
                forget_detached_by(&mut self.detached, task, lost.id);
            }
        }
    }
}

#[cold]
fn forget_detached_by(detached: &mut Detached, task: TaskKey, id: PermitId) {
    if let Some(ids) = detached.get_mut(&task) {
        ids.remove(&id.fencing_token());
        if ids.is_empty() {
            detached.remove(&task);
        }
    }
}

#[cfg(all(test, not(semafor_loom)))]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::Waker;

    use super::*;
    use crate::{Acquire, ManualClock, Permit, Registry, Semaphore};

    const LATE_BY: Duration = Duration::from_millis(55);
    const REAL_WAIT: Duration = Duration::from_micros(370);

    /// One slot, on a clock whose rough reading is far too late.
    fn open_with_late_rough_clock() -> (Semaphore, ManualClock) {
        let clock = ManualClock::new();
        let registry = Registry::builder().clock(&clock).build();
        clock.advance(Duration::from_secs(1));
        clock.delay_rough_clock(LATE_BY);
        (registry.named("late").slots(1).build().unwrap(), clock)
    }

    fn poll<'a>(acquire: Pin<&mut Acquire<'a>>) -> Poll<Result<Permit<'a>, AcquireError>> {
        acquire.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn waited(settled: Poll<Result<Permit<'_>, AcquireError>>) -> Duration {
        match settled {
            Poll::Ready(Ok(permit)) => permit.waited(),
            other => panic!("expected a permit, got {other:?}"),
        }
    }

    /// A waiter joins the line while the rough clock is late, and gets the slot by `release` when the clock is right
    /// again.
    fn wait_that_ends_by(release: impl FnOnce(Permit<'_>, &Semaphore)) -> Duration {
        let (sem, clock) = open_with_late_rough_clock();
        let held = sem.acquire().blocking().unwrap();
        let mut waiting = pin!(sem.acquire());
        assert!(poll(waiting.as_mut()).is_pending());
        clock.advance(REAL_WAIT);
        clock.delay_rough_clock(Duration::ZERO);
        release(held, &sem);
        let waited = waited(poll(waiting));
        let waits = pollster::block_on(sem.stats()).unwrap().waits.clone();
        assert_eq!((waits.count(), waits.max()), (1, waited));
        waited
    }

    #[test]
    fn wait_is_exact_although_the_rough_clock_was_late_at_its_start() {
        assert_eq!(wait_that_ends_by(|held, _| drop(held)), REAL_WAIT);
    }

    #[test]
    fn wait_that_ends_by_a_release_by_id_is_exact() {
        let release = |held: Permit<'_>, sem: &Semaphore| {
            let id = held.detach();
            pollster::block_on(sem.release(&id)).unwrap();
        };
        assert_eq!(wait_that_ends_by(release), REAL_WAIT);
    }

    #[test]
    fn wait_is_exact_although_the_rough_clock_is_late_at_its_end() {
        let (sem, clock) = open_with_late_rough_clock();
        let held = sem.acquire().blocking().unwrap();
        let mut waiting = pin!(sem.acquire());
        clock.delay_rough_clock(Duration::ZERO);
        assert!(poll(waiting.as_mut()).is_pending());
        clock.advance(REAL_WAIT);
        clock.delay_rough_clock(LATE_BY);
        drop(held);
        assert_eq!(waited(poll(waiting)), REAL_WAIT);
    }

    #[test]
    fn wait_that_ends_because_another_waiter_left_is_exact() {
        let (sem, clock) = open_with_late_rough_clock();
        let held = sem.acquire().blocking().unwrap();
        let mut granted = Box::pin(sem.acquire());
        assert!(poll(granted.as_mut()).is_pending());
        let mut waiting = pin!(sem.acquire());
        assert!(poll(waiting.as_mut()).is_pending());
        drop(held);
        clock.advance(REAL_WAIT);
        clock.delay_rough_clock(Duration::ZERO);
        drop(granted);
        assert_eq!(waited(poll(waiting)), REAL_WAIT);
    }
}
