use std::cell::{RefCell, RefMut};
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

use semafor_core::{Acquired, Claim, Gate, PermitId, Refusal, Request, Ticket, Timestamp};

use crate::performing::{Begun, Operation, Performing};
use crate::recording::Event;
use crate::semaphore::{Hold, SemaphoreCell};
use crate::state::State;
use crate::tasks::{Held, WaitOn};
use crate::timers::{Timer, TimerKey};
use crate::{Ctx, Error, Perform, Permit, Result, Semaphore, Span};

/// Creates a semaphore. All of its permits are free.
///
/// # Errors
///
/// [`Error::ZeroPermits`], which reads `permits must be >= 1`.
#[derive(Clone, Debug)]
pub struct CreateSemaphore {
    permits: u32,
    name: Option<Arc<str>>,
    is_signal: bool,
}

impl CreateSemaphore {
    /// A semaphore of so many permits. With one permit it is a lock.
    pub fn new(permits: u32) -> Self {
        Self { permits, name: None, is_signal: false }
    }

    /// A name for reports and pictures.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Declares that permits are released by other tasks than those that acquired them. A task that ends with one is
    /// not reported as [unreleased](crate::Report::unreleased), and the strict search for
    /// [deadlocks](crate::Deadlocks::Holders) ignores the semaphore while any task can run.
    pub fn signal(mut self) -> Self {
        self.is_signal = true;
        self
    }
}

impl Perform for CreateSemaphore {
    type Out = Semaphore;

    fn perform(self, ctx: &Ctx, at: &'static Location<'static>) -> impl Future<Output = Result<Semaphore>> {
        Performing::new(ctx, at, self)
    }
}

impl Operation for CreateSemaphore {
    type Out = Semaphore;

    fn begin(
        &mut self,
        mut state: RefMut<'_, State>,
        _: &Ctx,
        _: &'static Location<'static>,
    ) -> Begun<Semaphore> {
        if self.permits == 0 {
            return Begun::Done(Err(Error::ZeroPermits));
        }
        let number = state.next_number();
        let Ok(gate) = Gate::new(number as u32, self.permits) else {
            return Begun::Done(Err(Error::ZeroPermits));
        };
        let (permits, name, is_signal) = (self.permits, self.name.take(), self.is_signal);
        state.record(|| Event::SemaphoreCreated { semaphore: number, permits, name: name.clone() });
        let (run, gate) = (state.run, RefCell::new(gate));
        let cell = SemaphoreCell { run, number, name, is_signal, gate, unguarded: RefCell::default() };
        Begun::Done(Ok(Semaphore { cell: Rc::new(cell) }))
    }
}

/// Acquires a permit, to be [released](ReleaseSemaphore) later. Waits in line if none is free.
///
/// First come, first served, regardless of priority: a released permit goes to the first waiter in the same step, and
/// no task overtakes. [`Demand`] acquires several at once, or with a timeout.
///
/// # Errors
///
/// [`Error::TaskCancelled`] if the task is cancelled while it waits; it has no permit then. [`Error::Deadlock`] if the
/// wait would never end.
#[derive(Clone, Copy, Debug)]
pub struct AcquireSemaphore<'s>(pub &'s Semaphore);

/// Like [`AcquireSemaphore`], but returns a [`Permit`], which releases when it is dropped.
#[derive(Clone, Copy, Debug)]
pub struct AcquirePermit<'s>(pub &'s Semaphore);

impl<'s> AcquireSemaphore<'s> {
    /// Acquires so many permits at once. See [`Demand::weight`].
    pub fn weight(self, weight: u32) -> Demand<'s> {
        self.demand().weight(weight)
    }

    /// Waits for so long at most. See [`Demand::timeout`].
    pub fn timeout(self, span: impl Into<Span>) -> Demand<'s> {
        self.demand().timeout(span)
    }

    #[inline(always)]
    fn demand(self) -> Demand<'s> {
        Demand { semaphore: self.0, weight: 1, timeout: None }
    }
}

/// An acquire with a weight or a timeout.
#[derive(Clone, Copy, Debug)]
pub struct Demand<'s> {
    semaphore: &'s Semaphore,
    weight: u32,
    timeout: Option<Span>,
}

