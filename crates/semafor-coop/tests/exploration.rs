//! Bugs are found, replayed and simplified. Correct programs hold under every schedule.

use std::cell::RefCell;
use std::rc::Rc;

use semafor_coop::{
    Ctx, Error, Explorer, Outcome, Result, Runtime, Schedule, Search, Semaphore, Trace, check, explore,
};

async fn both(ctx: Ctx, first: Semaphore, second: Semaphore) -> Result {
    ctx.acquire(&first).await?;
    ctx.acquire(&second).await?;
    ctx.release(&second).await?;
    ctx.release(&first).await
}

async fn ab_ba(ctx: Ctx) -> Result {
    let a = ctx.create_semaphore(1).await?;
    let b = ctx.create_semaphore(1).await?;
    let (first, second) = (a.clone(), b.clone());
    let left = ctx.spawn(move |ctx| both(ctx, first, second)).await?;
    let right = ctx.spawn(move |ctx| both(ctx, b, a)).await?;
    ctx.gather([left, right]).await.map(drop)
}

/// A consumer that checks the queue before it registers to be woken.
async fn lost_wake_up(ctx: Ctx) -> Result {
    let items = Rc::new(RefCell::new(Vec::<u32>::new()));
    let sleeper = Rc::new(RefCell::new(None::<semafor_coop::Promise<()>>));
    let (queue, waiting) = (items.clone(), sleeper.clone());
    let consumer = async move |ctx: Ctx| {
        if queue.borrow().is_empty() {
            // The producer may run here, and finds no consumer to wake.
            let promise = ctx.promise::<()>().await?;
            let woken = promise.future();
            *waiting.borrow_mut() = Some(promise);
            ctx.wait(woken).await?;
        }
        queue.borrow_mut().pop().ok_or(Error::new("woken for nothing"))
    };
    let producer = async move |ctx: Ctx| {
        ctx.yield_now().await?;
        items.borrow_mut().push(7);
        let sleeper = sleeper.take();
        if let Some(sleeper) = sleeper {
            ctx.complete(&sleeper, ()).await?;
        }
        Ok(0)
    };
    let consumer = ctx.spawn(consumer).await?;
    let producer = ctx.spawn(producer).await?;
    ctx.gather([consumer, producer]).await.map(drop)
}

/// A task that releases at its end even if its acquire failed.
async fn over_release_on_cancel(ctx: Ctx) -> Result {
    let sem = ctx.create_semaphore(1).await?;
    let wants = sem.clone();
    let careless = async move |ctx: Ctx| {
        let acquired = ctx.acquire(&wants).await;
        ctx.release(&wants).await?;
        acquired
    };
    ctx.acquire(&sem).await?;
    let task = ctx.spawn(careless).await?;
    ctx.cancel(&task).await?;
    match ctx.wait(&task).await {
        Err(Error::TaskCancelled) | Ok(()) => ctx.release(&sem).await,
        Err(error) => Err(error),
    }
}

#[test]
fn a_lock_order_bug_that_production_order_hides_is_found_and_replayed() {
    assert!(Runtime::new().run(ab_ba).result.is_ok());
    let failure = explore(ab_ba, 1_000).failure.unwrap();
    assert!(matches!(failure.error, Some(Error::Deadlock(_))));
    for trace in [&failure.trace, &failure.found] {
        let kept: Trace = trace.to_string().parse().unwrap();
        for _ in 0..3 {
            let again = Runtime::new().schedule(Schedule::Replay(kept.clone())).run(ab_ba);
            assert!(matches!(again.result, Err(Error::Deadlock(_))));
            assert_eq!(again.report.trace, *trace);
        }
    }
    let switches = |trace: &Trace| trace.choices().filter(|choice| *choice > 0).count();
    assert!(switches(&failure.trace) <= switches(&failure.found));
}

#[test]
fn a_lost_wake_up_is_found_by_every_search() {
    assert!(Runtime::new().run(lost_wake_up).result.is_ok());
    for search in [
        Search::Random { seed: 1 },
        Search::Pct { seed: 1, changes: 2 },
        Search::Exhaustive { preemptions: Some(2) },
        Search::Exhaustive { preemptions: None },
    ] {
        let exploration = Explorer::new().search(search).schedules(100_000).run(lost_wake_up);
        let failure = exploration.failure.unwrap_or_else(|| panic!("{search:?} found nothing"));
        assert!(failure.message.contains("deadlock"), "{failure}");
    }
}

#[test]
fn an_over_release_on_cancel_is_found() {
    let failure = explore(over_release_on_cancel, 1_000).failure.unwrap();
    assert!(matches!(failure.error, Some(Error::ReleasedTooManyTimes)), "{failure}");
}

