//! The state that the producer and the workers of one run share. It decides when a worker may begin an item.
//!
//! - **Bound**: the producer is asked for an item only when the queue has room for it. So there are at most limit +
//!   buffer items in the queue, and at most `limit` with the workers.
//! - **Claim, then slot, then item**: a worker claims one of the waiting items, waits for its turn and its slot, and
//!   only then takes the item that is first by now. An item that waits for a slot is still in the queue, and is not
//!   begun.
//! - **On demand**: a push or a claim that leaves an unclaimed item behind wakes an idle worker or starts a new one.
//!   That worker's claim does the same for the next item, so nothing else needs to wake workers.
//! - **Stopping** is one token, a child of the user's: nothing begins after it is cancelled, and every wait ends.
//! - **Exactly once**: an item is popped by the worker that begins it, or is still in the queue at the end.
//! - User code (items, ranks, work) never runs under the lock.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use semafor::{AcquireError, Permit, Semaphore};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::items::Feed;
use crate::memory_guard::{Level, MemoryGuard};
use crate::metrics::Meter;
use crate::outcome::StoppedBy;
use crate::pipeline::Settings;
use crate::queue::Queue;
use crate::width::Width;

/// Starts a worker.
pub(crate) type StartWorker<'a> = &'a (dyn Fn() + Sync);

pub(crate) struct Flow<'p, T> {
    settings: &'p Settings<T>,
    semaphore: &'p Semaphore,
    meter: &'p Meter,
    stop: CancellationToken,
    started: Instant,
    state: Mutex<State<T>>,
    /// The producer waits here.
    room: Notify,
    /// Workers without work wait here.
    work: Notify,
}

struct State<T> {
    queue: Queue<T>,
    /// Items in the queue for which a worker waits for a slot.
    claimed: usize,
    in_use: u32,
    workers: u32,
    limit: u32,
    width: Width,
    supply: Supply,
    stopped_by: Option<StoppedBy>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Supply {
    Flowing,
    Exhausted,
    LimitReached,
    /// The producer was stopped, or panicked.
    CutOff,
}

/// How to get a worker for an unclaimed item.
enum Call {
    Nothing,
    Wake,
    Start,
}

impl<T> State<T> {
    fn unclaimed(&self) -> usize {
        self.queue.len() - self.claimed
    }

    fn busy(&self) -> u32 {
        self.in_use + self.claimed as u32
    }

    fn may_claim(&self) -> bool {
        self.unclaimed() > 0 && self.busy() < self.width.get()
    }

    fn call(&mut self) -> Call {
        if !self.may_claim() {
            Call::Nothing
        } else if self.workers > self.busy() {
            Call::Wake
        } else {
            self.workers += 1;
            Call::Start
        }
    }
}

impl<'p, T> Flow<'p, T> {
    pub(crate) fn new(
        settings: &'p Settings<T>,
        semaphore: &'p Semaphore,
        meter: &'p Meter,
        limit: u32,
    ) -> Self {
        let state = State {
            queue: if settings.rank.is_some() { Queue::ranked() } else { Queue::fifo() },
            claimed: 0,
            in_use: 0,
            workers: 0,
            limit,
            width: Width::new(limit, settings.latency_tolerance),
            supply: Supply::Flowing,
            stopped_by: None,
        };
        meter.start();
        meter.width.set(u64::from(state.width.get()));
        Self {
            settings,
            semaphore,
            meter,
            stop: settings.cancel.child_token(),
            started: Instant::now(),
            state: Mutex::new(state),
            room: Notify::new(),
            work: Notify::new(),
        }
    }

    /// Puts items into the queue until the producer has no more.
    pub(crate) async fn feed(&self, mut items: impl Feed<Item = T>, start_worker: StartWorker<'_>) {
        let mut supply = EndOfSupply { flow: self, why: Supply::CutOff };
        let mut taken = 0;
        loop {
            if taken > 0 && taken == self.settings.max_items {
                supply.why = Supply::LimitReached;
                return;
            }
            if !self.has_room().await {
                return;
            }
            match self.stop.run_until_cancelled(items.next()).await {
                Some(Some(item)) => self.push(item, start_worker),
                Some(None) => {
                    supply.why = Supply::Exhausted;
                    return;
                }
                None => return,
            }
            taken += 1;
        }
    }

