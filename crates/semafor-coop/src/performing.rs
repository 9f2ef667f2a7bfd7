//! A built-in effect while it is performed: a plain future that allocates nothing.
//!
//! An effect is begun under the scheduler's borrow and mostly done by then. If not, the wait is registered with the task, and
//! the future looks again whenever its task runs. What it left behind (a place in line, a timer) is withdrawn when it
//! fails, or is dropped before its end: in [`Performing::leave`] and nowhere else.

use std::cell::RefMut;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::state::State;
use crate::tasks::{TaskKey, WaitOn};
use crate::{Ctx, Error, Result};

/// What a built-in effect does.
pub(crate) trait Operation {
    type Out;

    /// Done, or where to wait. The borrow is its to give back, should it run code of the user's.
    fn begin(
        &mut self,
        state: RefMut<'_, State>,
        ctx: &Ctx,
        at: &'static Location<'static>,
    ) -> Begun<Self::Out>;

    /// Its task runs again: is it done?
    fn resume(&mut self, state: RefMut<'_, State>) -> Option<Result<Self::Out>>;

    /// It will not be looked at again before its end.
    fn withdraw(&mut self, _state: &mut State) {}
}

pub(crate) enum Begun<T> {
    Done(Result<T>),
    Wait(WaitOn),
    /// Its task stands in the ready queue, and is done when it runs again: [`Operation::resume`] says with what.
    Switched,
}

enum Stage {
    Fresh,
    /// Another task had the chance to go first.
    Offered,
    Switched,
    Waiting {
        task: TaskKey,
        wait: u32,
    },
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
    pub(crate) fn new(ctx: &'c Ctx, at: &'static Location<'static>, operation: O) -> Self {
        Self { operation, ctx, at, stage: Stage::Fresh }
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
            Begun::Wait(on) => self.wait(on),
        }
    }

    fn wait(&mut self, on: WaitOn) -> Poll<Result<O::Out>> {
        let mut state = self.ctx.scheduler.borrow();
        let (task, wait) = state.register_wait(on, self.at);
        self.stage = Stage::Waiting { task, wait };
        match state.take_delivery() {
            None => Poll::Pending,
            Some(error) => {
                drop(state);
                self.leave();
                Poll::Ready(Err(error))
            }
        }
    }

    fn resume(&mut self, mut state: RefMut<'_, State>, task: TaskKey) -> Poll<Result<O::Out>> {
        if task != state.current {
            // It was moved to another task, which waits anew.
            drop(state);
            self.leave();
            self.stage = Stage::Offered;
            return self.begin(self.ctx.scheduler.borrow());
        }
        let delivery = state.take_delivery();
        let result = match delivery {
            Some(error) => {
                drop(state);
                Err(error)
            }
            None => match self.operation.resume(state) {
                Some(result) => result,
                None => return Poll::Pending,
            },
        };
        self.leave();
        Poll::Ready(result)
    }

    fn leave(&mut self) {
        let Stage::Waiting { task, wait } = std::mem::replace(&mut self.stage, Stage::Done) else { return };
        let mut state = self.ctx.scheduler.borrow();
        self.operation.withdraw(&mut state);
        let left = state.unregister_wait(task, wait);
        drop(state);
        // What was waited for may be the last of a user's value.
        drop(left);
    }
}

impl<O: Operation> Future for Performing<'_, O> {
    type Output = Result<O::Out>;

    #[inline]
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let state = this.ctx.scheduler.borrow();
        match this.stage {
            Stage::Fresh | Stage::Offered => this.begin(state),
            Stage::Waiting { task, .. } => this.resume(state, task),
            Stage::Switched => match this.operation.resume(state) {
                Some(result) => {
                    this.stage = Stage::Done;
                    Poll::Ready(result)
                }
                None => Poll::Pending,
            },
            Stage::Done => panic!("an effect was awaited again after its end"),
        }
    }
}

impl<O: Operation> Drop for Performing<'_, O> {
    fn drop(&mut self) {
        if matches!(self.stage, Stage::Waiting { .. }) {
            self.leave();
        }
    }
}
