use std::any::Any;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use semafor_core::NotHeld;
use tokio_util::sync::CancellationToken;

use super::Liveness;
use super::lease_time::LeaseTime;
use crate::error::AcquireError;
use crate::remote::AcquireRequest;
use crate::remote::call::EndReason;
use crate::remote::clock::Instant;
use crate::remote::target::Target;
use crate::task::TaskKey;

/// One acquisition of this process, from the first poll until nothing of it is left at the server.
#[derive(Debug)]
pub(super) struct Acquisition {
    pub(super) target: Arc<Target>,
    pub(super) request: Arc<AcquireRequest>,
    pub(super) started: Instant,
    /// When the user's timeout ends.
    pub(super) deadline: Option<Instant>,
    pub(super) state: State,
    /// The error that the user's next poll returns.
    pub(super) failure: Option<AcquireError>,
    /// Wakes the user's task, which waits for a slot or for the end of the acquisition.
    pub(super) waker: Option<Waker>,
    /// The user will not poll for the outcome any more.
    pub(super) is_abandoned: bool,

    /// Its request has no reply yet, or waits for a connection.
    pub(super) is_request_pending: bool,
    /// There has been a connection since: the server may have received its request.
    pub(super) may_have_arrived: bool,
    /// The server has answered, or was reached: it may know this acquisition.
    pub(super) may_be_known: bool,
    /// When an attempt of its request last failed after it was sent. It may still arrive, but not much later.
    pub(super) lost_attempt_at: Option<Instant>,
    /// A message about it came before the reply to its request. So the reply may be out of date.
    pub(super) has_early_message: bool,
    /// Failed attempts of the current call.
    pub(super) attempts: u32,
    /// When to make the next attempt.
    pub(super) retry_at: Option<Instant>,
    /// The place in line that the server gave it; 0 if none.
    pub(super) place: f64,
    /// Grants that had ended before they were read.
    pub(super) stale_grants: u32,
}

#[derive(Debug)]
pub(super) enum State {
    /// The request for slots is sent, or will be.
    Requesting,
    /// It waits in line.
    Waiting(WaiterCheck),
    Held(Box<Held>),
    /// Its slots, or its place in line, are being released at the server.
    Leaving(Leaving),
    /// Nothing is left at the server; the user has not fetched the error yet.
    Failed,
}

/// Whether a call that asks for the waiter's state is pending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WaiterCheck {
    Idle,
    Pending,
    /// Pending, and has to be repeated, because a message has come since.
    PendingAndStale,
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) id: Arc<str>,
    pub(super) slot: u32,
    pub(super) token: u64,
    pub(super) waited: Duration,
    pub(super) slots: Option<u32>,
    pub(super) time: LeaseTime,
    /// Why it is not held any more, once that is known.
    pub(super) not_held: Option<NotHeld>,
    /// The server still counts it, so it has to be released there.
    pub(super) is_at_server: bool,
    pub(super) lost: CancellationToken,
    /// The user has the guard, or has detached it.
    pub(super) is_delivered: bool,
    pub(super) detached: Option<Detached>,
    /// Counted in `NameEntry::leased`.
    pub(super) is_leased: bool,
}

#[derive(Debug)]
pub(super) struct Detached {
    pub(super) task: TaskKey,
    /// Keeps the driver alive for as long as the slot is held.
    pub(super) keep_alive: Option<KeepAlive>,
}

pub type KeepAlive = Box<dyn Any + Send + Sync>;

#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) reason: EndReason,
    pub(super) since: Instant,
    /// When to report to the user that the server does not reply.
    pub(super) no_reply_at: Option<Instant>,
}

impl Acquisition {
    pub(super) fn new(target: &Arc<Target>, request: Arc<AcquireRequest>, now: Instant) -> Self {
        Self {
            target: Arc::clone(target),
            request,
            started: now,
            deadline: None,
            state: State::Requesting,
            failure: None,
            waker: None,
            is_abandoned: false,
            is_request_pending: false,
            may_have_arrived: false,
            may_be_known: false,
            lost_attempt_at: None,
            has_early_message: false,
            attempts: 0,
            retry_at: None,
            place: 0.0,
            stale_grants: 0,
        }
    }

    /// When this acquisition has its next timeout.
    pub(super) fn next_due(&self, liveness: &Liveness) -> Option<Instant> {
        match &self.state {
            State::Requesting | State::Waiting(_) => {
                let deadline = match liveness {
                    Liveness::Heartbeats => self.deadline,
                    // The server ends the wait itself, unless it is gone.
                    Liveness::Connection { reply_timeout } => {
                        self.deadline.and_then(|deadline| deadline.checked_add(*reply_timeout))
                    }
                };
                [deadline, self.retry_at].into_iter().flatten().min()
            }
            State::Held(held) => held.next_due(liveness, self.target.heartbeat),
            State::Leaving(leaving) => leaving.no_reply_at,
            State::Failed => None,
        }
    }

    /// Notes a message about it. If its request has no reply yet, the reply may be older than the message, so the
    /// server is asked again after it. (An agent sends everything in order.)
    pub(super) fn note_message(&mut self, liveness: &Liveness) {
        self.has_early_message |=
            matches!((&self.state, liveness), (State::Requesting, Liveness::Heartbeats));
    }

    pub(super) fn is_in_line(&self) -> bool {
        matches!(self.state, State::Waiting(_))
    }

    pub(super) fn held(&self) -> Option<&Held> {
        match &self.state {
            State::Held(held) => Some(held),
            _ => None,
        }
    }

    pub(super) fn held_mut(&mut self) -> Option<&mut Held> {
        match &mut self.state {
            State::Held(held) => Some(held),
            _ => None,
        }
    }
}

impl Held {
    fn next_due(&self, liveness: &Liveness, heartbeat: Duration) -> Option<Instant> {
        if self.not_held.is_some() || !matches!(liveness, Liveness::Heartbeats) {
            return None;
        }
        let times = [self.time.ends_at(), self.time.check_at(), self.time.give_up_at(heartbeat)];
        times.into_iter().flatten().min()
    }
}