    fn push(&self, item: T, start_worker: StartWorker<'_>) {
        let rank = self.settings.rank.as_ref().map_or(0, |rank| rank(&item));
        let mut state = self.state.lock();
        state.queue.push(item, rank);
        self.meter.queue_depth.set(state.queue.len() as u64);
        let call = state.call();
        drop(state);
        self.wake_or_start(call, start_worker);
    }

    fn wake_or_start(&self, call: Call, start_worker: StartWorker<'_>) {
        match call {
            Call::Nothing => {}
            Call::Wake => self.work.notify_one(),
            Call::Start => {
                self.meter.workers.count();
                start_worker();
            }
        }
    }

    /// Waits for room in the queue. False if the pipeline takes no more items.
    async fn has_room(&self) -> bool {
        let mut is_first_check = true;
        loop {
            let changed = self.room.notified();
            if self.stop.is_cancelled() || self.breaks() {
                return false;
            }
            if self.has_room_now() {
                return true;
            }
            if std::mem::take(&mut is_first_check) {
                self.meter.backpressure_events.count();
            }
            if self.stop.run_until_cancelled(changed).await.is_none() {
                return false;
            }
        }
    }

    fn has_room_now(&self) -> bool {
        let mut state = self.state.lock();
        self.adapt(&mut state);
        // While memory is tight there is no buffer.
        let bound = match state.width.is_tight() {
            true => state.width.get() as usize,
            false => state.limit as usize + self.settings.buffer,
        };
        state.queue.len() < bound
    }

    /// The circuit breaker. Memory is read here, without the lock: the source may be the user's.
    fn breaks(&self) -> bool {
        let is_critical = self.settings.guard.as_ref().is_some_and(|guard| guard.level() == Level::Critical);
        if is_critical {
            self.stop(StoppedBy::Breaker);
        }
        is_critical
    }

    /// Adapts the width to the last reading of memory.
    fn adapt(&self, state: &mut State<T>) {
        if let Some(guard) = &self.settings.guard {
            if state.width.press(guard.last_pressure()) {
                self.meter.narrowings.count();
            }
            self.meter.width.set(u64::from(state.width.get()));
        }
    }

    /// Waits for an item, its turn and its slot, and begins it. `None` if there is nothing more to begin.
    pub(crate) async fn begin(
        &self,
        start_worker: StartWorker<'_>,
    ) -> Result<Option<(Permit<'p>, T)>, AcquireError> {
        let Some(claim) = self.claim(start_worker).await else { return Ok(None) };
        if let Some(rate) = &self.settings.rate
            && self.stop.run_until_cancelled(rate.ready()).await.is_none()
        {
            return Ok(None);
        }
        let Some(permit) = self.stop.run_until_cancelled(self.slot()).await.transpose()? else {
            return Ok(None);
        };
        // The wait for the slot may have been long: check again.
        if self.stop.is_cancelled() || self.breaks() {
            return Ok(None);
        }
        Ok(claim.redeem().map(|item| (permit, item)))
    }

    async fn slot(&self) -> Result<Permit<'p>, AcquireError> {
        loop {
            match self.semaphore.acquire().await {
                // The lease expired before we saw the grant: try again.
                Err(AcquireError::Lost(_)) => {}
                answer => return answer,
            }
        }
    }

    /// Waits for an unclaimed item, and claims it. `None` if there will be none.
    async fn claim(&self, start_worker: StartWorker<'_>) -> Option<Claim<'_, 'p, T>> {
        loop {
            let called = self.work.notified();
            if self.stop.is_cancelled() {
                return None;
            }
            if let Some(guard) = &self.settings.guard {
                guard.refresh();
            }
            match self.try_claim(start_worker) {
                Claiming::Claimed(claim) => return Some(claim),
                Claiming::Wait => {}
                Claiming::Over => return None,
                Claiming::Critical => {
                    self.stop(StoppedBy::Breaker);
                    return None;
                }
            }
            self.stop.run_until_cancelled(called).await?;
        }
    }

