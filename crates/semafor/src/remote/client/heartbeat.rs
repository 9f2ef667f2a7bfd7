//! Heartbeats, for all holders and waiters of a process at once, and the states that the server replies with.
//!
//! Heartbeats of holders are sent at once. So are those of the first waiters of each name, as many as fit into one
//! call. The calls for more waiters are sent one by one, so that other calls of this client come in between. Then the
//! waiters pause for as long as that took.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::acquisition::State;
use super::lease_time::EndSource;
use super::{BATCH, Client, Due, Liveness, ServerPushes};
use crate::remote::call::{
    Call, Command, HeartbeatPart, HolderState, Key, LiveHolder, LiveWaiter, WaiterState,
};
use crate::remote::clock::{Instant, ServerClock};
use crate::remote::target::Target;

/// The longest interval between heartbeats. They also keep the keys of other clients from expiring, because Python's
/// scripts set shorter expiries.
const SLOWEST: Duration = Duration::from_secs(5);
/// Heartbeats per `heartbeat_max_interval`, as in the Python library.
const PER_INTERVAL: u32 = 5;
/// How often to ask for the state of waiters if the server pushes no messages.
const POLL: Duration = Duration::from_millis(100);
/// How often to ask if it pushes only messages of our own scripts: Python's scripts grant without one.
const POLL_FOR_OTHERS: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Heartbeats {
    pub(super) pushes: ServerPushes,
    last: Option<Instant>,
    interval: Duration,
    waiter_heartbeat: Option<WaiterHeartbeat>,
}

/// The waiters' heartbeat that is being sent. One at a time: a second one would only wait behind the first, and delay
/// all other calls.
#[derive(Debug)]
struct WaiterHeartbeat {
    /// Calls for the first waiters that have no reply yet.
    first_pending: usize,
    /// The calls for more waiters, to be sent one by one.
    rest_calls: VecDeque<Call>,
    rest_began: Option<Instant>,
    /// The longest pause after it.
    longest_pause: Duration,
    /// Messages may have been missed since it began, so another heartbeat has to follow.
    must_repeat: bool,
}

#[derive(Default)]
struct HoldersAndWaiters {
    holders: Vec<LiveHolder>,
    waiters: Vec<LiveWaiter>,
}

impl Client {
    /// A new holder or waiter may need more frequent heartbeats.
    pub(super) fn ensure_heartbeats(&mut self, heartbeat: Duration, waits: bool, now: Instant) {
        if !matches!(self.settings.liveness, Liveness::Heartbeats) {
            return;
        }
        let interval = self.heartbeats.interval_for(heartbeat, waits);
        let next = self.timetable.time_of(&Due::Heartbeat);
        if next.is_none() {
            self.heartbeats.last = Some(now);
        }
        let wanted = self.heartbeats.last.unwrap_or(now) + interval;
        if next.is_none_or(|next| wanted < next) {
            self.heartbeats.interval = interval;
            self.timetable.set(Due::Heartbeat, Some(wanted));
        }
    }

    /// The current interval between heartbeats.
    pub fn heartbeat_interval(&self) -> Duration {
        self.heartbeats.interval
    }

    /// Sends a heartbeat for all holders and waiters. `has_changed` if the server may have changed their states: then
    /// the waiters' heartbeat follows even if another one is being sent.
    pub(super) fn send_heartbeat(&mut self, has_changed: bool, now: Instant) {
        if !matches!(self.settings.liveness, Liveness::Heartbeats) {
            return;
        }
        let mut names: BTreeMap<Arc<str>, (Arc<Target>, HoldersAndWaiters)> = BTreeMap::new();
        let mut fastest = SLOWEST;
        let mut longest_pause = SLOWEST;
        for (key, acquisition) in &self.acquisitions {
            let (target, weight) = (&acquisition.target, acquisition.request.weight);
            let heartbeat = target.heartbeat;
            let entry = || (Arc::clone(target), HoldersAndWaiters::default());
            match &acquisition.state {
                State::Held(held) if held.not_held.is_none() => {
                    let (slot, token) = (held.slot, held.token);
                    let (_, of_name) = names.entry(Arc::clone(&target.name)).or_insert_with(entry);
                    of_name.holders.push(LiveHolder { key: *key, weight, heartbeat, slot, token });
                    fastest = fastest.min(self.heartbeats.interval_for(heartbeat, false));
                }
                State::Waiting(_) => {
                    let (_, of_name) = names.entry(Arc::clone(&target.name)).or_insert_with(entry);
                    of_name.waiters.push(LiveWaiter { key: *key, weight, heartbeat });
                    fastest = fastest.min(self.heartbeats.interval_for(heartbeat, true));
                    longest_pause = longest_pause.min(heartbeat / PER_INTERVAL);
                }
                _ => {}
            }
        }
        self.heartbeats.last = Some(now);
        self.heartbeats.interval = fastest;
        self.timetable.set(Due::Heartbeat, (!names.is_empty()).then(|| now + fastest));

        let has_waiters = names.values().any(|(_, of_name)| !of_name.waiters.is_empty());
        let includes_waiters = match &mut self.heartbeats.waiter_heartbeat {
            None => has_waiters,
            Some(waiter_heartbeat) => {
                waiter_heartbeat.must_repeat |= has_changed;
                false
            }
        };
        let mut waiter_heartbeat = WaiterHeartbeat {
            first_pending: 0,
            rest_calls: VecDeque::new(),
            rest_began: None,
            longest_pause,
            must_repeat: false,
        };
        for (_, (target, HoldersAndWaiters { holders, mut waiters })) in names {
            if !includes_waiters {
                waiters.clear();
            }
            // Keys count up, so waiters that the server has forgotten return in their old order.
            waiters.sort_unstable_by_key(|waiter| waiter.key);
            let mut waiters = waiters.chunks(BATCH);
            let mut first = waiters.next().unwrap_or_default();
            for some in holders.chunks(BATCH).chain(holders.is_empty().then_some(&[][..])) {
                let first = std::mem::take(&mut first);
                if some.is_empty() && first.is_empty() {
                    continue;
                }
                let part =
                    if first.is_empty() { HeartbeatPart::Holders } else { HeartbeatPart::FirstWaiters };
                waiter_heartbeat.first_pending += usize::from(!first.is_empty());
                let command = Command::Heartbeat { holders: some.to_vec(), waiters: first.to_vec(), part };
                self.send(Arc::clone(&target), command);
            }
            for some in waiters {
                let command = Command::Heartbeat {
                    holders: Vec::new(),
                    waiters: some.to_vec(),
                    part: HeartbeatPart::MoreWaiters,
                };
                let number = self.next_number();
                waiter_heartbeat.rest_calls.push_back(Call {
                    number,
                    target: Arc::clone(&target),
                    command,
                    is_repeat: false,
                });
            }
        }
        if includes_waiters {
            self.heartbeats.waiter_heartbeat = Some(waiter_heartbeat);
        }
    }