#[test]
fn check_panics_with_a_trace_that_can_be_replayed() {
    let panic = std::panic::catch_unwind(|| check(1_000, ab_ba)).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    let (_, rest) = text.split_once("Schedule::Replay(\"").unwrap();
    let trace: Trace = rest.split_once('"').unwrap().0.parse().unwrap();
    assert!(Runtime::new().schedule(Schedule::Replay(trace)).run(ab_ba).result.is_err());
}

#[test]
fn unobserved_failures_and_unreleased_permits_count_as_failures() {
    let unseen = async |ctx: Ctx| {
        ctx.spawn(async |_: Ctx| Err::<(), _>(Error::new("unseen"))).await?;
        ctx.delay(1.0).await
    };
    assert!(explore(unseen, 10).failure.unwrap().message.contains("unseen"));
    let unreleased = async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        let task = ctx.spawn(async move |ctx: Ctx| ctx.acquire(&sem).await).await?;
        ctx.wait(&task).await
    };
    assert!(explore(unreleased, 10).failure.unwrap().message.contains("unreleased"));
}

/// All visible results of a run as text.
fn summary(outcome: &Outcome<()>) -> String {
    let svg = outcome.report.recording.as_ref().unwrap().to_svg();
    format!("{:?} {:?} {} {svg}", outcome.result, outcome.report.log, outcome.report.trace)
}

#[test]
fn the_same_seed_gives_the_same_run_byte_for_byte() {
    let program = async |ctx: Ctx| {
        let sem = ctx.create_semaphore(2).await?;
        let mut tasks = Vec::new();
        for number in 0..6 {
            let sem = sem.clone();
            let task = async move |ctx: Ctx| {
                let _permit = ctx.permit(&sem).await?;
                ctx.delay(f64::from(number % 3)).await?;
                ctx.log(number.to_string()).await
            };
            tasks.push(ctx.spawn(task).await?);
        }
        ctx.cancel(&tasks[5]).await?;
        let _ = ctx.gather(&tasks).await;
        Ok(())
    };
    let mut summaries = Vec::new();
    for schedule in [
        Schedule::Fifo,
        Schedule::Random(1),
        Schedule::Random(2),
        Schedule::Pct { seed: 1, changes: 3 },
        Schedule::Replay("1:0102".parse().unwrap()),
    ] {
        let run = || summary(&Runtime::new().schedule(schedule.clone()).record().run(program));
        let first = run();
        assert_eq!(first, run(), "{schedule:?}");
        let outcome = Runtime::new().schedule(schedule.clone()).record().run(program);
        if !matches!(schedule, Schedule::Fifo) {
            let replay = Schedule::Replay(outcome.report.trace.clone());
            assert_eq!(
                first,
                summary(&Runtime::new().schedule(replay).record().run(program)),
                "{schedule:?}"
            );
        }
        summaries.push(first);
    }
    summaries.dedup();
    assert_eq!(summaries.len(), 5, "the runs are different");
}

#[test]
fn traces_keep_their_meaning_between_releases() {
    let trace = |seed| Runtime::new().schedule(Schedule::Random(seed)).run(ab_ba).report.trace.to_string();
    assert_eq!([trace(1), trace(2), trace(3)], TRACES);
}

/// A change here breaks traces that users keep: it needs a new version of the format.
const TRACES: [&str; 3] = ["1:11111221", "1:1112001101", "1:01100101"];

#[test]
fn a_trace_of_another_program_does_not_panic() {
    let trace: Trace = "1:9zzz(4000000000)1".parse().unwrap();
    let outcome = Runtime::new().schedule(Schedule::Replay(trace)).run(ab_ba);
    assert!(outcome.result.is_ok() || matches!(outcome.result, Err(Error::Deadlock(_))));
}

#[test]
fn an_exhaustive_search_is_complete_and_bounds_make_it_smaller() {
    let correct = async |ctx: Ctx| {
        let a = ctx.create_semaphore(1).await?;
        let b = a.clone();
        let task = async move |ctx: Ctx| {
            ctx.acquire(&b).await?;
            ctx.release(&b).await
        };
        let task = ctx.spawn(task).await?;
        ctx.acquire(&a).await?;
        ctx.release(&a).await?;
        ctx.wait(&task).await
    };
    let all = Explorer::new().search(Search::Exhaustive { preemptions: None }).run(correct);
    let some = Explorer::new().search(Search::Exhaustive { preemptions: Some(1) }).run(correct);
    all.assert_holds();
    assert!(all.is_complete && some.is_complete);
    assert!(some.schedules < all.schedules, "{} of {}", some.schedules, all.schedules);
    let cut_short =
        Explorer::new().search(Search::Exhaustive { preemptions: None }).schedules(3).run(correct);
    assert!(!cut_short.is_complete);
}

/// The number of tasks changes with every run.
fn grows() -> impl AsyncFn(Ctx) -> Result + Clone {
    let runs = Rc::new(std::cell::Cell::new(0));
    async move |ctx: Ctx| {
        runs.set(runs.get() + 1);
        spawn_some(ctx, 1 + runs.get() % 3).await
    }
}

