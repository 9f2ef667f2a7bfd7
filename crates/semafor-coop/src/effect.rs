//! Effects of the program's own, and their handlers.

use std::any::{Any, TypeId};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use crate::{Ctx, Error, Result};

/// An effect of your own: a request of the program that a handler answers.
///
/// ```
/// use semafor_coop::{Ctx, Effect, Result, run};
///
/// struct Ask(&'static str);
///
/// impl Effect for Ask {
///     type Out = u32;
/// }
///
/// async fn double(ctx: Ctx) -> Result<u32> {
///     Ok(ctx.perform(Ask("number")).await? * 2)
/// }
///
/// let doubled = run(async |ctx: Ctx| {
///     let ctx = ctx.with_handler(async |_: Ask, _outer: Ctx| Ok(21));
///     double(ctx).await
/// });
/// assert_eq!(doubled.unwrap(), 42);
/// ```
pub trait Effect: Sized + 'static {
    /// The answer.
    type Out: 'static;
}

/// The argument of [`Ctx::perform`]: a built-in effect, or an [`Effect`] of your own.
pub trait Perform {
    /// The result of the effect.
    type Out;

    /// Performs the effect. Call [`Ctx::perform`] instead, which adds the line of its caller.
    fn perform(self, ctx: &Ctx, at: &'static Location<'static>) -> impl Future<Output = Result<Self::Out>>;
}

impl<E: Effect> Perform for E {
    type Out = E::Out;

    async fn perform(self, ctx: &Ctx, _: &'static Location<'static>) -> Result<E::Out> {
        let Some((handler, outer)) = Scope::find::<E>(ctx.scope.as_ref()) else {
            return Err(Error::Unhandled(std::any::type_name::<E>()));
        };
        let mut answer = handler(self, Ctx { scheduler: ctx.scheduler.clone(), scope: outer });
        // A panic of the handler fails the effect where it is awaited.
        std::future::poll_fn(move |cx| {
            let poll = catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(cx)));
            poll.unwrap_or_else(|panic| Poll::Ready(Err(Error::panicked(&*panic))))
        })
        .await
    }
}

type HandlerFuture<E> = Pin<Box<dyn Future<Output = Result<<E as Effect>::Out>>>>;
type Handler<E> = Rc<dyn Fn(E, Ctx) -> HandlerFuture<E>>;

/// A handler, and the scope around it.
pub(crate) struct Scope {
    effect: TypeId,
    /// A [`Handler`] of that effect.
    handler: Box<dyn Any>,
    outer: Option<Rc<Scope>>,
}

impl Scope {
    pub(crate) fn new<E: Effect>(
        handler: impl AsyncFn(E, Ctx) -> Result<E::Out> + 'static,
        outer: Option<Rc<Scope>>,
    ) -> Self {
        let handler = Rc::new(handler);
        let handler: Handler<E> = Rc::new(move |effect, ctx| {
            let handler = handler.clone();
            Box::pin(async move { handler(effect, ctx).await })
        });
        Self { effect: TypeId::of::<E>(), handler: Box::new(handler), outer }
    }

    /// The innermost handler of an effect, and the scope outside of it.
    fn find<E: Effect>(scope: Option<&Rc<Scope>>) -> Option<(&Handler<E>, Option<Rc<Scope>>)> {
        let mut next = scope;
        while let Some(scope) = next {
            if scope.effect == TypeId::of::<E>() {
                return Some((scope.handler.downcast_ref()?, scope.outer.clone()));
            }
            next = scope.outer.as_ref();
        }
        None
    }
}

/// Scopes may be nested a million deep, so they are dropped in a loop and not recursively.
impl Drop for Scope {
    fn drop(&mut self) {
        let mut next = self.outer.take();
        while let Some(mut scope) = next.and_then(Rc::into_inner) {
            next = scope.outer.take();
        }
    }
}
