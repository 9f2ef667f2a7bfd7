//! `Serialize` for the feature `serde`. Durations are seconds, and their keys say so.

use std::time::Duration;

use semafor_core::{Histogram, Totals};
use serde::{Serialize, Serializer};

use crate::{HolderInfo, PermitId, Stats, WaiterInfo};

/// Serialized as its text.
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl Serialize for PermitId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Durations are seconds, the error is its message.
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl Serialize for Stats {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shape<'a> {
            name: &'a str,
            error: Option<String>,
            capacity: u32,
            held: u32,
            holders: usize,
            waiting: usize,
            longest_wait_seconds: f64,
            totals: Counts,
            waits: Times,
            holds: Times,
        }
        Shape {
            name: &self.name,
            error: self.error.as_ref().map(ToString::to_string),
            capacity: self.slots,
            held: self.held,
            holders: self.holders,
            waiting: self.waiting,
            longest_wait_seconds: self.longest_wait.as_secs_f64(),
            totals: Counts::from(&self.totals),
            waits: Times::from(&self.waits),
            holds: Times::from(&self.holds),
        }
        .serialize(serializer)
    }
}

#[derive(Serialize)]
struct Counts {
    granted: u64,
    released: u64,
    queued: u64,
    expired: u64,
    evicted: u64,
    handed_on: u64,
    timed_out: u64,
    cancelled: u64,
    refused: u64,
}

impl From<&Totals> for Counts {
    fn from(totals: &Totals) -> Self {
        Self {
            granted: totals.granted,
            released: totals.released,
            queued: totals.queued,
            expired: totals.expired,
            evicted: totals.evicted,
            handed_on: totals.handed_on,
            timed_out: totals.timed_out,
            cancelled: totals.cancelled,
            refused: totals.refused,
        }
    }
}

#[derive(Serialize)]
struct Times {
    count: u64,
    total_seconds: f64,
    mean_seconds: f64,
    p50_seconds: f64,
    p99_seconds: f64,
    max_seconds: f64,
    /// The buckets that are not empty, shortest first.
    buckets: Vec<Bucket>,
}

#[derive(Serialize)]
struct Bucket {
    below_seconds: f64,
    count: u64,
}

impl From<&Histogram> for Times {
    fn from(times: &Histogram) -> Self {
        let bucket = |(bound, count): (Duration, u64)| Bucket { below_seconds: bound.as_secs_f64(), count };
        Self {
            count: times.count(),
            total_seconds: times.total().as_secs_f64(),
            mean_seconds: times.mean().as_secs_f64(),
            p50_seconds: times.quantile(0.5).as_secs_f64(),
            p99_seconds: times.quantile(0.99).as_secs_f64(),
            max_seconds: times.max().as_secs_f64(),
            buckets: times.buckets().map(bucket).collect(),
        }
    }
}

/// Durations are seconds.
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl Serialize for HolderInfo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shape<'a> {
            id: &'a PermitId,
            slot: Option<u32>,
            fencing_token: Option<u64>,
            weight: u32,
            label: Option<&'a str>,
            command: Option<&'a str>,
            host: Option<&'a str>,
            pid: Option<u32>,
            held_for_seconds: f64,
            expires_in_seconds: Option<f64>,
        }
        Shape {
            id: &self.id,
            slot: self.slot,
            fencing_token: self.fencing_token,
            weight: self.weight,
            label: self.label.as_deref(),
            command: self.command.as_deref(),
            host: self.host.as_deref(),
            pid: self.pid,
            held_for_seconds: self.held_for.as_secs_f64(),
            expires_in_seconds: self.expires_in.map(|left| left.as_secs_f64()),
        }
        .serialize(serializer)
    }
}

/// Durations are seconds.
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl Serialize for WaiterInfo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shape<'a> {
            ahead: usize,
            weight: u32,
            label: Option<&'a str>,
            command: Option<&'a str>,
            host: Option<&'a str>,
            pid: Option<u32>,
            waited_for_seconds: f64,
        }
        Shape {
            ahead: self.ahead,
            weight: self.weight,
            label: self.label.as_deref(),
            command: self.command.as_deref(),
            host: self.host.as_deref(),
            pid: self.pid,
            waited_for_seconds: self.waited_for.as_secs_f64(),
        }
        .serialize(serializer)
    }
}