/// One task less in every run.
fn shrinks() -> impl AsyncFn(Ctx) -> Result + Clone {
    let left = Rc::new(std::cell::Cell::new(8_usize));
    async move |ctx: Ctx| {
        left.set(left.get().saturating_sub(1));
        spawn_some(ctx, left.get()).await
    }
}

async fn spawn_some(ctx: Ctx, count: usize) -> Result {
    let mut tasks = Vec::new();
    for _ in 0..count {
        tasks.push(ctx.spawn(async |ctx: Ctx| ctx.delay(0.0).await).await?);
    }
    ctx.gather(&tasks).await.map(drop)
}

#[test]
fn a_program_that_is_not_deterministic_is_reported() {
    for preemptions in [None, Some(1)] {
        let explorer = Explorer::new().search(Search::Exhaustive { preemptions });
        for exploration in [explorer.run(grows()), explorer.run(shrinks())] {
            let failure = exploration.failure.expect("it is not deterministic");
            assert!(failure.message.contains("not deterministic"), "{failure}");
            assert!(failure.message.contains("choice "), "the message says where: {failure}");
            assert!(!exploration.is_complete);
        }
    }
}

#[test]
fn a_program_on_real_time_is_explored_without_a_panic() {
    let program = async |ctx: Ctx| {
        let mut tasks = Vec::new();
        for number in 0..4_u32 {
            let task = async move |ctx: Ctx| ctx.delay(f64::from(number % 2) * 0.000_01).await;
            tasks.push(ctx.spawn(task).await?);
        }
        ctx.gather(&tasks).await.map(drop)
    };
    let runtime = Runtime::new().clock(semafor_coop::Clock::Real).most_steps(10_000);
    let explorer = Explorer::new().runtime(runtime).schedules(300);
    let exploration = explorer.search(Search::Exhaustive { preemptions: None }).run(program);
    if let Some(failure) = exploration.failure {
        assert!(failure.message.contains("not deterministic"), "{failure}");
    }
}

/// Waits for a flag by yielding, which lets other tasks run.
async fn polls_a_flag(ctx: Ctx) -> Result {
    let flag = Rc::new(std::cell::Cell::new(false));
    let (raised, seen) = (flag.clone(), flag);
    let poll = async move |ctx: Ctx| {
        while !seen.get() {
            ctx.yield_now().await?;
        }
        Ok(())
    };
    let raise = async move |ctx: Ctx| {
        ctx.yield_now().await?;
        raised.set(true);
        Ok(())
    };
    let (poll, raise) = (ctx.spawn(poll).await?, ctx.spawn(raise).await?);
    ctx.gather([poll, raise]).await.map(drop)
}

/// The same, with delays of zero.
async fn polls_with_delays(ctx: Ctx) -> Result {
    let flag = Rc::new(std::cell::Cell::new(false));
    let (raised, seen) = (flag.clone(), flag);
    let poll = async move |ctx: Ctx| {
        while !seen.get() {
            ctx.delay(0.0).await?;
        }
        Ok(())
    };
    let raise = async move |ctx: Ctx| {
        ctx.yield_now().await?;
        raised.set(true);
        Ok(())
    };
    let (poll, raise) = (ctx.spawn(poll).await?, ctx.spawn(raise).await?);
    ctx.gather([poll, raise]).await.map(drop)
}

#[test]
fn in_random_searches_a_task_that_yields_lets_others_run() {
    for search in [Search::Pct { seed: 3, changes: 3 }, Search::Random { seed: 3 }] {
        let runtime = Runtime::new().most_steps(2_000);
        let explorer = Explorer::new().search(search).runtime(runtime).schedules(500);
        explorer.run(polls_a_flag).assert_holds();
        explorer.run(polls_with_delays).assert_holds();
    }
}

#[test]
fn a_task_that_never_waits_ends_at_the_step_limit() {
    let endless = async |ctx: Ctx| -> Result {
        let sem = ctx.create_semaphore(1).await?;
        loop {
            ctx.acquire(&sem).await?;
            ctx.release(&sem).await?;
        }
    };
    for search in [Search::Random { seed: 1 }, Search::Exhaustive { preemptions: Some(0) }] {
        let failure = Explorer::new().search(search).run(endless).failure.unwrap();
        assert!(matches!(failure.error, Some(Error::TooManySteps(_))), "{failure}");
    }
}

#[test]
fn a_search_with_too_many_changes_does_not_panic() {
    let search = Search::Pct { seed: 1, changes: usize::MAX };
    Explorer::new().search(search).schedules(2).run(polls_a_flag).assert_holds();
    let schedule = semafor_coop::Schedule::Pct { seed: 1, changes: usize::MAX };
    Runtime::new().schedule(schedule).run(polls_a_flag).result.unwrap();
}