impl<'s> Demand<'s> {
    /// Acquires so many permits at once, which are also released at once. More than the semaphore has is an
    /// [error](Error::TooHeavy) at once, and so is zero.
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// Fails with [`Error::TimedOut`] after so long, by the run's clock.
    pub fn timeout(mut self, span: impl Into<Span>) -> Self {
        self.timeout = Some(span.into());
        self
    }

    /// Returns a [`Permit`].
    pub fn guarded(self) -> GuardedDemand<'s> {
        GuardedDemand { demand: self, is_bound: false }
    }

    #[inline(always)]
    fn operation<G: Grant>(self, is_bound: bool) -> Acquire<'s, G> {
        let Self { semaphore, weight, timeout } = self;
        Acquire { semaphore, weight, is_bound, timeout, ticket: None, timer: None, result: LineResult::None }
    }

    fn permit(
        self,
        is_bound: bool,
        ctx: &Ctx,
        at: &'static Location<'static>,
    ) -> impl Future<Output = Result<Permit>> {
        let semaphore = self.semaphore;
        let acquire = Performing::new(ctx, at, self.operation::<PermitId>(is_bound));
        async move {
            let id = acquire.await?;
            Ok(Permit { ctx: ctx.clone(), semaphore: semaphore.clone(), id })
        }
    }
}

/// A [`Demand`] for a [`Permit`].
#[derive(Clone, Copy, Debug)]
pub struct GuardedDemand<'s> {
    demand: Demand<'s>,
    is_bound: bool,
}

impl GuardedDemand<'_> {
    /// Declares that the permit stays with the task that acquires it, until it is dropped. So no other task can release
    /// it, and a cycle through it is a [deadlock](crate::Deadlocks::Certain) although other tasks can still run.
    ///
    /// A permit that is moved to another task nevertheless works as usual, but a deadlock may be reported by mistake.
    pub fn stays_with_task(mut self) -> Self {
        self.is_bound = true;
        self
    }
}

impl Perform for AcquireSemaphore<'_> {
    type Out = ();

    #[inline(always)]
    fn perform(self, ctx: &Ctx, at: &'static Location<'static>) -> impl Future<Output = Result> {
        Performing::new(ctx, at, self.demand().operation::<()>(false))
    }
}

impl Perform for Demand<'_> {
    type Out = ();

    fn perform(self, ctx: &Ctx, at: &'static Location<'static>) -> impl Future<Output = Result> {
        Performing::new(ctx, at, self.operation::<()>(false))
    }
}

impl Perform for AcquirePermit<'_> {
    type Out = Permit;

    fn perform(self, ctx: &Ctx, at: &'static Location<'static>) -> impl Future<Output = Result<Permit>> {
        AcquireSemaphore(self.0).demand().permit(false, ctx, at)
    }
}

impl Perform for GuardedDemand<'_> {
    type Out = Permit;

    fn perform(self, ctx: &Ctx, at: &'static Location<'static>) -> impl Future<Output = Result<Permit>> {
        self.demand.permit(self.is_bound, ctx, at)
    }
}

/// The result of a granted acquire: nothing if the task releases it, or the id of the permit for a guard.
trait Grant {
    const IS_GUARDED: bool;

    fn of(permit: PermitId) -> Self;
}

impl Grant for () {
    const IS_GUARDED: bool = false;

    fn of(_: PermitId) {}
}

impl Grant for PermitId {
    const IS_GUARDED: bool = true;

    fn of(permit: PermitId) -> Self {
        permit
    }
}

struct Acquire<'s, G> {
    semaphore: &'s Semaphore,
    weight: u32,
    is_bound: bool,
    timeout: Option<Span>,
    ticket: Option<Ticket>,
    timer: Option<TimerKey>,
    result: LineResult<G>,
}

/// How a place in line ended.
enum LineResult<G> {
    None,
    Granted(G),
    TimedOut,
}

