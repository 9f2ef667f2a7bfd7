//! From the first poll to the grant, or to the failure.

use std::sync::Arc;
use std::task::{Poll, Waker};

use semafor_core::{Loss, NotHeld};
use tokio_util::sync::CancellationToken;

use super::acquisition::{Acquisition, Confirm, Held, State};
use super::lease_time::LeaseTime;
use super::leaving::SILENCE;
use super::{Acquired, Client, Event, Liveness};
use crate::error::{AcquireError, HomeError};
use crate::remote::call::{Call, Command, Failure, Gone, Grant, How, Key, LeaseEnd, Reply};
use crate::remote::clock::Instant;
use crate::remote::target::Target;
use crate::remote::{AcquireRequest, Wait};

/// How many grants may have ended before this client read them. One is possible if the process slept; if the lease is
/// shorter than the round trip, all of them are.
const STALE_GRANTS: u32 = 3;

impl Client {
    /// Asks for slots.
    pub fn acquire(&mut self, target: &Arc<Target>, request: AcquireRequest, now: Instant) -> Key {
        let key = Key(self.next_number());
        let deadline = match self.settings.liveness {
            Liveness::Heartbeats => request.wait.limit().and_then(|limit| now.checked_add(limit)),
            // The server answers even a request that does not wait.
            Liveness::Connection { .. } => match request.wait {
                Wait::No => Some(now),
                Wait::For(limit) => now.checked_add(limit),
                Wait::Unlimited => None,
            },
        };
        let acquisition = Acquisition { deadline, ..Acquisition::new(target, Arc::new(request), now) };
        self.insert(key, acquisition);
        self.ask(key);
        self.reschedule(key);
        key
    }

    /// Returns the grant or the failure; wakes `waker` when there is one.
    pub fn poll_acquire(&mut self, key: Key, waker: Waker) -> Poll<Result<Acquired, AcquireError>> {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else {
            return Poll::Ready(Err(self.settings.silent.clone().into()));
        };
        if let Some(failure) = acquisition.failure.take() {
            acquisition.is_abandoned = true;
            if matches!(acquisition.state, State::Over) {
                self.remove(key);
            }
            return Poll::Ready(Err(failure));
        }
        if let Some(held) = acquisition.held_mut().filter(|held| !held.is_taken) {
            held.is_taken = true;
            return Poll::Ready(Ok(Acquired {
                id: Arc::clone(&held.id),
                slot: held.slot,
                token: held.token,
                waited: held.waited,
                lost: held.lost.clone(),
            }));
        }
        let before = acquisition.waker.replace(waker);
        self.events.extend(before.map(Event::Replaced));
        Poll::Pending
    }

