//! The holders and their slot numbers.
//!
//! This file upholds invariant 8: slot numbers are 0-based, unique among live holders, and each grant gets the lowest
//! free number. So a number is below the number of slots at the time of the grant, and can index a fixed set of things
//! (ports, GPUs, directories). All numbers below `fresh` are either live or in `free`. A shrink lowers `fresh` to the
//! new number of slots and removes the free numbers from there on. Live numbers above it are skipped if the slots grow
//! again.

use crate::free_numbers::FreeNumbers;
use crate::{PermitId, Timestamp};

const FREE: u64 = 0;

pub(crate) struct Slots<T> {
    entries: Vec<Entry<T>>,
    free: FreeNumbers,
    fresh: u32,
    live: usize,
}

struct Entry<T> {
    /// The fencing token of the live grant, or [`FREE`].
    token: u64,
    since: Timestamp,
    expires: Timestamp,
    weight: u32,
    /// The holder was evicted and has not released its slot yet.
    is_leaving: bool,
    tag: T,
}

impl<T: Default> Entry<T> {
    fn free() -> Self {
        Self {
            token: FREE,
            since: Timestamp::NEVER,
            expires: Timestamp::NEVER,
            weight: 0,
            is_leaving: false,
            tag: T::default(),
        }
    }
}

/// A live holder, as [`Gate::holders`](crate::Gate::holders) shows it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Holder<'a, T> {
    /// The id of its permit.
    pub id: PermitId,
    /// How many slots it holds.
    pub weight: u32,
    /// When it was granted.
    pub since: Timestamp,
    /// When its lease ends; [`Timestamp::NEVER`] without a `ttl`.
    pub expires: Timestamp,
    /// True if it was [evicted](crate::Gate::evict) and has not released its slot yet.
    pub is_leaving: bool,
    /// Its tag.
    pub tag: &'a T,
}

/// The entry of a slot that was vacated.
pub(crate) struct Vacated<T> {
    pub(crate) weight: u32,
    pub(crate) since: Timestamp,
    pub(crate) expires: Timestamp,
    pub(crate) tag: T,
}

impl<T: Default> Slots<T> {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::new(), free: FreeNumbers::default(), fresh: 0, live: 0 }
    }

    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// Takes the lowest free number, to be [occupied](Self::occupy).
    #[inline(always)]
    pub(crate) fn take_lowest(&mut self) -> u32 {
        self.free.pop_lowest().unwrap_or_else(|| self.take_fresh())
    }

    /// Takes `wanted` if it is free, to be [occupied](Self::occupy); else the lowest free number, even if that is not
    /// below the number of slots.
    pub(crate) fn take(&mut self, wanted: u32) -> u32 {
        if self.is_live(wanted) {
            return self.take_lowest();
        }
        if wanted < self.fresh {
            self.free.remove(wanted);
        } else {
            // It stays above `fresh`, as live numbers do after a shrink.
            let entries = wanted as usize + 1;
            self.entries.resize_with(self.entries.len().max(entries), Entry::free);
        }
        wanted
    }

    /// Puts a holder on a slot that was taken for it.
    #[inline(always)]
    pub(crate) fn occupy(
        &mut self,
        slot: u32,
        token: u64,
        weight: u32,
        since: Timestamp,
        expires: Timestamp,
        tag: T,
    ) {
        // Field by field: a whole new entry would be built in another place first and copied.
        let entry = &mut self.entries[slot as usize];
        entry.token = token;
        entry.since = since;
        entry.expires = expires;
        entry.weight = weight;
        entry.is_leaving = false;
        entry.tag = tag;
        self.live += 1;
    }

    fn is_live(&self, slot: u32) -> bool {
        self.entries.get(slot as usize).is_some_and(|entry| entry.token != FREE)
    }

    #[cold]
    fn take_fresh(&mut self) -> u32 {
        while self.is_live(self.fresh) {
            self.fresh += 1;
        }
        let slot = self.fresh;
        self.fresh += 1;
        if self.entries.len() == slot as usize {
            self.entries.push(Entry::free());
        }
        slot
    }

    #[inline]
    pub(crate) fn holds(&self, slot: u32, token: u64) -> bool {
        token != FREE && self.entries.get(slot as usize).is_some_and(|entry| entry.token == token)
    }

    /// Frees a slot that is [held](Self::holds).
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
            self.free.insert(slot);
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

    pub(crate) fn set_leaving(&mut self, slot: u32) {
        self.entries[slot as usize].is_leaving = true;
    }

    /// Whether the live holder of a slot was evicted.
    pub(crate) fn is_leaving(&self, slot: u32) -> bool {
        self.entries[slot as usize].is_leaving
    }

    pub(crate) fn tag_mut(&mut self, slot: u32) -> &mut T {
        &mut self.entries[slot as usize].tag
    }

    /// From now on, only numbers below `slots` are taken.
    pub(crate) fn shrink(&mut self, slots: u32) {
        if slots < self.fresh {
            self.fresh = slots;
            self.free.truncate(slots);
        }
    }

    /// True if there are more than `keep` entries: worth freeing once nothing is held.
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
            is_leaving: entry.is_leaving,
            tag: &entry.tag,
        })
    }
}
