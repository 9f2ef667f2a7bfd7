//! Random programs under random schedules. They hold permits, wait for and cancel each other, drop effects that wait,
//! and deadlock. In the end all permits are available, and the scheduler has not failed.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use proptest::prelude::*;
use semafor_coop::{
    AcquireSemaphore, Awaitable, CreateExternalPromise, Ctx, Deadlocks, Error, ExternalPromise, Priority,
    Result, Runtime, Schedule, Semaphore, Spawn, Task,
};

#[derive(Clone, Debug)]
enum Op {
    Yield,
    Delay(u8),
    Wait(usize),
    Race(usize, usize),
    Cancel(usize),
    /// Runs the inner operations with a permit, which is in a guard or released explicitly.
    Hold {
        sem: usize,
        weight: u32,
        timeout: Option<u8>,
        is_guarded: bool,
        inner: Vec<Op>,
    },
    Shield(Vec<Op>),
    /// Runs both at once, until one of them has ended. The other is dropped.
    Either(Vec<Op>, Vec<Op>),
}

fn ops(may_cancel: bool) -> impl Strategy<Value = Vec<Op>> {
    let leaf = prop_oneof![
        Just(Op::Yield),
        (0..3u8).prop_map(Op::Delay),
        (0..5usize).prop_map(Op::Wait),
        (0..5usize, 0..5usize).prop_map(|(one, other)| Op::Race(one, other)),
        (0..5usize).prop_map(move |task| if may_cancel { Op::Cancel(task) } else { Op::Wait(task) }),
    ];
    let op = leaf.prop_recursive(3, 24, 4, |op| {
        let ops = prop::collection::vec(op, 0..4);
        let hold = (0..2usize, 1..3u32, prop::option::of(0..3u8), any::<bool>(), ops.clone());
        let hold = hold.prop_map(|(sem, weight, timeout, is_guarded, inner)| Op::Hold {
            sem,
            weight,
            timeout,
            is_guarded,
            inner,
        });
        let either = (ops.clone(), ops.clone()).prop_map(|(one, other)| Op::Either(one, other));
        prop_oneof![3 => hold, 1 => ops.prop_map(Op::Shield), 1 => either]
    });
    prop::collection::vec(op, 0..5)
}

#[derive(Clone)]
struct Shared {
    sems: Rc<[Semaphore; 2]>,
    tasks: Rc<RefCell<Vec<Task<()>>>>,
}

impl Shared {
    fn task(&self, number: usize) -> Option<Task<()>> {
        self.tasks.borrow().get(number).cloned()
    }
}

/// Operations that may be dropped while they wait have their permits in guards.
fn run_ops<'p>(
    ctx: &'p Ctx,
    shared: &'p Shared,
    ops: &'p [Op],
    may_be_dropped: bool,
) -> Pin<Box<dyn Future<Output = Result> + 'p>> {
    Box::pin(async move {
        for op in ops {
            match op {
                Op::Yield => ctx.yield_now().await?,
                Op::Delay(seconds) => ctx.delay(f64::from(*seconds)).await?,
                Op::Wait(number) => {
                    if let Some(task) = shared.task(*number) {
                        ctx.wait(&task).await?;
                    }
                }
                Op::Race(one, other) => {
                    let tasks: Vec<_> =
                        [one, other].into_iter().filter_map(|task| shared.task(*task)).collect();
                    ctx.race(&tasks).await?;
                }
                Op::Cancel(number) => {
                    if let Some(task) = shared.task(*number) {
                        ctx.cancel(&task).await?;
                    }
                }
                Op::Hold { sem, weight, timeout, is_guarded, inner } => {
                    let sem = &shared.sems[*sem];
                    let mut demand = AcquireSemaphore(sem).weight(*weight);
                    if let Some(seconds) = timeout {
                        demand = demand.timeout(f64::from(*seconds));
                    }
                    if *is_guarded || may_be_dropped {
                        let _permit = ctx.perform(demand.guarded()).await?;
                        run_ops(ctx, shared, inner, may_be_dropped).await?;
                    } else {
                        ctx.perform(demand).await?;
                        let result = run_ops(ctx, shared, inner, may_be_dropped).await;
                        ctx.release(sem).await?;
                        result?;
                    }
                }
                Op::Shield(inner) => ctx.shield(run_ops(ctx, shared, inner, may_be_dropped)).await?,
                Op::Either(one, other) => {
                    let mut one = run_ops(ctx, shared, one, true);
                    let mut other = run_ops(ctx, shared, other, true);
                    let first = std::future::poll_fn(|cx| match one.as_mut().poll(cx) {
                        Poll::Ready(result) => Poll::Ready(result),
                        Poll::Pending => other.as_mut().poll(cx),
                    });
                    first.await?;
                }
            }
        }
        Ok(())
    })
}

