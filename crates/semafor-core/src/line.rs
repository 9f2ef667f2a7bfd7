//! The line: waiters in order of arrival, and the outcomes that former waiters have not claimed yet.
//!
//! An index arena with a linked list through it: constant time to join, leave from anywhere, and serve the
//! first. Arrival numbers are never reused, so a stale [`Ticket`] is recognised even after memory was freed.

use std::num::NonZeroU64;

use crate::{PermitId, Ticket, Timestamp};

const NONE: u32 = u32::MAX;

pub(crate) struct Line<W, T> {
    gate: u32,
    entries: Vec<Entry<W, T>>,
    free: u32,
    head: u32,
    tail: u32,
    waiting: usize,
    /// Entries in use: waiting, or settled and not yet claimed.
    taken: usize,
    arrivals: u64,
}

struct Entry<W, T> {
    arrival: u64,
    prev: u32,
    next: u32,
    state: State<W, T>,
}

enum State<W, T> {
    Vacant,
    Waiting(Queued<W, T>),
    Settled(Settlement),
}

/// The request, payload and tag of a waiter.
pub(crate) struct Queued<W, T> {
    pub(crate) since: Timestamp,
    pub(crate) ttl_nanos: Option<NonZeroU64>,
    pub(crate) payload: W,
    pub(crate) tag: T,
    pub(crate) weight: u32,
    /// Whether it has a timeout.
    pub(crate) has_deadline: bool,
}

/// How the wait of a waiter ended.
#[derive(Clone, Copy)]
pub(crate) enum Settlement {
    Granted { id: PermitId, waited_nanos: u64 },
    TimedOut,
    Closed,
    TooHeavy { weight: u32, slots: u32 },
}

/// A waiter, as [`Gate::waiters`](crate::Gate::waiters) shows it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Waiter<'a, T> {
    /// How many slots it asks for.
    pub weight: u32,
    /// When it joined the line.
    pub since: Timestamp,
    /// Its tag.
    pub tag: &'a T,
}

impl<W, T> Line<W, T> {
    pub(crate) fn new(gate: u32) -> Self {
        Self {
            gate,
            entries: Vec::new(),
            free: NONE,
            head: NONE,
            tail: NONE,
            waiting: 0,
            taken: 0,
            arrivals: 0,
        }
    }

    /// How many waiters there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.waiting
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    /// True if there are no waiters and no unclaimed settlements.
    pub(crate) fn has_no_entries(&self) -> bool {
        self.taken == 0
    }

    pub(crate) fn join(&mut self, queued: Queued<W, T>) -> Ticket {
        self.arrivals += 1;
        let entry =
            Entry { arrival: self.arrivals, prev: self.tail, next: NONE, state: State::Waiting(queued) };
        let index = match self.free {
            NONE => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
            index => {
                self.free = self.entries[index as usize].next;
                self.entries[index as usize] = entry;
                index
            }
        };
        match self.tail {
            NONE => self.head = index,
            tail => self.entries[tail as usize].next = index,
        }
        self.tail = index;
        self.waiting += 1;
        self.taken += 1;
        Ticket { arrival: self.arrivals, gate: self.gate, index }
    }

    /// The first in line.
    #[inline]
    pub(crate) fn first(&self) -> Option<(u32, &Queued<W, T>)> {
        let queued = self.waiting_at(self.head)?;
        Some((self.head, queued))
    }

    /// The waiter at `index`, if one is waiting there.
    pub(crate) fn waiting_at(&self, index: u32) -> Option<&Queued<W, T>> {
        match self.entries.get(index as usize) {
            Some(Entry { state: State::Waiting(queued), .. }) => Some(queued),
            _ => None,
        }
    }

    /// Takes the waiter at `index` out of the line. Its entry stays for its [settlement](Self::settle) until that is
    /// claimed.
    pub(crate) fn take_waiter(&mut self, index: u32) -> Option<Queued<W, T>> {
        self.waiting_at(index)?;
        self.unlink(index);
        match std::mem::replace(&mut self.entries[index as usize].state, State::Vacant) {
            State::Waiting(queued) => Some(queued),
            _ => None,
        }
    }

    pub(crate) fn settle(&mut self, index: u32, settlement: Settlement) {
        self.entries[index as usize].state = State::Settled(settlement);
    }

    fn unlink(&mut self, index: u32) {
        let Entry { prev, next, .. } = self.entries[index as usize];
        match prev {
            NONE => self.head = next,
            prev => self.entries[prev as usize].next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => self.entries[next as usize].prev = prev,
        }
        self.waiting -= 1;
    }

    fn state_of(&self, ticket: Ticket) -> Option<&State<W, T>> {
        let entry = self.entries.get(ticket.index as usize)?;
        (entry.arrival == ticket.arrival && self.gate == ticket.gate).then_some(&entry.state)
    }

    pub(crate) fn is_waiting(&self, ticket: Ticket) -> bool {
        matches!(self.state_of(ticket), Some(State::Waiting(_)))
    }

    /// The settlement of a waiter that left the line. It can be taken only once.
    pub(crate) fn take_settlement(&mut self, ticket: Ticket) -> Option<Settlement> {
        let Some(State::Settled(settlement)) = self.state_of(ticket) else { return None };
        let settlement = *settlement;
        self.vacate(ticket.index);
        Some(settlement)
    }

    /// Takes a waiter out of the line and frees its entry.
    pub(crate) fn leave(&mut self, ticket: Ticket) -> Option<Queued<W, T>> {
        if !self.is_waiting(ticket) {
            return None;
        }
        self.unlink(ticket.index);
        match self.vacate(ticket.index) {
            State::Waiting(queued) => Some(queued),
            _ => None,
        }
    }

    fn vacate(&mut self, index: u32) -> State<W, T> {
        let entry = &mut self.entries[index as usize];
        entry.arrival = 0;
        entry.next = self.free;
        self.free = index;
        self.taken -= 1;
        std::mem::replace(&mut entry.state, State::Vacant)
    }

    pub(crate) fn payload_mut(&mut self, ticket: Ticket) -> Option<&mut W> {
        self.state_of(ticket)?;
        match &mut self.entries[ticket.index as usize].state {
            State::Waiting(queued) => Some(&mut queued.payload),
            _ => None,
        }
    }

    /// All waiters, first to last, with their index.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Queued<W, T>)> {
        let mut at = self.head;
        std::iter::from_fn(move || {
            let queued = self.waiting_at(at)?;
            let index = at;
            at = self.entries[at as usize].next;
            Some((index, queued))
        })
    }

    /// Frees memory after a burst, once no entry is in use.
    pub(crate) fn trim(&mut self, keep: usize) {
        if self.taken == 0 && self.entries.capacity() > keep {
            *self = Self { arrivals: self.arrivals, ..Self::new(self.gate) };
        }
    }
}
