//! The future of a built-in effect. It allocates nothing.
//!
//! An effect begins while the state is borrowed, and is mostly done by then. If not, it registers a wait with the task,
//! and the future checks again whenever its task runs. Its place in line or its timer is withdrawn when it is done or
//! dropped.

use std::cell::RefMut;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::state::State;
use crate::tasks::TaskKey;
use crate::{Ctx, Error, Result};

/// A built-in effect.
pub(crate) trait Operation {
    type Out;

    /// The fast path of the most common case: done at once, without recording, and without an error. `None` if the slow
    /// path is needed.
    #[inline(always)]
    fn attempt(&mut self, _state: &mut State, _at: &'static Location<'static>) -> Option<Self::Out> {
        None
    }

    /// Completes the effect, or registers a wait. Must end the borrow before it runs user code.
    fn begin(
        &mut self,
        state: RefMut<'_, State>,
        ctx: &Ctx,
        at: &'static Location<'static>,
    ) -> Begun<Self::Out>;

    /// Called when the task runs again. True if the effect is done.
    fn is_done(&mut self, _state: &mut State, _at: &'static Location<'static>) -> bool {
        true
    }

    /// The result of an effect that waited. The state is no longer borrowed, so user values may be cloned.
    fn outcome(&mut self) -> Result<Self::Out> {
        unreachable!("the effect was done when it began")
    }

    /// Called once the effect is done or dropped: leaves the line and unsets the timer.
    fn withdraw(&mut self, _state: &mut State) {}
}

pub(crate) enum Begun<T> {
    Done(Result<T>),
    /// From [`State::register_wait`].
    Wait(Registered),
    /// The task is in the ready queue, and the effect is done when the task runs again.
    Switched,
}

/// A wait that is registered with its task.
#[derive(Clone, Copy)]
pub(crate) struct Registered {
    pub(crate) task: TaskKey,
    pub(crate) number: u32,
    /// The task has a pending cancellation or deadlock, and will not wait.
    pub(crate) is_interrupted: bool,
}

enum Stage {
    Fresh,
    /// Another task had the chance to run first.
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
            Stage::Done => panic!("an effect was polled again after it was done"),
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
            // The future was moved to another task, which starts a new wait.
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
        // This may be the last handle of a user value.
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
            // The task that owned the wait may have no other one, so it must run.
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
