use std::cell::RefMut;
use std::panic::Location;
use std::time::Duration;

use crate::performing::{Begun, Operation, Performing};
use crate::recording::Event;
use crate::report::LogLine;
use crate::schedule::Ranked;
use crate::state::State;
use crate::tasks::WaitOn;
use crate::timers::{Timer, TimerKey};
use crate::{Ctx, Error, Perform, Result, Span};

/// Waits for so long, by the run's clock.
///
/// # Errors
///
/// [`Error::InvalidDelay`](crate::Error::InvalidDelay) if the seconds are negative, infinite or not a number.
#[derive(Clone, Copy, Debug)]
pub struct Delay {
    span: Span,
    timer: Option<TimerKey>,
}

impl Delay {
    /// For so many seconds, or for a [`Duration`].
    pub fn new(span: impl Into<Span>) -> Self {
        Self { span: span.into(), timer: None }
    }
}

impl Perform for Delay {
    type Out = ();

    fn perform(self, ctx: &Ctx, at: &'static Location<'static>) -> impl Future<Output = Result> {
        Performing::new(ctx, at, self)
    }
}

impl Operation for Delay {
    type Out = ();

    fn begin(&mut self, mut state: RefMut<'_, State>, _: &Ctx, at: &'static Location<'static>) -> Begun<()> {
        let span = match self.span.get() {
            Ok(span) => span,
            Err(error) => return Begun::Done(Err(error)),
        };
        state.elapsed();
        let (due, current) = (state.now.after(span), state.current);
        let timer = state.timers.set(due, Timer::Wake(current));
        self.timer = Some(timer);
        if span.is_zero() {
            // A delay of zero is due at once, like a yield.
            state.chooser.lower(Ranked::Timer(timer.number));
        }
        Begun::Wait(state.register_wait(WaitOn::Timer, at))
    }

    fn is_done(&mut self, state: &mut State, _: &'static Location<'static>) -> bool {
        self.timer.is_some_and(|timer| timer.at <= state.now)
    }

    fn outcome(&mut self) -> Result {
        Ok(())
    }

    fn withdraw(&mut self, state: &mut State) {
        if let Some(timer) = self.timer.take() {
            state.timers.take(timer);
        }
    }
}

/// The time since the start of the run, by its clock.
#[derive(Clone, Copy, Debug)]
pub struct Now;

impl Perform for Now {
    type Out = Duration;

    fn perform(self, ctx: &Ctx, at: &'static Location<'static>) -> impl Future<Output = Result<Duration>> {
        Performing::new(ctx, at, self)
    }
}

impl Operation for Now {
    type Out = Duration;

    fn begin(
        &mut self,
        mut state: RefMut<'_, State>,
        _: &Ctx,
        _: &'static Location<'static>,
    ) -> Begun<Duration> {
        Begun::Done(Ok(state.elapsed()))
    }
}

/// Adds a line to the log of the run's [report](crate::Report), with the time and the task.
#[derive(Clone, Debug)]
pub struct Log(pub String);

impl Perform for Log {
    type Out = ();

    fn perform(self, ctx: &Ctx, at: &'static Location<'static>) -> impl Future<Output = Result> {
        Performing::new(ctx, at, self)
    }
}

impl Operation for Log {
    type Out = ();

    fn begin(&mut self, mut state: RefMut<'_, State>, _: &Ctx, _: &'static Location<'static>) -> Begun<()> {
        let text = std::mem::take(&mut self.0);
        state.record(|| Event::Logged(text.clone()));
        let line = LogLine { at: state.elapsed(), task: state.current_label(), text };
        state.findings.log.push(line);
        Begun::Done(Ok(()))
    }
}

/// Lets all ready tasks of the same priority run first.
#[derive(Clone, Copy, Debug)]
pub struct Yield;

impl Perform for Yield {
    type Out = ();

    fn perform(self, ctx: &Ctx, at: &'static Location<'static>) -> impl Future<Output = Result> {
        Performing::new(ctx, at, Yielding { interruption: None })
    }
}

struct Yielding {
    interruption: Option<Error>,
}

impl Operation for Yielding {
    type Out = ();

    fn begin(&mut self, mut state: RefMut<'_, State>, _: &Ctx, _: &'static Location<'static>) -> Begun<()> {
        if let Some(error) = state.take_interruption() {
            return Begun::Done(Err(error));
        }
        state.yield_to_others();
        Begun::Switched
    }

    fn is_done(&mut self, state: &mut State, _: &'static Location<'static>) -> bool {
        self.interruption = state.take_interruption();
        true
    }

    fn outcome(&mut self) -> Result {
        self.interruption.take().map_or(Ok(()), Err)
    }
}
