//! Heartbeats, for all holders and waiters of a process at once, and the states that the server replies with.
//!
//! Holders send theirs at once. So do waiters, as many as fit into one call. More waiters are a crowd, whose calls
//! are sent one by one, so that other calls of this client come in between. After that, the crowd pauses for as long
//! as it took.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::acquisition::State;
use super::lease_time::Source;
use super::{BATCH, Client, Due, Hearing, Liveness};
use crate::remote::call::{Call, Command, HolderState, Key, LiveHolder, LiveWaiter, RollPart, WaiterState};
use crate::remote::clock::{Instant, ServerClock};
use crate::remote::target::Target;

/// The longest interval between heartbeats. They also keep the keys of other clients from expiring, because Python's
/// scripts set shorter expiries.
const SLOWEST: Duration = Duration::from_secs(5);
/// Heartbeats per heartbeat time, as in the Python library.
const PER_INTERVAL: u32 = 5;
/// How often to ask for the state of waiters if the server pushes no messages.
const POLL: Duration = Duration::from_millis(100);
/// How often to ask if it pushes only messages of our own scripts: Python's scripts grant without one.
const POLL_FOR_OTHERS: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Heartbeats {
    pub(super) hearing: Hearing,
    last: Option<Instant>,
    interval: Duration,
    roll: Option<Roll>,
}

/// The heartbeat of the waiters that is under way. One at a time: a second one would only wait behind the first, and
/// delay all other calls.
#[derive(Debug)]
struct Roll {
    /// Calls of the first wave that are on their way.
    first: usize,
    /// The rest, to be sent one by one.
    crowd: VecDeque<Call>,
    crowd_began: Option<Instant>,
    /// The longest pause after it.
    longest_rest: Duration,
    /// Something has happened since it began, so another one has to follow.
    is_wanted: bool,
}

#[derive(Default)]
struct OfName {
    holders: Vec<LiveHolder>,
    waiters: Vec<LiveWaiter>,
}

