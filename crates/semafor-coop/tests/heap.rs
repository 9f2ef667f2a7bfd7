//! Counted at the allocator, which other tests would use meanwhile: one test, in a program of its own.

use semafor_coop::{Ctx, Result, Runtime};
use semafor_testkit::heap::{Counting, live_bytes};

#[global_allocator]
static HEAP: Counting = Counting;

async fn tangle(ctx: Ctx) -> Result {
    let sem = ctx.create_semaphore(1).await?;
    let promise = ctx.promise::<String>().await?;
    let mut tasks = Vec::new();
    for number in 0..5 {
        let (sem, future) = (sem.clone(), promise.future());
        let task = async move |ctx: Ctx| {
            let _permit = ctx.permit(&sem).await?;
            ctx.delay(f64::from(number)).await?;
            if number == 4 { ctx.wait(future).await } else { Ok(number.to_string()) }
        };
        tasks.push(ctx.spawn(task).await?);
    }
    ctx.delay(8.0).await?;
    ctx.complete(&promise, "done".into()).await?;
    ctx.gather(&tasks).await.map(drop)
}

#[test]
fn nothing_stays_of_a_dropped_run_nor_of_semaphores_whose_handles_are_gone() {
    // What the thread allocates once.
    Runtime::new().run(tangle).result.unwrap();

    let mut has_ended = false;
    for steps in 0.. {
        let before = live_bytes();
        let mut running = Runtime::new().record().start(tangle);
        has_ended = has_ended || !(0..steps).all(|_| running.step());
        drop(running);
        assert_eq!(live_bytes(), before, "bytes after {steps} steps");
        if has_ended {
            break;
        }
    }

    let many = Runtime::new().run(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        let before = live_bytes();
        for _ in 0..3_000 {
            let sem = ctx.create_semaphore(1).await?;
            ctx.acquire(&sem).await?;
            ctx.release(&sem).await?;
        }
        let of_semaphores = live_bytes() - before;
        ctx.acquire(&sem).await?;
        ctx.release(&sem).await?;
        // The list of timers keeps its first node.
        ctx.delay(0.0).await?;
        let before = live_bytes();
        for _ in 0..3_000 {
            ctx.acquire(&sem).await?;
            ctx.yield_now().await?;
            ctx.release(&sem).await?;
            ctx.delay(0.0).await?;
        }
        Ok((of_semaphores, live_bytes() - before))
    });
    assert_eq!(many.result.unwrap(), (0, 0));
}
