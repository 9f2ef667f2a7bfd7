//! Sweeps of a name, and watching it for releases by other libraries.

use std::sync::Arc;
use std::time::Duration;

use super::name::Name;
use super::{Client, Due};
use crate::remote::call::{Command, Neighbours, Next};
use crate::remote::clock::Instant;
use crate::remote::target::Target;

/// Between two sweeps for leases that have ended on our clock.
const SWEEP_PAUSE: Duration = Duration::from_millis(10);
/// How long to ask the server to end a lease that has ended on our clock: the server counts from a little later.
const EXPIRING: Duration = Duration::from_secs(1);

impl Client {
    pub(super) fn name_of(&mut self, target: &Arc<Target>) -> &mut Name {
        self.names.entry(Arc::clone(&target.name)).or_insert_with(|| Name::new(Arc::clone(target)))
    }

    pub(super) fn note_next(&mut self, target: &Arc<Target>, next: &Next) {
        let Some(known) = self.names.get_mut(&target.name) else { return };
        known.neighbours = next.neighbours;
        if known.is_of_interest() {
            // A sweep has to run by then at the latest: it ends the sweeps for leases that have ended on our clock.
            let latest = known.expiring_until.into_iter();
            known.next_sweep = next.deadline.into_iter().chain(latest).min();
            self.reschedule_name(&target.name);
        }
        if next.neighbours == Neighbours::Holding {
            self.watch(&target.name);
        }
    }

    /// Clients of another library hold slots, and their releases wake none of our waiters. So the set of holders is
    /// watched for any change. The server sweeps right after it has begun to watch, so that no earlier change is
    /// missed.
    pub(super) fn watch(&mut self, name: &Arc<str>) {
        let Some(known) = self.names.get_mut(name) else { return };
        if known.waiting > 0 && !std::mem::replace(&mut known.is_watched, true) {
            let target = Arc::clone(&known.target);
            self.send(target, Command::Watch);
        }
    }

    pub(super) fn watched(&mut self, target: &Arc<Target>, is_watched: bool, next: Option<&Next>) {
        let is_needed = next.is_some_and(|next| next.neighbours == Neighbours::Holding);
        if let Some(next) = next {
            self.note_next(target, next);
        }
        if let Some(known) = self.names.get_mut(&target.name) {
            known.is_watched &= is_watched && is_needed;
        }
    }

    pub(super) fn swept(&mut self, target: &Arc<Target>, next: Option<&Next>, now: Instant) {
        if let Some(next) = next {
            self.note_next(target, next);
        }
        let Some(known) = self.names.get_mut(&target.name) else { return };
        if let Some(until) = known.expiring_until {
            let deadline = next.and_then(|next| next.deadline);
            if now >= until || next.is_some() && deadline.is_none_or(|soon| soon >= until) {
                known.expiring_until = None;
            } else {
                // Many leases end at almost the same time: one sweep ends all of them.
                known.next_sweep = Some(deadline.unwrap_or(now).max(now + SWEEP_PAUSE));
            }
            self.reschedule_name(&target.name);
        }
        self.tidy(&target.name);
    }

    pub(super) fn name_due(&mut self, name: &Arc<str>, now: Instant) {
        let Some(known) = self.names.get_mut(name) else { return };
        let target = Arc::clone(&known.target);
        if known.next_sweep.is_some_and(|at| at <= now) {
            known.next_sweep = None;
            self.send(target, Command::Sweep);
        }
        let Some(known) = self.names.get_mut(name) else { return };
        if known.leave_again_at.is_some_and(|at| at <= now) {
            known.leave_again_at = None;
            self.send_leavers(name);
        }
        self.reschedule_name(name);
    }

    pub(super) fn reschedule_name(&mut self, name: &Arc<str>) {
        let due = self.names.get(name).and_then(Name::next_due);
        self.timetable.set(Due::Name(Arc::clone(name)), due);
    }

    /// Forgets a name that is not used any more.
    pub(super) fn tidy(&mut self, name: &Arc<str>) {
        let Some(known) = self.names.get_mut(name) else { return };
        if known.is_unused() {
            self.names.remove(name);
            self.timetable.set(Due::Name(Arc::clone(name)), None);
        } else if !known.is_of_interest() && known.next_sweep.take().is_some() {
            self.reschedule_name(name);
        }
    }

    /// Sweeps until the server, too, has ended leases that have expired here, even if this process has no waiter for
    /// the name.
    pub(super) fn sweep_for_expired(&mut self, name: &Arc<str>, now: Instant) {
        let Some(known) = self.names.get_mut(name) else { return };
        let is_new = known.expiring_until.replace(now + EXPIRING).is_none();
        let target = Arc::clone(&known.target);
        if is_new {
            self.send(target, Command::Sweep);
        }
    }
}
