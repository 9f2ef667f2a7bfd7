use std::panic::Location;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use crate::effect::Scope;
use crate::scheduler::Scheduler;
use crate::{
    AcquirePermit, AcquireSemaphore, Awaitable, Cancel, CompletePromise, CreatePromise, CreateSemaphore,
    Delay, Effect, Gather, Label, Log, Perform, Permit, Promise, Race, ReleaseSemaphore, Result, Semaphore,
    Span, Spawn, Task, TryAcquireSemaphore, Wait, WithSemaphore, Yield,
};

/// The context in which a program performs its effects. Valid only within its run. Clones are the same context.
///
/// Every effect can be performed as a value: `ctx.perform(AcquireSemaphore(&sem)).await?`. Common ones are also
/// methods: `ctx.acquire(&sem).await?`.
#[derive(Clone)]
pub struct Ctx {
    pub(crate) scheduler: Rc<Scheduler>,
    pub(crate) scope: Option<Rc<Scope>>,
}

impl Ctx {
    /// Performs a built-in effect, or an [`Effect`] of your own, which goes to its innermost handler.
    ///
    /// # Errors
    ///
    /// As the effect says; [`Error::Unhandled`](crate::Error::Unhandled) if there is no handler for it.
    #[track_caller]
    #[inline(always)]
    pub fn perform<P: Perform>(&self, effect: P) -> impl Future<Output = Result<P::Out>> + use<'_, P> {
        effect.perform(self, Location::caller())
    }

    /// Returns a context in which `handler` answers an effect of your own, with a value or an error.
    ///
    /// The handler gets the outer context, so the effects it performs, even the same one, go to the outer handlers.
    /// Tasks that are spawned from the new context inherit the handler.
    pub fn with_handler<E: Effect>(&self, handler: impl AsyncFn(E, Ctx) -> Result<E::Out> + 'static) -> Ctx {
        let scope = Scope::new(handler, self.scope.clone());
        Ctx { scheduler: self.scheduler.clone(), scope: Some(Rc::new(scope)) }
    }

    /// Awaits a future that cancellation does not interrupt. The first effect after it that has to wait gets the
    /// cancellation.
    ///
    /// For cleanup that must finish. A deadlock interrupts even a shielded future.
    pub async fn shield<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        std::future::poll_fn(|cx| {
            self.scheduler.borrow().shields += 1;
            let _shield = Shield(&self.scheduler);
            future.as_mut().poll(cx)
        })
        .await
    }

    /// The time since the start of the run, by its clock. Like [`Now`](crate::Now), but not an effect.
    pub fn now(&self) -> Duration {
        self.scheduler.borrow().elapsed()
    }

    /// The number and name of the running task.
    pub fn task(&self) -> Label {
        self.scheduler.borrow().current_label()
    }

    /// Performs [`CreateSemaphore`].
    #[track_caller]
    pub fn create_semaphore(&self, permits: u32) -> impl Future<Output = Result<Semaphore>> + use<'_> {
        self.perform(CreateSemaphore::new(permits))
    }

    /// Performs [`AcquireSemaphore`].
    #[track_caller]
    #[inline(always)]
    pub fn acquire<'c>(&'c self, semaphore: &'c Semaphore) -> impl Future<Output = Result> + use<'c> {
        self.perform(AcquireSemaphore(semaphore))
    }

    /// Performs [`TryAcquireSemaphore`].
    #[track_caller]
    pub fn try_acquire<'c>(
        &'c self,
        semaphore: &'c Semaphore,
    ) -> impl Future<Output = Result<bool>> + use<'c> {
        self.perform(TryAcquireSemaphore(semaphore))
    }

    /// Performs [`AcquirePermit`].
    #[track_caller]
    pub fn permit<'c>(&'c self, semaphore: &'c Semaphore) -> impl Future<Output = Result<Permit>> + use<'c> {
        self.perform(AcquirePermit(semaphore))
    }

    /// Performs [`ReleaseSemaphore`].
    #[track_caller]
    #[inline(always)]
    pub fn release<'c>(&'c self, semaphore: &'c Semaphore) -> impl Future<Output = Result> + use<'c> {
        self.perform(ReleaseSemaphore(semaphore))
    }

    /// Performs [`WithSemaphore`].
    #[track_caller]
    pub fn with_semaphore<'c, P, F, T>(
        &'c self,
        semaphore: &'c Semaphore,
        program: P,
    ) -> impl Future<Output = Result<T>> + use<'c, P, F, T>
    where
        P: FnOnce(Ctx) -> F,
        F: Future<Output = Result<T>>,
    {
        self.perform(WithSemaphore::new(semaphore, program))
    }

    /// Performs [`Spawn`], with the default name and priority.
    #[track_caller]
    pub fn spawn<P, F, T>(&self, program: P) -> impl Future<Output = Result<Task<T>>> + use<'_, P, F, T>
    where
        P: FnOnce(Ctx) -> F + 'static,
        F: Future<Output = Result<T>> + 'static,
        T: 'static,
    {
        self.perform(Spawn::new(program))
    }

    /// Performs [`Wait`].
    #[track_caller]
    pub fn wait<A: Awaitable>(&self, awaited: A) -> impl Future<Output = Result<A::Value>> + use<'_, A> {
        self.perform(Wait(awaited))
    }

    /// Performs [`Gather`].
    #[track_caller]
    pub fn gather<I>(
        &self,
        all: I,
    ) -> impl Future<Output = Result<Vec<<I::Item as Awaitable>::Value>>> + use<'_, I>
    where
        I: IntoIterator,
        I::Item: Awaitable,
    {
        self.perform(Gather(all))
    }

    /// Performs [`Race`].
    #[track_caller]
    pub fn race<I>(&self, all: I) -> impl Future<Output = Result<<I::Item as Awaitable>::Value>> + use<'_, I>
    where
        I: IntoIterator,
        I::Item: Awaitable,
    {
        self.perform(Race(all))
    }

    /// Performs [`Cancel`].
    #[track_caller]
    pub fn cancel<'c, T>(&'c self, task: &'c Task<T>) -> impl Future<Output = Result> + use<'c, T> {
        self.perform(Cancel(task))
    }

    /// Performs [`CreatePromise`].
    #[track_caller]
    pub fn promise<T: 'static>(&self) -> impl Future<Output = Result<Promise<T>>> + use<'_, T> {
        self.perform(CreatePromise::new())
    }

    /// Performs [`CompletePromise`].
    #[track_caller]
    pub fn complete<'c, T: 'static>(
        &'c self,
        promise: &'c Promise<T>,
        value: T,
    ) -> impl Future<Output = Result> + use<'c, T> {
        self.perform(CompletePromise(promise, value))
    }

    /// Performs [`Delay`].
    #[track_caller]
    pub fn delay(&self, span: impl Into<Span>) -> impl Future<Output = Result> {
        self.perform(Delay::new(span))
    }

    /// Performs [`Log`].
    #[track_caller]
    pub fn log(&self, text: impl Into<String>) -> impl Future<Output = Result> {
        self.perform(Log(text.into()))
    }

    /// Performs [`Yield`].
    #[track_caller]
    pub fn yield_now(&self) -> impl Future<Output = Result> + use<'_> {
        self.perform(Yield)
    }
}

struct Shield<'c>(&'c Scheduler);

impl Drop for Shield<'_> {
    fn drop(&mut self) {
        self.0.borrow().shields -= 1;
    }
}
