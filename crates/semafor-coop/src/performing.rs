//! A built-in effect while it is performed: a plain future that allocates nothing.
//!
//! An effect is begun under the scheduler's borrow and mostly done by then. If not, the wait is registered with the task, and
//! the future looks again whenever its task runs. What it left behind (a place in line, a timer) is withdrawn when it
//! is done, or is dropped before.

use std::cell::RefMut;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::state::State;
use crate::tasks::TaskKey;
use crate::{Ctx, Error, Result};

/// What a built-in effect does.
pub(crate) trait Operation {
    type Out;

    /// The short way of what happens most: done at once, without a trace, and without an error. None if it is not that simple.
    #[inline(always)]
    fn attempt(&mut self, _state: &mut State, _at: &'static Location<'static>) -> Option<Self::Out> {
        None
    }

    /// Done, or where to wait. The borrow is its to give back, should it run code of the user's.
    fn begin(
        &mut self,
        state: RefMut<'_, State>,
        ctx: &Ctx,
        at: &'static Location<'static>,
    ) -> Begun<Self::Out>;

    /// Its task runs again: is it done?
    fn is_done(&mut self, _state: &mut State, _at: &'static Location<'static>) -> bool {
        true
    }

    /// With what. The state is not borrowed any more, so values of the user's may be cloned. Only asked of those that waited.
    fn outcome(&mut self) -> Result<Self::Out> {
        unreachable!("it was done when it began")
    }

    /// It will not be looked at again before its end.
    fn withdraw(&mut self, _state: &mut State) {}
}

pub(crate) enum Begun<T> {
    Done(Result<T>),
    /// From [`State::register_wait`].
    Wait(Registered),
    /// Its task stands in the ready queue, and is done when it runs again.
    Switched,
}

/// A wait that its task knows of.
#[derive(Clone, Copy)]
pub(crate) struct Registered {
    pub(crate) task: TaskKey,
    pub(crate) number: u32,
    /// The task has something to hear, and will not wait.
    pub(crate) is_interrupted: bool,
}

enum Stage {
    Fresh,
    /// Another task had the chance to go first.
    Offered,
    Switched,
    Waiting(Registered),
    Done,
}

pub(crate) struct Performing<'c, O: Operation> {
    pub(crate) operation: O,
    ctx: &'c Ctx,
    at: &'static Location<'static>,
    stage: Stage,
}

// The operation is never pinned.
impl<O: Operation> Unpin for Performing<'_, O> {}

impl<'c, O: Operation> Performing<'c, O> {
    #[inline(always)]
    pub(crate) fn new(ctx: &'c Ctx, at: &'static Location<'static>, operation: O) -> Self {
        Self { operation, ctx, at, stage: Stage::Fresh }
    }

    #[inline(never)]
    fn poll_slow(&mut self) -> Poll<Result<O::Out>> {
        let state = self.ctx.scheduler.borrow();
        match self.stage {
            Stage::Fresh | Stage::Offered => self.begin(state),
            Stage::Waiting(wait) => self.resume(state, wait),
            Stage::Switched => {
                let mut state = state;
                let is_done = self.operation.is_done(&mut state, self.at);
                drop(state);
                if !is_done {
                    return Poll::Pending;
                }
                self.stage = Stage::Done;
                Poll::Ready(self.operation.outcome())
            }
            Stage::Done => panic!("an effect was awaited again after its end"),
        }
    }

    #[inline]
    fn begin(&mut self, mut state: RefMut<'_, State>) -> Poll<Result<O::Out>> {
        if matches!(self.stage, Stage::Fresh) && state.explores() {
            self.stage = Stage::Offered;
            if state.offer_switch() {
                return Poll::Pending;
            }
        }
        if !state.is_running() {
            self.stage = Stage::Done;
            return Poll::Ready(Err(Error::ForeignHandle));
        }
        match self.operation.begin(state, self.ctx, self.at) {
            Begun::Done(result) => {
                self.stage = Stage::Done;
                Poll::Ready(result)
            }
            Begun::Switched => {
                self.stage = Stage::Switched;
                Poll::Pending
            }
            Begun::Wait(wait) => {
                self.stage = Stage::Waiting(wait);
                if wait.is_interrupted {
                    self.resume(self.ctx.scheduler.borrow(), wait)
                } else {
                    Poll::Pending
                }
            }
        }
    }

    fn resume(&mut self, mut state: RefMut<'_, State>, wait: Registered) -> Poll<Result<O::Out>> {
        if wait.task != state.current {
            // It was moved to another task, which waits anew.
            drop(state);
            self.leave();
            self.stage = Stage::Offered;
            return self.begin(self.ctx.scheduler.borrow());
        }
        let interruption = state.take_interruption();
        if interruption.is_none() && !self.operation.is_done(&mut state, self.at) {
            return Poll::Pending;
        }
        self.stage = Stage::Done;
        self.operation.withdraw(&mut state);
        let left = state.unregister_wait(wait);
        drop(state);
        // What was waited for may be the last of a user's value.
        drop(left);
        Poll::Ready(match interruption {
            Some(error) => Err(error),
            None => self.operation.outcome(),
        })
    }

    #[cold]
    fn leave(&mut self) {
        let Stage::Waiting(wait) = std::mem::replace(&mut self.stage, Stage::Done) else { return };
        let mut state = self.ctx.scheduler.borrow();
        self.operation.withdraw(&mut state);
        let left = state.unregister_wait(wait);
        if wait.task != state.current {
            // Its owner may wait for nothing else, and is to find that out.
            state.wake(wait.task);
        }
        drop(state);
        drop(left);
    }
}

impl<O: Operation> Future for Performing<'_, O> {
    type Output = Result<O::Out>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if matches!(this.stage, Stage::Fresh) {
            let mut state = this.ctx.scheduler.borrow();
            if state.is_plain()
                && let Some(done) = this.operation.attempt(&mut state, this.at)
            {
                this.stage = Stage::Done;
                return Poll::Ready(Ok(done));
            }
        }
        this.poll_slow()
    }
}

impl<O: Operation> Drop for Performing<'_, O> {
    #[inline(always)]
    fn drop(&mut self) {
        if matches!(self.stage, Stage::Waiting(_)) {
            self.leave();
        }
    }
}
