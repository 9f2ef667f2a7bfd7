//! Grants: how long the client relies on one, and how it is lost, released or detached.

use std::sync::Arc;
use std::time::Duration;

use semafor_core::{Loss, NotHeld};

use super::acquisition::{Detached, Held, KeepAlive, Leaving, State};
use super::lease_time::EndSource;
use super::operation::{OperationError, OperationKind};
use super::{Client, Event, Liveness};
use crate::remote::call::{Command, EndReason, Key, NotInLine, PythonClients};
use crate::remote::clock::{Instant, ServerClock};
use crate::task::TaskKey;

/// Clients of the Python library set the expiry of the key with all holders to what they need, but to no less than
/// this.
const SHORTEST_EXPIRY: Duration = Duration::from_secs(10);

impl Client {
    pub fn why_not_held(&self, key: Key, now: Instant) -> Option<NotHeld> {
        let Some(held) = self.held(key) else {
            return Some(NotHeld::Released);
        };
        held.not_held.or_else(|| match self.settings.liveness {
            Liveness::Connection { .. } => None,
            // Also if the loss was not noticed yet, for example after the machine was suspended.
            Liveness::Heartbeats if held.time.ends_at().is_some_and(|end| end <= now) => {
                Some(NotHeld::Lost(Loss::Expired))
            }
            Liveness::Heartbeats => {
                (held.time.alive_until() <= now).then_some(NotHeld::Lost(Loss::OutOfTouch))
            }
        })
    }

    pub fn expires_at(&self, key: Key) -> Option<Instant> {
        let held = self.acquisitions.get(&key)?.held()?;
        if held.not_held.is_some() { None } else { held.time.ends_at() }
    }

    /// `None` once another client may have the slot, and where the server knows by the connection that a client is
    /// alive. A slot that this client gave up only because no reply came is still safe until then.
    pub fn safe_until(&self, key: Key) -> Option<Instant> {
        let held = self.acquisitions.get(&key)?.held()?;
        match (&self.settings.liveness, held.not_held) {
            (Liveness::Heartbeats, None | Some(NotHeld::Lost(Loss::OutOfTouch))) => {
                Some(held.time.safe_until())
            }
            _ => None,
        }
    }

    /// The user drops its guard.
    pub fn drop_lease(&mut self, key: Key, now: Instant) {
        match self.acquisitions.get_mut(&key) {
            Some(acquisition) if acquisition.held().is_some_and(|held| held.is_at_server) => {
                acquisition.is_abandoned = true;
                // Also if it was lost: the server may still count it.
                self.leave(key, EndReason::Released, now);
            }
            _ => self.remove(key),
        }
    }

    /// The user releases it and waits for the outcome: see [`poll_operation`](Self::poll_operation).
    pub fn release(&mut self, key: Key, now: Instant) -> u64 {
        let number = self.next_number();
        let lost = self.why_not_held(key, now);
        let Some(acquisition) = self.acquisitions.get_mut(&key) else {
            let why = lost.unwrap_or(NotHeld::Unknown);
            return self.finished(number, Err(OperationError::NotHeld(why)));
        };
        acquisition.is_abandoned = true;
        let target = Arc::clone(&acquisition.target);
        if let (Liveness::Connection { .. }, Some(why)) = (&self.settings.liveness, lost) {
            self.drop_lease(key, now);
            return self.finished(number, Err(OperationError::NotHeld(why)));
        }
        self.set_state(
            key,
            State::Leaving(Leaving { reason: EndReason::Released, since: now, no_reply_at: None }),
        );
        self.reschedule(key);
        self.begin(number, target, OperationKind::Release { key, lost }, now);
        number
    }

    /// Holds it without a guard from now on. `keep_alive` is dropped once it is not held any more.
    pub fn detach(&mut self, key: Key, task: TaskKey, keep_alive: Option<KeepAlive>, now: Instant) {
        let is_connection = matches!(self.settings.liveness, Liveness::Connection { .. });
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        let target = Arc::clone(&acquisition.target);
        let has_ttl = acquisition.held().is_some_and(|held| held.time.ends_at().is_some());
        let Some(held) = acquisition.held_mut() else { return };
        if held.not_held.is_some() && !is_connection {
            // A lost grant is not kept alive.
            self.events.extend(keep_alive.map(Event::DropKeepAlive));
            return self.drop_lease(key, now);
        }
        let mut keep_alive = keep_alive;
        if is_connection && has_ttl {
            // The server keeps it without this client.
            held.is_at_server = false;
            self.events.extend(keep_alive.take().map(Event::DropKeepAlive));
        }
        held.detached = Some(Detached { task, keep_alive });
        self.detached.insert(key);
        if is_connection {
            self.forget_expired_ids(now);
        }
        if is_connection && self.is_connected {
            self.send(target, Command::Detach { key });
        }
    }