async fn run_all(ctx: Ctx, programs: Vec<Vec<Op>>) -> Result {
    let sems = Rc::new([ctx.create_semaphore(2).await?, ctx.create_semaphore(3).await?]);
    let shared = Shared { sems, tasks: Rc::default() };
    for (program, priority) in
        programs.into_iter().zip([Priority::Idle, Priority::Normal].into_iter().cycle())
    {
        let inside = shared.clone();
        let task = async move |ctx: Ctx| run_ops(&ctx, &inside, &program, false).await;
        let task = ctx.perform(Spawn::new(task).priority(priority)).await?;
        shared.tasks.borrow_mut().push(task);
    }
    let tasks = shared.tasks.borrow().clone();
    for task in tasks {
        let result = ctx.wait(&task).await;
        assert!(task.is_finished());
        match result {
            Ok(())
            | Err(
                Error::TaskCancelled
                | Error::Deadlock(_)
                | Error::TimedOut
                | Error::WaitsForItself
                | Error::NothingToRace,
            ) => {}
            Err(error) => return Err(error),
        }
    }
    for sem in &*shared.sems {
        assert_eq!((sem.available(), sem.waiting()), (sem.permits(), 0));
    }
    Ok(())
}

proptest! {
    #[test]
    fn all_permits_are_available_after_any_program(
        programs in prop::collection::vec(ops(true), 1..5),
        seed in any::<u64>(),
    ) {
        let schedules = [
            Schedule::Fifo,
            Schedule::Random(seed),
            Schedule::Random(seed.wrapping_add(1)),
            Schedule::Pct { seed, changes: 3 },
        ];
        for schedule in schedules {
            let name = format!("{schedule:?}");
            let programs = programs.clone();
            let outcome = Runtime::new().most_steps(100_000).schedule(schedule).run(move |ctx| run_all(ctx, programs));
            prop_assert!(outcome.result.is_ok(), "{}: {:?}", name, outcome.result);
            prop_assert!(outcome.report.unreleased.is_empty());
        }
    }

    /// Without cancellation, no task can help a deadlocked one. So a deadlock that is found early is still one when no
    /// task can run any more.
    #[test]
    fn early_detection_finds_a_deadlock_if_and_only_if_global_detection_does(
        programs in prop::collection::vec(ops(false), 1..5),
        seed in any::<u64>(),
    ) {
        for schedule in [Schedule::Fifo, Schedule::Random(seed)] {
            let are_found = |deadlocks| {
                let programs = programs.clone();
                let runtime = Runtime::new().deadlocks(deadlocks).schedule(schedule.clone());
                !runtime.run(move |ctx| run_all(ctx, programs)).report.deadlocks.is_empty()
            };
            let at_the_end = are_found(Deadlocks::Global);
            prop_assert_eq!(are_found(Deadlocks::Holders), at_the_end);
            prop_assert_eq!(are_found(Deadlocks::Certain), at_the_end);
        }
    }
}

/// What a task does with permits that move between tasks.
#[derive(Clone, Debug)]
enum HandoverOp {
    Yield,
    Delay(u8),
    Wait(usize),
    /// An acquire that any task, or none, releases later.
    Acquire(usize),
    /// A release of a permit that any task holds.
    Release(usize),
    /// Puts a guard where all tasks can reach it.
    Leave(usize),
    /// Drops the guards that other tasks left.
    Drop,
    /// Moves a guard into a new task that sleeps.
    Move(usize, u8),
}

fn handover_ops() -> impl Strategy<Value = Vec<HandoverOp>> {
    prop::collection::vec(
        prop_oneof![
            Just(HandoverOp::Yield),
            (0..3u8).prop_map(HandoverOp::Delay),
            (0..4usize).prop_map(HandoverOp::Wait),
            (0..2usize).prop_map(HandoverOp::Acquire),
            (0..2usize).prop_map(HandoverOp::Release),
            (0..2usize).prop_map(HandoverOp::Leave),
            Just(HandoverOp::Drop),
            (0..2usize, 0..3u8).prop_map(|(sem, seconds)| HandoverOp::Move(sem, seconds)),
        ],
        0..7,
    )
}

