//! The requests of a client: the arguments of `queue.lua`, and the reasons of `release.lua`.

use super::clock::{FOREVER, seconds};
use super::scripts::{id_of, texts};

#[derive(Clone, Copy, Debug)]
pub(super) struct AcquireRequest {
    pub(super) weight: u32,
    pub(super) ttl: Option<u64>,
    /// How long it keeps its slot after an eviction.
    pub(super) grace: Option<u64>,
}

pub(super) const ONE_SLOT: AcquireRequest = AcquireRequest { weight: 1, ttl: None, grace: None };

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum EndReason {
    Released,
    Evicted,
    Cancelled,
    TimedOut,
}

impl EndReason {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Evicted => "evicted",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed_out",
        }
    }
}

/// A call of `queue.lua`.
pub(super) struct Queue<'a> {
    pub(super) number: usize,
    pub(super) request: AcquireRequest,
    pub(super) heartbeat: u64,
    pub(super) is_try: bool,
    pub(super) slots: u32,
    pub(super) is_open: bool,
    pub(super) again: bool,
    /// The score of its old place in line, or empty.
    pub(super) place: &'a str,
    /// The largest fencing token that the process has seen.
    pub(super) floor: u64,
}

impl Queue<'_> {
    /// The first request of an id: it waits if there is no free slot, and its heartbeat never comes due.
    pub(super) fn new(number: usize, request: AcquireRequest) -> Self {
        Self {
            number,
            request,
            heartbeat: FOREVER,
            is_try: false,
            slots: 1,
            is_open: true,
            again: false,
            place: "",
            floor: 0,
        }
    }

    pub(super) fn arguments(&self) -> Vec<String> {
        let AcquireRequest { weight, ttl, grace } = self.request;
        texts([
            &id_of(self.number),
            &weight,
            &seconds(ttl.unwrap_or(0)),
            &seconds(self.heartbeat),
            &seconds(grace.unwrap_or(0)),
            &"{}",
            &if self.is_try { "try" } else { "wait" },
            &self.slots,
            &u8::from(self.is_open),
            &0,
            &-1,
            &u8::from(self.again),
            &if self.place.is_empty() { "0" } else { self.place },
            &self.floor,
        ])
    }
}
