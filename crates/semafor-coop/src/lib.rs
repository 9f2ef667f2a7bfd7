//! A deterministic scheduler for cooperative tasks, with semaphores among its effects.
//!
//! Programs are `async fn(Ctx) -> Result<T>`. They [perform](Ctx::perform) effects: spawn, wait, cancel, delay,
//! promise, acquire and release. One thread runs them, in an order that depends only on the program. Time is virtual by
//! default. So every run can be repeated, including one that failed.
//!
//! ```
//! use semafor_coop::{
//!     AcquireSemaphore, CreateSemaphore, Ctx, Delay, Gather, Log, ReleaseSemaphore, Result, Runtime, Semaphore,
//!     Spawn, Wait,
//! };
//!
//! async fn rate_limited_work(ctx: Ctx) -> Result<Vec<String>> {
//!     let sem = ctx.perform(CreateSemaphore::new(3)).await?; // max 3 concurrent workers
//!
//!     let mut tasks = Vec::new();
//!     for id in 0..10 {
//!         let sem = sem.clone();
//!         tasks.push(ctx.perform(Spawn::new(move |ctx| worker(ctx, sem, id))).await?);
//!     }
//!     ctx.perform(Gather(tasks.iter().map(Wait))).await
//! }
//!
//! async fn worker(ctx: Ctx, sem: Semaphore, id: u32) -> Result<String> {
//!     ctx.perform(AcquireSemaphore(&sem)).await?;
//!     let result = async {
//!         ctx.perform(Log(format!("Worker {id} in critical section"))).await?;
//!         ctx.perform(Delay::new(0.1)).await?;
//!         Ok(format!("result-{id}"))
//!     }
//!     .await;
//!     ctx.perform(ReleaseSemaphore(&sem)).await?; // after a failure, too
//!     result
//! }
//!
//! let outcome = Runtime::new().run(rate_limited_work);
//! assert_eq!(outcome.result?[9], "result-9");
//! let began: Vec<_> = outcome.report.log.iter().map(|line| line.at.as_millis()).collect();
//! assert_eq!(began, [0, 0, 0, 100, 100, 100, 200, 200, 200, 300]); // and it took no time at all
//! # Ok::<(), semafor_coop::Error>(())
//! ```
//!
//! Common effects have short methods, and a [`Permit`] releases itself when it is dropped. A semaphore of one permit is
//! a lock:
//!
//! ```
//! use semafor_coop::{Ctx, Result, Semaphore, run};
//!
//! async fn mutex_example(ctx: Ctx) -> Result {
//!     let lock = ctx.create_semaphore(1).await?;
//!     let (a, b) = (lock.clone(), lock.clone());
//!     let task_a = ctx.spawn(move |ctx| critical_section(ctx, a, "A")).await?;
//!     let task_b = ctx.spawn(move |ctx| critical_section(ctx, b, "B")).await?;
//!     ctx.gather([task_a, task_b]).await?;
//!     Ok(())
//! }
//!
//! async fn critical_section(ctx: Ctx, lock: Semaphore, name: &str) -> Result {
//!     let _permit = ctx.permit(&lock).await?;
//!     ctx.log(format!("{name}: entered critical section")).await
//!     // ... exclusive access guaranteed; released however the function ends
//! }
//!
//! run(mutex_example)?;
//! # Ok::<(), semafor_coop::Error>(())
//! ```
//!
//! # Errors
//!
//! Every mistake is an [`Error`] where the effect is awaited, so it can be caught there.
//!
//! | mistake | error |
//! |---|---|
//! | a release when no task holds a permit | [`Error::ReleasedTooManyTimes`] |
//! | a semaphore of zero permits | [`Error::ZeroPermits`] |
//! | an acquire of more permits than the semaphore has | [`Error::TooHeavy`], at once |
//! | cancelled | [`Error::TaskCancelled`], at the await point: see [`Cancel`] |
//! | a deadlock | [`Error::Deadlock`], with the tasks of the cycle and the lines where they wait |
//! | a handle of another run | [`Error::ForeignHandle`] |
//! | a panic in a task or a handler | [`Error::Panicked`], for every task that waits for it |
//! | an endless program | [`Error::TooManySteps`], if a [limit](Runtime::most_steps) is set |
//! | a different number of choices than before, in an exhaustive search | [`Error::NotDeterministic`] |
//!
//! ```
//! use semafor_coop::{Ctx, run};
//!
//! run(async |ctx: Ctx| {
//!     let none = ctx.create_semaphore(0).await.unwrap_err();
//!     assert_eq!(none.to_string(), "permits must be >= 1");
//!
//!     let sem = ctx.create_semaphore(1).await?;
//!     let twice = ctx.release(&sem).await.unwrap_err();
//!     assert_eq!(twice.to_string(), "semaphore released too many times");
//!
//!     // A cancelled waiter leaves the line and has consumed nothing.
//!     ctx.acquire(&sem).await?;
//!     let wanted = sem.clone();
//!     let waiter = ctx.spawn(async move |ctx: Ctx| ctx.acquire(&wanted).await).await?;
//!     ctx.cancel(&waiter).await?;
//!     assert!(ctx.wait(&waiter).await.unwrap_err().is_cancelled());
//!     ctx.release(&sem).await?;
//!     assert_eq!(sem.available(), 1);
//!     Ok(())
//! })
//! .unwrap();
//! ```
//!
//! A deadlock is reported when no task can end it any more. A semaphore has no owner: any task that can still run may
//! release the permits that others wait for. [`Deadlocks`] lists the exceptions and the other searches.
//! [`Deadlocks::Holders`] reports more, for programs in which each task releases its own permits: also tasks that wait
//! for each other's permits while other tasks run, and a wait for a permit of a task that has ended.
//!
//! The [`Report`] lists the tasks that ended with permits, that failed without a task that waited for them, or that had
//! not ended. It also says for how long the run waited for other threads.
//!
//! # Other orders
//!
//! In production the order is [first come, first served](Schedule::Fifo). [`explore`] runs a program in other orders,
//! in which another task may run at every effect. The first order that fails is made as simple as possible, and comes
//! with a [`Trace`]: a line of text that replays it in any later run. [`check`] does that for tests.
//! [`Runtime::record`] draws a run as a picture.
//!
//! ```
//! use semafor_coop::{Ctx, Error, Result, Runtime, Schedule, Semaphore, explore};
//!
//! async fn transfer(ctx: Ctx, from: Semaphore, to: Semaphore) -> Result {
//!     let _from = ctx.permit(&from).await?;
//!     let _to = ctx.permit(&to).await?;
//!     Ok(())
//! }
//!
//! async fn bank(ctx: Ctx) -> Result {
//!     let (a, b) = (ctx.create_semaphore(1).await?, ctx.create_semaphore(1).await?);
//!     let (from, to) = (a.clone(), b.clone());
//!     let there = ctx.spawn(move |ctx| transfer(ctx, from, to)).await?;
//!     let back = ctx.spawn(move |ctx| transfer(ctx, b, a)).await?;
//!     ctx.gather([there, back]).await?;
//!     Ok(())
//! }
//!
//! assert!(Runtime::new().run(bank).result.is_ok()); // in this order
//! let failure = explore(bank, 1_000).failure.unwrap(); // but not in every one
//! assert!(matches!(failure.error, Some(Error::Deadlock(_))));
//!
//! let again = Runtime::new().schedule(Schedule::Replay(failure.trace)).record().run(bank);
//! assert!(again.result.is_err());
//! let picture = again.report.recording.unwrap().to_svg();
//! assert!(picture.starts_with("<svg"));
//! ```
//!
//! # Order, in detail
//!
//! - Of the ready tasks, the one with the highest [`Priority`] runs first, and of equal ones the one that was ready
//!   first. A [`Wait`] may have [its own priority](Wait::priority).
//! - A task runs until an effect makes it wait. Creating, cancelling, releasing, acquiring a free permit, and waiting
//!   for a settled value do not wait. Spawning does: the child runs before its parent goes on, unless its priority
//!   is lower. So does completing a promise: its waiters run before the task that completed it. Tasks that were ready
//!   earlier still run before both.
//! - A semaphore's line is first come, first served, regardless of priority. [`semafor_core::Gate`] decides which
//!   waiter gets a permit, as in every home of semafor. The task that releases continues.
//! - Virtual time moves when no task can run. Timers of one instant fire in the order they were set.
//! - When the root program ends, so does the run. The other tasks are dropped where they are.
//!
//! # Promises and their tests
//!
#![doc = include_str!("../PROMISES.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod clock;
mod context;
mod deadlock;
mod effect;
mod effects;
mod error;
mod eventual;
mod explore;
mod external;
mod inbox;
#[cfg(all(test, semafor_loom))]
mod loom_models;
mod performing;
mod random;
mod ready;
mod recording;
mod report;
mod runtime;
mod schedule;
mod scheduler;
mod semaphore;
mod small_list;
mod stall;
mod state;
mod survey;
mod sync;
mod tasks;
mod timeline;
mod timers;
mod visits;
mod waiters;

pub use clock::{Clock, Lull, Span};
pub use context::Ctx;
pub use deadlock::{Deadlock, Deadlocks, Link};
pub use effect::{Effect, Perform};
pub use effects::*;
pub use error::{Error, Failure, Result};
pub use eventual::{Awaitable, Eventual, Task};
pub use explore::{Counterexample, Exploration, Explorer, Search, check, explore};
pub use external::ExternalPromise;
pub use recording::Recording;
pub use report::{Abandoned, LogLine, Outcome, Report, Unobserved, Unreleased};
pub use runtime::{Running, Runtime, run};
pub use schedule::{ParseTraceError, Schedule, Trace};
pub use semaphore::{Permit, Semaphore};
pub use stall::Stall;
pub use tasks::{Label, Priority};