async fn run_handover(
    ctx: Ctx,
    shared: Shared,
    left: Rc<RefCell<Vec<semafor_coop::Permit>>>,
    handover_ops: Vec<HandoverOp>,
) -> Result {
    for op in handover_ops {
        match op {
            HandoverOp::Yield => ctx.yield_now().await?,
            HandoverOp::Delay(seconds) => ctx.delay(f64::from(seconds)).await?,
            HandoverOp::Wait(number) => {
                if let Some(task) = shared.task(number) {
                    ctx.wait(&task).await?;
                }
            }
            HandoverOp::Acquire(sem) => ctx.acquire(&shared.sems[sem]).await?,
            HandoverOp::Release(sem) => match ctx.release(&shared.sems[sem]).await {
                Ok(()) | Err(Error::ReleasedTooManyTimes) => {}
                Err(error) => return Err(error),
            },
            HandoverOp::Leave(sem) => {
                let permit = ctx.permit(&shared.sems[sem]).await?;
                left.borrow_mut().push(permit);
            }
            HandoverOp::Drop => drop(left.take()),
            HandoverOp::Move(sem, seconds) => {
                let permit = ctx.permit(&shared.sems[sem]).await?;
                let sleeper = async move |ctx: Ctx| {
                    let _permit = permit;
                    ctx.delay(f64::from(seconds)).await
                };
                ctx.spawn(sleeper).await?;
            }
        }
    }
    Ok(())
}

proptest! {
    /// Any task may release a permit. By default, a run reports a deadlock if and only if the same run with global
    /// detection reports one: when no task can run any more.
    #[test]
    fn a_deadlock_is_reported_if_and_only_if_no_task_could_have_released(
        programs in prop::collection::vec(handover_ops(), 1..5),
        seed in any::<u64>(),
    ) {
        for schedule in [Schedule::Fifo, Schedule::Random(seed), Schedule::Pct { seed, changes: 2 }] {
            let outcome_with = |deadlocks| {
                let programs = programs.clone();
                let runtime = Runtime::new().deadlocks(deadlocks).schedule(schedule.clone()).most_steps(100_000);
                let outcome = runtime.run(async move |ctx: Ctx| {
                    let sems = Rc::new([ctx.create_semaphore(1).await?, ctx.create_semaphore(2).await?]);
                    let shared = Shared { sems, tasks: Rc::default() };
                    let left = Rc::default();
                    for program in programs {
                        let (shared_inside, left) = (shared.clone(), Rc::clone(&left));
                        let task = ctx.spawn(move |ctx| run_handover(ctx, shared_inside, left, program)).await?;
                        shared.tasks.borrow_mut().push(task);
                    }
                    let tasks = shared.tasks.borrow().clone();
                    let mut results = Vec::new();
                    for task in tasks {
                        results.push(ctx.wait(&task).await.is_ok());
                    }
                    Ok(results)
                });
                let report = outcome.report;
                (outcome.result.ok(), report.deadlocks.is_empty(), report.trace)
            };
            let (results, has_none, trace) = outcome_with(Deadlocks::Global);
            let by_default = outcome_with(Deadlocks::Certain);
            prop_assert_eq!(by_default.1, has_none);
            if has_none {
                prop_assert_eq!(by_default, (results, has_none, trace), "the search for deadlocks changed a run");
            }
        }
    }
}

/// What a task does in a run with external promises. Tasks wait only for tasks that were spawned before them, so they
/// form no cycle.
#[derive(Clone, Debug)]
enum ExternalOp {
    Acquire(usize),
    Release(usize),
    /// Waits for a promise that a task may or may not complete.
    Await(usize),
    Complete(usize),
    /// Waits for all of these, or for one of them.
    All(Vec<Awaited>),
    One(Vec<Awaited>),
}

#[derive(Clone, Debug)]
enum Awaited {
    Promise(usize),
    Outside(usize),
    Task(usize),
}

fn external_ops() -> impl Strategy<Value = Vec<ExternalOp>> {
    let awaited = prop_oneof![
        (0..2usize).prop_map(Awaited::Promise),
        (0..2usize).prop_map(Awaited::Outside),
        (0..3usize).prop_map(Awaited::Task),
    ];
    let several = prop::collection::vec(awaited, 1..4);
    let one = prop_oneof![
        (0..2usize).prop_map(ExternalOp::Acquire),
        (0..2usize).prop_map(ExternalOp::Release),
        (0..2usize).prop_map(ExternalOp::Await),
        (0..2usize).prop_map(ExternalOp::Complete),
        several.clone().prop_map(ExternalOp::All),
        several.prop_map(ExternalOp::One),
    ];
    prop::collection::vec(one, 0..5)
}

/// What a run that does not simply end does first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum First {
    Reported,
    /// The run sleeps until another thread completes a promise.
    Slept,
}

