//! Sweeps of a name, and watching it for releases by clients of the Python library.

use std::sync::Arc;
use std::time::Duration;

use super::name_entry::NameEntry;
use super::{Client, Due};
use crate::remote::call::{Command, NameState, PythonClients};
use crate::remote::clock::Instant;
use crate::remote::target::Target;

/// The pause between two sweeps for leases that have ended on our clock.
const SWEEP_PAUSE: Duration = Duration::from_millis(10);
/// How long to ask the server to end a lease that has ended on our clock: the server counts from a little later.
const EXPIRING: Duration = Duration::from_secs(1);

impl Client {
    pub(super) fn name_entry(&mut self, target: &Arc<Target>) -> &mut NameEntry {
        self.names.entry(Arc::clone(&target.name)).or_insert_with(|| NameEntry::new(Arc::clone(target)))
    }

    pub(super) fn note_name_state(&mut self, target: &Arc<Target>, state: &NameState) {
        let Some(entry) = self.names.get_mut(&target.name) else { return };
        entry.python_clients = state.python_clients;
        if entry.needs_sweeps() {
            // A sweep has to run by then at the latest: it ends the sweeps for leases that have ended on our clock.
            let latest = entry.expiring_until.into_iter();
            entry.next_sweep = state.deadline.into_iter().chain(latest).min();
            self.reschedule_name(&target.name);
        }
        if state.python_clients == PythonClients::Holding {
            self.watch(&target.name);
        }
    }

    /// Clients of the Python library hold slots, and their releases wake none of our waiters. So the set of holders is
    /// watched for any change. The server sweeps right after it has begun to watch, so that no earlier change is
    /// missed.
    pub(super) fn watch(&mut self, name: &Arc<str>) {
        let Some(entry) = self.names.get_mut(name) else { return };
        if entry.waiting > 0 && !std::mem::replace(&mut entry.is_watched, true) {
            let target = Arc::clone(&entry.target);
            self.send(target, Command::Watch);
        }
    }

    pub(super) fn handle_watch_reply(
        &mut self,
        target: &Arc<Target>,
        is_watched: bool,
        state: Option<&NameState>,
    ) {
        let is_needed = state.is_some_and(|state| state.python_clients == PythonClients::Holding);
        if let Some(state) = state {
            self.note_name_state(target, state);
        }
        if let Some(entry) = self.names.get_mut(&target.name) {
            entry.is_watched &= is_watched && is_needed;
        }
    }

    pub(super) fn handle_sweep_reply(
        &mut self,
        target: &Arc<Target>,
        state: Option<&NameState>,
        now: Instant,
    ) {
        if let Some(state) = state {
            self.note_name_state(target, state);
        }
        let Some(entry) = self.names.get_mut(&target.name) else { return };
        if let Some(until) = entry.expiring_until {
            let deadline = state.and_then(|state| state.deadline);
            if now >= until || state.is_some() && deadline.is_none_or(|soon| soon >= until) {
                entry.expiring_until = None;
            } else {
                // Many leases end at almost the same time: one sweep ends all of them.
                entry.next_sweep = Some(deadline.unwrap_or(now).max(now + SWEEP_PAUSE));
            }
            self.reschedule_name(&target.name);
        }
        self.remove_name_if_unused(&target.name);
    }

    pub(super) fn handle_name_timeout(&mut self, name: &Arc<str>, now: Instant) {
        let Some(entry) = self.names.get_mut(name) else { return };
        let target = Arc::clone(&entry.target);
        if entry.next_sweep.is_some_and(|at| at <= now) {
            entry.next_sweep = None;
            self.send(target, Command::Sweep);
        }
        let Some(entry) = self.names.get_mut(name) else { return };
        if entry.retry_leave_at.is_some_and(|at| at <= now) {
            entry.retry_leave_at = None;
            self.send_leavers(name);
        }
        self.reschedule_name(name);
    }

    pub(super) fn reschedule_name(&mut self, name: &Arc<str>) {
        let due = self.names.get(name).and_then(NameEntry::next_due);
        self.timetable.set(Due::Name(Arc::clone(name)), due);
    }

    /// Forgets a name that is not used any more.
    pub(super) fn remove_name_if_unused(&mut self, name: &Arc<str>) {
        let Some(entry) = self.names.get_mut(name) else { return };
        if entry.is_unused() {
            self.names.remove(name);
            self.timetable.set(Due::Name(Arc::clone(name)), None);
        } else if !entry.needs_sweeps() && entry.next_sweep.take().is_some() {
            self.reschedule_name(name);
        }
    }

    /// Sweeps until the server, too, has ended leases that have expired here, even if this process has no waiter for
    /// the name.
    pub(super) fn sweep_for_expired(&mut self, name: &Arc<str>, now: Instant) {
        let Some(entry) = self.names.get_mut(name) else { return };
        let is_new = entry.expiring_until.replace(now + EXPIRING).is_none();
        let target = Arc::clone(&entry.target);
        if is_new {
            self.send(target, Command::Sweep);
        }
    }
}
