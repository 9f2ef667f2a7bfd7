//! Rate-limited workers and a mutex, with the times they take.

use semafor_coop::{
    AcquireSemaphore, CreateSemaphore, Ctx, Delay, Gather, Log, ReleaseSemaphore, Result, Runtime, Semaphore,
    Spawn, Wait,
};

async fn rate_limited_work(ctx: Ctx) -> Result<Vec<String>> {
    let sem = ctx.perform(CreateSemaphore::new(3)).await?;
    let mut tasks = Vec::new();
    for id in 0..10 {
        let sem = sem.clone();
        tasks.push(ctx.perform(Spawn::new(move |ctx| worker(ctx, sem, id))).await?);
    }
    ctx.perform(Gather(tasks.iter().map(Wait))).await
}

async fn worker(ctx: Ctx, sem: Semaphore, id: u32) -> Result<String> {
    ctx.perform(AcquireSemaphore(&sem)).await?;
    let work = async {
        ctx.perform(Log(format!("Worker {id} in critical section"))).await?;
        ctx.perform(Delay::new(0.1)).await?;
        Ok(format!("result-{id}"))
    };
    let result = work.await;
    ctx.perform(ReleaseSemaphore(&sem)).await?;
    result
}

#[test]
fn ten_workers_with_three_permits_start_in_four_waves() {
    let outcome = Runtime::new().run(rate_limited_work);
    let expected: Vec<_> = (0..10).map(|id| format!("result-{id}")).collect();
    assert_eq!(outcome.result.unwrap(), expected);
    let times: Vec<_> = outcome.report.log.iter().map(|line| line.at.as_millis()).collect();
    assert_eq!(times, [0, 0, 0, 100, 100, 100, 200, 200, 200, 300]);
    let order: Vec<_> = outcome.report.log.iter().map(|line| line.text.clone()).collect();
    let expected: Vec<_> = (0..10).map(|id| format!("Worker {id} in critical section")).collect();
    assert_eq!(order, expected);
    assert_eq!(outcome.report.elapsed.as_millis(), 400);
}

async fn mutex_example(ctx: Ctx) -> Result {
    let lock = ctx.perform(CreateSemaphore::new(1)).await?;
    let (first, second) = (lock.clone(), lock.clone());
    let task_a = ctx.perform(Spawn::new(move |ctx| critical_section(ctx, first, "A"))).await?;
    let task_b = ctx.perform(Spawn::new(move |ctx| critical_section(ctx, second, "B"))).await?;
    ctx.perform(Gather([Wait(task_a), Wait(task_b)])).await?;
    Ok(())
}

async fn critical_section(ctx: Ctx, lock: Semaphore, name: &'static str) -> Result {
    ctx.perform(AcquireSemaphore(&lock)).await?;
    ctx.perform(Log(format!("{name}: entered critical section"))).await?;
    ctx.perform(ReleaseSemaphore(&lock)).await
}

#[test]
fn a_binary_semaphore_is_a_lock() {
    let outcome = Runtime::new().run(mutex_example);
    outcome.result.unwrap();
    let log: Vec<_> = outcome.report.log.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(log, ["A: entered critical section", "B: entered critical section"]);
    assert_eq!(outcome.report.elapsed.as_nanos(), 0);
}
