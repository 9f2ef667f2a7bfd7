//! The client's calls in the words of the agent's protocol, and back.

use std::sync::Arc;

use super::driver::{too_old, unexpected};
use super::protocol::{self, Ask as Said, Complaint, Say, Wanted, in_short};
use crate::error::AcquireError;
use crate::remote::call::{Ask, Call, Failure, Grant, How, Key, LeaseEnd, Reply};
use crate::remote::clock::{Instant, ServerClock};
use crate::remote::target::Target;
use crate::remote::{AcquireRequest, Wait};

/// Which semaphore, as the agent has to know it.
pub(super) fn target(target: &Target) -> protocol::Target {
    protocol::Target {
        handle: target.number,
        name: Arc::clone(&target.name),
        slots: target.asked_slots,
        max_waiting: target.max_waiting,
        is_agreed: target.is_open(),
    }
}

/// What to say for a call, each with its number.
pub(super) fn encode(call: &Call) -> Vec<(u64, Said)> {
    let of = || target(&call.target);
    let said = match &call.ask {
        Ask::Acquire { request, wait_left, .. } => {
            let wish = Wanted { patience: *wait_left, ..wanted(request) };
            Said::Acquire { of: of(), wish }
        }
        Ask::Release { key } => Said::Release { lease: key.0 },
        Ask::EndById { id, how: How::Evicted } => Said::Evict { of: of(), id: id.to_string() },
        Ask::EndById { id, .. } => Said::ReleaseId { of: of(), id: id.to_string() },
        Ask::Renew { id, ttl } => Said::Renew { of: of(), id: id.to_string(), ttl: *ttl },
        Ask::End { those } => {
            return those.iter().map(|(key, _)| (0, Said::Cancel { call: key.0 })).collect();
        }
        Ask::Detach { key } => return vec![(0, Said::Detach { lease: key.0 })],
        Ask::Occupy { key, id, weight, slot, slots } => {
            let id = Some(Arc::clone(id));
            let occupy = Said::Occupy { of: of(), weight: *weight, slot: Some(*slot), id, capacity: *slots };
            return vec![(key.0, occupy)];
        }
        Ask::Back { calls } => return vec![(0, Said::Back { calls: *calls })],
        // The agent does all this by itself.
        Ask::Confirm { .. } | Ask::Listen { .. } | Ask::Heartbeat { .. } => return Vec::new(),
        Ask::Sweep | Ask::Watch | Ask::Connect => return Vec::new(),
    };
    vec![(call.number, said)]
}

/// True if the agent answers it.
pub(super) fn is_answered(ask: &Ask) -> bool {
    matches!(ask, Ask::Acquire { .. } | Ask::Release { .. } | Ask::EndById { .. } | Ask::Renew { .. })
}

fn wanted(request: &AcquireRequest) -> Wanted {
    let who = request.who.as_deref();
    let (label, command) = who.map_or((None, None), in_short);
    Wanted {
        weight: request.weight,
        ttl: request.ttl,
        patience: None,
        waits: request.wait != Wait::No,
        label,
        command,
        grace: who.and_then(|who| who.grace),
    }
}

/// What the agent's answer to a call means. It was sent at `sent`.
pub(super) fn decode(
    call: &Call,
    say: Say,
    agent: &str,
    sent: Instant,
    now: Instant,
) -> Result<Reply, Failure> {
    let failed = |error| Failure { error, is_passing: false, was_sent: true };
    match (&call.ask, say) {
        (Ask::Acquire { .. }, Say::Granted { id, slot, token, waited, capacity }) => {
            call.target.note_agreed();
            // The agent watches the time to live. What is shown of it here counts from the grant.
            let (clock, safe_until) = (ServerClock::new(0.0, now, now), now);
            let (id, slots, ends, neighbours) = (id.into(), capacity, LeaseEnd::AfterTtl, None);
            Ok(Reply::Granted(Grant { id, slot, token, waited, slots, clock, ends, safe_until, neighbours }))
        }
        (Ask::Acquire { .. }, Say::No(complaint)) => {
            let error = complaint.into_acquire_error(&call.target.name);
            if !matches!(error, AcquireError::Open(_) | AcquireError::Home(_)) {
                call.target.note_agreed();
            }
            Ok(Reply::Refused(error))
        }
        (Ask::Renew { ttl, .. }, Say::Done) => {
            let clock = ServerClock::new(0.0, sent, now);
            Ok(Reply::Renewed { clock, ends: ttl.map(|ttl| ttl.as_secs_f64()) })
        }
        (_, Say::Done) => Ok(Reply::Done),
        (_, Say::No(Complaint::NotHeld(why))) => Ok(Reply::NotHeld(why.into())),
        (_, Say::No(complaint)) => Err(failed(complaint.into_home_error())),
        (_, Say::Misunderstood(_)) => Err(failed(too_old(agent))),
        (_, other) => Err(failed(unexpected(&other))),
    }
}

/// The acquisition that the agent knows by that number.
pub(super) fn key(number: u64) -> Key {
    Key(number)
}
