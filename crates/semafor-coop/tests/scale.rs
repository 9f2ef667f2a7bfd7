//! Many tasks, and deeply nested ones.

use semafor_coop::{Ctx, Effect, Result, Runtime, Task};

#[test]
fn a_million_tasks_share_three_permits() {
    const TASKS: usize = 1_000_000;
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(3).await?;
        let mut tasks = Vec::with_capacity(TASKS);
        for number in 0..TASKS {
            let sem = sem.clone();
            let worker = async move |ctx: Ctx| {
                ctx.acquire(&sem).await?;
                ctx.yield_now().await?;
                ctx.release(&sem).await?;
                Ok(number)
            };
            tasks.push(ctx.spawn(worker).await?);
        }
        ctx.gather(&tasks).await
    });
    let values = outcome.result.unwrap();
    assert!(values.into_iter().eq(0..TASKS));
}

#[test]
fn a_hundred_thousand_tasks_wait_for_one_permit() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        let mut tasks = Vec::new();
        for _ in 0..100_000 {
            let sem = sem.clone();
            let task = async move |ctx: Ctx| {
                ctx.acquire(&sem).await?;
                ctx.delay(1.0).await?;
                ctx.release(&sem).await
            };
            tasks.push(ctx.spawn(task).await?);
        }
        ctx.gather(&tasks).await
    });
    outcome.result.unwrap();
    assert_eq!(outcome.report.elapsed.as_secs(), 100_000);
}

/// Each task spawns the next and waits for it.
fn nested(ctx: Ctx, depth: u32) -> std::pin::Pin<Box<dyn Future<Output = Result<u32>>>> {
    Box::pin(async move {
        if depth == 0 {
            return Ok(0);
        }
        let inner = ctx.spawn(move |ctx| nested(ctx, depth - 1)).await?;
        Ok(ctx.wait(&inner).await? + 1)
    })
}

#[test]
fn a_hundred_thousand_nested_tasks_wait_for_each_other() {
    let outcome = Runtime::new().run(|ctx| nested(ctx, 100_000));
    assert_eq!(outcome.result.unwrap(), 100_000);
}

struct Depth;

impl Effect for Depth {
    type Out = u32;
}

#[test]
fn a_hundred_thousand_handlers_can_be_nested() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let mut ctx = ctx.with_handler(async |_: Depth, _| Ok(7));
        struct Other;
        impl Effect for Other {
            type Out = ();
        }
        for _ in 0..100_000 {
            ctx = ctx.with_handler(async |_: Other, _| Ok(()));
        }
        ctx.perform(Depth).await
    });
    assert_eq!(outcome.result.unwrap(), 7);
}

#[test]
fn a_promise_with_a_hundred_thousand_waiters_wakes_them_in_order() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let promise = ctx.promise::<()>().await?;
        let mut tasks: Vec<Task<()>> = Vec::new();
        for _ in 0..100_000 {
            let future = promise.future();
            let waiter = async move |ctx: Ctx| {
                ctx.wait(future).await?;
                ctx.log("").await
            };
            tasks.push(ctx.spawn(waiter).await?);
        }
        ctx.complete(&promise, ()).await?;
        ctx.gather(&tasks).await.map(drop)
    });
    outcome.result.unwrap();
    assert!(outcome.report.log.iter().map(|line| line.task.number).is_sorted());
}

#[test]
fn fifty_thousand_tasks_each_wait_for_the_previous_one() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let first = async |ctx: Ctx| {
            // Time for several checks for deadlocks.
            for _ in 0..10 {
                ctx.delay(1.0).await?;
            }
            Ok(())
        };
        let mut last = ctx.spawn(first).await?;
        for _ in 0..50_000 {
            let before = last;
            last = ctx.spawn(async move |ctx: Ctx| ctx.wait(&before).await).await?;
        }
        ctx.wait(&last).await
    });
    outcome.result.unwrap();
}
