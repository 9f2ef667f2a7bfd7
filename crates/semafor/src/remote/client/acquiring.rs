//! An acquire, from the request to the grant or the failure.

use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use semafor_core::{Loss, NotHeld};
use tokio_util::sync::CancellationToken;

use super::acquisition::{Acquisition, Held, State, WaiterCheck};
use super::lease_time::LeaseTime;
use super::leaving::LEAVE_REPLY_TIMEOUT;
use super::{Acquired, Client, Event, Liveness};
use crate::error::{AcquireError, HomeError};
use crate::remote::call::{Call, Command, EndReason, Failure, Grant, Key, LeaseEnd, NotInLine, Reply};
use crate::remote::clock::Instant;
use crate::remote::target::Target;
use crate::remote::{AcquireRequest, Wait};

/// An acquire fails after this many grants that had ended before this client read them. One such grant is possible if
/// the process slept; if the lease is shorter than the round trip, every grant is like that.
const MAX_STALE_GRANTS: u32 = 3;

/// How long a request that does not wait for a slot waits for its reply, before it is cancelled.
const TRY_REPLY_TIMEOUT: Duration = Duration::from_secs(1);

fn longest_wait(wait: Wait) -> Option<Duration> {
    if wait.is_try() { Some(TRY_REPLY_TIMEOUT) } else { wait.limit() }
}

impl Client {
    /// Asks for slots.
    pub fn acquire(&mut self, target: &Arc<Target>, request: AcquireRequest, now: Instant) -> Key {
        let key = Key(self.next_number());
        let deadline = match self.settings.liveness {
            Liveness::Heartbeats => longest_wait(request.wait).and_then(|limit| now.checked_add(limit)),
            // The server answers even a request that does not wait.
            Liveness::Connection { .. } => match request.wait {
                Wait::No => Some(now),
                Wait::For(limit) => now.checked_add(limit),
                Wait::Unlimited => None,
            },
        };
        let acquisition = Acquisition { deadline, ..Acquisition::new(target, Arc::new(request), now) };
        self.insert(key, acquisition);
        self.send_request(key);
        self.reschedule(key);
        key
    }

    /// Returns the grant or the failure; wakes `waker` when there is one.
    pub fn poll_acquire(&mut self, key: Key, waker: Waker) -> Poll<Result<Acquired, AcquireError>> {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else {
            return Poll::Ready(Err(self.settings.no_reply_error.clone().into()));
        };
        if let Some(failure) = acquisition.failure.take() {
            acquisition.is_abandoned = true;
            if matches!(acquisition.state, State::Failed) {
                self.remove(key);
            }
            return Poll::Ready(Err(failure));
        }
        if let Some(held) = acquisition.held_mut().filter(|held| !held.is_delivered) {
            held.is_delivered = true;
            return Poll::Ready(Ok(Acquired {
                id: Arc::clone(&held.id),
                slot: held.slot,
                token: held.token,
                waited: held.waited,
                lost: held.lost.clone(),
            }));
        }
        let before = acquisition.waker.replace(waker);
        self.events.extend(before.map(Event::DropWaker));
        Poll::Pending
    }

