//! What a run allocates, counted by the allocator for the thread of the test.
//!
//! Built-in effects allocate nothing once a run has warmed up. The tasks, promises, semaphores and lists of values to
//! gather that they create do allocate.

use semafor_coop::{
    AcquireSemaphore, CreateExternalPromise, Ctx, Error, Now, Priority, Result, Runtime, Semaphore, Wait,
};
use semafor_testkit::heap::{Counting, own_allocations, own_live_bytes};

#[global_allocator]
static HEAP: Counting = Counting;

const TIMES: usize = 10_000;

/// The number of allocations of [`TIMES`] calls, after a few calls to warm up.
async fn allocations_of(mut once: impl AsyncFnMut() -> Result) -> Result<usize> {
    for _ in 0..100 {
        once().await?;
    }
    let before = own_allocations();
    for _ in 0..TIMES {
        once().await?;
    }
    Ok(own_allocations() - before)
}

#[track_caller]
fn assert_allocates_nothing(program: impl AsyncFnOnce(Ctx) -> Result<usize> + 'static) {
    let outcome = Runtime::new().run(async move |ctx: Ctx| program(ctx).await);
    assert_eq!(outcome.result.unwrap(), 0);
}

#[test]
fn acquire_and_release_allocate_nothing() {
    assert_allocates_nothing(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(3).await?;
        allocations_of(async || {
            ctx.acquire(&sem).await?;
            ctx.release(&sem).await?;
            assert!(ctx.try_acquire(&sem).await?);
            ctx.release(&sem).await?;
            ctx.perform(AcquireSemaphore(&sem).weight(2).timeout(1.0)).await?;
            ctx.release(&sem).await?;
            drop(ctx.permit(&sem).await?);
            ctx.with_semaphore(&sem, async |ctx: Ctx| ctx.perform(Now).await.map(drop)).await
        })
        .await
    });
}

#[test]
fn yields_and_delays_allocate_nothing() {
    assert_allocates_nothing(async |ctx: Ctx| {
        allocations_of(async || {
            ctx.yield_now().await?;
            ctx.delay(1.0).await
        })
        .await
    });
}

#[test]
fn many_delays_and_unused_timeouts_allocate_nothing() {
    assert_allocates_nothing(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        for number in 1..=100 {
            let sem = sem.clone();
            let sleeper = async move |ctx: Ctx| -> Result {
                loop {
                    ctx.delay(f64::from(number) / 10.0).await?;
                    ctx.perform(AcquireSemaphore(&sem).timeout(1_000.0)).await?;
                    ctx.delay(0.001).await?;
                    ctx.release(&sem).await?;
                }
            };
            ctx.perform(semafor_coop::Spawn::new(sleeper).daemon()).await?;
        }
        // Until every task has slept often enough to warm up.
        ctx.delay(1_000.0).await?;
        let before = own_allocations();
        ctx.delay(1_000.0).await?;
        Ok(own_allocations() - before)
    });
}

/// Acquires one semaphore and releases the other, forever.
async fn bounce(ctx: Ctx, from: Semaphore, to: Semaphore) -> Result {
    loop {
        ctx.acquire(&from).await?;
        ctx.release(&to).await?;
    }
}

#[test]
fn switching_between_tasks_that_wait_for_each_other_allocates_nothing() {
    assert_allocates_nothing(async |ctx: Ctx| {
        let signal = || semafor_coop::CreateSemaphore::new(1).signal();
        let (ping, pong) = (ctx.perform(signal()).await?, ctx.perform(signal()).await?);
        ctx.acquire(&ping).await?;
        ctx.acquire(&pong).await?;
        let (from, to) = (ping.clone(), pong.clone());
        ctx.perform(semafor_coop::Spawn::new(move |ctx| bounce(ctx, from, to)).daemon()).await?;
        let allocations = allocations_of(async || {
            ctx.release(&ping).await?;
            ctx.acquire(&pong).await
        })
        .await?;
        ctx.release(&pong).await?;
        Ok(allocations)
    });
}

