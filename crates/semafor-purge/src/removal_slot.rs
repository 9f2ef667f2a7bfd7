//! The slot that a thread must hold to remove anything.
//!
//! If there is a slot for each thread of this process, a thread keeps its slot while it has work. With fewer slots, it
//! holds the slot only for consecutive removals in one directory. A slot of a fleet costs a round trip: it is released
//! when the thread has no work, has removed nothing for a moment, or has held it for long.

use std::time::{Duration, Instant};

use semafor::{AcquireError, Permit, Registry, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::cancelled::run_unless_cancelled;

/// How long a slot of a fleet is held without a removal: the time of many removals on a fast file system, or of one or
/// two on a slow one.
const MAX_IDLE: Duration = Duration::from_millis(100);
/// How long a slot of a fleet is held at most, because others may wait for it.
const MAX_HOLD: Duration = Duration::from_secs(2);

/// Limits concurrent removals, in this process or in a fleet.
pub(crate) struct Deletions {
    semaphore: Semaphore,
    contention: Contention,
}

/// What competes for the slots.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contention {
    None,
    Threads,
    Fleet,
}

/// One thread's slot, if it has one.
pub(crate) struct RemovalSlot<'a> {
    deletions: &'a Deletions,
    held: Option<HeldSlot<'a>>,
}

struct HeldSlot<'a> {
    permit: Permit<'a>,
    /// When it was acquired and last used. Only for a fleet.
    times: Option<(Instant, Instant)>,
}

/// Why nothing can be removed.
pub(crate) enum Refused {
    Cancelled,
    Error(AcquireError),
}

impl Deletions {
    pub(crate) fn of_fleet(semaphore: Semaphore) -> Self {
        Self { semaphore, contention: Contention::Fleet }
    }

    pub(crate) fn at_once(slots: u32, threads: usize) -> Self {
        let built = Registry::new().named("purge").slots(slots.max(1)).build();
        let semaphore = built.expect("the registry is new and there is at least one slot");
        let contention = if slots as usize >= threads { Contention::None } else { Contention::Threads };
        Self { semaphore, contention }
    }

    /// True if threads or a fleet compete for the slots.
    pub(crate) fn are_contended(&self) -> bool {
        self.contention != Contention::None
    }

    pub(crate) fn slot(&self) -> RemovalSlot<'_> {
        RemovalSlot { deletions: self, held: None }
    }
}

impl HeldSlot<'_> {
    /// True if it can be used again. Only slots of a fleet can be lost or must be released in time.
    fn is_usable(&mut self) -> bool {
        let Some((since, last_used)) = &mut self.times else { return true };
        *last_used = Instant::now();
        *last_used - *since <= MAX_HOLD && !self.permit.is_lost()
    }
}

impl RemovalSlot<'_> {
    /// Acquires a slot, unless one is held. True if it may have waited.
    pub(crate) fn acquire(&mut self, cancelled: &CancellationToken) -> Result<bool, Refused> {
        if let Some(held) = &mut self.held
            && held.is_usable()
        {
            return Ok(false);
        }
        self.held = None;
        let (permit, has_waited) = self.wait(cancelled)?;
        let times =
            (self.deletions.contention == Contention::Fleet).then(|| (Instant::now(), Instant::now()));
        self.held = Some(HeldSlot { permit, times });
        Ok(has_waited)
    }

    /// True if the slot was lost since it was acquired.
    pub(crate) fn is_lost(&self) -> bool {
        self.held.as_ref().is_none_or(|held| held.times.is_some() && held.permit.is_lost())
    }

    /// Called after the last removal in a directory.
    pub(crate) fn release_if_contended(&mut self) {
        let is_due = match (&self.held, self.deletions.contention) {
            (None, _) | (_, Contention::None) => false,
            (Some(_), Contention::Threads) => true,
            (Some(held), Contention::Fleet) => held.times.is_none_or(|(since, last_used)| {
                since.elapsed() > MAX_HOLD || last_used.elapsed() > MAX_IDLE
            }),
        };
        if is_due {
            self.release();
        }
    }

    pub(crate) fn release(&mut self) {
        self.held = None;
    }
}

impl<'a> RemovalSlot<'a> {
    fn wait(&self, cancelled: &CancellationToken) -> Result<(Permit<'a>, bool), Refused> {
        let semaphore = &self.deletions.semaphore;
        if self.deletions.contention != Contention::Fleet
            && let Ok(permit) = semaphore.try_acquire().blocking()
        {
            return Ok((permit, false));
        }
        match run_unless_cancelled(cancelled, semaphore.acquire()) {
            Some(answer) => answer.map(|permit| (permit, true)).map_err(Refused::Error),
            None => Err(Refused::Cancelled),
        }
    }
}