    /// The user gives up an acquire before it has taken the grant.
    pub fn cancel(&mut self, key: Key, now: Instant) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        acquisition.is_abandoned = true;
        // The user will not fetch the failure, so it must not keep the entry.
        acquisition.failure = None;
        let waker = acquisition.waker.take();
        self.events.extend(waker.map(Event::DropWaker));
        match &acquisition.state {
            State::Requesting | State::Waiting(_) => self.leave_or_remove(key, EndReason::Cancelled, now),
            State::Held(held) if !held.is_delivered => self.leave(key, EndReason::Released, now),
            State::Held(_) | State::Leaving(_) => {}
            State::Failed => self.remove(key),
        }
    }

    /// Ready when the acquisition has been removed.
    pub fn poll_gone(&mut self, key: Key, waker: Waker) -> Poll<()> {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return Poll::Ready(()) };
        let before = acquisition.waker.replace(waker);
        self.events.extend(before.map(Event::DropWaker));
        Poll::Pending
    }

    pub(super) fn send_request(&mut self, key: Key) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        acquisition.retry_at = None;
        let command =
            Command::Acquire { request: Arc::clone(&acquisition.request), place: 0.0, wait_left: None };
        let target = Arc::clone(&acquisition.target);
        self.outbox.push_back(Call { number: key.0, target, command, is_repeat: false });
    }

    /// Asks again, because the server has forgotten the acquisition.
    pub(super) fn request_again(&mut self, key: Key) {
        self.set_state(key, State::Requesting);
        self.send_request(key);
        self.reschedule(key);
    }

    /// Asks the server for the state of a waiter.
    pub(super) fn check_waiter(&mut self, key: Key) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        let State::Waiting(check) = &mut acquisition.state else {
            return acquisition.note_message(&self.settings.liveness);
        };
        if *check != WaiterCheck::Idle {
            *check = WaiterCheck::PendingAndStale;
            return;
        }
        *check = WaiterCheck::Pending;
        acquisition.retry_at = None;
        let target = Arc::clone(&acquisition.target);
        self.send(target, Command::CheckWaiter { key });
    }

    pub(super) fn insert(&mut self, key: Key, acquisition: Acquisition) {
        let target = Arc::clone(&acquisition.target);
        self.name_entry(&target).acquisitions += 1;
        self.acquisitions.insert(key, Box::new(acquisition));
    }

    /// Releases what the server may have granted to a request that its user cancelled before it could be sent.
    pub(super) fn release_orphan(
        &mut self,
        key: Key,
        target: &Arc<Target>,
        request: Arc<AcquireRequest>,
        now: Instant,
    ) {
        if !self.acquisitions.contains_key(&key) {
            let orphan = Acquisition { is_abandoned: true, ..Acquisition::new(target, request, now) };
            self.insert(key, orphan);
            self.leave(key, EndReason::Cancelled, now);
        }
    }

    pub(super) fn handle_acquire_reply(&mut self, key: Key, reply: Reply, now: Instant) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        acquisition.is_request_pending = false;
        acquisition.may_have_arrived = false;
        acquisition.may_be_known = true;
        acquisition.attempts = 0;
        let has_early_message = std::mem::take(&mut acquisition.has_early_message);
        if !matches!(acquisition.state, State::Requesting) {
            // It has left meanwhile, or a message has already brought the grant.
            if let Reply::Queued { state, .. } = reply {
                let target = Arc::clone(&acquisition.target);
                self.note_name_state(&target, &state);
            }
            return;
        }
        match reply {
            // A message came before this reply, so the grant may be lost already.
            Reply::Granted(_) if has_early_message => {
                let heartbeat = acquisition.target.heartbeat;
                self.set_state(key, State::Waiting(WaiterCheck::Idle));
                self.reschedule(key);
                self.ensure_heartbeats(heartbeat, true, now);
                self.check_waiter(key);
            }
            Reply::Granted(grant) => {
                if !self.grant(key, grant, now) && !self.count_stale_grant(key, now) {
                    self.request_again(key);
                }
            }
            Reply::Queued { place, state } => {
                acquisition.place = place;
                let (target, weight) = (Arc::clone(&acquisition.target), acquisition.request.weight);
                self.set_state(key, State::Waiting(WaiterCheck::Idle));
                self.reschedule(key);
                self.ensure_heartbeats(target.heartbeat, true, now);
                self.send(Arc::clone(&target), Command::Subscribe { waiters: vec![(key, weight)] });
                self.note_name_state(&target, &state);
                if has_early_message {
                    self.check_waiter(key);
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

    pub(super) fn handle_waiter_check_reply(&mut self, key: Key, reply: Reply, now: Instant) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        acquisition.attempts = 0;
        let State::Waiting(check) = &mut acquisition.state else { return };
        let is_stale = std::mem::replace(check, WaiterCheck::Idle) == WaiterCheck::PendingAndStale;
        match reply {
            Reply::Granted(grant) => {
                let is_settled = self.grant(key, grant, now) || self.count_stale_grant(key, now);
                if !is_settled {
                    self.check_waiter(key);
                }
            }
            Reply::NotInLine(why) => self.waiter_removed(key, why, now),
            _ if is_stale => self.check_waiter(key),
            _ => {}
        }
    }

    /// Counts a grant that had ended when it was read. True if there were too many: then the acquire fails.
    pub(super) fn count_stale_grant(&mut self, key: Key, now: Instant) -> bool {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return true };
        acquisition.stale_grants += 1;
        if acquisition.stale_grants < MAX_STALE_GRANTS {
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
            not_held: None,
            is_at_server: true,
            lost: CancellationToken::new(),
            is_delivered: false,
            detached: None,
            is_leased: false,
        };
        acquisition.retry_at = None;
        acquisition.may_be_known = true;
        let (target, waker) = (Arc::clone(&acquisition.target), acquisition.waker.take());
        if let Some(python_clients) = grant.python_clients {
            self.name_entry(&target).python_clients = python_clients;
        }
        self.by_id.insert(Arc::clone(&held.id), key);
        self.set_state(key, State::Held(Box::new(held)));
        self.reschedule(key);
        self.ensure_heartbeats(target.heartbeat, false, now);
        self.wake(waker);
        true
    }

    /// The server refuses the request.
    pub(super) fn refuse(&mut self, key: Key, error: AcquireError) {
        self.set_state(key, State::Failed);
        self.report_failure(key, error);
    }

    /// The acquire fails. Releases what the server may have granted.
    pub(super) fn fail(&mut self, key: Key, error: AcquireError, now: Instant) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        if !acquisition.is_abandoned {
            acquisition.failure = Some(error);
        }
        let waker = acquisition.waker.take();
        self.wake(waker);
        if self.acquisitions.get(&key).is_some_and(|it| it.failure.is_none()) {
            return self.leave_or_remove(key, EndReason::Cancelled, now);
        }
        if self.acquisitions.get(&key).is_some_and(|it| it.may_be_known || it.may_have_arrived) {
            self.leave(key, EndReason::Cancelled, now);
        } else {
            self.set_state(key, State::Failed);
            self.reschedule(key);
        }
    }

    /// Tells the user why the acquire failed.
    pub(super) fn report_failure(&mut self, key: Key, error: AcquireError) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        if acquisition.is_abandoned {
            if matches!(acquisition.state, State::Failed) {
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
    pub(super) fn waiter_removed(&mut self, key: Key, why: NotInLine, now: Instant) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        if !acquisition.is_in_line() {
            return acquisition.note_message(&self.settings.liveness);
        }
        match why {
            NotInLine::Closed => self.refuse(key, AcquireError::Closed),
            NotInLine::Evicted => self.fail(key, AcquireError::Lost(NotHeld::Lost(Loss::Evicted)), now),
            // To a repeated request, the server answers with the number of slots, or puts the waiter back at its place.
            NotInLine::TooHeavy | NotInLine::Forgotten => self.request_again(key),
        }
    }

    pub(super) fn time_out(&mut self, key: Key, now: Instant) {
        match self.settings.liveness {
            Liveness::Heartbeats => {
                self.leave(key, EndReason::TimedOut, now);
                let left = self.acquisitions.get_mut(&key).map(|acquisition| &mut acquisition.state);
                if let Some(State::Leaving(leaving)) = left {
                    leaving.no_reply_at = Some(now + LEAVE_REPLY_TIMEOUT);
                }
                self.reschedule(key);
            }
            Liveness::Connection { .. } => {
                let error = self.settings.no_reply_error.clone();
                self.fail(key, error.into(), now);
            }
        }
    }

    pub(super) fn handle_acquire_failure(&mut self, key: Key, failure: &Failure, now: Instant) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        acquisition.is_request_pending = false;
        acquisition.may_have_arrived = false;
        acquisition.may_be_known |= failure.was_sent;
        // An error that the server replied is no lost attempt.
        if failure.was_sent && failure.error.is_unreachable() {
            acquisition.lost_attempt_at = Some(now);
        }
        if matches!(acquisition.state, State::Requesting) {
            self.try_again_or_fail(key, failure, now);
        }
    }

    pub(super) fn handle_waiter_check_failure(&mut self, key: Key, failure: &Failure, now: Instant) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        if let State::Waiting(check) = &mut acquisition.state {
            *check = WaiterCheck::Idle;
            self.try_again_or_fail(key, failure, now);
        }
    }

    pub(super) fn try_again_or_fail(&mut self, key: Key, failure: &Failure, now: Instant) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        acquisition.attempts += 1;
        let pause = self.settings.retry.pause_after(acquisition.attempts);
        let is_in_time = acquisition.is_in_line()
            || longest_wait(acquisition.request.wait).is_none_or(|limit| {
                now.saturating_duration_since(acquisition.started).saturating_add(pause) < limit
            });
        if failure.is_transient && acquisition.attempts < self.settings.retry.attempts && is_in_time {
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
