//! What must hold in every run, whatever goes wrong.
//!
//! 1. **Bound**: the processes that believe in slots of a name never believe in more than there are. A process believes from
//!    when it learns of its grant until it releases it, is told of its loss, stops or dies.
//! 2. **Slot numbers** of such holders differ.
//! 3. **Fencing**: no token is given twice; a process never gets a token at or below one that it knew when it asked; and
//!    where a name has one slot, each token is larger than all before it.
//! 4. **Order**: no waiter is granted slots before one that stands before it in line, and no newcomer while there is a line.
//!    A waiter that knows its place keeps it, even if the server forgets the line.
//! 5. **Nothing is left**: when all users have stopped, no client has an entry, and no key of the server outlives an hour. And
//!    whenever a client has no entry, the server has no slot and no place in line for it.
//! 6. **Every waiter is served** in the end, or learns why not.
//! 7. **No raw errors**: a script fails only for want of memory.
//! 8. **Keys live as long as their content**: after every script, no key of a name expires before what it holds is over.
//! 9. **No slot lies idle**: when nothing has gone wrong for a while, the first in line gets a slot as soon as there is one.
//! 10. **No needless loss**: when nothing has gone wrong for a while, a holder keeps its slots until its lease ends.
//! 11. **No busy loop**: clients do not call the server again and again without a pause.
//! 12. **News in time**: while nothing is wrong between a client and the server, a waiter learns of its grant, a waiter that
//!     the server forgot is back in line, and a holder learns of its loss, within 2 s. A client whose connection has ended
//!     makes another one within 3 s. Waiters that time out together are told within a second.
//!
//! A fault that makes the server forget grants, or end them early, suspends 1 to 4 for a while: until every holder has had its
//! next heartbeat answered, or has given up because none was. Slot numbers of holders from before that may be given once more.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use super::{SECOND, Time};

/// Something that must not happen, and has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When.
    pub at: Time,
    /// Which rule.
    pub rule: &'static str,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:.6} s: {}", self.rule, self.at as f64 / SECOND as f64, self.what)
    }
}

/// A grant, as its user knows it.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields say it")]
pub struct Held {
    pub process: usize,
    pub name: usize,
    pub weight: u32,
    pub slot: u32,
    pub token: u64,
    pub id: String,
    /// Whether it may use its slots for a while after the next eviction.
    pub has_grace: bool,
    /// Whether it might after the first.
    pub had_grace: bool,
    /// The largest token that its process knew when it asked.
    pub floor: u64,
    pub from: Time,
    /// The earliest end of its lease that its user has asked for.
    pub ends: Option<Time>,
    /// When its user last renewed it.
    pub renewed_at: Option<Time>,
    /// When the user stopped believing, and why.
    pub until: Option<(Time, &'static str)>,
}

#[derive(Debug)]
pub(super) struct Rules {
    pub(super) grants: Vec<Held>,
    /// Those in which a process believes now, by name.
    believed: BTreeMap<usize, BTreeSet<usize>>,
    /// Those that are being evicted without a grace: the next holder may get the slot before this one is told.
    pub(super) evicted: BTreeSet<usize>,
    tokens: HashMap<(usize, u64), usize>,
    largest: BTreeMap<usize, u64>,
    /// The numbers of slots that each name had lately, with when they were set.
    slots: Vec<Vec<(Time, u32)>>,
    pub(super) suspended_until: Time,
    /// Until then tokens may be smaller than those that a process has not seen.
    pub(super) tokens_suspended_until: Time,
    /// How long rules are suspended after a fault.
    pub(super) recovery: Time,
    pub(super) violation: Option<Violation>,
}

impl Rules {
    pub(super) fn new(slots: &[u32], recovery: Time) -> Self {
        Self {
            grants: Vec::new(),
            believed: BTreeMap::new(),
            evicted: BTreeSet::new(),
            tokens: HashMap::new(),
            largest: BTreeMap::new(),
            slots: slots.iter().map(|slots| vec![(0, *slots)]).collect(),
            suspended_until: 0,
            tokens_suspended_until: 0,
            recovery,
            violation: None,
        }
    }

