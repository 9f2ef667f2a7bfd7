//! Programs made at random, in schedules made at random: they hold permits, wait for and cancel each other, drop effects half
//! way, and get into deadlocks. Whatever they do, in the end all permits are there, and the scheduler has not tripped.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use proptest::prelude::*;
use semafor_coop::{
    AcquireSemaphore, Ctx, Deadlocks, Error, Priority, Result, Runtime, Schedule, Semaphore, Spawn, Task,
};

#[derive(Clone, Debug)]
enum Op {
    Yield,
    Delay(u8),
    Wait(usize),
    Race(usize, usize),
    Cancel(usize),
    /// With a permit in a guard, or one that has to be released.
    Hold {
        sem: usize,
        weight: u32,
        timeout: Option<u8>,
        is_guarded: bool,
        inner: Vec<Op>,
    },
    Shield(Vec<Op>),
    /// Both at once, until one of them has ended; the other is dropped.
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
struct Scene {
    sems: Rc<[Semaphore; 2]>,
    tasks: Rc<RefCell<Vec<Task<()>>>>,
}

impl Scene {
    fn task(&self, number: usize) -> Option<Task<()>> {
        self.tasks.borrow().get(number).cloned()
    }
}

/// What may be dropped half way has its permits in guards.
fn play<'p>(
    ctx: &'p Ctx,
    scene: &'p Scene,
    ops: &'p [Op],
    may_be_dropped: bool,
) -> Pin<Box<dyn Future<Output = Result> + 'p>> {
    Box::pin(async move {
        for op in ops {
            match op {
                Op::Yield => ctx.yield_now().await?,
                Op::Delay(seconds) => ctx.delay(f64::from(*seconds)).await?,
                Op::Wait(number) => {
                    if let Some(task) = scene.task(*number) {
                        ctx.wait(&task).await?;
                    }
                }
                Op::Race(one, other) => {
                    let tasks: Vec<_> =
                        [one, other].into_iter().filter_map(|task| scene.task(*task)).collect();
                    ctx.race(&tasks).await?;
                }
                Op::Cancel(number) => {
                    if let Some(task) = scene.task(*number) {
                        ctx.cancel(&task).await?;
                    }
                }
                Op::Hold { sem, weight, timeout, is_guarded, inner } => {
                    let sem = &scene.sems[*sem];
                    let mut demand = AcquireSemaphore(sem).weight(*weight);
                    if let Some(seconds) = timeout {
                        demand = demand.timeout(f64::from(*seconds));
                    }
                    if *is_guarded || may_be_dropped {
                        let _permit = ctx.perform(demand.guarded()).await?;
                        play(ctx, scene, inner, may_be_dropped).await?;
                    } else {
                        ctx.perform(demand).await?;
                        let result = play(ctx, scene, inner, may_be_dropped).await;
                        ctx.release(sem).await?;
                        result?;
                    }
                }
                Op::Shield(inner) => ctx.shield(play(ctx, scene, inner, may_be_dropped)).await?,
                Op::Either(one, other) => {
                    let mut one = play(ctx, scene, one, true);
                    let mut other = play(ctx, scene, other, true);
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
    let scene = Scene { sems, tasks: Rc::default() };
    for (program, priority) in
        programs.into_iter().zip([Priority::Idle, Priority::Normal].into_iter().cycle())
    {
        let inside = scene.clone();
        let task = async move |ctx: Ctx| play(&ctx, &inside, &program, false).await;
        let task = ctx.perform(Spawn::new(task).priority(priority)).await?;
        scene.tasks.borrow_mut().push(task);
    }
    let tasks = scene.tasks.borrow().clone();
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
    for sem in &*scene.sems {
        assert_eq!((sem.available(), sem.waiting()), (sem.permits(), 0));
    }
    Ok(())
}

proptest! {
    #[test]
    fn whatever_programs_do_all_permits_are_there_in_the_end(
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

    /// Nobody helps who is in a deadlock, if nobody cancels: so it is one in the end, too, when nobody can run any more.
    #[test]
    fn a_deadlock_is_found_early_if_and_only_if_it_is_one_in_the_end(
        programs in prop::collection::vec(ops(false), 1..5),
        seed in any::<u64>(),
    ) {
        for schedule in [Schedule::Fifo, Schedule::Random(seed)] {
            let are_found = |deadlocks| {
                let programs = programs.clone();
                let runtime = Runtime::new().deadlocks(deadlocks).schedule(schedule.clone());
                !runtime.run(move |ctx| run_all(ctx, programs)).report.deadlocks.is_empty()
            };
            prop_assert_eq!(are_found(Deadlocks::Holders), are_found(Deadlocks::Global));
        }
    }
}
