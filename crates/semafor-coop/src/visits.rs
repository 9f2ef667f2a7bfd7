//! For tests: counts how often a task or a waiter is visited, so that a test can measure how work grows without a
//! clock.

#[cfg(not(test))]
#[inline(always)]
pub(crate) fn count(_looks: usize) {}

#[cfg(test)]
pub(crate) use counted::{count, during};

#[cfg(test)]
mod counted {
    use std::cell::Cell;

    thread_local! {
        static VISITS: Cell<u64> = const { Cell::new(0) };
    }

    pub(crate) fn count(visits: usize) {
        VISITS.set(VISITS.get() + visits as u64);
    }

    /// How many visits an action takes on this thread.
    pub(crate) fn during(action: impl FnOnce()) -> u64 {
        let before = VISITS.get();
        action();
        VISITS.get() - before
    }
}

#[cfg(test)]
mod tests {
    use crate::{AcquireSemaphore, Awaitable, CreateSemaphore, Ctx, Deadlocks, Result, Runtime, Task};

    /// The number of visits must grow with the number of tasks, not with its square.
    #[track_caller]
    fn assert_linear(program: impl AsyncFn(Ctx, usize) -> Result + Clone + 'static) {
        for deadlocks in [Deadlocks::Certain, Deadlocks::Holders, Deadlocks::Global] {
            let visits = |tasks: usize| {
                let program = program.clone();
                super::during(|| {
                    let runtime = Runtime::new().deadlocks(deadlocks);
                    runtime.run(async move |ctx: Ctx| program(ctx, tasks).await).result.unwrap();
                })
            };
            let (few, many) = (visits(250), visits(2_000));
            assert!(many < 16 * few, "{deadlocks:?}: {few} visits with 250 tasks, {many} with 2000");
        }
    }

    #[test]
    fn cancelling_the_waiters_of_one_promise_is_linear() {
        for is_reversed in [false, true] {
            assert_linear(async move |ctx: Ctx, count: usize| {
                let promise = ctx.promise::<()>().await?;
                let mut tasks = Vec::new();
                for _ in 0..count {
                    let future = promise.future();
                    tasks.push(ctx.spawn(async move |ctx: Ctx| ctx.wait(future).await).await?);
                }
                if is_reversed {
                    tasks.reverse();
                }
                for task in &tasks {
                    ctx.cancel(task).await?;
                }
                for task in &tasks {
                    assert!(ctx.wait(task).await.is_err_and(|error| error.is_cancelled()));
                }
                Ok(())
            });
        }
    }

    #[test]
    fn waiting_for_promises_without_handles_is_linear() {
        assert_linear(async |ctx: Ctx, count: usize| {
            let (mut promises, mut tasks) = (Vec::new(), Vec::new());
            for _ in 0..count {
                let promise = ctx.promise::<()>().await?;
                let future = promise.future();
                promises.push(promise);
                let waits = async move |ctx: Ctx| {
                    assert!(ctx.wait(future).await.is_err_and(|error| error.as_deadlock().is_some()));
                    Ok(())
                };
                tasks.push(ctx.spawn(waits).await?);
            }
            drop(promises);
            ctx.gather(&tasks).await.map(drop)
        });
    }

    #[test]
    fn races_against_one_promise_are_linear() {
        assert_linear(async |ctx: Ctx, count: usize| {
            let stop = ctx.promise::<()>().await?;
            let mut tasks = Vec::new();
            for number in 0..count {
                let stopped = stop.future();
                let races = async move |ctx: Ctx| {
                    let delay = async move |ctx: Ctx| ctx.delay((number % 7) as f64).await;
                    let delay = ctx.spawn(delay).await?;
                    ctx.race([delay.eventual(), stopped]).await
                };
                tasks.push(ctx.spawn(races).await?);
            }
            ctx.gather(&tasks).await.map(drop)
        });
    }

    #[test]
    fn tasks_that_wait_for_themselves_are_linear() {
        assert_linear(async |ctx: Ctx, count: usize| {
            let mut tasks = Vec::new();
            for _ in 0..count {
                let waits = async move |ctx: Ctx| {
                    let sem = ctx.create_semaphore(1).await?;
                    ctx.acquire(&sem).await?;
                    assert!(ctx.acquire(&sem).await.is_err_and(|error| error.as_deadlock().is_some()));
                    ctx.release(&sem).await
                };
                tasks.push(ctx.spawn(waits).await?);
            }
            ctx.gather(&tasks).await.map(drop)
        });
    }

