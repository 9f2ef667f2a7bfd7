//! Programs that end are never reported as deadlocked: any task may release a permit, and a guard may be moved to
//! another task.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use semafor_coop::{
    AcquireSemaphore, Cancel, Clock, CreateExternalPromise, CreateSemaphore, Ctx, Explorer, Permit, Priority,
    Result, Runtime, Search, Semaphore, Spawn,
};

/// Runs a program in many orders. It must succeed in all of them, and no deadlock may be reported.
#[track_caller]
fn assert_legal(program: impl AsyncFn(Ctx) -> Result + Clone + 'static) {
    let once = program.clone();
    let outcome = Runtime::new().run(async move |ctx: Ctx| once(ctx).await);
    outcome.result.unwrap();
    assert!(outcome.report.deadlocks.is_empty(), "{:?}", outcome.report.deadlocks);
    for search in [
        Search::Random { seed: 1 },
        Search::Pct { seed: 1, changes: 3 },
        Search::Exhaustive { preemptions: Some(2) },
    ] {
        Explorer::new().search(search).schedules(300).run(program.clone()).assert_holds();
    }
}

async fn release_after(ctx: Ctx, sem: Semaphore, seconds: f64) -> Result {
    ctx.delay(seconds).await?;
    ctx.release(&sem).await
}

#[test]
fn a_permit_released_by_another_task_after_a_delay_is_no_deadlock() {
    assert_legal(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let other = sem.clone();
        let releaser = ctx.spawn(move |ctx| release_after(ctx, other, 1.0)).await?;
        ctx.acquire(&sem).await?;
        ctx.release(&sem).await?;
        ctx.wait(&releaser).await
    });
}

#[test]
fn a_permit_released_by_another_task_after_a_timeout_is_no_deadlock() {
    assert_legal(async |ctx: Ctx| {
        let (sem, busy) = (ctx.create_semaphore(1).await?, ctx.create_semaphore(1).await?);
        ctx.acquire(&sem).await?;
        ctx.acquire(&busy).await?;
        let (other, wanted) = (sem.clone(), busy.clone());
        let releaser = async move |ctx: Ctx| {
            assert!(ctx.perform(AcquireSemaphore(&wanted).timeout(1.0)).await.is_err());
            ctx.release(&other).await
        };
        let releaser = ctx.spawn(releaser).await?;
        ctx.acquire(&sem).await?;
        ctx.release(&sem).await?;
        ctx.release(&busy).await?;
        ctx.wait(&releaser).await
    });
}

#[test]
fn a_permit_released_after_another_thread_completes_a_promise_is_no_deadlock() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let (outside, future) = ctx.perform(CreateExternalPromise::<()>::new()).await?;
        let other = sem.clone();
        let releaser = async move |ctx: Ctx| {
            ctx.wait(future).await?;
            ctx.release(&other).await
        };
        let releaser = ctx.spawn(releaser).await?;
        let thread = std::thread::spawn(move || outside.complete(()));
        ctx.acquire(&sem).await?;
        ctx.release(&sem).await?;
        thread.join().unwrap();
        ctx.wait(&releaser).await
    });
    outcome.result.unwrap();
    assert!(outcome.report.deadlocks.is_empty());
}

#[test]
fn a_permit_moved_into_a_child_task_is_no_deadlock() {
    assert_legal(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        let permit = ctx.permit(&sem).await?;
        let child = async move |ctx: Ctx| {
            let _moved = permit;
            ctx.delay(1.0).await
        };
        let child = ctx.spawn(child).await?;
        drop(ctx.permit(&sem).await?);
        ctx.wait(&child).await
    });
}

#[test]
fn a_shared_permit_that_another_task_drops_is_no_deadlock() {
    assert_legal(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        let shared = Rc::new(RefCell::new(None::<Permit>));
        *shared.borrow_mut() = Some(ctx.permit(&sem).await?);
        let child = async move |ctx: Ctx| {
            ctx.delay(1.0).await?;
            drop(shared.take());
            Ok(())
        };
        let child = ctx.spawn(child).await?;
        drop(ctx.permit(&sem).await?);
        ctx.wait(&child).await
    });
}

#[test]
fn a_cycle_that_a_third_task_ends_is_no_deadlock() {
    assert_legal(async |ctx: Ctx| {
        let (a, b) = (ctx.create_semaphore(1).await?, ctx.create_semaphore(1).await?);
        let mut tasks = Vec::new();
        for (first, second) in [(a.clone(), b.clone()), (b.clone(), a.clone())] {
            let cross = async move |ctx: Ctx| {
                ctx.acquire(&first).await?;
                ctx.delay(1.0).await?;
                ctx.acquire(&second).await
            };
            tasks.push(ctx.spawn(cross).await?);
        }
        ctx.delay(2.0).await?;
        ctx.release(&a).await?;
        ctx.release(&b).await?;
        ctx.gather(&tasks).await?;
        ctx.release(&a).await?;
        ctx.release(&b).await
    });
}

#[test]
fn a_permit_of_an_ended_task_that_another_task_releases_is_no_deadlock() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        let held = sem.clone();
        let leaver = ctx.spawn(async move |ctx: Ctx| ctx.acquire(&held).await).await?;
        ctx.wait(&leaver).await?;
        let other = sem.clone();
        let daemon = Spawn::new(move |ctx| release_after(ctx, other, 1.0)).daemon().priority(Priority::Idle);
        ctx.perform(daemon).await?;
        ctx.acquire(&sem).await?;
        ctx.release(&sem).await
    });
    outcome.result.unwrap();
    assert!(outcome.report.deadlocks.is_empty());
}

#[test]
fn a_permit_moved_into_a_child_task_is_no_deadlock_on_the_real_clock() {
    let outcome = Runtime::new().clock(Clock::Real).run(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        let permit = ctx.permit(&sem).await?;
        let child = async move |ctx: Ctx| {
            let _moved = permit;
            ctx.delay(Duration::from_millis(2)).await
        };
        let child = ctx.spawn(child).await?;
        drop(ctx.permit(&sem).await?);
        ctx.wait(&child).await
    });
    outcome.result.unwrap();
    assert!(outcome.report.deadlocks.is_empty());
}

#[test]
fn a_consumer_of_signals_leaves_nothing_unreleased() {
    let outcome = Runtime::new().run(signals);
    outcome.result.unwrap();
    assert!(outcome.report.unreleased.is_empty(), "{} unreleased", outcome.report.unreleased.len());
    assert_legal(signals);
}

/// A producer releases once for each item, and one task per item acquires.
async fn signals(ctx: Ctx) -> Result {
    const ITEMS: u32 = 4;
    let ready = ctx.perform(CreateSemaphore::new(ITEMS).signal()).await?;
    for _ in 0..ITEMS {
        ctx.acquire(&ready).await?;
    }
    let mut consumers = Vec::new();
    for _ in 0..ITEMS {
        let ready = ready.clone();
        consumers.push(ctx.spawn(async move |ctx: Ctx| ctx.acquire(&ready).await).await?);
    }
    for _ in 0..ITEMS {
        ctx.delay(1.0).await?;
        ctx.release(&ready).await?;
    }
    ctx.gather(&consumers).await?;
    let last = ctx.spawn(async |ctx: Ctx| ctx.delay(1.0).await).await?;
    ctx.perform(Cancel(&last)).await
}
