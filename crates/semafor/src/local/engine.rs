//! Encodes the client's calls for the agent's protocol, and decodes the replies.

use std::sync::Arc;

use super::driver::{too_old, unexpected};
use super::protocol::{self, Refusal, Request, Response, label_and_command};
use crate::error::AcquireError;
use crate::remote::call::{Call, Command, EndReason, Failure, Grant, Key, LeaseEnd, Reply};
use crate::remote::clock::{Instant, ServerClock};
use crate::remote::target::Target;
use crate::remote::{AcquireRequest, Wait};

/// The semaphore, in the agent's protocol.
pub(super) fn encode_target(target: &Target) -> protocol::Target {
    protocol::Target {
        handle: target.number,
        name: Arc::clone(&target.name),
        slots: target.asked_slots,
        max_waiting: target.max_waiting,
        is_agreed: target.is_open(),
    }
}

/// The requests to send for a call, each with its number.
pub(super) fn encode(call: &Call) -> Vec<(u64, Request)> {
    let target = || encode_target(&call.target);
    let request = match &call.command {
        Command::Acquire { request, wait_left, .. } => {
            let request = protocol::AcquireRequest { timeout: *wait_left, ..encode_request(request) };
            Request::Acquire { of: target(), request }
        }
        Command::Release { key } => Request::Release { lease: key.0 },
        Command::EndById { id, reason: EndReason::Evicted } => {
            Request::Evict { of: target(), id: id.to_string() }
        }
        Command::EndById { id, .. } => Request::ReleaseId { of: target(), id: id.to_string() },
        Command::Renew { id, ttl } => Request::Renew { of: target(), id: id.to_string(), ttl: *ttl },
        Command::End { leavers } => {
            return leavers.iter().map(|leaver| (0, Request::Cancel { call: leaver.key.0 })).collect();
        }
        Command::Detach { key } => return vec![(0, Request::Detach { lease: key.0 })],
        Command::Reclaim { key, id, weight, slot, slots } => {
            let id = Some(Arc::clone(id));
            let reclaim =
                Request::Reclaim { of: target(), weight: *weight, slot: Some(*slot), id, slots: *slots };
            return vec![(key.0, reclaim)];
        }
        Command::Reconnected { calls } => return vec![(0, Request::Reconnected { calls: *calls })],
        // The agent does all this without a request.
        Command::CheckWaiter { .. } | Command::Subscribe { .. } | Command::Heartbeat { .. } => {
            return Vec::new();
        }
        Command::Sweep | Command::Watch | Command::Connect => return Vec::new(),
    };
    vec![(call.number, request)]
}

/// True if the agent replies to it.
pub(super) fn is_answered(ask: &Command) -> bool {
    matches!(
        ask,
        Command::Acquire { .. } | Command::Release { .. } | Command::EndById { .. } | Command::Renew { .. }
    )
}

fn encode_request(request: &AcquireRequest) -> protocol::AcquireRequest {
    let who = request.who.as_deref();
    let (label, command) = who.map_or((None, None), label_and_command);
    protocol::AcquireRequest {
        weight: request.weight,
        ttl: request.ttl,
        timeout: None,
        waits: request.wait != Wait::No,
        label,
        command,
        grace: who.and_then(|who| who.grace),
    }
}

/// Decodes the agent's response to a call that was sent at `sent`.
pub(super) fn decode(
    call: &Call,
    response: Response,
    agent: &str,
    sent: Instant,
    now: Instant,
) -> Result<Reply, Failure> {
    let failed = |error| Failure { error, is_transient: false, was_sent: true };
    match (&call.command, response) {
        (Command::Acquire { .. }, Response::Granted { id, slot, token, waited, slots }) => {
            call.target.note_agreed();
            // The agent ends the lease, and counts from the grant: that was not before the request had waited this long.
            let granted = sent.checked_add(waited).map_or(now, |granted| granted.min(now));
            let (clock, safe_until) = (ServerClock::new(0.0, granted, now), now);
            let (id, slots, ends, python_clients) = (id.into(), slots, LeaseEnd::AfterTtl, None);
            Ok(Reply::Granted(Grant {
                id,
                slot,
                token,
                waited,
                slots,
                clock,
                ends,
                safe_until,
                python_clients,
            }))
        }
        (Command::Acquire { .. }, Response::Refused(refusal)) => {
            let error = refusal.into_acquire_error(&call.target.name);
            if !matches!(error, AcquireError::Open(_) | AcquireError::Home(_)) {
                call.target.note_agreed();
            }
            Ok(Reply::Refused(error))
        }
        (Command::Renew { ttl, .. }, Response::Done) => {
            let clock = ServerClock::new(0.0, sent, now);
            Ok(Reply::Renewed { clock, ends: ttl.map(|ttl| ttl.as_secs_f64()) })
        }
        (_, Response::Done) => Ok(Reply::Done),
        (_, Response::Refused(Refusal::NotHeld(why))) => Ok(Reply::NotHeld(why.into())),
        (_, Response::Refused(refusal)) => Err(failed(refusal.into_home_error())),
        (_, Response::NotUnderstood(_)) => Err(failed(too_old(agent))),
        (_, other) => Err(failed(unexpected(&other))),
    }
}

/// The acquisition that the agent knows by that number.
pub(super) fn key(number: u64) -> Key {
    Key(number)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Found by a long run of real processes: a holder that read its grant late relied on its lease after the agent had given the
    /// slot to the next waiter.
    #[test]
    fn lease_ends_no_later_than_at_the_agent() {
        let target = Arc::new(Target::new("jobs", Some(1), None, SECOND, []));
        let request = Arc::new(AcquireRequest::new(1, Some(SECOND), Wait::Unlimited));
        let command = Command::Acquire { request, place: 0.0, wait_left: None };
        let call = Call { number: 1, target, command, is_repeat: false };
        let sent = Instant::now();
        let waited = 3 * SECOND;
        let response = Response::Granted { id: "1".into(), slot: 0, token: 1, waited, slots: None };
        let reply = decode(&call, response, "the agent", sent, sent + 10 * SECOND).expect("it is a grant");
        let Reply::Granted(grant) = reply else { panic!("it is a grant") };
        let ends = grant.clock.earliest(1.0).expect("it is soon");
        assert!(ends <= sent + waited + SECOND, "{ends:?}");
        assert!(ends >= sent + waited, "{ends:?}");
    }
}
