//! The same program on the virtual and on the real clock.

use std::time::{Duration, Instant};

use semafor_coop::{AcquireSemaphore, Clock, Ctx, Error, Now, Result, Runtime};

async fn three_waves(ctx: Ctx) -> Result<Vec<u128>> {
    let sem = ctx.create_semaphore(2).await?;
    let mut tasks = Vec::new();
    for _ in 0..6 {
        let sem = sem.clone();
        let worker = async move |ctx: Ctx| {
            ctx.acquire(&sem).await?;
            let started = ctx.perform(Now).await?;
            ctx.delay(0.02).await?;
            ctx.release(&sem).await?;
            Ok(started.as_millis())
        };
        tasks.push(ctx.spawn(worker).await?);
    }
    ctx.gather(&tasks).await
}

#[test]
fn virtual_time_jumps_when_no_task_can_run() {
    let outcome = Runtime::new().run(three_waves);
    assert_eq!(outcome.result.unwrap(), [0, 0, 20, 20, 40, 40]);
    assert_eq!(outcome.report.elapsed, Duration::from_millis(60));
}

#[test]
fn on_the_real_clock_the_program_takes_real_time() {
    let start = Instant::now();
    let outcome = Runtime::new().clock(Clock::Real).run(three_waves);
    let started = outcome.result.unwrap();
    assert!(started.is_sorted());
    // Never early. How late depends on the machine.
    assert!(started[2] >= 20 && started[4] >= 40, "{started:?}");
    assert!(start.elapsed() >= Duration::from_millis(60));
}

#[test]
fn a_century_of_delays_takes_no_time() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        for _ in 0..100 {
            ctx.delay(Duration::from_secs(365 * 24 * 3600)).await?;
        }
        Ok(())
    });
    outcome.result.unwrap();
    assert_eq!(outcome.report.elapsed.as_secs(), 100 * 365 * 24 * 3600);
}

#[test]
fn timers_of_one_instant_fire_in_the_order_they_were_set() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let mut tasks = Vec::new();
        for (wait, then) in [(1.0, 2.0), (2.0, 1.0), (0.5, 2.5), (3.0, 0.0)] {
            let task = async move |ctx: Ctx| {
                ctx.delay(wait).await?;
                ctx.delay(then).await?;
                ctx.log(format!("{wait}")).await
            };
            tasks.push(ctx.spawn(task).await?);
        }
        ctx.gather(&tasks).await
    });
    outcome.result.unwrap();
    let order: Vec<_> = outcome.report.log.iter().map(|line| line.text.as_str()).collect();
    // All fire at second 3. Their second timers were set at 0.5, 1, 2 and 3.
    assert_eq!(order, ["0.5", "1", "2", "3"]);
}

#[test]
fn a_timed_acquire_works_on_the_real_clock() {
    let outcome = Runtime::new().clock(Clock::Real).run(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let refused = ctx.perform(AcquireSemaphore(&sem).timeout(0.01)).await;
        assert!(matches!(refused, Err(Error::TimedOut)));
        assert!(ctx.now() >= Duration::from_millis(10));
        ctx.release(&sem).await
    });
    outcome.result.unwrap();
}
