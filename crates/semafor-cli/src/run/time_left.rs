//! How long the child may run, and what ends that.
//!
//! With `--on-lost kill`, nobody else can have the slot before the child is gone. So the home is asked for more time than the
//! child gets (`--ttl`, then `--grace` to end in, then some for us to see that it did), and a home that falls silent is not
//! waited for until the slot may be another's, but only for as long as leaves the child its grace, or a third of
//! `--heartbeat` where that is shorter.

use std::fmt;
use std::future::{pending, ready};
use std::time::{Duration, Instant};

use semafor::{NotHeld, Permit};
use tokio::select;
use tokio::time::sleep_until;

use crate::cli::{OnLost, Run};
use crate::duration;

/// Between the death of the child and the end of its time: for us to notice.
const SLACK: Duration = Duration::from_secs(1);
/// The same, where the home is silent and there is no time to spare.
const MARGIN: Duration = Duration::from_millis(100);
/// How often to look whether the slot was renewed for a shorter time.
const RENEWAL_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How long the home is asked to let us have the slot.
pub(super) fn lease(args: &Run) -> Option<Duration> {
    let ttl = args.ttl?;
    Some(match args.on_lost {
        OnLost::Warn => ttl,
        OnLost::Kill => ttl.saturating_add(args.grace).saturating_add(SLACK),
    })
}

/// How long the home waits for us when we are evicted.
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
    /// When the `ttl` is over, where it is up to us to see to that, and unless the slot is renewed.
    ends_at: Option<Instant>,
    /// Until when the home granted the slot. If that changes, it was renewed.
    granted_until: Option<Instant>,
    /// What has to be left of the time that the home grants to those it does not hear.
    reserve: Duration,
    margin: Duration,
}

/// Why the slot is not ours any more, or soon will not be.
pub(super) enum Loss {
    TtlExceeded(Duration),
    /// The same for a slot that was renewed.
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
            Self::RenewalExpired => f.write_str("the time for which it was renewed is over"),
            Self::HomeSilent => f.write_str("nothing was heard of the home of the semaphores for too long"),
            Self::Reported(NotHeld::Lost(loss)) => write!(f, "{loss}"),
            Self::Reported(NotHeld::Released) => f.write_str("somebody released it"),
            Self::Reported(NotHeld::Unknown) => {
                f.write_str("the home of the semaphores does not know of it any more")
            }
        }
    }
}

impl<'a> TimeLeft<'a> {
    /// Begins now.
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

    /// How it ended, if it has.
    pub(super) async fn has_ended(&self) -> Option<Loss> {
        select! {
            biased;
            loss = self.ended() => Some(loss),
            () = ready(()) => None,
        }
    }

    /// What can be told from the time alone.
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

    /// Waits until it is over.
    pub(super) async fn ended(&self) -> Loss {
        loop {
            if let Some(loss) = self.passed_deadline() {
                return loss;
            }
            let next_deadline = [self.ends_at(), self.silence_deadline()].into_iter().flatten().min();
            let later = async {
                match next_deadline {
                    Some(then) => sleep_until(then.min(Instant::now() + RENEWAL_CHECK_INTERVAL).into()).await,
                    None => pending().await,
                }
            };
            select! {
                why = self.permit.lost() => return Loss::Reported(why),
                () = later => {}
            }
        }
    }

    /// True if the slot was renewed, for longer or for shorter. A difference within the slack comes from the clocks.
    fn is_renewed(&self) -> bool {
        match (self.granted_until, self.permit.expires_at()) {
            (Some(before), Some(now)) => before.max(now) - before.min(now) > SLACK,
            (before, now) => before.is_some() != now.is_some() && !self.permit.is_lost(),
        }
    }

    /// When the child's time is over, where it is up to us to see to that.
    fn ends_at(&self) -> Option<Instant> {
        if self.on_lost != OnLost::Kill || !self.is_renewed() {
            return self.ends_at;
        }
        self.permit.expires_at()?.checked_sub(self.grace.saturating_add(SLACK))
    }

    /// When to act unless the home is heard of.
    fn silence_deadline(&self) -> Option<Instant> {
        match self.on_lost {
            OnLost::Kill => self.permit.safe_until()?.checked_sub(self.reserve),
            OnLost::Warn => None,
        }
    }

    /// When the child has to be killed if it has not ended by then: after its grace, or as long as it is safe.
    pub(super) fn kill_at(&self) -> Instant {
        let now = Instant::now();
        let grace_ends = now.checked_add(self.grace).unwrap_or(now);
        match self.permit.safe_until().and_then(|safe| safe.checked_sub(self.margin)) {
            Some(safe) => safe.min(grace_ends),
            None => grace_ends,
        }
    }
}