#[test]
fn waiting_in_line_cancelling_and_timing_out_allocate_nothing() {
    assert_allocates_nothing(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let wants = sem.clone();
        let waiter = async move |ctx: Ctx| -> Result {
            loop {
                assert!(ctx.acquire(&wants).await.unwrap_err().is_cancelled());
            }
        };
        let waiter = ctx.perform(semafor_coop::Spawn::new(waiter).daemon()).await?;
        let allocations = allocations_of(async || {
            ctx.cancel(&waiter).await?;
            let late = ctx.perform(AcquireSemaphore(&sem).timeout(1.0)).await;
            assert!(matches!(late, Err(Error::TimedOut)));
            Ok(())
        })
        .await?;
        ctx.release(&sem).await?;
        Ok(allocations)
    });
}

#[test]
fn waiting_for_an_ended_task_allocates_nothing() {
    assert_allocates_nothing(async |ctx: Ctx| {
        let task = ctx.spawn(async |_| Ok(1)).await?;
        allocations_of(async || {
            ctx.wait(&task).await?;
            ctx.perform(Wait(&task).priority(Priority::Idle)).await.map(drop)
        })
        .await
    });
}

/// Uses everything that allocates memory.
async fn mixed_program(ctx: Ctx) -> Result {
    let sem = ctx.create_semaphore(1).await?;
    let promise = ctx.promise::<String>().await?;
    let (outside, from_outside) = ctx.perform(CreateExternalPromise::<String>::new()).await?;
    let mut tasks = Vec::new();
    for number in 0..6 {
        let (sem, future, from_outside) = (sem.clone(), promise.future(), from_outside.clone());
        let task = async move |ctx: Ctx| {
            let _permit = ctx.permit(&sem).await?;
            ctx.delay(f64::from(number)).await?;
            match number {
                3 => ctx.wait(from_outside).await,
                4 => ctx.wait(future).await,
                5 => Err(Error::new("seen")),
                _ => Ok(number.to_string()),
            }
        };
        tasks.push(ctx.spawn(task).await?);
    }
    let unstarted = semafor_coop::Spawn::new(async |ctx: Ctx| ctx.log("never").await);
    let unstarted = ctx.perform(unstarted.priority(Priority::Idle)).await?;
    ctx.cancel(&unstarted).await?;
    ctx.delay(8.0).await?;
    outside.complete("from outside".into());
    ctx.complete(&promise, "done".into()).await?;
    assert!(ctx.gather(&tasks).await.is_err());
    Ok(())
}

#[test]
fn a_run_dropped_after_any_step_frees_all_memory() {
    // Warms up what a thread allocates once.
    Runtime::new().run(mixed_program).result.unwrap();
    for runtime in [Runtime::new(), Runtime::new().record()] {
        let mut has_ended = false;
        for steps in 0.. {
            let before = own_live_bytes();
            let mut running = runtime.start(mixed_program);
            has_ended = has_ended || !(0..steps).all(|_| running.step());
            drop(running);
            assert_eq!(own_live_bytes() - before, 0, "bytes after {steps} steps");
            if has_ended {
                assert!(steps > 20);
                break;
            }
        }
    }
}

/// The growth of memory in bytes by [`TIMES`] calls, after a few calls to warm up.
async fn growth_of(mut once: impl AsyncFnMut() -> Result) -> Result<isize> {
    for _ in 0..100 {
        once().await?;
    }
    let before = own_live_bytes();
    for _ in 0..TIMES {
        once().await?;
    }
    Ok(own_live_bytes() - before)
}

#[test]
fn semaphores_tasks_and_promises_without_handles_are_freed() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        growth_of(async || {
            let sem = ctx.create_semaphore(1).await?;
            ctx.acquire(&sem).await?;
            ctx.release(&sem).await?;
            let task = ctx.spawn(async |_| Ok(1)).await?;
            ctx.wait(&task).await?;
            let promise = ctx.promise::<u32>().await?;
            ctx.race([&promise.future(), &semafor_coop::Awaitable::eventual(&task)]).await.map(drop)
        })
        .await
    });
    assert_eq!(outcome.result.unwrap(), 0);
}

#[test]
fn observed_failures_do_not_accumulate() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        growth_of(async || {
            let task = ctx.spawn(async |_: Ctx| Err::<(), _>(Error::NothingToRace)).await?;
            assert!(ctx.wait(&task).await.is_err());
            Ok(())
        })
        .await
    });
    let growth = outcome.result.unwrap();
    assert!(growth < 16 * 1024, "{growth} bytes");
    assert!(outcome.report.unobserved.is_empty());
}
