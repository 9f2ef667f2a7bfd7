//! Releases what the server has, or may have, for an acquisition that its user does not want any more.

use std::sync::Arc;
use std::time::Duration;

use super::acquisition::{Acquisition, Leaving, State};
use super::{BATCH, Client, Liveness};
use crate::error::AcquireError;
use crate::remote::call::{Command, EndReason, Ended, Failure, Key, Leaver};
use crate::remote::clock::Instant;

/// How long the server may take to confirm that a waiter that timed out has left the line.
pub(super) const LEAVE_REPLY_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to repeat a release. After that, the server ends the acquisition because its heartbeats are missing.
const LEAVE_RETRY_TIME: Duration = Duration::from_secs(60);
/// No request is delayed on its way for longer. As in `lua/prelude.lua`.
const LATE: Duration = Duration::from_secs(60);

impl Client {
    /// Releases what the server has for it, or may have. Removes it if the server can't know it.
    pub(super) fn leave_or_remove(&mut self, key: Key, reason: EndReason, now: Instant) {
        match self.acquisitions.get(&key) {
            Some(acquisition) if acquisition.may_be_known || acquisition.may_have_arrived => {
                self.leave(key, reason, now);
            }
            _ => self.remove(key),
        }
    }

    pub(super) fn leave(&mut self, key: Key, reason: EndReason, now: Instant) {
        self.set_state(key, State::Leaving(Leaving { reason, since: now, no_reply_at: None }));
        if !self.is_connected && matches!(self.settings.liveness, Liveness::Connection { .. }) {
            // The server ended it when the connection ended.
            return self.finish_leaving(key, None, now);
        }
        self.reschedule(key);
        self.queue_leaver(key, reason, now);
    }

    pub(super) fn queue_leaver(&mut self, key: Key, reason: EndReason, now: Instant) {
        let Some(acquisition) = self.acquisitions.get(&key) else { return };
        let target = Arc::clone(&acquisition.target);
        let lost_attempt_at = acquisition.lost_attempt_at;
        let has_lost_attempt = lost_attempt_at.is_some_and(|at| now.saturating_duration_since(at) < LATE);
        self.name_entry(&target).leavers.push_back(Leaver { key, reason, has_lost_attempt });
        self.send_leavers(&target.name);
    }

    /// Sends one call at a time, so that ids that leave meanwhile go together in the next one.
    pub(super) fn send_leavers(&mut self, name: &Arc<str>) {
        let Some(entry) = self.names.get_mut(name) else { return };
        if entry.is_leave_pending || entry.leavers.is_empty() || entry.retry_leave_at.is_some() {
            return;
        }
        entry.is_leave_pending = true;
        let count = entry.leavers.len().min(BATCH);
        let leavers = entry.leavers.drain(..count).collect();
        let target = Arc::clone(&entry.target);
        self.send(target, Command::End { leavers });
    }

    pub(super) fn handle_end_reply(
        &mut self,
        name: &Arc<str>,
        leavers: &[Leaver],
        ended: &[Ended],
        now: Instant,
    ) {
        if let Some(entry) = self.names.get_mut(name) {
            entry.is_leave_pending = false;
            entry.reset_pause();
        }
        self.progress += 1;
        for (at, leaver) in leavers.iter().enumerate() {
            self.finish_leaving(leaver.key, ended.get(at), now);
        }
        self.send_leavers(name);
        self.remove_name_if_unused(name);
    }

    pub(super) fn handle_end_failure(
        &mut self,
        name: &Arc<str>,
        leavers: Vec<Leaver>,
        failure: &Failure,
        now: Instant,
    ) {
        let (mut again, mut over) = (Vec::new(), Vec::new());
        for leaver in leavers {
            match self.acquisitions.get(&leaver.key).map(|acquisition| &acquisition.state) {
                Some(State::Leaving(leaving))
                    if failure.is_transient
                        && now.saturating_duration_since(leaving.since) < LEAVE_RETRY_TIME =>
                {
                    again.push(leaver);
                }
                _ => over.push(leaver.key),
            }
        }
        for key in over {
            if let Some(acquisition) = self.acquisitions.get(&key)
                && is_awaited(acquisition)
            {
                self.report_failure(key, failure.error.clone().into());
            }
            self.finish_leaving(key, None, now);
        }
        if let Some(entry) = self.names.get_mut(name) {
            entry.is_leave_pending = false;
            if !again.is_empty() {
                again.into_iter().rev().for_each(|leaver| entry.leavers.push_front(leaver));
                entry.retry_leave_at = Some(now + entry.take_pause());
            }
        }
        self.reschedule_name(name);
        self.send_leavers(name);
        self.remove_name_if_unused(name);
    }

    /// The server has nothing of it any more.
    pub(super) fn finish_leaving(&mut self, key: Key, ended: Option<&Ended>, now: Instant) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        if !matches!(acquisition.state, State::Leaving(_)) {
            return;
        }
        let is_awaited = is_awaited(acquisition);
        let has_failure = acquisition.failure.is_some();
        let waited = now.saturating_duration_since(acquisition.started);
        if is_awaited && !has_failure {
            let error = match ended {
                Some(Ended { held, slots, waiting, .. }) => {
                    AcquireError::TimedOut { waited, held: *held, slots: *slots, waiting: *waiting }
                }
                None => self.settings.no_reply_error.clone().into(),
            };
            self.set_state(key, State::Failed);
            self.report_failure(key, error);
        } else if has_failure {
            self.set_state(key, State::Failed);
            self.reschedule(key);
        } else {
            self.remove(key);
        }
    }

    /// The server has not confirmed in time that a waiter that timed out has left.
    pub(super) fn report_no_reply(&mut self, key: Key, now: Instant) {
        let is_server_responsive = self
            .last_reply_at
            .is_some_and(|heard| now.saturating_duration_since(heard) < LEAVE_REPLY_TIMEOUT);
        let reply_timeout = self.settings.reply_timeout;
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        let State::Leaving(leaving) = &mut acquisition.state else { return };
        // The server answers other calls: it is busy, perhaps with many waiters that leave, but not silent.
        if is_server_responsive && now.saturating_duration_since(leaving.since) < reply_timeout {
            leaving.no_reply_at = Some(now + LEAVE_REPLY_TIMEOUT);
            return self.reschedule(key);
        }
        leaving.no_reply_at = None;
        let error = self.settings.no_reply_error.clone();
        self.report_failure(key, error.into());
    }
}

/// True if a user still waits for the outcome.
fn is_awaited(acquisition: &Acquisition) -> bool {
    !acquisition.is_abandoned
        && acquisition.failure.is_none()
        && matches!(acquisition.state, State::Leaving(Leaving { reason: EndReason::TimedOut, .. }))
}
