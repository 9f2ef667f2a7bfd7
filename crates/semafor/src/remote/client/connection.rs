//! The effects of a lost connection, and of a new one, on grants and pending calls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use semafor_core::{Loss, NotHeld};

use super::acquisition::{Acquisition, State};
use super::operation::{Operation, OperationError, OperationKind, Progress};
use super::{BATCH, Client, Due, Liveness, ServerPushes, ServerStart};
use crate::error::HomeError;
use crate::remote::call::{Call, Command, Key};
use crate::remote::clock::Instant;
use crate::remote::target::Target;

/// Pauses between attempts to connect again, the first and the longest.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

impl Client {
    /// A new connection was made. The server does not know this client on it yet.
    pub fn connected(&mut self, pushes: ServerPushes, now: Instant) {
        self.is_connected = true;
        self.is_connecting = false;
        self.reconnect_pause = FIRST_PAUSE;
        self.timetable.set(Due::Connect, None);
        self.heartbeats.pushes = pushes;
        for acquisition in self.acquisitions.values_mut() {
            acquisition.may_have_arrived |= acquisition.is_request_pending;
        }
        match self.settings.liveness {
            Liveness::Heartbeats => {
                self.abandon_waiter_heartbeat();
                self.resync(now);
            }
            Liveness::Connection { .. } => self.reclaim_and_repeat(),
        }
    }

    /// Asks for the state of all waiters and holders, because messages may have been missed without a connection.
    pub(super) fn resync(&mut self, now: Instant) {
        let mut waiters = BTreeMap::<Arc<str>, (Arc<Target>, Vec<_>)>::new();
        for (key, acquisition) in &self.acquisitions {
            if acquisition.is_in_line() {
                let target = &acquisition.target;
                let of_name = waiters.entry(Arc::clone(&target.name));
                let of_name = of_name.or_insert_with(|| (Arc::clone(target), Vec::new()));
                of_name.1.push((*key, acquisition.request.weight));
            }
        }
        for (target, waiters) in waiters.into_values() {
            for some in waiters.chunks(BATCH) {
                self.send(Arc::clone(&target), Command::Subscribe { waiters: some.to_vec() });
            }
        }
        let names: Vec<_> = self.names.keys().cloned().collect();
        for name in &names {
            if let Some(entry) = self.names.get_mut(name) {
                entry.is_watched = false;
                if entry.needs_sweeps() {
                    entry.next_sweep = Some(now);
                }
            }
            self.reschedule_name(name);
        }
        if !self.acquisitions.is_empty() {
            self.send_heartbeat(true, now);
        }
    }

    /// Reclaims what this client holds at a new server, which knows nothing, and repeats the calls without a reply.
    pub(super) fn reclaim_and_repeat(&mut self) {
        let later = std::mem::take(&mut self.outbox);
        let mut held: Vec<_> = self
            .acquisitions
            .iter()
            .filter_map(|(key, acquisition)| {
                let held = acquisition.held().filter(|held| held.is_at_server)?;
                let (id, weight) = (Arc::clone(&held.id), acquisition.request.weight);
                let command = Command::Reclaim { key: *key, id, weight, slot: held.slot, slots: held.slots };
                Some((*key, Arc::clone(&acquisition.target), command))
            })
            .collect();
        held.sort_unstable_by_key(|(key, ..)| *key);
        for (key, target, command) in held {
            self.outbox.push_back(Call { number: key.0, target, command, is_repeat: false });
        }
        let unanswered = std::mem::take(&mut self.unanswered);
        let repeated: Vec<Call> = unanswered.into_values().filter(|call| self.is_wanted(call)).collect();
        let calls = repeated.len();
        if std::mem::replace(&mut self.was_connected, true) {
            let target = Arc::new(Target::new("", None, None, Duration::ZERO, []));
            self.send(target, Command::Reconnected { calls });
        }
        self.outbox.extend(repeated.into_iter().chain(later));
    }

    pub(super) fn is_wanted(&self, call: &Call) -> bool {
        match self.acquisitions.get(&Key(call.number)) {
            Some(acquisition) => matches!(acquisition.state, State::Requesting),
            None => self.operations.contains_key(&call.number),
        }
    }

    /// The connection has ended, before these calls were answered.
    pub fn disconnected(&mut self, unanswered: Vec<Call>, now: Instant) {
        self.is_connected = false;
        match self.settings.liveness {
            Liveness::Heartbeats => {
                if !self.acquisitions.is_empty() {
                    self.connect();
                }
            }
            Liveness::Connection { .. } => {
                for call in unanswered {
                    self.keep_unanswered(call, now);
                }
                let held: Vec<Key> = self
                    .acquisitions
                    .iter()
                    .filter(|(_, acquisition)| acquisition.held().is_some_and(|held| held.is_at_server))
                    .map(|(key, _)| *key)
                    .collect();
                // The next server keeps their slots occupied until they are released.
                held.into_iter().for_each(|key| self.lose(key, NotHeld::Lost(Loss::Vanished), true));
            }
        }
    }