impl<G: Grant> Acquire<'_, G> {
    #[inline]
    fn granted(&self, state: &mut State, permit: PermitId, at: &'static Location<'static>) -> G {
        let cell = &self.semaphore.cell;
        if !G::IS_GUARDED {
            state.hold(cell, permit, self.weight, at);
        }
        let (semaphore, weight) = (cell.number, self.weight);
        state.record(|| Event::Acquired { semaphore, weight });
        G::of(permit)
    }

    /// Takes a permit or a place in line.
    ///
    /// # Errors
    ///
    /// If it gets neither.
    fn queue(&mut self, state: &mut State, hold: Hold, at: &'static Location<'static>) -> Result<Begun<G>> {
        let cell = &self.semaphore.cell;
        let timeout = self.timeout.map(Span::get).transpose()?;
        if timeout.is_some() {
            state.elapsed();
        }
        let now = state.now;
        let mut request = Request { weight: self.weight, ..Request::default() };
        if let Some(timeout) = timeout {
            request.deadline = now.after(timeout);
        }
        let mut gate = cell.gate.borrow_mut();
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            let permit =
                gate.try_acquire(&request, hold, now).map_err(|why| refusal(why, Error::TimedOut))?;
            drop(gate);
            return Ok(Begun::Done(Ok(self.granted(state, permit, at))));
        }
        let current = state.current;
        let acquired = gate.acquire(&request, current, hold, now, state.effects());
        drop(gate);
        state.wake_waiters();
        match acquired.map_err(|why| refusal(why, Error::TimedOut))? {
            Acquired::Granted(permit) => Ok(Begun::Done(Ok(self.granted(state, permit, at)))),
            Acquired::Queued(ticket) => {
                self.ticket = Some(ticket);
                // A deadline out of range never comes.
                let is_timed = request.deadline != Timestamp::NEVER;
                if is_timed {
                    self.timer = Some(state.timers.set(request.deadline, Timer::Expire(cell.clone())));
                }
                let on = WaitOn::Semaphore { cell: cell.clone(), ticket, is_timed };
                Ok(Begun::Wait(state.register_wait(on, at)))
            }
        }
    }
}

fn refusal(refusal: Refusal, if_busy: Error) -> Error {
    match refusal {
        Refusal::ZeroWeight => Error::ZeroWeight,
        Refusal::TooHeavy { weight, slots } => Error::TooHeavy { weight, permits: slots },
        Refusal::Busy | Refusal::LineFull { .. } | Refusal::Closed => if_busy,
    }
}

impl<G: Grant> Operation for Acquire<'_, G> {
    type Out = G;

    #[inline(always)]
    fn attempt(&mut self, state: &mut State, at: &'static Location<'static>) -> Option<G> {
        let cell = &*self.semaphore.cell;
        if cell.run != state.run || self.timeout.is_some() {
            return None;
        }
        let (now, task) = (state.now, state.current);
        let holdings = &mut state.current_task()?.held;
        let hold = Hold { task, is_guarded: G::IS_GUARDED, is_bound: self.is_bound, at: Some(at) };
        let request = Request { weight: self.weight, ..Request::default() };
        let permit = cell.gate.borrow_mut().take_if_free(&request, hold, now)?;
        if !G::IS_GUARDED {
            let (semaphore, is_signal) = (cell.number, cell.is_signal);
            holdings.push(Held { semaphore, permit, weight: self.weight, is_signal, at });
        }
        Some(G::of(permit))
    }

    fn begin(&mut self, mut state: RefMut<'_, State>, _: &Ctx, at: &'static Location<'static>) -> Begun<G> {
        let cell = &self.semaphore.cell;
        if let Err(error) = state.check_run(cell.run) {
            return Begun::Done(Err(error));
        }
        let (task, is_bound) = (state.current, self.is_bound);
        let hold = Hold { task, is_guarded: G::IS_GUARDED, is_bound, at: Some(at) };
        self.queue(&mut state, hold, at).unwrap_or_else(|error| Begun::Done(Err(error)))
    }

    fn is_done(&mut self, state: &mut State, at: &'static Location<'static>) -> bool {
        let Some(ticket) = self.ticket else { return true };
        let claim = self.semaphore.cell.gate.borrow_mut().claim(ticket);
        if claim == Claim::Waiting {
            return false;
        }
        self.ticket = None;
        self.result = match claim {
            Claim::Granted { id, .. } => LineResult::Granted(self.granted(state, id, at)),
            Claim::TimedOut => LineResult::TimedOut,
            // Another task has released the permit already, as may happen with signals.
            Claim::Gone(_) => LineResult::Granted(G::of(PermitId::NONE)),
            // Another effect of the same task got the cancellation first.
            Claim::Unknown => LineResult::None,
            // No effect closes or resizes a semaphore.
            Claim::Closed | Claim::TooHeavy { .. } | Claim::Waiting => LineResult::None,
        };
        true
    }

    fn outcome(&mut self) -> Result<G> {
        match std::mem::replace(&mut self.result, LineResult::None) {
            LineResult::Granted(grant) => Ok(grant),
            LineResult::TimedOut => Err(Error::TimedOut),
            LineResult::None => Err(Error::TaskCancelled),
        }
    }

    fn withdraw(&mut self, state: &mut State) {
        if let Some(ticket) = self.ticket.take() {
            state.leave_line(&self.semaphore.cell, ticket);
        }
        if let Some(timer) = self.timer.take() {
            state.timers.take(timer);
        }
    }
}

