use std::fmt;
use std::sync::Arc;

use crate::Deadlock;

/// What a program or an effect returns.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// Why an effect, a task or a run failed.
///
/// An error is cheap to clone: every task that waits for a failed task gets the same error, every time. Errors of your
/// own become [`Failed`](Self::Failed), by [`Error::new`] or by an `impl From<YourError> for Error`.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another task cancelled this one. Clean up and return; effects work as usual meanwhile.
    #[error("task was cancelled")]
    TaskCancelled,
    /// This task is in a cycle of waiting tasks, or waits for something that can't happen any more. It may release its
    /// permits and try again. If it repeats the same wait at once, it gets the same error again, without end.
    #[error(transparent)]
    Deadlock(Arc<Deadlock>),
    /// No permit was granted within the timeout.
    #[error("no permit in time")]
    TimedOut,
    /// A semaphore of zero permits could never be acquired.
    #[error("permits must be >= 1")]
    ZeroPermits,
    /// There is no held permit to release.
    #[error("semaphore released too many times")]
    ReleasedTooManyTimes,
    /// The acquire asked for more permits than the semaphore has.
    #[error("{weight} permits of a semaphore of {permits} can never be acquired")]
    TooHeavy {
        /// How many permits the acquire asked for.
        weight: u32,
        /// How many permits the semaphore has.
        permits: u32,
    },
    /// An acquire of zero permits.
    #[error("an acquire needs a weight of at least 1")]
    ZeroWeight,
    /// The handle belongs to another run, or the effect was awaited outside of its run.
    #[error("this handle belongs to another run")]
    ForeignHandle,
    /// A task waits for its own end.
    #[error("a task can't wait for itself")]
    WaitsForItself,
    /// A [`Race`](crate::Race) without arguments has no winner.
    #[error("Race needs at least one task or promise to wait for")]
    NothingToRace,
    /// The promise already has a value, which it keeps.
    #[error("promise was already completed")]
    AlreadyCompleted,
    /// A delay or timeout that is negative, infinite or not a number.
    #[error("a delay or timeout must be a number of seconds >= 0, not {0}")]
    InvalidDelay(f64),
    /// No handler for this effect is in scope.
    #[error("no handler for the effect {0}")]
    Unhandled(&'static str),
    /// A task or a handler panicked, with this message.
    #[error("panicked: {0}")]
    Panicked(Arc<str>),
    /// The run reached the [limit of steps](crate::Runtime::most_steps).
    #[error("the program had not ended after {0} steps, its limit")]
    TooManySteps(u64),
    /// An [exhaustive search](crate::Search::Exhaustive) repeated the choices of an earlier run, and found a different
    /// number of options. The program depends on more than the schedule: the real clock, other threads, or state that
    /// an earlier run left behind.
    #[error(
        "the program is not deterministic: at choice {choice} there are {options} options, and in an earlier run there \
         were {before} after the same choices"
    )]
    NotDeterministic {
        /// Which choice of the schedule it was, from 1 on.
        choice: u32,
        /// How many options there were; 0 if the run ended before that choice.
        options: u32,
        /// How many there were in the earlier run.
        before: u32,
    },
    /// A task awaited a future of another runtime, which this scheduler never wakes.
    #[error("a task awaits something that is not an effect")]
    NotAnEffect,
    /// An error of the program's own.
    #[error("{0}")]
    Failed(Failure),
    /// An error of the program's own that ends the run, whichever task fails with it: see [`Error::stopping`].
    #[error("{0}")]
    Stopped(Failure),
}

impl Error {
    /// An error of the program's own: a message, or any error that can be shared.
    ///
    /// ```
    /// use semafor_coop::Error;
    ///
    /// assert_eq!(Error::new("out of coffee").to_string(), "out of coffee");
    /// let parse: Error = Error::new("x".parse::<u32>().unwrap_err());
    /// assert!(parse.downcast_ref::<std::num::ParseIntError>().is_some());
    /// ```
    pub fn new(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Failed(Failure(Arc::from(source.into())))
    }

    /// An error of the program's own that ends the whole run, whichever task fails with it.
    ///
    /// ```
    /// use semafor_coop::{Ctx, Error, Result, run};
    ///
    /// let ended: Result = run(async |ctx: Ctx| {
    ///     ctx.spawn(async |_: Ctx| Err::<(), _>(Error::stopping("interrupted"))).await?;
    ///     ctx.delay(3600.0).await
    /// });
    /// assert_eq!(ended.unwrap_err().to_string(), "interrupted");
    /// ```
    pub fn stopping(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Stopped(Failure(Arc::from(source.into())))
    }

    /// The program's own error, if it is one of that type.
    pub fn downcast_ref<E: std::error::Error + 'static>(&self) -> Option<&E> {
        match self {
            Self::Failed(Failure(source)) | Self::Stopped(Failure(source)) => source.downcast_ref(),
            _ => None,
        }
    }

    /// True for [`Error::TaskCancelled`].
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::TaskCancelled)
    }

    /// True for [`Error::Stopped`].
    pub fn is_stop(&self) -> bool {
        matches!(self, Self::Stopped(_))
    }

    /// The deadlock, if it is one.
    pub fn as_deadlock(&self) -> Option<&Deadlock> {
        match self {
            Self::Deadlock(deadlock) => Some(deadlock),
            _ => None,
        }
    }

    pub(crate) fn panicked(payload: &(dyn std::any::Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self::Panicked(text.unwrap_or("no message").into())
    }
}

/// An error of the program's own, shared by all tasks that get it.
#[derive(Clone)]
pub struct Failure(Arc<dyn std::error::Error + Send + Sync>);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
