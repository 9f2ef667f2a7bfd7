//! Gives back what the server has, or may have, for an acquisition that is not wanted any more.

use std::sync::Arc;
use std::time::Duration;

use super::acquisition::{Acquisition, Leaving, State};
use super::name::Leaver;
use super::{BATCH, Client, Liveness};
use crate::error::AcquireError;
use crate::remote::call::{Command, Ended, Failure, How, Key};
use crate::remote::clock::Instant;

/// How long the server may be silent to a waiter that timed out and wants to leave the line.
pub(super) const SILENCE: Duration = Duration::from_secs(1);
/// How long to keep trying to give something back. After that, the server ends it because its heartbeats are missing.
const GIVING_BACK: Duration = Duration::from_secs(60);

impl Client {
    /// Gives back what the server has for it, or may have. Removes it if the server can't know it.
    pub(super) fn leave_or_remove(&mut self, key: Key, how: How, now: Instant) {
        match self.acquisitions.get(&key) {
            Some(acquisition) if acquisition.may_be_known || acquisition.is_sent => self.leave(key, how, now),
            _ => self.remove(key),
        }
    }

    pub(super) fn leave(&mut self, key: Key, how: How, now: Instant) {
        self.set_state(key, State::Leaving(Leaving { how, since: now, silent_at: None }));
        if !self.is_connected && matches!(self.settings.liveness, Liveness::Connection { .. }) {
            // The server ended it when the connection ended.
            return self.left(key, None, now);
        }
        self.reschedule(key);
        self.put_leaver(key, how);
    }

    pub(super) fn put_leaver(&mut self, key: Key, how: How) {
        let Some(acquisition) = self.acquisitions.get(&key) else { return };
        let target = Arc::clone(&acquisition.target);
        self.name_of(&target).leavers.push_back(Leaver { key, how });
        self.send_leavers(&target.name);
    }

    /// Sends one call at a time, so that ids that leave meanwhile go together in the next one.
    pub(super) fn send_leavers(&mut self, name: &Arc<str>) {
        let Some(known) = self.names.get_mut(name) else { return };
        if known.is_leaving || known.leavers.is_empty() || known.leave_again_at.is_some() {
            return;
        }
        known.is_leaving = true;
        let count = known.leavers.len().min(BATCH);
        let those = known.leavers.drain(..count).map(|leaver| (leaver.key, leaver.how)).collect();
        let target = Arc::clone(&known.target);
        self.send(target, Command::End { those });
    }

    pub(super) fn end_answered(
        &mut self,
        name: &Arc<str>,
        those: &[(Key, How)],
        ended: &[Ended],
        now: Instant,
    ) {
        if let Some(known) = self.names.get_mut(name) {
            known.is_leaving = false;
            known.reset_pause();
        }
        self.progress += 1;
        for (at, (key, _)) in those.iter().enumerate() {
            self.left(*key, ended.get(at), now);
        }
        self.send_leavers(name);
        self.tidy(name);
    }

    pub(super) fn end_failed(
        &mut self,
        name: &Arc<str>,
        those: Vec<(Key, How)>,
        failure: &Failure,
        now: Instant,
    ) {
        let (mut again, mut over) = (Vec::new(), Vec::new());
        for (key, how) in those {
            match self.acquisitions.get(&key).map(|acquisition| &acquisition.state) {
                Some(State::Leaving(leaving))
                    if failure.is_passing && now.saturating_duration_since(leaving.since) < GIVING_BACK =>
                {
                    again.push(Leaver { key, how });
                }
                _ => over.push(key),
            }
        }
        for key in over {
            if let Some(acquisition) = self.acquisitions.get(&key)
                && is_awaited(acquisition)
            {
                self.tell(key, failure.error.clone().into());
            }
            self.left(key, None, now);
        }
        if let Some(known) = self.names.get_mut(name) {
            known.is_leaving = false;
            if !again.is_empty() {
                again.into_iter().rev().for_each(|leaver| known.leavers.push_front(leaver));
                known.leave_again_at = Some(now + known.take_pause());
            }
        }
        self.reschedule_name(name);
        self.send_leavers(name);
        self.tidy(name);
    }

    /// Nothing of it is left at the server.
    pub(super) fn left(&mut self, key: Key, ended: Option<&Ended>, now: Instant) {
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
                None => self.settings.silent.clone().into(),
            };
            self.set_state(key, State::Over);
            self.tell(key, error);
        } else if has_failure {
            self.set_state(key, State::Over);
            self.reschedule(key);
        } else {
            self.remove(key);
        }
    }

    /// The server has not answered a waiter that timed out for a while.
    pub(super) fn note_silence(&mut self, key: Key, now: Instant) {
        let is_heard = self.heard_at.is_some_and(|heard| now.saturating_duration_since(heard) < SILENCE);
        let answer_time = self.settings.answer_time;
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        let State::Leaving(leaving) = &mut acquisition.state else { return };
        // The server answers other calls: it is busy, perhaps with many waiters that leave, but not silent.
        if is_heard && now.saturating_duration_since(leaving.since) < answer_time {
            leaving.silent_at = Some(now + SILENCE);
            return self.reschedule(key);
        }
        leaving.silent_at = None;
        let silent = self.settings.silent.clone();
        self.tell(key, silent.into());
    }
}

/// True if a user still waits for the outcome.
fn is_awaited(acquisition: &Acquisition) -> bool {
    !acquisition.is_abandoned
        && acquisition.failure.is_none()
        && matches!(acquisition.state, State::Leaving(Leaving { how: How::TimedOut, .. }))
}