/// Acquires a permit if one is free and no task waits for it. Returns whether it did. Never waits, never overtakes.
#[derive(Clone, Copy, Debug)]
pub struct TryAcquireSemaphore<'s>(pub &'s Semaphore);

impl Perform for TryAcquireSemaphore<'_> {
    type Out = bool;

    fn perform(self, ctx: &Ctx, at: &'static Location<'static>) -> impl Future<Output = Result<bool>> {
        Performing::new(ctx, at, self)
    }
}

impl Operation for TryAcquireSemaphore<'_> {
    type Out = bool;

    fn begin(
        &mut self,
        mut state: RefMut<'_, State>,
        _: &Ctx,
        at: &'static Location<'static>,
    ) -> Begun<bool> {
        let cell = &self.0.cell;
        if let Err(error) = state.check_run(cell.run) {
            return Begun::Done(Err(error));
        }
        let hold = Hold { task: state.current, is_guarded: false, is_bound: false, at: Some(at) };
        let taken = cell.gate.borrow_mut().take_if_free(&Request::default(), hold, state.now);
        if let Some(permit) = taken {
            state.hold(cell, permit, 1, at);
            state.record(|| Event::Acquired { semaphore: cell.number, weight: 1 });
        }
        Begun::Done(Ok(taken.is_some()))
    }
}

/// Releases a permit, which goes to the first waiter in the same step. The releasing task continues.
///
/// Releases what this task acquired last of the semaphore, with its whole weight. A task that holds none releases what
/// another task acquired, but never what is in a [`Permit`].
///
/// # Errors
///
/// [`Error::ReleasedTooManyTimes`], which reads `semaphore released too many times`, if there is nothing to release.
#[derive(Clone, Copy, Debug)]
pub struct ReleaseSemaphore<'s>(pub &'s Semaphore);

impl Perform for ReleaseSemaphore<'_> {
    type Out = ();

    #[inline(always)]
    fn perform(self, ctx: &Ctx, at: &'static Location<'static>) -> impl Future<Output = Result> {
        Performing::new(ctx, at, self)
    }
}

impl Operation for ReleaseSemaphore<'_> {
    type Out = ();

    #[inline(always)]
    fn attempt(&mut self, state: &mut State, _: &'static Location<'static>) -> Option<()> {
        let cell = &*self.0.cell;
        if cell.run != state.run {
            return None;
        }
        let own = state.current_task()?.held.take_last(|held| held.semaphore == cell.number);
        let permit = match own {
            Some(held) => held.permit,
            None => state.take_permit_of_another_task(cell)?,
        };
        state.release_permit(cell, permit);
        Some(())
    }

    fn begin(&mut self, mut state: RefMut<'_, State>, _: &Ctx, _: &'static Location<'static>) -> Begun<()> {
        let cell = &self.0.cell;
        Begun::Done(state.check_run(cell.run).and_then(|()| state.release(cell)))
    }
}

/// Runs a program with a permit, which is released however the program ends.
pub struct WithSemaphore<'s, P> {
    semaphore: &'s Semaphore,
    program: P,
}

impl<'s, P> WithSemaphore<'s, P> {
    /// Runs `program` with a permit of `semaphore`.
    pub fn new(semaphore: &'s Semaphore, program: P) -> Self {
        Self { semaphore, program }
    }
}

impl<P, F, T> Perform for WithSemaphore<'_, P>
where
    P: FnOnce(Ctx) -> F,
    F: Future<Output = Result<T>>,
{
    type Out = T;

    fn perform(self, ctx: &Ctx, at: &'static Location<'static>) -> impl Future<Output = Result<T>> {
        let permit = AcquirePermit(self.semaphore).perform(ctx, at);
        async move {
            let permit = permit.await?;
            let result = (self.program)(ctx.clone()).await;
            permit.release();
            result
        }
    }
}
