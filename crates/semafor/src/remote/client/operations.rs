//! Operations of users on a grant, by its id.

use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use semafor_core::{Loss, NotHeld};

use super::lease_time::EndSource;
use super::operation::{Operation, OperationError, OperationKind, Progress};
use super::{Client, Due, Event, Liveness};
use crate::remote::call::{Call, EndReason, Failure, Key, Reply};
use crate::remote::clock::Instant;
use crate::remote::target::Target;

impl Client {
    /// Ends a grant of any process by its id: see [`poll_operation`](Self::poll_operation).
    pub fn end_by_id(&mut self, target: &Arc<Target>, id: &str, reason: EndReason, now: Instant) -> u64 {
        let number = self.next_number();
        let key = self.key_of_id(target, id);
        if let Some(key) = key
            && matches!(self.settings.liveness, Liveness::Connection { .. })
            && self.detached.contains(&key)
            && let Some(why) = self.why_not_held(key, now)
        {
            self.drop_lease(key, now);
            return self.finished(number, Err(OperationError::NotHeld(why)));
        }
        self.begin(number, Arc::clone(target), OperationKind::EndById { id: id.into(), reason, key }, now);
        number
    }

    /// Lets a grant last for `ttl` from now: see [`poll_operation`](Self::poll_operation).
    pub fn renew(&mut self, target: &Arc<Target>, id: &str, ttl: Option<Duration>, now: Instant) -> u64 {
        let number = self.next_number();
        let key = self.key_of_id(target, id);
        self.begin(number, Arc::clone(target), OperationKind::Renew { id: id.into(), ttl, key }, now);
        number
    }

    /// The acquisition of this process with that id. `None` if the id is of another semaphore, which refuses it.
    fn key_of_id(&self, target: &Target, id: &str) -> Option<Key> {
        let key = *self.by_id.get(id)?;
        (self.acquisitions.get(&key)?.target.name == target.name).then_some(key)
    }

    pub(super) fn begin(&mut self, number: u64, target: Arc<Target>, kind: OperationKind, now: Instant) {
        let command = kind.command();
        let operation = Operation {
            target: Arc::clone(&target),
            kind,
            attempts: 0,
            is_repeat: false,
            progress: Progress::Pending(None),
            is_abandoned: false,
        };
        self.operations.insert(number, operation);
        self.unfinished += 1;
        if matches!(self.settings.liveness, Liveness::Connection { .. }) {
            self.timetable.set(Due::Operation(number), Some(now + self.settings.reply_timeout));
        }
        self.outbox.push_back(Call { number, target, command, is_repeat: false });
    }

    /// An operation that needs no call.
    pub(super) fn finished(&mut self, number: u64, outcome: Result<(), OperationError>) -> u64 {
        let target = Arc::new(Target::new("", None, None, Duration::ZERO, []));
        let kind = OperationKind::EndById { id: "".into(), reason: EndReason::Released, key: None };
        let progress = Progress::Done(outcome);
        let operation =
            Operation { target, kind, attempts: 0, is_repeat: false, progress, is_abandoned: false };
        self.operations.insert(number, operation);
        number
    }

    /// Returns the outcome; wakes `waker` when there is one.
    pub fn poll_operation(&mut self, number: u64, waker: Waker) -> Poll<Result<(), OperationError>> {
        let Some(operation) = self.operations.get_mut(&number) else {
            return Poll::Ready(Err(OperationError::Home(self.settings.no_reply_error.clone())));
        };
        if let Progress::Pending(known) = &mut operation.progress {
            let before = known.replace(waker);
            self.events.extend(before.map(Event::DropWaker));
            return Poll::Pending;
        }
        match self.operations.remove(&number).map(|operation| operation.progress) {
            Some(Progress::Done(outcome)) => Poll::Ready(outcome),
            _ => Poll::Pending,
        }
    }

    /// The user stopped waiting. The operation goes on.
    pub fn abandon_operation(&mut self, number: u64) {
        if let Some(operation) = self.operations.get_mut(&number) {
            operation.is_abandoned = true;
            if matches!(operation.progress, Progress::Done(_)) {
                self.operations.remove(&number);
            }
        }
    }

    pub(super) fn finish(&mut self, number: u64, outcome: Result<(), OperationError>) {
        let Some(operation) = self.operations.get_mut(&number) else { return };
        let Progress::Pending(waker) = &mut operation.progress else { return };
        let waker = waker.take();
        operation.progress = Progress::Done(outcome);
        let is_abandoned = operation.is_abandoned;
        self.timetable.set(Due::Operation(number), None);
        self.unfinished = self.unfinished.saturating_sub(1);
        self.progress += 1;
        self.wake(waker);
        if is_abandoned {
            self.operations.remove(&number);
        }
    }

