//! The slot of the semaphore without which nothing is removed.
//!
//! A thread keeps its slot while it has work, where nobody can want it: with a slot for each thread of this process. With
//! fewer slots, it is held only for as long as removals follow one another in one directory. The semaphore of a fleet is a
//! round trip away: there, a slot is given back when a thread has nothing to do, has removed nothing for a moment, or has
//! had it for long.

use std::time::{Duration, Instant};

use semafor::{AcquireError, Permit, Registry, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::cancelled::unless;

/// How long a slot of a fleet is kept without a removal. Many removals on a fast file system, one or two on a slow one.
const KEPT_UNUSED: Duration = Duration::from_millis(100);
/// How long it is kept at all while others may wait for it.
const KEPT: Duration = Duration::from_secs(2);

/// How many may remove something at once, in this process or in a fleet.
pub(crate) struct Deletions {
    semaphore: Semaphore,
    rivals: Rivals,
}

/// Who else wants the slots.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rivals {
    None,
    Threads,
    Fleet,
}

/// One thread's slot, if it has one.
pub(crate) struct Licence<'a> {
    of: &'a Deletions,
    slot: Option<Slot<'a>>,
}

struct Slot<'a> {
    permit: Permit<'a>,
    /// Since when, and when it was last used. Only a fleet has to know.
    times: Option<(Instant, Instant)>,
}

/// Why nothing can be removed.
pub(crate) enum Refused {
    Cancelled,
    Error(AcquireError),
}

impl Deletions {
    pub(crate) fn of_fleet(semaphore: Semaphore) -> Self {
        Self { semaphore, rivals: Rivals::Fleet }
    }

    pub(crate) fn at_once(slots: u32, threads: usize) -> Self {
        let built = Registry::new().named("purge").slots(slots.max(1)).build();
        let semaphore = built.expect("a name of its own, and at least one slot");
        let rivals = if slots as usize >= threads { Rivals::None } else { Rivals::Threads };
        Self { semaphore, rivals }
    }

    /// Whether there are fewer slots than there may be threads.
    pub(crate) fn are_short(&self) -> bool {
        self.rivals != Rivals::None
    }

    pub(crate) fn licence(&self) -> Licence<'_> {
        Licence { of: self, slot: None }
    }
}

impl Slot<'_> {
    /// Whether it can be used once more. Only a fleet takes one away, or is owed one.
    fn is_good(&mut self) -> bool {
        let Some((since, last_used)) = &mut self.times else { return true };
        *last_used = Instant::now();
        *last_used - *since <= KEPT && !self.permit.is_lost()
    }
}

impl Licence<'_> {
    /// Holds a slot when it returns. True if that may have taken a while.
    pub(crate) fn obtain(&mut self, cancelled: &CancellationToken) -> Result<bool, Refused> {
        if let Some(slot) = &mut self.slot
            && slot.is_good()
        {
            return Ok(false);
        }
        self.slot = None;
        let (permit, has_waited) = self.wait(cancelled)?;
        let times = (self.of.rivals == Rivals::Fleet).then(|| (Instant::now(), Instant::now()));
        self.slot = Some(Slot { permit, times });
        Ok(has_waited)
    }

    /// Whether the slot was taken away since it was obtained.
    pub(crate) fn is_lost(&self) -> bool {
        self.slot.as_ref().is_none_or(|slot| slot.times.is_some() && slot.permit.is_lost())
    }

    /// Removals in one directory are over.
    pub(crate) fn lapse(&mut self) {
        let is_over = match (&self.slot, self.of.rivals) {
            (None, _) | (_, Rivals::None) => false,
            (Some(_), Rivals::Threads) => true,
            (Some(slot), Rivals::Fleet) => slot
                .times
                .is_none_or(|(since, last_used)| since.elapsed() > KEPT || last_used.elapsed() > KEPT_UNUSED),
        };
        if is_over {
            self.give_back();
        }
    }

    pub(crate) fn give_back(&mut self) {
        self.slot = None;
    }
}

impl<'a> Licence<'a> {
    fn wait(&self, cancelled: &CancellationToken) -> Result<(Permit<'a>, bool), Refused> {
        let semaphore = &self.of.semaphore;
        if self.of.rivals != Rivals::Fleet
            && let Ok(permit) = semaphore.try_acquire().blocking()
        {
            return Ok((permit, false));
        }
        match unless(cancelled, semaphore.acquire()) {
            Some(answer) => answer.map(|permit| (permit, true)).map_err(Refused::Error),
            None => Err(Refused::Cancelled),
        }
    }
}