    pub(super) fn keep_unanswered(&mut self, call: Call, now: Instant) {
        match &call.command {
            Command::End { .. } => {
                let Command::End { leavers } = call.command else { return };
                self.handle_end_reply(&call.target.name, &leavers, &[], now);
            }
            Command::Acquire { .. }
            | Command::Release { .. }
            | Command::EndById { .. }
            | Command::Renew { .. } => {
                self.unanswered.insert(call.number, call);
            }
            _ => {}
        }
    }

    pub(super) fn connect(&mut self) {
        if self.is_connected || std::mem::replace(&mut self.is_connecting, true) {
            return;
        }
        let any = self.acquisitions.values().next().map(|acquisition| Arc::clone(&acquisition.target));
        match any {
            Some(target) => self.send(target, Command::Connect),
            None => self.is_connecting = false,
        }
    }

    pub(super) fn connect_later(&mut self, now: Instant) {
        if !self.is_connected && !self.acquisitions.is_empty() {
            self.timetable.set(Due::Connect, Some(now + self.reconnect_pause));
            self.reconnect_pause = (self.reconnect_pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// True if there are calls to send.
    pub fn has_calls(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// When to start a server for the pending calls and the grants.
    pub fn server_start(&self) -> ServerStart {
        let of_acquisitions = self.acquisitions.values().map(|acquisition| match &acquisition.state {
            State::Requesting | State::Waiting(_) => ServerStart::Always,
            State::Held(held) if held.is_at_server => ServerStart::Always,
            _ => ServerStart::Never,
        });
        let of_operations = self.operations.values().map(|operation| match operation.kind {
            _ if matches!(operation.progress, Progress::Done(_)) => ServerStart::Never,
            OperationKind::Release { .. } => ServerStart::Never,
            OperationKind::EndById { .. } | OperationKind::Renew { .. } => ServerStart::IfOneDied,
        });
        of_acquisitions.chain(of_operations).max().unwrap_or(ServerStart::Never)
    }

    /// True if no connection is needed: no call is pending, and no grant depends on the connection.
    pub fn is_idle(&self) -> bool {
        let is_pending = |operation: &Operation| matches!(operation.progress, Progress::Pending(_));
        let uses = |acquisition: &Acquisition| match &acquisition.state {
            State::Held(held) => held.is_at_server,
            State::Failed => false,
            _ => true,
        };
        !self.operations.values().any(is_pending)
            && !self.acquisitions.values().any(|acquisition| uses(acquisition))
    }

    /// No server is running, and no pending call needs one to be started: ends all operations.
    pub fn no_server(&mut self, now: Instant) {
        self.outbox.clear();
        self.unanswered.clear();
        let pending = self.operations.iter().map(|(number, operation)| {
            let why = match operation.kind {
                // The server died, and the grant with it.
                OperationKind::Release { .. } => NotHeld::Lost(Loss::Vanished),
                OperationKind::EndById { .. } | OperationKind::Renew { .. } => NotHeld::Unknown,
            };
            let released =
                if let OperationKind::Release { key, .. } = operation.kind { Some(key) } else { None };
            (*number, released, why)
        });
        for (number, released, why) in pending.collect::<Vec<_>>() {
            released.into_iter().for_each(|key| self.finish_leaving(key, None, now));
            self.finish(number, Err(OperationError::NotHeld(why)));
        }
    }

    /// No connection can be made: everything pending fails. Grants stay, for the next server.
    pub fn fail_all(&mut self, error: &HomeError, now: Instant) {
        self.outbox.clear();
        self.unanswered.clear();
        let keys: Vec<Key> = self.acquisitions.keys().copied().collect();
        for key in keys {
            match self.acquisitions.get(&key).map(|acquisition| &acquisition.state) {
                Some(State::Requesting | State::Waiting(_)) => self.fail(key, error.clone().into(), now),
                Some(State::Leaving(_)) => self.finish_leaving(key, None, now),
                _ => {}
            }
        }
        let numbers: Vec<u64> = self.operations.keys().copied().collect();
        for number in numbers {
            self.finish(number, Err(OperationError::Home(error.clone())));
        }
    }

    /// Does not reclaim any grant of this process at the next server.
    pub fn forget_grants(&mut self) {
        for acquisition in self.acquisitions.values_mut() {
            if let Some(held) = acquisition.held_mut() {
                held.is_at_server = false;
            }
        }
        self.was_connected = false;
    }

    /// Treats the next connection as the first one: no server knows this process.
    pub fn forget_connection(&mut self) {
        self.was_connected = false;
    }

    pub fn set_no_reply_error(&mut self, no_reply_error: HomeError) {
        self.settings.no_reply_error = no_reply_error;
    }
}
