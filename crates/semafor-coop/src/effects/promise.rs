use std::cell::{Cell, OnceCell, RefMut};
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::rc::Rc;

use crate::deadlock::PendingChecks;
use crate::eventual::{Settlement, Source, ValueCell};
use crate::external::{ExternalPromise, external};
use crate::performing::{Begun, Operation, Performing};
use crate::state::State;
use crate::{Ctx, Error, Eventual, Perform, Priority, Result};

/// The handle that completes a promise. Tasks wait for its [`future`](Self::future).
///
/// If the last clone is dropped without completing it, the waiters get a [deadlock](Error::Deadlock).
pub struct Promise<T> {
    cell: Rc<ValueCell<T>>,
    pending_checks: Rc<PendingChecks>,
}

impl<T> Promise<T> {
    /// Its number within the run. Tasks, promises and semaphores share one counter, from 0.
    pub fn id(&self) -> u64 {
        self.cell.settlement.number
    }

    /// The value to wait for.
    pub fn future(&self) -> Eventual<T> {
        Eventual { cell: self.cell.clone() }
    }

    fn count_writers(&self, change: isize) {
        if let Source::Promise(writers) = &self.cell.settlement.source {
            writers.set(writers.get().saturating_add_signed(change));
            if writers.get() == 0 {
                self.pending_checks.request_waiters_of(&self.cell.settlement);
            }
        }
    }
}

impl<T> Clone for Promise<T> {
    fn clone(&self) -> Self {
        self.count_writers(1);
        Self { cell: self.cell.clone(), pending_checks: self.pending_checks.clone() }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.count_writers(-1);
    }
}

impl<T> fmt::Debug for Promise<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Promise({})", self.id())
    }
}

/// Creates a promise: a value that a task will provide.
#[derive(Debug)]
pub struct CreatePromise<T>(PhantomData<T>);

impl<T> CreatePromise<T> {
    /// A promise of a value of this type.
    #[allow(clippy::new_without_default, reason = "an effect has no default")]
    pub fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T: 'static> Perform for CreatePromise<T> {
    type Out = Promise<T>;

    fn perform(self, ctx: &Ctx, at: &'static Location<'static>) -> impl Future<Output = Result<Promise<T>>> {
        Performing::new(ctx, at, self)
    }
}

impl<T: 'static> Operation for CreatePromise<T> {
    type Out = Promise<T>;

    fn begin(
        &mut self,
        mut state: RefMut<'_, State>,
        _: &Ctx,
        _: &'static Location<'static>,
    ) -> Begun<Promise<T>> {
        let number = state.next_number();
        let settlement = Settlement::new(state.run, number, Source::Promise(Cell::new(1)));
        let cell = Rc::new(ValueCell { settlement, value: OnceCell::new() });
        Begun::Done(Ok(Promise { cell, pending_checks: state.pending_checks.clone() }))
    }
}

/// Completes a promise. Its waiters run before this task goes on, unless their priority is lower. Tasks that were ready
/// earlier still run before both.
///
/// # Errors
///
/// [`Error::AlreadyCompleted`] if it has a value, which it keeps.
#[derive(Debug)]
pub struct CompletePromise<'p, T>(pub &'p Promise<T>, pub T);

/// Fails a promise: its waiters get this error. Otherwise like [`CompletePromise`].
#[derive(Debug)]
pub struct FailPromise<'p, T>(pub &'p Promise<T>, pub Error);

impl<T: 'static> Perform for CompletePromise<'_, T> {
    type Out = ();

    fn perform(self, ctx: &Ctx, at: &'static Location<'static>) -> impl Future<Output = Result> {
        Performing::new(ctx, at, Settling { promise: self.0, outcome: Some(Ok(self.1)) })
    }
}

impl<T: 'static> Perform for FailPromise<'_, T> {
    type Out = ();

    fn perform(self, ctx: &Ctx, at: &'static Location<'static>) -> impl Future<Output = Result> {
        Performing::new(ctx, at, Settling { promise: self.0, outcome: Some(Err(self.1)) })
    }
}

struct Settling<'p, T> {
    promise: &'p Promise<T>,
    outcome: Option<Result<T>>,
}

impl<T> Operation for Settling<'_, T> {
    type Out = ();

    fn begin(&mut self, mut state: RefMut<'_, State>, _: &Ctx, _: &'static Location<'static>) -> Begun<()> {
        let cell = &self.promise.cell;
        if let Err(error) = state.check_run(cell.settlement.run) {
            return Begun::Done(Err(error));
        }
        if cell.settlement.is_settled.get() {
            return Begun::Done(Err(Error::AlreadyCompleted));
        }
        // Neither was set before, because the promise is not settled.
        match self.outcome.take() {
            Some(Ok(value)) => drop(cell.value.set(value)),
            Some(Err(error)) => drop(cell.settlement.failure.set(error)),
            None => {}
        }
        let lowest = state.settle(&cell.settlement).unwrap_or(Priority::High);
        state.requeue(lowest);
        Begun::Switched
    }

    fn outcome(&mut self) -> Result {
        Ok(())
    }
}

/// Creates a promise that any thread may complete, and the value to wait for.
#[derive(Debug)]
pub struct CreateExternalPromise<T>(PhantomData<T>);

impl<T> CreateExternalPromise<T> {
    /// A promise of a value of this type.
    #[allow(clippy::new_without_default, reason = "an effect has no default")]
    pub fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T: Send + 'static> Perform for CreateExternalPromise<T> {
    type Out = (ExternalPromise<T>, Eventual<T>);

    fn perform(self, ctx: &Ctx, at: &'static Location<'static>) -> impl Future<Output = Result<Self::Out>> {
        Performing::new(ctx, at, self)
    }
}

impl<T: Send + 'static> Operation for CreateExternalPromise<T> {
    type Out = (ExternalPromise<T>, Eventual<T>);

    fn begin(
        &mut self,
        mut state: RefMut<'_, State>,
        ctx: &Ctx,
        _: &'static Location<'static>,
    ) -> Begun<Self::Out> {
        let number = state.next_number();
        let (promise, eventual, receiver) = external(state.run, number, ctx.scheduler.inbox.clone());
        state.externals.insert(number, receiver);
        Begun::Done(Ok((promise, eventual)))
    }
}