    /// The user gives up an acquire before it has taken the grant.
    pub fn cancel(&mut self, key: Key, now: Instant) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        acquisition.is_abandoned = true;
        // The user will not fetch the failure, so it must not keep the entry.
        acquisition.failure = None;
        let waker = acquisition.waker.take();
        self.events.extend(waker.map(Event::Replaced));
        match &acquisition.state {
            State::Asking | State::Waiting(_) => self.leave_or_remove(key, How::Cancelled, now),
            State::Held(held) if !held.is_taken => self.leave(key, How::Released, now),
            State::Held(_) | State::Leaving(_) => {}
            State::Over => self.remove(key),
        }
    }

    /// Ready when the acquisition has been removed.
    pub fn poll_gone(&mut self, key: Key, waker: Waker) -> Poll<()> {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return Poll::Ready(()) };
        let before = acquisition.waker.replace(waker);
        self.events.extend(before.map(Event::Replaced));
        Poll::Pending
    }

    pub(super) fn ask(&mut self, key: Key) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        acquisition.retry_at = None;
        let ask = Command::Acquire { request: Arc::clone(&acquisition.request), place: 0.0, wait_left: None };
        let target = Arc::clone(&acquisition.target);
        self.outbox.push_back(Call { number: key.0, target, ask, again: false });
    }

    /// Asks again, because the server has forgotten the acquisition.
    pub(super) fn ask_again(&mut self, key: Key) {
        self.set_state(key, State::Asking);
        self.ask(key);
        self.reschedule(key);
    }

    /// Asks what became of a waiter.
    pub(super) fn confirm(&mut self, key: Key) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        let State::Waiting(confirm) = &mut acquisition.state else {
            return acquisition.note_news(&self.settings.liveness);
        };
        if *confirm != Confirm::Idle {
            *confirm = Confirm::AskedAndStale;
            return;
        }
        *confirm = Confirm::Asked;
        acquisition.retry_at = None;
        let target = Arc::clone(&acquisition.target);
        self.send(target, Command::Confirm { key });
    }

    pub(super) fn insert(&mut self, key: Key, acquisition: Acquisition) {
        let target = Arc::clone(&acquisition.target);
        self.name_of(&target).acquisitions += 1;
        self.acquisitions.insert(key, Box::new(acquisition));
    }

    /// Gives back what the server may have granted to a request that its user gave up before it could be sent.
    pub(super) fn give_back_orphan(
        &mut self,
        key: Key,
        target: &Arc<Target>,
        request: Arc<AcquireRequest>,
        now: Instant,
    ) {
        if !self.acquisitions.contains_key(&key) {
            let orphan = Acquisition { is_abandoned: true, ..Acquisition::new(target, request, now) };
            self.insert(key, orphan);
            self.leave(key, How::Cancelled, now);
        }
    }

    pub(super) fn acquire_answered(&mut self, key: Key, reply: Reply, now: Instant) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        acquisition.is_asked = false;
        acquisition.is_sent = false;
        acquisition.may_be_known = true;
        acquisition.attempts = 0;
        let has_news = std::mem::take(&mut acquisition.has_news);
        if !matches!(acquisition.state, State::Asking) {
            // It has left meanwhile, or a message has already brought the grant.
            if let Reply::Queued { next, .. } = reply {
                let target = Arc::clone(&acquisition.target);
                self.note_next(&target, &next);
            }
            return;
        }
        match reply {
            // A message came before this reply, so the grant may be lost already.
            Reply::Granted(_) if has_news => {
                let heartbeat = acquisition.target.heartbeat;
                self.set_state(key, State::Waiting(Confirm::Idle));
                self.reschedule(key);
                self.need_heartbeats(heartbeat, true, now);
                self.confirm(key);
            }
            Reply::Granted(grant) => {
                if !self.grant(key, grant, now) && !self.is_stale_too_often(key, now) {
                    self.ask_again(key);
                }
            }
            Reply::Queued { place, next } => {
                acquisition.place = place;
                let (target, weight) = (Arc::clone(&acquisition.target), acquisition.request.weight);
                self.set_state(key, State::Waiting(Confirm::Idle));
                self.reschedule(key);
                self.need_heartbeats(target.heartbeat, true, now);
                self.send(Arc::clone(&target), Command::Listen { waiters: vec![(key, weight)] });
                self.note_next(&target, &next);
                if has_news {
                    self.confirm(key);
                }
            }
            Reply::Busy { held, slots, waiting } => {
                let waited = now.saturating_duration_since(acquisition.started);
                let error = match acquisition.request.wait {
                    Wait::No => AcquireError::Busy,
                    _ => AcquireError::TimedOut { waited, held, slots, waiting },
                };
                self.refuse(key, error);
            }
            Reply::Refused(error) => self.refuse(key, error),
            _ => self.fail(key, unexpected().into(), now),
        }
    }

    pub(super) fn confirm_answered(&mut self, key: Key, reply: Reply, now: Instant) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        acquisition.attempts = 0;
        let State::Waiting(confirm) = &mut acquisition.state else { return };
        let is_stale = std::mem::replace(confirm, Confirm::Idle) == Confirm::AskedAndStale;
        match reply {
            Reply::Granted(grant) => {
                let is_settled = self.grant(key, grant, now) || self.is_stale_too_often(key, now);
                if !is_settled {
                    self.confirm(key);
                }
            }
            Reply::Gone(how) => self.waiter_gone(key, how, now),
            _ if is_stale => self.confirm(key),
            _ => {}
        }
    }

    /// Counts a grant that had ended when it was read. True if that was one too many: then the acquire fails.
    pub(super) fn is_stale_too_often(&mut self, key: Key, now: Instant) -> bool {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return true };
        acquisition.stale += 1;
        if acquisition.stale < STALE_GRANTS {
            return false;
        }
        self.fail(key, AcquireError::Lost(NotHeld::Lost(Loss::Expired)), now);
        true
    }

    /// The acquisition holds its slots from now on. False if they may have expired already.
    pub(super) fn grant(&mut self, key: Key, grant: Grant, now: Instant) -> bool {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return true };
        let ends = match grant.ends {
            LeaseEnd::At(ends) => ends,
            LeaseEnd::AfterTtl => acquisition.request.ttl.map(|ttl| grant.clock.now() + ttl.as_secs_f64()),
        };
        let time = LeaseTime::new(ends, grant.clock, grant.safe_until, now);
        if matches!(self.settings.liveness, Liveness::Heartbeats) && !time.is_fresh(now) {
            return false;
        }
        let held = Held {
            id: grant.id,
            slot: grant.slot,
            token: grant.token,
            waited: grant.waited,
            slots: grant.slots,
            time,
            over: None,
            is_at_server: true,
            lost: CancellationToken::new(),
            is_taken: false,
            detached: None,
            is_leased: false,
        };
        acquisition.retry_at = None;
        acquisition.may_be_known = true;
        let (target, waker) = (Arc::clone(&acquisition.target), acquisition.waker.take());
        if let Some(neighbours) = grant.neighbours {
            self.name_of(&target).neighbours = neighbours;
        }
        self.by_id.insert(Arc::clone(&held.id), key);
        self.set_state(key, State::Held(Box::new(held)));
        self.reschedule(key);
        self.need_heartbeats(target.heartbeat, false, now);
        self.wake(waker);
        true
    }

    /// The server refuses the request.
    pub(super) fn refuse(&mut self, key: Key, error: AcquireError) {
        self.set_state(key, State::Over);
        self.tell(key, error);
    }

    /// The acquire fails. Gives back what the server may have granted.
    pub(super) fn fail(&mut self, key: Key, error: AcquireError, now: Instant) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        if !acquisition.is_abandoned {
            acquisition.failure = Some(error);
        }
        let waker = acquisition.waker.take();
        self.wake(waker);
        if self.acquisitions.get(&key).is_some_and(|it| it.failure.is_none()) {
            return self.leave_or_remove(key, How::Cancelled, now);
        }
        if self.acquisitions.get(&key).is_some_and(|it| it.may_be_known || it.is_sent) {
            self.leave(key, How::Cancelled, now);
        } else {
            self.set_state(key, State::Over);
            self.reschedule(key);
        }
    }

    /// Tells the user why the acquire failed.
    pub(super) fn tell(&mut self, key: Key, error: AcquireError) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        if acquisition.is_abandoned {
            if matches!(acquisition.state, State::Over) {
                self.remove(key);
            }
            return;
        }
        acquisition.failure = Some(error);
        let waker = acquisition.waker.take();
        self.reschedule(key);
        self.wake(waker);
    }

    /// A waiter is not in line any more.
    pub(super) fn waiter_gone(&mut self, key: Key, how: Gone, now: Instant) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        if !acquisition.is_in_line() {
            return acquisition.note_news(&self.settings.liveness);
        }
        match how {
            Gone::Closed => self.refuse(key, AcquireError::Closed),
            Gone::Evicted => self.fail(key, AcquireError::Lost(NotHeld::Lost(Loss::Evicted)), now),
            // To a repeated request, the server answers with the number of slots, or puts the waiter back at its place.
            Gone::TooHeavy | Gone::Forgotten => self.ask_again(key),
        }
    }

    pub(super) fn time_out(&mut self, key: Key, now: Instant) {
        match self.settings.liveness {
            Liveness::Heartbeats => {
                self.leave(key, How::TimedOut, now);
                let left = self.acquisitions.get_mut(&key).map(|acquisition| &mut acquisition.state);
                if let Some(State::Leaving(leaving)) = left {
                    leaving.silent_at = Some(now + SILENCE);
                }
                self.reschedule(key);
            }
            Liveness::Connection { .. } => {
                let silent = self.settings.silent.clone();
                self.fail(key, silent.into(), now);
            }
        }
    }

    pub(super) fn acquire_failed(&mut self, key: Key, failure: &Failure, now: Instant) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        acquisition.is_asked = false;
        acquisition.is_sent = false;
        acquisition.may_be_known |= failure.was_sent;
        if matches!(acquisition.state, State::Asking) {
            self.try_again_or_fail(key, failure, now);
        }
    }

    pub(super) fn confirm_failed(&mut self, key: Key, failure: &Failure, now: Instant) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        if let State::Waiting(confirm) = &mut acquisition.state {
            *confirm = Confirm::Idle;
            self.try_again_or_fail(key, failure, now);
        }
    }

    pub(super) fn try_again_or_fail(&mut self, key: Key, failure: &Failure, now: Instant) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        acquisition.attempts += 1;
        let pause = self.settings.retry.pause_after(acquisition.attempts);
        let is_in_time = acquisition.is_in_line()
            || acquisition.request.wait.limit().is_none_or(|limit| {
                now.saturating_duration_since(acquisition.started).saturating_add(pause) < limit
            });
        if failure.is_passing && acquisition.attempts < self.settings.retry.attempts && is_in_time {
            acquisition.retry_at = Some(now + pause);
            self.reschedule(key);
        } else {
            self.fail(key, failure.error.clone().into(), now);
        }
    }
}

/// An engine decoded a reply that does not fit the call.
fn unexpected() -> HomeError {
    HomeError::new(crate::HomeErrorKind::Other, "the server's reply does not fit the request")
}
