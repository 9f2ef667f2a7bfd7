//! How long the child may hold the slot, and why it loses it.
//!
//! With `--on-lost kill`, the child must be gone before another holder gets the slot. So we ask the home for a longer
//! lease than the child gets: `--ttl`, plus `--grace` to end, plus some slack for us to notice. If the home does not
//! answer, we do not wait until the slot may be granted to another: we end the child early enough to leave it its
//! grace, or a third of `--heartbeat` if that is shorter.

use std::fmt;
use std::future::ready;
use std::time::{Duration, Instant};

use semafor::{NotHeld, Permit};
use tokio::select;
use tokio::time::sleep_until;

use crate::cli::{OnLost, Run};
use crate::duration;

/// Between the death of the child and the end of the lease, for us to notice it.
const SLACK: Duration = Duration::from_secs(1);
/// The same if the home does not answer and time is short.
const MARGIN: Duration = Duration::from_millis(100);
/// How often to check whether the slot was renewed for a shorter time.
const RENEWAL_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The lease to ask the home for.
pub(super) fn lease(args: &Run) -> Option<Duration> {
    let ttl = args.ttl?;
    Some(match args.on_lost {
        OnLost::Warn => ttl,
        OnLost::Kill => ttl.saturating_add(args.grace).saturating_add(SLACK),
    })
}

/// How long the home waits after an eviction before it grants the slot to another.
pub(super) fn grace(args: &Run) -> Duration {
    match args.on_lost {
        OnLost::Warn => Duration::ZERO,
        OnLost::Kill => args.grace.saturating_add(SLACK),
    }
}

pub(super) struct TimeLeft<'a> {
    permit: &'a Permit<'static>,
    on_lost: OnLost,
    grace: Duration,
    ttl: Duration,
    /// When the `ttl` is over, if we must end the child then. Not valid after a renewal.
    ends_at: Option<Instant>,
    /// The end of the lease at the start. If it changes, the slot was renewed.
    granted_until: Option<Instant>,
    /// How long before the lease may end we act if the home does not answer.
    reserve: Duration,
    margin: Duration,
}

/// Why the slot is lost, or will be soon.
pub(super) enum Loss {
    TtlExceeded(Duration),
    /// The `ttl` of a renewal is over.
    RenewalExpired,
    HomeSilent,
    Reported(NotHeld),
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TtlExceeded(ttl) => {
                write!(f, "the command took longer than its --ttl of {}", duration::show(*ttl))
            }
            Self::RenewalExpired => f.write_str("the --ttl of the renewed slot is over"),
            Self::HomeSilent => f.write_str("the agent or the Redis server did not answer for too long"),
            Self::Reported(NotHeld::Lost(loss)) => write!(f, "{loss}"),
            Self::Reported(NotHeld::Released) => f.write_str("another process released it"),
            Self::Reported(NotHeld::Unknown) => {
                f.write_str("the agent or the Redis server no longer knows it, perhaps after a restart")
            }
        }
    }
}

impl<'a> TimeLeft<'a> {
    /// Starts now.
    pub(super) fn of(permit: &'a Permit<'static>, args: &Run) -> Self {
        let silence = lease(args).map_or(args.heartbeat, |lease| lease.min(args.heartbeat));
        let margin = MARGIN.min(silence / 20);
        let we_end_it = args.on_lost == OnLost::Kill;
        Self {
            permit,
            on_lost: args.on_lost,
            grace: args.grace,
            ttl: args.ttl.unwrap_or_default(),
            ends_at: args.ttl.filter(|_| we_end_it).and_then(|ttl| Instant::now().checked_add(ttl)),
            granted_until: permit.expires_at(),
            reserve: args.grace.saturating_add(margin).min(silence / 3),
            margin,
        }
    }

    /// The loss, if the slot is lost already.
    pub(super) async fn has_ended(&self) -> Option<Loss> {
        select! {
            biased;
            loss = self.ended() => Some(loss),
            () = ready(()) => None,
        }
    }

    /// The loss if a deadline has passed.
    fn passed_deadline(&self) -> Option<Loss> {
        let is_past = |moment: Option<Instant>| moment.is_some_and(|moment| moment <= Instant::now());
        if is_past(self.ends_at()) {
            Some(if self.is_renewed() { Loss::RenewalExpired } else { Loss::TtlExceeded(self.ttl) })
        } else if is_past(self.silence_deadline()) {
            Some(Loss::HomeSilent)
        } else {
            None
        }
    }

    /// Waits until the slot is lost.
    pub(super) async fn ended(&self) -> Loss {
        loop {
            if let Some(loss) = self.passed_deadline() {
                return loss;
            }
            let next_deadline = [self.ends_at(), self.silence_deadline()].into_iter().flatten().min();
            // A renewal by another process may set a deadline where there was none.
            let next_check = Instant::now() + RENEWAL_CHECK_INTERVAL;
            let later = sleep_until(next_deadline.map_or(next_check, |then| then.min(next_check)).into());
            select! {
                why = self.permit.lost() => return Loss::Reported(why),
                () = later => {}
            }
        }
    }

    /// True if the slot was renewed, for a longer or shorter time. Differences within the slack come from the clocks.
    fn is_renewed(&self) -> bool {
        match (self.granted_until, self.permit.expires_at()) {
            (Some(before), Some(now)) => before.max(now) - before.min(now) > SLACK,
            (before, now) => before.is_some() != now.is_some() && !self.permit.is_lost(),
        }
    }

    /// When we must end the child because its time is over.
    fn ends_at(&self) -> Option<Instant> {
        if self.on_lost != OnLost::Kill || !self.is_renewed() {
            return self.ends_at;
        }
        self.permit.expires_at()?.checked_sub(self.grace.saturating_add(SLACK))
    }

    /// When to end the child if the home does not answer.
    fn silence_deadline(&self) -> Option<Instant> {
        match self.on_lost {
            OnLost::Kill => self.permit.safe_until()?.checked_sub(self.reserve),
            OnLost::Warn => None,
        }
    }

    /// When to kill the child: after its grace, or earlier if the slot may be granted to another.
    pub(super) fn kill_at(&self) -> Instant {
        let now = Instant::now();
        let grace_ends = now.checked_add(self.grace).unwrap_or(now);
        match self.permit.safe_until().and_then(|safe| safe.checked_sub(self.margin)) {
            Some(safe) => safe.min(grace_ends),
            None => grace_ends,
        }
    }
}
