//! Events for `tracing` and numbers for `metrics`. Does nothing without those features.
//!
//! Always called without holding a lock.

#[cfg(feature = "tracing")]
macro_rules! event {
    ($level:ident, $gate:expr, $message:literal $(, $($field:tt)*)?) => {
        crate::catch_panic::call(|| {
            tracing::$level!(target: "semafor", name = $gate.name(), $($($field)*,)? $message);
        })
    };
}

#[cfg(not(feature = "tracing"))]
macro_rules! event {
    ($level:ident, $gate:expr, $message:literal $(, $($field:ident = % $value:expr),*)?) => {{
        let _ = $gate;
        $($(let _ = &$value;)*)?
    }};
}

use std::time::Duration;

use semafor_core::{Acquired, Cancelled, Loss, NotHeld, PermitId, Refusal};

use crate::error::AcquireError;
use crate::memory::SharedGate;

#[inline]
pub(crate) fn taken(gate: &SharedGate, taken: Option<PermitId>) {
    if let Some(id) = taken {
        event!(trace, gate, "granted", id = %id);
    }
}

pub(crate) fn tried(gate: &SharedGate, answer: &Result<PermitId, Refusal>) {
    match answer {
        Ok(id) => event!(trace, gate, "granted", id = %id),
        Err(_) => event!(debug, gate, "refused"),
    }
}

#[inline]
pub(crate) fn enqueued(gate: &SharedGate, answer: &Result<Acquired, Refusal>) {
    match answer {
        Ok(Acquired::Granted(id)) => event!(trace, gate, "granted", id = %id),
        Ok(Acquired::Queued(_)) => event!(trace, gate, "waiting"),
        Err(_) => event!(debug, gate, "refused"),
    }
}

pub(crate) fn settled(gate: &SharedGate, answer: &Result<(PermitId, Duration), AcquireError>) {
    match answer {
        Ok((id, waited)) => event!(trace, gate, "granted", id = %id, waited_seconds = %waited.as_secs_f64()),
        Err(error) => event!(debug, gate, "not acquired", error = %error),
    }
}

pub(crate) fn cancelled<W>(gate: &SharedGate, answer: &Cancelled<W>) {
    match answer {
        Cancelled::Left(_) => event!(debug, gate, "left the line"),
        Cancelled::HandedOn => event!(debug, gate, "left the line; its slot was handed on"),
        Cancelled::Settled | Cancelled::Unknown => {}
    }
}

#[inline]
pub(crate) fn released<T>(gate: &SharedGate, id: PermitId, answer: &Result<T, NotHeld>) {
    match answer {
        Ok(_) => event!(trace, gate, "released", id = %id),
        Err(why) => event!(debug, gate, "nothing to release", id = %id, reason = %why),
    }
}

pub(crate) fn lost(gate: &SharedGate, id: PermitId, loss: Loss) {
    event!(warn, gate, "a holder lost its slot", id = %id, reason = %loss);
}

pub(crate) fn resized(gate: &SharedGate, before: u32, after: u32) {
    event!(info, gate, "resized", before = %before, after = %after);
}

pub(crate) fn closed(gate: &SharedGate) {
    event!(info, gate, "closed");
}

#[cfg(any(feature = "local", feature = "redis"))]
pub(crate) fn remote_loss(home: &str, id: &str, why: NotHeld) {
    #[cfg(feature = "tracing")]
    crate::catch_panic::call(|| {
        tracing::warn!(target: "semafor", home, id, reason = %why, "a holder lost its slot");
    });
    #[cfg(not(feature = "tracing"))]
    let _ = (home, id, why);
}

/// The server does not push grants to waiters, so the client polls for them.
#[cfg(feature = "redis")]
pub(crate) fn home_hears_little(home: &str, hears_own: bool) {
    #[cfg(feature = "tracing")]
    crate::catch_panic::call(|| {
        tracing::warn!(
            target: "semafor",
            home,
            "no push messages{}: the client polls for its waiters",
            if hears_own { " for grants by other libraries" } else { "" },
        );
    });
    #[cfg(not(feature = "tracing"))]
    let _ = (home, hears_own);
}

/// The server may delete semaphores that are in use.
#[cfg(feature = "redis")]
pub(crate) fn home_may_forget(warning: &str) {
    #[cfg(feature = "tracing")]
    crate::catch_panic::call(|| tracing::warn!(target: "semafor", "{warning}"));
    #[cfg(not(feature = "tracing"))]
    let _ = warning;
}

#[cfg(feature = "metrics")]
pub(crate) fn publish_metrics(all: &[crate::Stats]) {
    use metrics::{counter, gauge};
    for stats in all {
        let name = stats.name.to_string();
        gauge!("semafor_capacity", "name" => name.clone()).set(stats.slots);
        gauge!("semafor_held", "name" => name.clone()).set(stats.held);
        gauge!("semafor_waiting", "name" => name.clone()).set(stats.waiting as f64);
        gauge!("semafor_longest_wait_seconds", "name" => name.clone()).set(stats.longest_wait);
        for (label, q) in [("0.5", 0.5), ("0.9", 0.9), ("0.99", 0.99)] {
            let (wait, hold) = (stats.waits.quantile(q), stats.holds.quantile(q));
            gauge!("semafor_wait_seconds", "name" => name.clone(), "quantile" => label).set(wait);
            gauge!("semafor_hold_seconds", "name" => name.clone(), "quantile" => label).set(hold);
        }
        let totals = &stats.totals;
        for (event, total) in [
            ("granted", totals.granted),
            ("released", totals.released),
            ("expired", totals.expired),
            ("evicted", totals.evicted),
            ("handed_on", totals.handed_on),
            ("queued", totals.queued),
            ("timed_out", totals.timed_out),
            ("cancelled", totals.cancelled),
            ("refused", totals.refused),
        ] {
            counter!("semafor_events_total", "name" => name.clone(), "event" => event).absolute(total);
        }
    }
}
