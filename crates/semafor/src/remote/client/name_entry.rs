use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::remote::call::{Leaver, PythonClients};
use crate::remote::clock::Instant;
use crate::remote::target::Target;

/// Pauses between attempts to release, the first and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// A name under which this process holds, waits, or has something to release.
#[derive(Debug)]
pub(super) struct NameEntry {
    /// One of its handles; any handle of the name will do.
    pub(super) target: Arc<Target>,
    /// The number of acquisitions of this name, in any state.
    pub(super) acquisitions: usize,
    pub(super) waiting: usize,
    /// The number of holders whose lease has an end.
    pub(super) leased: usize,
    pub(super) next_sweep: Option<Instant>,
    /// A lease has just ended on our clock; until this time the server is asked to end it, too.
    pub(super) expiring_until: Option<Instant>,
    pub(super) is_watched: bool,
    pub(super) python_clients: PythonClients,
    /// Acquisitions to release, in order. Those that are added while a call is pending go together in the next one.
    pub(super) leavers: VecDeque<Leaver>,
    /// A call for `leavers` is pending.
    pub(super) is_leave_pending: bool,
    pub(super) retry_leave_at: Option<Instant>,
    pause: Duration,
}

impl NameEntry {
    pub(super) fn new(target: Arc<Target>) -> Self {
        Self {
            target,
            acquisitions: 0,
            waiting: 0,
            leased: 0,
            next_sweep: None,
            expiring_until: None,
            is_watched: false,
            python_clients: PythonClients::default(),
            leavers: VecDeque::new(),
            is_leave_pending: false,
            retry_leave_at: None,
            pause: PAUSE.0,
        }
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        [self.next_sweep, self.retry_leave_at].into_iter().flatten().min()
    }

    /// True if a sweep of this name may concern this process.
    pub(super) fn needs_sweeps(&self) -> bool {
        self.waiting > 0 || self.leased > 0 || self.expiring_until.is_some()
    }

    pub(super) fn is_unused(&self) -> bool {
        self.acquisitions == 0
            && self.expiring_until.is_none()
            && !self.is_leave_pending
            && self.leavers.is_empty()
    }

    pub(super) fn reset_pause(&mut self) {
        self.pause = PAUSE.0;
    }

    /// The pause to make now. The next one is twice as long.
    pub(super) fn take_pause(&mut self) -> Duration {
        let longer = (self.pause * 2).min(PAUSE.1);
        std::mem::replace(&mut self.pause, longer)
    }
}
