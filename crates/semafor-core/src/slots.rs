//! Who holds what.
//!
//! Invariant 8 lives here: slot numbers are 0-based and unique among live holders. They are also below the
//! capacity at the time of the grant, so they can index a fixed set of things (ports, GPUs, directories).
//! [`Slots::occupy`] takes a number freed before, or else the next `fresh` one: all numbers below `fresh` are
//! either live or in the list of `free` ones. A shrink lowers `fresh` to the new capacity and forgets the free
//! numbers above it; live ones above it are stepped over should the capacity grow again.

use crate::{PermitId, Timestamp};

const FREE: u64 = 0;
const NONE: u32 = u32::MAX;

pub(crate) struct Slots<T> {
    entries: Vec<Entry<T>>,
    /// The first free number; the rest hang on it.
    free: u32,
    fresh: u32,
    live: usize,
}

struct Entry<T> {
    /// The fencing token of the live grant, or [`FREE`].
    token: u64,
    since: Timestamp,
    expires: Timestamp,
    weight: u32,
    /// While free: the next free number.
    next_free: u32,
    tag: T,
}

/// What a live holder looks like from outside.
#[derive(Debug)]
#[non_exhaustive]
pub struct Holder<'a, T> {
    /// The id of its permit.
    pub id: PermitId,
    /// How much it holds.
    pub weight: u32,
    /// When it was granted.
    pub since: Timestamp,
    /// When it will expire; [`Timestamp::NEVER`] without a time to live.
    pub expires: Timestamp,
    /// What the home attached to it.
    pub tag: &'a T,
}

/// What a slot held when it was vacated.
pub(crate) struct Vacated<T> {
    pub(crate) weight: u32,
    pub(crate) since: Timestamp,
    pub(crate) expires: Timestamp,
    pub(crate) tag: T,
}

impl<T: Default> Slots<T> {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::new(), free: NONE, fresh: 0, live: 0 }
    }

    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// Puts a holder on a free slot and says which.
    #[inline(always)]
    pub(crate) fn occupy(
        &mut self,
        token: u64,
        weight: u32,
        since: Timestamp,
        expires: Timestamp,
        tag: T,
    ) -> u32 {
        let slot = if self.free == NONE { self.fresh_slot() } else { self.free };
        // Field by field: a whole new entry would be built elsewhere first.
        let entry = &mut self.entries[slot as usize];
        self.free = entry.next_free;
        entry.token = token;
        entry.since = since;
        entry.expires = expires;
        entry.weight = weight;
        entry.tag = tag;
        self.live += 1;
        slot
    }

    #[cold]
    fn fresh_slot(&mut self) -> u32 {
        loop {
            let slot = self.fresh;
            self.fresh += 1;
            match self.entries.get(slot as usize) {
                None => {
                    self.entries.push(Entry {
                        token: FREE,
                        since: Timestamp::NEVER,
                        expires: Timestamp::NEVER,
                        weight: 0,
                        next_free: NONE,
                        tag: T::default(),
                    });
                    return slot;
                }
                Some(entry) if entry.token == FREE => {
                    self.entries[slot as usize].next_free = NONE;
                    return slot;
                }
                Some(_) => {}
            }
        }
    }

    #[inline]
    pub(crate) fn holds(&self, slot: u32, token: u64) -> bool {
        token != FREE && self.entries.get(slot as usize).is_some_and(|entry| entry.token == token)
    }

    /// Frees a slot that [holds](Self::holds) something.
    #[inline]
    pub(crate) fn vacate(&mut self, slot: u32) -> Vacated<T> {
        let entry = &mut self.entries[slot as usize];
        entry.token = FREE;
        let vacated = Vacated {
            weight: entry.weight,
            since: entry.since,
            expires: entry.expires,
            tag: std::mem::take(&mut entry.tag),
        };
        if slot < self.fresh {
            entry.next_free = self.free;
            self.free = slot;
        }
        self.live -= 1;
        vacated
    }

    /// The live token on a slot.
    pub(crate) fn token(&self, slot: u32) -> u64 {
        self.entries[slot as usize].token
    }

    pub(crate) fn set_expiry(&mut self, slot: u32, expires: Timestamp) {
        self.entries[slot as usize].expires = expires;
    }

    pub(crate) fn expiry(&self, slot: u32) -> Timestamp {
        self.entries[slot as usize].expires
    }

    pub(crate) fn tag_mut(&mut self, slot: u32) -> &mut T {
        &mut self.entries[slot as usize].tag
    }

    /// From now on hands out numbers below `capacity` only.
    pub(crate) fn shrink(&mut self, capacity: u32) {
        let mut next = std::mem::replace(&mut self.free, NONE);
        while next != NONE {
            let slot = next;
            let entry = &mut self.entries[slot as usize];
            next = entry.next_free;
            if slot < capacity {
                entry.next_free = self.free;
                self.free = slot;
            }
        }
        self.fresh = self.fresh.min(capacity);
    }

    /// True if there are more entries than `keep`: worth giving back once nothing is held.
    #[inline]
    pub(crate) fn is_oversized(&self, keep: usize) -> bool {
        self.entries.capacity() > keep
    }

    pub(crate) fn holders(&self, gate: u32) -> impl Iterator<Item = Holder<'_, T>> {
        let live = self.entries.iter().enumerate().filter(|(_, entry)| entry.token != FREE);
        live.map(move |(slot, entry)| Holder {
            id: PermitId::new(gate, slot as u32, entry.token),
            weight: entry.weight,
            since: entry.since,
            expires: entry.expires,
            tag: &entry.tag,
        })
    }
}