    fn try_claim(&self, start_worker: StartWorker<'_>) -> Claiming<'_, 'p, T> {
        let mut state = self.state.lock();
        self.adapt(&mut state);
        let is_critical = |guard: &MemoryGuard| guard.last_level() == Level::Critical;
        if state.unclaimed() > 0 && self.settings.guard.as_ref().is_some_and(is_critical) {
            return Claiming::Critical;
        }
        if state.may_claim() {
            state.claimed += 1;
            let call = state.call();
            drop(state);
            self.wake_or_start(call, start_worker);
            return Claiming::Claimed(Claim { flow: self, is_open: true });
        }
        if state.unclaimed() > 0 || state.supply == Supply::Flowing {
            return Claiming::Wait;
        }
        drop(state);
        // Workers that the width kept from claiming have nothing left to wait for.
        self.work.notify_waiters();
        Claiming::Over
    }

    /// Records that an item is finished and its slot released. Wakes no other worker: the caller claims the next item
    /// itself, and that claim wakes others if they are needed.
    pub(crate) fn settle(&self, is_done: bool, took: Duration) {
        self.meter.took(took);
        match is_done {
            true => self.meter.done.count(),
            false => self.meter.failed.count(),
        }
        let now = self.started.elapsed();
        let mut state = self.state.lock();
        state.in_use -= 1;
        self.meter.slots_in_use.set(u64::from(state.in_use));
        state.width.observe(took, now);
        self.meter.width.set(u64::from(state.width.get()));
    }

    /// Begins nothing more. The first reason counts; if the user's token was cancelled first, `why` is ignored.
    pub(crate) fn stop(&self, why: StoppedBy) {
        let mut state = self.state.lock();
        if !self.stop.is_cancelled() {
            state.stopped_by.get_or_insert(why);
        }
        drop(state);
        self.stop.cancel();
    }

    pub(crate) fn worker_left(&self) {
        self.state.lock().workers -= 1;
    }

    /// Called when the thread of a worker could not be started. The other workers continue without it.
    ///
    /// # Panics
    ///
    /// If there are no other workers.
    pub(crate) fn thread_not_started(&self, error: &std::io::Error) {
        self.worker_left();
        assert!(self.state.lock().workers > 0, "cannot start a single worker thread: {error}");
    }

    /// Called when all workers have ended: why the pipeline ended, and the items that were not begun.
    pub(crate) fn end(self) -> (StoppedBy, Vec<T>) {
        let state = self.state.into_inner();
        let (mut queue, supply) = (state.queue, state.supply);
        let left = Vec::from_iter(std::iter::from_fn(|| queue.pop()));
        self.meter.queue_depth.set(0);
        self.meter.not_begun.set(left.len() as u64);
        let stopped_by = match (state.stopped_by, supply) {
            (Some(reason), _) => reason,
            // A cancel that comes after the last item has no effect.
            (None, Supply::Exhausted) if left.is_empty() => StoppedBy::Completed,
            (None, Supply::LimitReached) if left.is_empty() => StoppedBy::ItemLimit,
            (None, _) => StoppedBy::Cancelled,
        };
        (stopped_by, left)
    }
}

/// Tells the workers that no more items will come, even if the producer panicked.
struct EndOfSupply<'a, 'p, T> {
    flow: &'a Flow<'p, T>,
    why: Supply,
}

impl<T> Drop for EndOfSupply<'_, '_, T> {
    fn drop(&mut self) {
        self.flow.state.lock().supply = self.why;
        self.flow.work.notify_waiters();
    }
}

/// The result of an attempt to claim an item.
enum Claiming<'a, 'p, T> {
    Claimed(Claim<'a, 'p, T>),
    Wait,
    Over,
    Critical,
}

/// The right to an item, to be [redeemed](Self::redeem) once the worker has a slot.
struct Claim<'a, 'p, T> {
    flow: &'a Flow<'p, T>,
    is_open: bool,
}

impl<T> Claim<'_, '_, T> {
    /// Takes the item that is first now.
    fn redeem(mut self) -> Option<T> {
        self.is_open = false;
        let mut state = self.flow.state.lock();
        state.claimed -= 1;
        let item = state.queue.pop();
        if item.is_some() {
            state.in_use += 1;
            self.flow.meter.slots_in_use.set(u64::from(state.in_use));
            self.flow.meter.queue_depth.set(state.queue.len() as u64);
        }
        drop(state);
        self.flow.room.notify_one();
        item
    }
}

impl<T> Drop for Claim<'_, '_, T> {
    fn drop(&mut self) {
        if self.is_open {
            self.flow.state.lock().claimed -= 1;
        }
    }
}
