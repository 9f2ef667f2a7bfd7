//! The deadlines of one registry.
//!
//! Each gate is here at most once, at the time it is *armed* for: no later than its next deadline. An earlier time does
//! no harm: the driver looks at the gate, finds nothing due, and arms it anew. So a semaphore that grants ten million
//! leases of 30 s in a minute changes the timetable twice in that minute.
//!
//! Lock order: a name's shard, then its gate, then the timetable.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use semafor_core::Timestamp;

use super::shared_gate::SharedGate;

#[derive(Default)]
pub(super) struct Timetable {
    gates: BTreeMap<(Timestamp, GateKey), Weak<SharedGate>>,
    /// Unused names, in the order in which they may be dropped. All wait equally long, so that is usually the order in
    /// which they are added.
    idle: VecDeque<(Timestamp, Arc<SharedGate>)>,
    /// Names that are due before the end of `idle`: they were used again after they were listed, and are listed anew
    /// when their first time is over.
    idle_out_of_order: BTreeMap<(Timestamp, GateKey), Arc<SharedGate>>,
}

/// Identifies a gate as long as it lives.
type GateKey = usize;

pub(super) enum Due {
    Gate(Weak<SharedGate>),
    Idle(Arc<SharedGate>),
}

fn key(gate: &Weak<SharedGate>) -> GateKey {
    gate.as_ptr() as GateKey
}

impl Timetable {
    /// Moves a gate from the time it is armed for to another; `NEVER` takes it out.
    pub(super) fn rearm(&mut self, gate: &Weak<SharedGate>, from: Timestamp, to: Timestamp) {
        if from != Timestamp::NEVER {
            self.gates.remove(&(from, key(gate)));
        }
        if to != Timestamp::NEVER {
            self.gates.insert((to, key(gate)), Weak::clone(gate));
        }
    }

    pub(super) fn list_idle(&mut self, gate: Arc<SharedGate>, until: Timestamp) {
        if self.idle.back().is_none_or(|(last, _)| *last <= until) {
            self.idle.push_back((until, gate));
        } else {
            self.idle_out_of_order.insert((until, Arc::as_ptr(&gate) as GateKey), gate);
        }
    }

    pub(super) fn next_due(&self) -> Timestamp {
        let gate = self.gates.first_key_value().map_or(Timestamp::NEVER, |((at, _), _)| *at);
        let idle = self.idle.front().map_or(Timestamp::NEVER, |(until, _)| *until);
        gate.min(idle).min(self.next_out_of_order())
    }

    fn next_out_of_order(&self) -> Timestamp {
        self.idle_out_of_order.first_key_value().map_or(Timestamp::NEVER, |((until, _), _)| *until)
    }

    pub(super) fn pop_due(&mut self, now: Timestamp) -> Option<Due> {
        if let Some(((at, _), _)) = self.gates.first_key_value()
            && *at <= now
        {
            let (_, gate) = self.gates.pop_first()?;
            return Some(Due::Gate(gate));
        }
        if self.next_out_of_order() <= now {
            let (_, gate) = self.idle_out_of_order.pop_first()?;
            return Some(Due::Idle(gate));
        }
        if self.idle.front().is_some_and(|(until, _)| *until <= now) {
            let (_, gate) = self.idle.pop_front()?;
            return Some(Due::Idle(gate));
        }
        None
    }
}
