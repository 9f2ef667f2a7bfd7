//! The slot of the semaphore without which nothing is removed.
//!
//! A thread keeps its slot while it has work, where nobody can want it: with a slot for each thread of this process.
//! With fewer slots, it is held only for as long as removals follow one another in one directory. The semaphore of a
//! fleet is a round trip away: there, a slot is given back when a thread has nothing to do, has removed nothing for a
//! moment, or has had it for long.

use std::time::{Duration, Instant};

use semafor::{AcquireError, Permit, Registry, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::cancelled::run_unless_cancelled;

/// How long a slot of a fleet is kept without a removal. Many removals on a fast file system, one or two on a slow one.
const MAX_IDLE: Duration = Duration::from_millis(100);
/// How long it is kept at all while others may wait for it.
const MAX_HOLD: Duration = Duration::from_secs(2);

/// How many may remove something at once, in this process or in a fleet.
pub(crate) struct Deletions {
    semaphore: Semaphore,
    contention: Contention,
}

/// Who else wants the slots.
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
        Self { semaphore, contention: Contention::Fleet }
    }

    pub(crate) fn at_once(slots: u32, threads: usize) -> Self {
        let built = Registry::new().named("purge").slots(slots.max(1)).build();
        let semaphore = built.expect("a name of its own, and at least one slot");
        let contention = if slots as usize >= threads { Contention::None } else { Contention::Threads };
        Self { semaphore, contention }
    }

    /// Whether there are fewer slots than there may be threads.
    pub(crate) fn are_contended(&self) -> bool {
        self.contention != Contention::None
    }

    pub(crate) fn slot(&self) -> RemovalSlot<'_> {
        RemovalSlot { deletions: self, held: None }
    }
}

impl HeldSlot<'_> {
    /// Whether it can be used once more. Only a fleet takes one away, or is owed one.
    fn is_usable(&mut self) -> bool {
        let Some((since, last_used)) = &mut self.times else { return true };
        *last_used = Instant::now();
        *last_used - *since <= MAX_HOLD && !self.permit.is_lost()
    }
}

impl RemovalSlot<'_> {
    /// Holds a slot when it returns. True if that may have taken a while.
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

    /// Whether the slot was taken away since it was obtained.
    pub(crate) fn is_lost(&self) -> bool {
        self.held.as_ref().is_none_or(|held| held.times.is_some() && held.permit.is_lost())
    }

    /// Removals in one directory are over.
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