#[derive(Clone, Copy, Default)]
struct Observed {
    first: Option<First>,
    /// Whether a task continued after the sleep, when all external promises were completed.
    could_help: Option<bool>,
    effects: u32,
    effects_at_lull: Option<u32>,
}

thread_local! {
    static OBSERVED: Cell<Observed> = Cell::default();
    /// The external promises that are not completed yet.
    static OUTSIDE: RefCell<Vec<ExternalPromise<()>>> = const { RefCell::new(Vec::new()) };
}

fn note_effect(result: &Result) {
    let mut observed = OBSERVED.get();
    let is_deadlock = matches!(result, Err(Error::Deadlock(_)));
    observed.effects += 1;
    match observed.first {
        Some(First::Slept) => drop(observed.could_help.get_or_insert(!is_deadlock)),
        Some(First::Reported) => {}
        None => observed.first = is_deadlock.then_some(First::Reported),
    }
    OBSERVED.set(observed);
}

/// The first lull may be for a check of all tasks. In a second one without an effect in between the run sleeps, and all
/// external promises are completed.
fn note_lull() {
    let mut observed = OBSERVED.get();
    if observed.effects_at_lull == Some(observed.effects) {
        observed.first.get_or_insert(First::Slept);
        for promise in OUTSIDE.take() {
            promise.complete(());
        }
    }
    observed.effects_at_lull = Some(observed.effects);
    OBSERVED.set(observed);
}

fn observe(programs: &[Vec<ExternalOp>], schedule: Schedule, deadlocks: Deadlocks) -> Observed {
    OBSERVED.take();
    let programs = programs.to_vec();
    let runtime = Runtime::new().deadlocks(deadlocks).schedule(schedule).most_steps(10_000);
    let runtime = runtime.pause(|_| {
        note_lull();
        Ok(())
    });
    let outcome = runtime.run(async move |ctx: Ctx| {
        let sems = [ctx.create_semaphore(1).await?, ctx.create_semaphore(2).await?];
        let promises = Rc::new([ctx.promise::<()>().await?, ctx.promise::<()>().await?]);
        let (first, one) = ctx.perform(CreateExternalPromise::new()).await?;
        let (second, other) = ctx.perform(CreateExternalPromise::new()).await?;
        OUTSIDE.set(vec![first, second]);
        let mut tasks: Vec<Task<()>> = Vec::new();
        for program in programs {
            let (sems, promises, outside) = (sems.clone(), promises.clone(), [one.clone(), other.clone()]);
            let before = tasks.clone();
            let task = async move |ctx: Ctx| {
                let eventual = |awaited: &Awaited| match awaited {
                    Awaited::Promise(number) => Some(promises[*number].future()),
                    Awaited::Outside(number) => Some(outside[*number].clone()),
                    Awaited::Task(number) => before.get(*number).map(Awaitable::eventual),
                };
                for step in program {
                    note_effect(&match step {
                        ExternalOp::Acquire(sem) => ctx.acquire(&sems[sem]).await,
                        ExternalOp::Release(sem) => ctx.release(&sems[sem]).await,
                        ExternalOp::Await(promise) => ctx.wait(promises[promise].future()).await,
                        ExternalOp::Complete(promise) => ctx.complete(&promises[promise], ()).await,
                        ExternalOp::All(all) => ctx.gather(all.iter().filter_map(eventual)).await.map(drop),
                        ExternalOp::One(all) => ctx.race(all.iter().filter_map(eventual)).await,
                    });
                }
                Ok(())
            };
            tasks.push(ctx.spawn(task).await?);
        }
        let all = ctx.gather(&tasks).await.map(drop);
        note_effect(&all);
        all
    });
    OUTSIDE.take();
    assert!(outcome.result.is_ok() || OBSERVED.get().first == Some(First::Reported), "{:?}", outcome.result);
    OBSERVED.get()
}

proptest! {
    /// Finds out by trial whether the run is deadlocked where it sleeps: completes all external promises, and sees
    /// whether a task continues.
    #[test]
    fn a_deadlock_is_reported_if_and_only_if_no_other_thread_could_end_it(
        programs in prop::collection::vec(external_ops(), 1..5),
        seed in any::<u64>(),
    ) {
        for schedule in [Schedule::Fifo, Schedule::Random(seed)] {
            let truth = observe(&programs, schedule.clone(), Deadlocks::Global);
            let expected = match (truth.first, truth.could_help) {
                (Some(First::Slept), Some(false)) => Some(First::Reported),
                (first, _) => first,
            };
            prop_assert_eq!(observe(&programs, schedule, Deadlocks::Certain).first, expected);
        }
    }
}