impl Client {
    /// A new holder or waiter may need more frequent heartbeats.
    pub(super) fn need_heartbeats(&mut self, heartbeat: Duration, waits: bool, now: Instant) {
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

    /// Sends a heartbeat for all holders and waiters. `is_wanted` if something has happened, so that they need the
    /// server's news.
    pub(super) fn beat(&mut self, is_wanted: bool, now: Instant) {
        if !matches!(self.settings.liveness, Liveness::Heartbeats) {
            return;
        }
        let mut names: BTreeMap<Arc<str>, (Arc<Target>, OfName)> = BTreeMap::new();
        let mut fastest = SLOWEST;
        let mut longest_rest = SLOWEST;
        for (key, acquisition) in &self.acquisitions {
            let (target, weight) = (&acquisition.target, acquisition.request.weight);
            let heartbeat = target.heartbeat;
            let entry = || (Arc::clone(target), OfName::default());
            match &acquisition.state {
                State::Held(held) if held.over.is_none() => {
                    let (slot, token) = (held.slot, held.token);
                    let (_, of_name) = names.entry(Arc::clone(&target.name)).or_insert_with(entry);
                    of_name.holders.push(LiveHolder { key: *key, weight, heartbeat, slot, token });
                    fastest = fastest.min(self.heartbeats.interval_for(heartbeat, false));
                }
                State::Waiting(_) => {
                    let (_, of_name) = names.entry(Arc::clone(&target.name)).or_insert_with(entry);
                    of_name.waiters.push(LiveWaiter { key: *key, weight, heartbeat });
                    fastest = fastest.min(self.heartbeats.interval_for(heartbeat, true));
                    longest_rest = longest_rest.min(heartbeat / PER_INTERVAL);
                }
                _ => {}
            }
        }
        self.heartbeats.last = Some(now);
        self.heartbeats.interval = fastest;
        self.timetable.set(Due::Heartbeat, (!names.is_empty()).then(|| now + fastest));

        let has_waiters = names.values().any(|(_, of_name)| !of_name.waiters.is_empty());
        let is_waiters_turn = match &mut self.heartbeats.roll {
            None => has_waiters,
            Some(roll) => {
                roll.is_wanted |= is_wanted;
                false
            }
        };
        let mut roll =
            Roll { first: 0, crowd: VecDeque::new(), crowd_began: None, longest_rest, is_wanted: false };
        for (_, (target, OfName { holders, mut waiters })) in names {
            if !is_waiters_turn {
                waiters.clear();
            }
            // Keys are numbers that count up: waiters that the server has forgotten come back in their old order.
            waiters.sort_unstable_by_key(|waiter| waiter.key);
            let mut waiters = waiters.chunks(BATCH);
            let mut first = waiters.next().unwrap_or_default();
            for some in holders.chunks(BATCH).chain(holders.is_empty().then_some(&[][..])) {
                let first = std::mem::take(&mut first);
                if some.is_empty() && first.is_empty() {
                    continue;
                }
                let part = if first.is_empty() { RollPart::Holders } else { RollPart::FirstWaiters };
                roll.first += usize::from(!first.is_empty());
                let ask = Command::Heartbeat { holders: some.to_vec(), waiters: first.to_vec(), part };
                self.send(Arc::clone(&target), ask);
            }
            for some in waiters {
                let ask =
                    Command::Heartbeat { holders: Vec::new(), waiters: some.to_vec(), part: RollPart::Crowd };
                let number = self.next_number();
                roll.crowd.push_back(Call { number, target: Arc::clone(&target), ask, again: false });
            }
        }
        if is_waiters_turn {
            self.heartbeats.roll = Some(roll);
        }
    }

    /// A call of the waiters' heartbeat has ended: sends the next one.
    pub(super) fn roll_goes_on(&mut self, part: RollPart, now: Instant) {
        let Some(roll) = self.heartbeats.roll.as_mut().filter(|_| part != RollPart::Holders) else { return };
        if part == RollPart::FirstWaiters {
            roll.first = roll.first.saturating_sub(1);
        }
        if roll.first > 0 {
            return;
        }
        let began = *roll.crowd_began.get_or_insert(now);
        if let Some(next) = roll.crowd.pop_front() {
            self.outbox.push_back(next);
            return;
        }
        let rest = now.saturating_duration_since(began).min(roll.longest_rest);
        if rest.is_zero() {
            self.roll_is_over(now);
        } else {
            self.timetable.set(Due::RollRest, Some(now + rest));
        }
    }

    pub(super) fn roll_is_over(&mut self, now: Instant) {
        if self.heartbeats.roll.take().is_some_and(|roll| roll.is_wanted) {
            self.beat(true, now);
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
            let ask = Command::Heartbeat { holders, waiters: Vec::new(), part: RollPart::Holders };
            self.send(Arc::clone(&target), ask);
        }
    }

    pub(super) fn heartbeat_answered(
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
                    self.learn_end(holder.key, ends, clock, Source::Heartbeat, now);
                }
                HolderState::Gone(why) => self.holder_gone(holder.key, why),
            }
        }
        for (waiter, state) in waiters.iter().zip(of_waiters) {
            match *state {
                WaiterState::Present => {}
                WaiterState::Granted => self.waiter_told(waiter.key, None, now),
                WaiterState::Gone(how) => self.waiter_told(waiter.key, Some(how), now),
            }
        }
    }
}

impl Heartbeats {
    fn interval_for(&self, heartbeat: Duration, waits: bool) -> Duration {
        let interval = (heartbeat / PER_INTERVAL).min(SLOWEST);
        match self.hearing {
            _ if !waits => interval,
            Hearing { messages: false, .. } => interval.min(POLL),
            Hearing { tracking: false, .. } => interval.min(POLL_FOR_OTHERS),
            Hearing { .. } => interval,
        }
    }
}
