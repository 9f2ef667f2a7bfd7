use std::time::Instant;

use semafor_coop::{CreateSemaphore, Ctx, Result, Semaphore, run};

use super::{PAIRS, PARKED, PERMITS, SWITCHES};

fn timed(count: usize, program: impl AsyncFnOnce(&Ctx) -> Result + 'static) -> f64 {
    let elapsed = run(async move |ctx: Ctx| {
        let start = Instant::now();
        program(&ctx).await?;
        Ok(start.elapsed())
    });
    elapsed.expect("it has no reason to fail").as_nanos() as f64 / count as f64
}

pub(super) fn pairs() -> f64 {
    timed(PAIRS, async |ctx| {
        let sem = ctx.create_semaphore(PERMITS as u32).await?;
        for _ in 0..PAIRS {
            ctx.acquire(&sem).await?;
            ctx.release(&sem).await?;
        }
        Ok(())
    })
}

pub(super) fn parked() -> f64 {
    timed(PARKED, async |ctx| {
        let sem = ctx.create_semaphore(PERMITS as u32).await?;
        for _ in 0..PERMITS {
            ctx.acquire(&sem).await?;
        }
        let mut tasks = Vec::with_capacity(PARKED);
        for _ in 0..PARKED {
            let sem = sem.clone();
            let task = async move |ctx: Ctx| {
                ctx.acquire(&sem).await?;
                ctx.release(&sem).await
            };
            tasks.push(ctx.spawn(task).await?);
        }
        assert_eq!(sem.waiting(), PARKED);
        for _ in 0..PERMITS {
            ctx.release(&sem).await?;
        }
        ctx.gather(&tasks).await.map(drop)
    })
}

pub(super) fn ping_pong() -> f64 {
    async fn player(ctx: Ctx, own: Semaphore, other: Semaphore) -> Result {
        for _ in 0..SWITCHES / 2 {
            ctx.acquire(&own).await?;
            ctx.release(&other).await?;
        }
        Ok(())
    }
    timed(SWITCHES, async |ctx| {
        let ping = ctx.perform(CreateSemaphore::new(1).signal()).await?;
        let pong = ctx.perform(CreateSemaphore::new(1).signal()).await?;
        ctx.acquire(&ping).await?;
        ctx.acquire(&pong).await?;
        let (own, other) = (ping.clone(), pong.clone());
        let first = ctx.spawn(move |ctx| player(ctx, own, other)).await?;
        let (own, other) = (pong, ping.clone());
        let second = ctx.spawn(move |ctx| player(ctx, own, other)).await?;
        ctx.release(&ping).await?;
        ctx.gather([first, second]).await.map(drop)
    })
}
