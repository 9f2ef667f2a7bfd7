//! How long this process may rely on holding a slot.
//!
//! Always on the safe side: the server counts from when it carried out a command, this client from when it sent it. And
//! the server's clock may run a little faster.

use std::time::Duration;

use crate::remote::clock::{Instant, ServerClock, shortest};

/// Server times are in microseconds, and are rounded once more on the way.
const PRECISION: Duration = Duration::from_micros(2);
/// The server is asked at most this long before a lease ends.
const CHECK_AHEAD: Duration = Duration::from_secs(1);
/// A grant has to last at least this long to be useful.
const SHORTEST_USE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct LeaseTime {
    end: Option<End>,
    /// Renewals without a reply, which the server may have carried out. They may have shortened the lease.
    renewals: Vec<Renewal>,
    /// When to ask the server for the end of the lease: another process may have renewed it. `None` once it is asked.
    check_at: Option<Instant>,
    /// The newest reply that was used.
    as_of: ServerClock,
    /// Until then no other client can get the slot, even if the connection fails.
    safe_until: Instant,
}

/// The end of a lease: on the server's clock, and the earliest possible time on ours.
#[derive(Clone, Copy, Debug)]
struct End {
    on_server: f64,
    on_client: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Renewal {
    number: u64,
    asked: Instant,
    /// The earliest end of the lease if the server has carried out the renewal.
    ends: Instant,
}

/// Where the client knows the end of a lease from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EndSource {
    /// The reply to a heartbeat: the server received it after everything that was sent before.
    Heartbeat,
    /// The reply to the renewal with that number.
    Renewal(u64),
    /// A message about what another process did.
    Message,
}

impl End {
    fn new(on_server: Option<f64>, clock: &ServerClock) -> Option<Self> {
        let on_server = on_server?;
        // A time that our clock cannot show never comes.
        Some(Self { on_server, on_client: clock.earliest(on_server)?.checked_sub(PRECISION)? })
    }

    /// Two texts of the same number may differ in their last digits. No renewal changes the end by so little.
    fn is_same(self, other: Self) -> bool {
        (self.on_server - other.on_server).abs() < 1e-5
    }
}

impl LeaseTime {
    /// `ends` is on the server's clock.
    pub(crate) fn new(ends: Option<f64>, clock: ServerClock, safe_until: Instant, now: Instant) -> Self {
        let end = End::new(ends, &clock);
        let check_at = check_before(end.map(|end| end.on_client), now);
        Self { end, renewals: Vec::new(), check_at, as_of: clock, safe_until }
    }

    /// False if it may have ended by now: the process may have slept before it read the reply.
    pub(crate) fn is_fresh(&self, now: Instant) -> bool {
        let end = self.end.map_or(self.safe_until, |end| end.on_client);
        end.min(self.safe_until) > now + SHORTEST_USE
    }

    /// The earliest time at which the lease can end.
    pub(crate) fn ends_at(&self) -> Option<Instant> {
        let renewals = self.renewals.iter().map(|renewal| renewal.ends);
        self.end.map(|end| end.on_client).into_iter().chain(renewals).min()
    }

    pub(crate) fn check_at(&self) -> Option<Instant> {
        self.check_at
    }

    /// The server is being asked.
    pub(crate) fn note_check(&mut self) {
        self.check_at = None;
    }

    /// Until then no other client can get the slot.
    pub(crate) fn safe_until(&self) -> Instant {
        self.ends_at().map_or(self.safe_until, |end| end.min(self.safe_until))
    }

    /// Until then heartbeats keep the slot, regardless of the end of its lease.
    pub(crate) fn alive_until(&self) -> Instant {
        self.safe_until
    }

    /// When to give the slot up if no reply comes: before another client can get it. `None` if the lease ends first.
    pub(crate) fn give_up_at(&self, heartbeat: Duration) -> Option<Instant> {
        let margin = (heartbeat / 10).min(Duration::from_millis(500));
        let ends_first = self.ends_at().is_some_and(|end| end <= self.safe_until);
        if ends_first { None } else { self.safe_until.checked_sub(margin) }
    }

    /// The server has replied to a heartbeat, which keeps the slot safe for that long. `is_bounded` if other clients
    /// may shorten that: then the new time counts even if it is earlier.
    pub(crate) fn confirm(&mut self, clock: &ServerClock, safe_for: Duration, is_bounded: bool) {
        let Some(safe_until) = clock.sent().checked_add(safe_for) else { return };
        if safe_until > self.safe_until || is_bounded && !clock.is_before(&self.as_of) {
            self.safe_until = safe_until;
        }
    }

    /// The server is being asked to end the lease after `ttl`. From now on it may have done so.
    pub(crate) fn note_renewal(&mut self, number: u64, ttl: Duration, now: Instant) {
        let Some(ends) = now.checked_add(shortest(ttl)) else { return };
        let before = self.ends_at();
        self.renewals.retain(|renewal| renewal.number != number);
        self.renewals.push(Renewal { number, asked: now, ends });
        if self.ends_at() != before {
            self.check_at = check_before(self.ends_at(), now);
        }
    }

    /// The server says when the lease ends, on its clock.
    pub(crate) fn learn_end(
        &mut self,
        ends: Option<f64>,
        clock: &ServerClock,
        from: EndSource,
        now: Instant,
    ) {
        let in_doubt = self.renewals.len();
        match from {
            EndSource::Heartbeat => self.renewals.retain(|renewal| renewal.asked > clock.sent()),
            EndSource::Renewal(number) => self.renewals.retain(|renewal| renewal.number != number),
            EndSource::Message => {}
        }
        if self.renewals.len() != in_doubt {
            self.check_at = check_before(self.ends_at(), now);
        }
        // Replies are not always read in the order in which they were given.
        if clock.is_before(&self.as_of) {
            return;
        }
        self.as_of = *clock;
        let new_end = End::new(ends, clock);
        if let (Some(known), Some(new_end)) = (&mut self.end, new_end)
            && known.is_same(new_end)
        {
            // Both are the earliest possible end, unless the server's clock was set forward.
            let is_possible = clock.latest(new_end.on_server).is_none_or(|latest| known.on_client <= latest);
            known.on_client =
                if is_possible { known.on_client.max(new_end.on_client) } else { new_end.on_client };
            return;
        }
        self.end = new_end;
        self.check_at = check_before(self.ends_at(), now);
    }
}

fn check_before(end: Option<Instant>, now: Instant) -> Option<Instant> {
    let end = end?;
    let left = end.saturating_duration_since(now);
    end.checked_sub((left / 4).min(CHECK_AHEAD))
}