    pub(super) fn suspend(&mut self, now: Time) {
        self.suspended_until = self.suspended_until.max(now + self.recovery);
    }

    pub(super) fn is_suspended(&self, now: Time) -> bool {
        now < self.suspended_until
    }

    pub(super) fn report(&mut self, at: Time, rule: &'static str, what: String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { at, rule, what });
        }
    }

    pub(super) fn resized(&mut self, name: usize, slots: u32, now: Time) {
        self.slots[name].push((now, slots));
    }

    /// A shrink takes nothing away, and a grant may be on its way for a while.
    fn slots_lately(&self, name: usize, now: Time) -> u32 {
        let all = &self.slots[name];
        let first = all.iter().rposition(|(since, _)| *since + 60 * SECOND <= now).unwrap_or(0);
        // An idle name goes back to the number that its clients ask for.
        all[first..].iter().chain(all.first()).map(|(_, slots)| *slots).max().unwrap_or(0)
    }

    /// A user has learned of its grant. Returns its number.
    pub(super) fn granted(&mut self, held: Held) -> usize {
        let (number, now, name, token) = (self.grants.len(), held.from, held.name, held.token);
        if token <= held.floor {
            let what = format!("{held:?} got a token at or below {}, which it knew", held.floor);
            self.report(now, "fencing", what);
        }
        let is_checked = now >= self.tokens_suspended_until && !self.is_suspended(now);
        if let Some(other) = self.tokens.insert((name, token), number)
            && is_checked
        {
            let what = format!("one token for {:?} and {held:?}", self.grants[other]);
            self.report(now, "fencing", what);
        }
        let has_one_slot = self.slots[name].iter().all(|(_, slots)| *slots == 1);
        let largest = self.largest.entry(name).or_default();
        let (before, is_smaller) = (*largest, token < *largest);
        *largest = before.max(token);
        if has_one_slot && is_smaller && is_checked {
            self.report(now, "fencing", format!("{held:?} got a token below {before}"));
        }
        self.grants.push(held);
        self.believe(number, now);
        number
    }

    /// A user believes in its grant, from now on or again.
    pub(super) fn believe(&mut self, number: usize, now: Time) {
        if self.evicted.contains(&number) {
            return;
        }
        let held = self.grants[number].clone();
        let believed = self.believed.entry(held.name).or_default();
        believed.insert(number);
        let believed: Vec<_> = believed.iter().map(|number| &self.grants[*number]).collect();
        let weight: u32 = believed.iter().map(|held| held.weight).sum();
        // If the server forgets which number a holder has, another one may get it, and after that one the next.
        let is_twin = |other: &&&Held| {
            other.id != held.id
                && other.slot == held.slot
                && other.from.min(held.from) >= self.suspended_until
        };
        let twin = believed.iter().find(is_twin).copied().cloned();
        let all = format!("{believed:?}");
        let slots = self.slots_lately(held.name, now);
        if self.is_suspended(now) {
            return;
        }
        if weight > slots {
            self.report(now, "bound", format!("{weight} of {slots} slots are held: {all}"));
        } else if let Some(twin) = twin {
            self.report(now, "slot numbers", format!("{held:?} and {twin:?} have the same"));
        }
    }

    /// A user does nothing with its grant for now, because its process stands still.
    pub(super) fn pause(&mut self, number: usize) {
        if let Some(believed) = self.believed.get_mut(&self.grants[number].name) {
            believed.remove(&number);
        }
    }

    pub(super) fn ended(&mut self, number: usize, now: Time, how: &'static str) {
        self.pause(number);
        self.grants[number].until.get_or_insert((now, how));
    }

    pub(super) fn is_ended(&self, number: usize) -> bool {
        self.grants[number].until.is_some()
    }
}
