//! The counters of a run, shared by all threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::ErrorKind;

/// The share of the whole tree.
pub(crate) const WHOLE: u64 = 1 << 60;

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) dirs_scanned: Counter,
    pub(crate) dirs_removed: Counter,
    pub(crate) files_scanned: Counter,
    pub(crate) files_removed: Counter,
    pub(crate) dirs_changed: Counter,
    pub(crate) files_changed: Counter,
    pub(crate) bytes_freed: Counter,
    pub(crate) backpressure_events: Counter,
    /// The decided share of the [whole](WHOLE). The share of a directory is divided among its entries.
    pub(crate) decided: Counter,
    errors: [Counter; ErrorKind::ALL.len()],
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(crate) fn error(&self, kind: ErrorKind) {
        self.errors[kind as usize].add(1);
    }

    pub(crate) fn errors(&self) -> u64 {
        self.errors.iter().map(Counter::get).sum()
    }

    pub(crate) fn errors_by_kind(&self) -> BTreeMap<&'static str, u64> {
        let counted = ErrorKind::ALL.map(|kind| (kind.name(), self.errors[kind as usize].get()));
        counted.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// From 0 to 1.
    pub(crate) fn decided_fraction(&self) -> f64 {
        (self.decided.get() as f64 / WHOLE as f64).min(1.0)
    }
}