    #[test]
    fn a_line_for_several_permits_at_once_is_linear() {
        assert_linear(async |ctx: Ctx, count: usize| {
            let sem = ctx.create_semaphore(10).await?;
            let mut tasks = Vec::new();
            for number in 0..count {
                let sem = sem.clone();
                let works = async move |ctx: Ctx| {
                    // A release is mostly too little for the first waiter.
                    let weight = 3 + (number % 2) as u32;
                    let _permit = ctx.perform(AcquireSemaphore(&sem).weight(weight).guarded()).await?;
                    ctx.delay(1.0).await
                };
                tasks.push(ctx.spawn(works).await?);
            }
            ctx.gather(&tasks).await.map(drop)
        });
    }

    #[test]
    fn many_holders_and_many_waiters_of_one_semaphore_are_linear() {
        assert_linear(async |ctx: Ctx, count: usize| {
            let sem = ctx.create_semaphore(count as u32 / 2).await?;
            let go = ctx.promise::<()>().await?;
            let mut tasks = Vec::new();
            for _ in 0..count {
                let (sem, go) = (sem.clone(), go.future());
                let works = async move |ctx: Ctx| {
                    let stays = AcquireSemaphore(&sem).weight(1).guarded().stays_with_task();
                    let _permit = ctx.perform(stays).await?;
                    ctx.wait(go).await
                };
                tasks.push(ctx.spawn(works).await?);
            }
            ctx.delay(1.0).await?;
            ctx.complete(&go, ()).await?;
            ctx.gather(&tasks).await.map(drop)
        });
    }

    #[test]
    fn permits_that_another_task_releases_are_linear() {
        for is_signal in [false, true] {
            assert_linear(async move |ctx: Ctx, count: usize| {
                let create = CreateSemaphore::new(count as u32);
                let sem = ctx.perform(if is_signal { create.signal() } else { create }).await?;
                for _ in 0..count {
                    ctx.acquire(&sem).await?;
                }
                let raised = sem.clone();
                let raises = async move |ctx: Ctx| {
                    for _ in 0..count {
                        ctx.release(&raised).await?;
                    }
                    Ok(())
                };
                let raises = ctx.spawn(raises).await?;
                ctx.wait(&raises).await?;
                assert_eq!(sem.available(), count as u32);
                Ok(())
            });
        }
    }

    #[test]
    fn tasks_that_race_both_of_their_neighbours_are_linear() {
        assert_linear(async |ctx: Ctx, count: usize| {
            let mut neighbours = Vec::new();
            for _ in 0..count {
                neighbours.push(ctx.promise::<Task<()>>().await?);
            }
            let mut tasks = Vec::new();
            for number in 0..count {
                let before = number.checked_sub(1).map(|before| neighbours[before].future());
                let after = neighbours.get(number + 1).map(crate::Promise::future);
                let races = async move |ctx: Ctx| {
                    let Some(after) = after else { return ctx.delay(1.0).await };
                    let mut both = vec![ctx.wait(after).await?];
                    if let Some(before) = before {
                        both.push(ctx.wait(before).await?);
                    }
                    ctx.race(&both).await
                };
                tasks.push(ctx.spawn(races).await?);
            }
            for (neighbour, task) in neighbours.iter().zip(&tasks) {
                ctx.complete(neighbour, task.clone()).await?;
            }
            // A task that ends with a permit triggers a check of all tasks.
            let sem = ctx.create_semaphore(1).await?;
            ctx.spawn(async move |ctx: Ctx| ctx.acquire(&sem).await).await?;
            ctx.gather(&tasks).await.map(drop)
        });
    }

    #[test]
    fn waiters_for_permits_of_tasks_that_ended_are_linear() {
        assert_linear(async |ctx: Ctx, count: usize| {
            let sem = ctx.create_semaphore(count as u32).await?;
            for _ in 0..count {
                let sem = sem.clone();
                ctx.spawn(async move |ctx: Ctx| ctx.acquire(&sem).await).await?;
            }
            let mut tasks = Vec::new();
            for _ in 0..count {
                let sem = sem.clone();
                let waits = async move |ctx: Ctx| {
                    assert!(ctx.acquire(&sem).await.is_err_and(|error| error.as_deadlock().is_some()));
                    Ok(())
                };
                tasks.push(ctx.spawn(waits).await?);
            }
            ctx.gather(&tasks).await.map(drop)
        });
    }
}