    /// A new connection was made. A waiters' heartbeat on the one before may wait for its reply for a long time: it must not
    /// delay the next one.
    pub(super) fn abandon_waiter_heartbeat(&mut self) {
        self.heartbeats.waiter_heartbeat = None;
        self.timetable.set(Due::WaiterHeartbeatPause, None);
    }

    /// A call of the waiters' heartbeat has ended: sends the next one.
    pub(super) fn continue_waiter_heartbeat(&mut self, part: HeartbeatPart, now: Instant) {
        let Some(waiter_heartbeat) =
            self.heartbeats.waiter_heartbeat.as_mut().filter(|_| part != HeartbeatPart::Holders)
        else {
            return;
        };
        if part == HeartbeatPart::FirstWaiters {
            waiter_heartbeat.first_pending = waiter_heartbeat.first_pending.saturating_sub(1);
        }
        if waiter_heartbeat.first_pending > 0 {
            return;
        }
        let began = *waiter_heartbeat.rest_began.get_or_insert(now);
        if let Some(next) = waiter_heartbeat.rest_calls.pop_front() {
            self.outbox.push_back(next);
            return;
        }
        let pause = now.saturating_duration_since(began).min(waiter_heartbeat.longest_pause);
        if pause.is_zero() {
            self.end_waiter_heartbeat(now);
        } else {
            self.timetable.set(Due::WaiterHeartbeatPause, Some(now + pause));
        }
    }

    pub(super) fn end_waiter_heartbeat(&mut self, now: Instant) {
        if self
            .heartbeats
            .waiter_heartbeat
            .take()
            .is_some_and(|waiter_heartbeat| waiter_heartbeat.must_repeat)
        {
            self.send_heartbeat(true, now);
        }
    }

    /// Asks whether another process has renewed leases that are about to end.
    pub(super) fn check_leases(&mut self, name: &Arc<str>, keys: &[Key]) {
        let Some(target) = self.names.get(name).map(|name| Arc::clone(&name.target)) else { return };
        for some in keys.chunks(BATCH) {
            let holders = some.iter().filter_map(|key| {
                let acquisition = self.acquisitions.get(key)?;
                let held = acquisition.held()?;
                Some(LiveHolder {
                    key: *key,
                    weight: acquisition.request.weight,
                    heartbeat: acquisition.target.heartbeat,
                    slot: held.slot,
                    token: held.token,
                })
            });
            let holders = holders.collect();
            let command = Command::Heartbeat { holders, waiters: Vec::new(), part: HeartbeatPart::Holders };
            self.send(Arc::clone(&target), command);
        }
    }

    pub(super) fn handle_heartbeat_reply(
        &mut self,
        clock: &ServerClock,
        (holders, of_holders): (&[LiveHolder], &[HolderState]),
        (waiters, of_waiters): (&[LiveWaiter], &[WaiterState]),
        now: Instant,
    ) {
        for (holder, state) in holders.iter().zip(of_holders) {
            match *state {
                HolderState::Present => self.confirm_alive(holder.key, clock),
                HolderState::Leased { ends } => {
                    self.learn_end(holder.key, ends, clock, EndSource::Heartbeat, now);
                }
                HolderState::Gone(why) => self.holder_removed(holder.key, why),
            }
        }
        for (waiter, state) in waiters.iter().zip(of_waiters) {
            match *state {
                WaiterState::Present => {}
                WaiterState::Granted => self.handle_waiter_state(waiter.key, None, now),
                WaiterState::Gone(why) => self.handle_waiter_state(waiter.key, Some(why), now),
            }
        }
    }
}

impl Heartbeats {
    fn interval_for(&self, heartbeat: Duration, waits: bool) -> Duration {
        let interval = (heartbeat / PER_INTERVAL).min(SLOWEST);
        match self.pushes {
            _ if !waits => interval,
            ServerPushes { messages: false, .. } => interval.min(POLL),
            ServerPushes { tracking: false, .. } => interval.min(POLL_FOR_OTHERS),
            ServerPushes { .. } => interval,
        }
    }
}