    /// Removes expired grants that the server keeps without this client.
    pub(super) fn forget_expired_ids(&mut self, now: Instant) {
        let is_over = |key: &&Key| {
            let held = self.held(**key);
            held.is_none_or(|held| !held.is_at_server && held.time.ends_at().is_some_and(|end| end <= now))
        };
        let over: Vec<Key> = self.detached.iter().filter(is_over).copied().collect();
        over.into_iter().for_each(|key| self.remove(key));
    }

    /// The latest acquisition that `task` detached under `name` and still holds.
    pub fn latest_detached(&self, task: TaskKey, name: &str, now: Instant) -> Option<Arc<str>> {
        let own = self.detached.iter().filter_map(|key| {
            let acquisition = self.acquisitions.get(key)?;
            let held = acquisition.held()?;
            let is_wanted = held.detached.as_ref()?.task == task && *acquisition.target.name == *name;
            (is_wanted && self.why_not_held(*key, now).is_none()).then_some(held)
        });
        own.max_by_key(|held| held.token).map(|held| Arc::clone(&held.id))
    }

    /// A detached grant of this process has ended.
    pub fn forget_id(&mut self, id: &str, now: Instant) {
        if let Some(key) = self.by_id.get(id).copied() {
            match self.settings.liveness {
                Liveness::Heartbeats => self.remove(key),
                Liveness::Connection { .. } => self.drop_lease(key, now),
            }
        }
    }

    /// The grant is lost. If `is_kept`, the server keeps the slot occupied until it is released.
    pub(super) fn lose(&mut self, key: Key, why: NotHeld, is_kept: bool) {
        let is_heartbeats = matches!(self.settings.liveness, Liveness::Heartbeats);
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        let Some(held) = acquisition.held_mut() else {
            // Granted and lost before the client knew of the grant.
            return self.check_waiter(key);
        };
        held.is_at_server = is_heartbeats || is_kept;
        let is_first_notice = held.not_held.is_none();
        held.not_held.get_or_insert(why);
        if is_first_notice {
            let (signal, id) = (held.lost.clone(), Arc::clone(&held.id));
            self.events.push_back(Event::Lost { signal, id, why });
        }
        let is_detached = self.detached.contains(&key);
        self.reschedule(key);
        if is_detached && is_heartbeats {
            self.remove(key);
        }
    }

    pub(super) fn change_lease(&mut self, key: Key, change: impl FnOnce(&mut Held, PythonClients)) {
        let Some(acquisition) = self.acquisitions.get_mut(&key) else { return };
        let name = Arc::clone(&acquisition.target.name);
        let python_clients = self.names.get(&name).map_or(PythonClients::None, |name| name.python_clients);
        if let Some(held) = acquisition.held_mut().filter(|held| held.not_held.is_none()) {
            change(held, python_clients);
            self.reschedule(key);
        }
    }

    /// The server says that the holder is alive, and when its lease ends.
    pub(super) fn learn_end(
        &mut self,
        key: Key,
        ends: Option<f64>,
        clock: &ServerClock,
        from: EndSource,
        now: Instant,
    ) {
        self.confirm_alive(key, clock);
        self.change_lease(key, |held, _| held.time.learn_end(ends, clock, from, now));
    }

    /// The server says that the holder is alive.
    pub(super) fn confirm_alive(&mut self, key: Key, clock: &ServerClock) {
        let Some(acquisition) = self.acquisitions.get(&key) else { return };
        let heartbeat = acquisition.target.heartbeat;
        self.change_lease(key, |held, python_clients| {
            held.time.confirm(clock, safe_for(heartbeat, python_clients), python_clients.may_be_present());
        });
    }

    pub(super) fn holder_removed(&mut self, key: Key, why: NotHeld) {
        if self.held(key).is_some() {
            self.lose(key, why, false);
        }
    }

    pub(super) fn handle_waiter_state(&mut self, key: Key, removed: Option<NotInLine>, now: Instant) {
        match removed {
            None => self.check_waiter(key),
            Some(why) => self.waiter_removed(key, why, now),
        }
    }
}

/// How long a slot is safe after a heartbeat.
pub fn safe_for(heartbeat: Duration, python_clients: PythonClients) -> Duration {
    if python_clients.may_be_present() { heartbeat.min(SHORTEST_EXPIRY) } else { heartbeat }
}