    pub(super) fn handle_operation_reply(&mut self, number: u64, reply: Reply, now: Instant) {
        let Some(operation) = self.operations.get(&number) else { return };
        let outcome = match &reply {
            Reply::Ended(ended) => ended.first().map_or(Ok(()), |ended| ended.outcome),
            Reply::NotHeld(why) => Err(*why),
            _ => Ok(()),
        };
        match operation.kind {
            OperationKind::Release { key, lost } => {
                self.finish_leaving(key, None, now);
                let outcome = outcome.map_err(|why| OperationError::NotHeld(lost.unwrap_or(why)));
                self.finish(number, outcome);
            }
            OperationKind::EndById { reason, key, .. } => {
                let is_connection = matches!(self.settings.liveness, Liveness::Connection { .. });
                if let Some(key) = key.filter(|_| outcome.is_ok() || is_connection) {
                    self.ended_by_id(key, reason, now);
                }
                self.finish(number, outcome.map_err(OperationError::NotHeld));
            }
            OperationKind::Renew { key, .. } => {
                if let (Some(key), Reply::Renewed { clock, ends }) = (key, &reply) {
                    self.learn_end(key, *ends, clock, EndSource::Renewal(number), now);
                }
                if let (Some(key), Err(why)) = (key, outcome) {
                    self.found_lost(key, why);
                }
                self.finish(number, outcome.map_err(OperationError::NotHeld));
            }
        }
    }

    /// A renewal found the slot lost. The message of the loss may come later.
    fn found_lost(&mut self, key: Key, why: NotHeld) {
        let Some(held) = self.held(key).filter(|held| held.not_held.is_none()) else { return };
        let is_heartbeats = matches!(self.settings.liveness, Liveness::Heartbeats);
        // A server that has forgotten everything answers this, too. A message would have said that it was released.
        let is_forgotten = is_heartbeats && why == NotHeld::Released;
        let why = if is_forgotten { NotHeld::Lost(Loss::Vanished) } else { why };
        let is_at_server = held.is_at_server;
        if held.detached.is_some() && !is_at_server {
            // The server kept it without this client: there is no guard to tell.
            self.remove(key);
        } else {
            // The server may keep the slot for as long as its grace lasts.
            self.lose(key, why, is_at_server);
        }
    }

    /// A grant of this process was ended by its id: signals that to its guard, if there is one.
    pub(super) fn ended_by_id(&mut self, key: Key, reason: EndReason, now: Instant) {
        let why = match reason {
            EndReason::Evicted => NotHeld::Lost(Loss::Evicted),
            _ => NotHeld::Released,
        };
        match self.settings.liveness {
            Liveness::Heartbeats => {
                let held = self.held_mut(key);
                if let Some(held) = held.filter(|held| held.not_held.is_none()) {
                    held.not_held = Some(why);
                    let signal = held.lost.clone();
                    self.events.push_back(Event::EndedById(signal));
                    self.lose(key, why, false);
                }
            }
            Liveness::Connection { .. } if self.detached.contains(&key) => {
                if let Some(held) = self.held_mut(key) {
                    held.not_held.get_or_insert(why);
                }
                self.drop_lease(key, now);
            }
            // The server sends a message to the guard.
            Liveness::Connection { .. } => {}
        }
    }

    pub(super) fn handle_operation_failure(&mut self, number: u64, failure: &Failure, now: Instant) {
        let Some(operation) = self.operations.get_mut(&number) else { return };
        operation.is_repeat |= failure.was_sent;
        operation.attempts += 1;
        if failure.is_transient && operation.attempts < self.settings.retry.attempts {
            let pause = self.settings.retry.pause_after(operation.attempts);
            self.timetable.set(Due::Operation(number), Some(now + pause));
            return;
        }
        if let OperationKind::Release { key, .. } = operation.kind {
            if failure.is_transient || failure.error.is_unreachable() {
                self.queue_leaver(key, EndReason::Released, now);
            } else {
                self.finish_leaving(key, None, now);
            }
        }
        self.finish(number, Err(OperationError::Home(failure.error.clone())));
    }

    /// Repeats the operation; or, where a new connection does that, fails it because no reply came.
    pub(super) fn handle_operation_timeout(&mut self, number: u64, now: Instant) {
        match self.settings.liveness {
            Liveness::Heartbeats => self.repeat_operation(number),
            Liveness::Connection { .. } => {
                let error = self.settings.no_reply_error.clone();
                self.handle_operation_failure(
                    number,
                    &Failure { error, is_transient: false, was_sent: true },
                    now,
                );
            }
        }
    }

    fn repeat_operation(&mut self, number: u64) {
        if let Some(operation) = self.operations.get(&number) {
            let (target, command) = (Arc::clone(&operation.target), operation.kind.command());
            self.outbox.push_back(Call { number, target, command, is_repeat: operation.is_repeat });
        }
    }
}
