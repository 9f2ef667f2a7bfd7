//! The order of tasks under the production schedule.

mod support;

use semafor_coop::{Ctx, Error, FailPromise, Priority, Result, Runtime, Spawn, Task, Wait};
use support::{lines, run_cleanly};

async fn says(ctx: Ctx, word: &'static str) -> Result<&'static str> {
    ctx.log(word).await?;
    Ok(word)
}

async fn spawn_at(ctx: &Ctx, priority: Priority, word: &'static str) -> Result<Task<&'static str>> {
    ctx.perform(Spawn::new(move |ctx| says(ctx, word)).priority(priority)).await
}

#[test]
fn a_child_runs_before_its_parent() {
    let order = run_cleanly(async |ctx: Ctx| {
        ctx.spawn(|ctx| says(ctx, "child")).await?;
        ctx.log("parent").await
    });
    assert_eq!(order, "child parent");
}

#[test]
fn a_child_of_lower_priority_runs_after_its_parent() {
    let order = run_cleanly(async |ctx: Ctx| {
        let child = spawn_at(&ctx, Priority::Idle, "child").await?;
        ctx.log("parent").await?;
        ctx.wait(&child).await?;
        Ok(())
    });
    assert_eq!(order, "parent child");
}

#[test]
fn higher_priorities_run_first_and_equal_ones_in_order() {
    let order = run_cleanly(async |ctx: Ctx| {
        let gate = ctx.promise::<()>().await?;
        let mut tasks = Vec::new();
        for (priority, word) in [
            (Priority::Idle, "idle-1"),
            (Priority::Normal, "normal-1"),
            (Priority::High, "high-1"),
            (Priority::Idle, "idle-2"),
            (Priority::Normal, "normal-2"),
            (Priority::High, "high-2"),
        ] {
            let opened = gate.future();
            let program = async move |ctx: Ctx| {
                ctx.wait(opened).await?;
                ctx.log(word).await
            };
            tasks.push(ctx.perform(Spawn::new(program).priority(priority)).await?);
        }
        ctx.complete(&gate, ()).await?;
        ctx.gather(&tasks).await?;
        Ok(())
    });
    assert_eq!(order, "high-1 high-2 normal-1 normal-2 idle-1 idle-2");
}

#[test]
fn priority_survives_every_suspension() {
    let order = run_cleanly(async |ctx: Ctx| {
        let low = async |ctx: Ctx| {
            for _ in 0..3 {
                ctx.delay(0.0).await?;
                ctx.log("low").await?;
            }
            Ok(())
        };
        let high = async |ctx: Ctx| {
            for _ in 0..3 {
                ctx.delay(0.0).await?;
                ctx.log("high").await?;
            }
            Ok(())
        };
        let low = ctx.perform(Spawn::new(low).priority(Priority::Idle)).await?;
        let high = ctx.perform(Spawn::new(high).priority(Priority::High)).await?;
        ctx.gather([low, high]).await?;
        Ok(())
    });
    // An idle task runs only when no other task can: at each instant after the other one.
    assert_eq!(order, "high low high low high low");
}

#[test]
fn effects_that_do_not_wait_do_not_switch_tasks() {
    let order = run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        let mut tasks = Vec::new();
        for word in ["a", "b"] {
            let sem = sem.clone();
            let program = async move |ctx: Ctx| {
                for _ in 0..3 {
                    ctx.acquire(&sem).await?;
                    ctx.log(word).await?;
                    ctx.release(&sem).await?;
                }
                Ok(())
            };
            tasks.push(ctx.spawn(program).await?);
        }
        ctx.gather(&tasks).await?;
        Ok(())
    });
    assert_eq!(order, "a a a b b b");
}

#[test]
fn a_yield_lets_other_tasks_run_first() {
    let order = run_cleanly(async |ctx: Ctx| {
        let turns = async |ctx: Ctx| {
            for _ in 0..2 {
                ctx.log("other").await?;
                ctx.yield_now().await?;
            }
            Ok(())
        };
        let other = ctx.spawn(turns).await?;
        for _ in 0..2 {
            ctx.log("root").await?;
            ctx.yield_now().await?;
        }
        ctx.wait(&other).await
    });
    assert_eq!(order, "other root other root");
}

#[test]
fn completing_a_promise_runs_its_waiters_first() {
    let order = run_cleanly(async |ctx: Ctx| {
        let promise = ctx.promise::<u32>().await?;
        let future = promise.future();
        let low = async move |ctx: Ctx| {
            let value = ctx.wait(future).await?;
            ctx.log(format!("low-{value}")).await
        };
        let low = ctx.perform(Spawn::new(low).priority(Priority::Idle)).await?;
        ctx.delay(1.0).await?;
        ctx.complete(&promise, 7).await?;
        ctx.log("completer").await?;
        ctx.wait(&low).await
    });
    assert_eq!(order, "low-7 completer");
}

#[test]
fn tasks_promises_and_semaphores_share_one_counter_of_ids() {
    let ids = Runtime::new().run(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        let task = ctx.spawn(async |_| Ok(())).await?;
        let promise = ctx.promise::<()>().await?;
        Ok((sem.id(), task.id(), promise.id()))
    });
    assert_eq!(ids.result.unwrap(), (0, 1, 2));
}

#[test]
fn gather_returns_values_in_the_order_of_its_arguments() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let mut tasks = Vec::new();
        for (delay, value) in [(0.3, 'a'), (0.1, 'b'), (0.2, 'c')] {
            tasks.push(ctx.spawn(async move |ctx: Ctx| ctx.delay(delay).await.map(|()| value)).await?);
        }
        let mixed = [Wait(&tasks[0]), Wait(&tasks[1]), Wait(&tasks[2]), Wait(&tasks[0])];
        ctx.gather(mixed).await
    });
    assert_eq!(outcome.result.unwrap(), ['a', 'b', 'c', 'a']);
    assert_eq!(outcome.report.elapsed.as_millis(), 300);
}

#[test]
fn gathering_nothing_returns_an_empty_list() {
    let outcome = Runtime::new().run(async |ctx: Ctx| ctx.gather(Vec::<Task<u8>>::new()).await);
    assert!(outcome.result.unwrap().is_empty());
}

#[test]
fn gather_fails_with_the_first_failure_and_the_other_tasks_continue() {
    let order = run_cleanly(async |ctx: Ctx| {
        let slow = async |ctx: Ctx| {
            ctx.delay(2.0).await?;
            ctx.log("slow").await
        };
        let slow = ctx.spawn(slow).await?;
        let failing = async |ctx: Ctx| {
            ctx.delay(1.0).await?;
            Err(Error::new("no"))
        };
        let failing: Task<()> = ctx.spawn(failing).await?;
        let failed = ctx.gather([&slow, &failing]).await.unwrap_err();
        ctx.log(format!("{failed}@{}", ctx.now().as_secs())).await?;
        ctx.wait(&slow).await
    });
    assert_eq!(order, "no@1 slow");
}

#[test]
fn gather_of_several_failed_tasks_fails_with_the_first_argument() {
    let error = Runtime::new().run(async |ctx: Ctx| {
        let fails = |word: &'static str| async move |_: Ctx| Err::<(), _>(Error::new(word));
        let first = ctx.spawn(fails("first")).await?;
        let second = ctx.spawn(fails("second")).await?;
        ctx.gather([&second, &first]).await
    });
    assert_eq!(error.result.unwrap_err().to_string(), "second");
}

#[test]
fn a_race_returns_the_first_to_end_and_the_losers_continue() {
    let order = run_cleanly(async |ctx: Ctx| {
        let run = |delay: f64, word: &'static str| {
            async move |ctx: Ctx| {
                ctx.delay(delay).await?;
                ctx.log(word).await?;
                Ok(word)
            }
        };
        let slow = ctx.spawn(run(2.0, "slow")).await?;
        let quick = ctx.spawn(run(1.0, "quick")).await?;
        let winner = ctx.race([&slow, &quick, &slow]).await?;
        ctx.log(format!("{winner}-won")).await?;
        // Both have ended by then, so the first argument wins.
        ctx.wait(&slow).await?;
        let winner = ctx.race([&slow, &quick]).await?;
        ctx.log(format!("{winner}-won")).await
    });
    assert_eq!(order, "quick quick-won slow slow-won");
}

#[test]
fn a_failed_winner_fails_the_race() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let failing: Task<()> = ctx.spawn(async |_: Ctx| Err(Error::new("lost"))).await?;
        let waiting = ctx.spawn(async |ctx: Ctx| ctx.delay(1.0).await).await?;
        ctx.race([&waiting, &failing]).await
    });
    assert_eq!(outcome.result.unwrap_err().to_string(), "lost");
}

#[test]
fn every_waiter_of_a_failed_promise_gets_the_same_error() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let promise = ctx.promise::<()>().await?;
        ctx.perform(FailPromise(&promise, Error::new("x".parse::<i32>().unwrap_err()))).await?;
        let first = ctx.wait(promise.future()).await.unwrap_err();
        let second = ctx.wait(promise.future()).await.unwrap_err();
        let address = |error: &Error| error.downcast_ref::<std::num::ParseIntError>().map(|e| e as *const _);
        Ok((address(&first), address(&second)))
    });
    let (first, second) = outcome.result.unwrap();
    assert!(first.is_some() && first == second);
}

#[test]
fn cancelling_a_parent_does_not_cancel_its_children() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let parent = async |ctx: Ctx| {
            let child = async |ctx: Ctx| {
                ctx.delay(5.0).await?;
                ctx.log("child").await
            };
            ctx.spawn(child).await?;
            ctx.delay(10.0).await
        };
        let parent = ctx.spawn(parent).await?;
        ctx.delay(1.0).await?;
        ctx.cancel(&parent).await?;
        assert!(ctx.wait(&parent).await.unwrap_err().is_cancelled());
        ctx.delay(10.0).await
    });
    outcome.result.unwrap();
    assert_eq!(lines(&outcome.report), ["child"]);
}

#[test]
fn a_wait_may_have_a_priority_of_its_own() {
    let order = run_cleanly(async |ctx: Ctx| {
        let promise = ctx.promise::<()>().await?;
        let mut tasks = Vec::new();
        for (word, priority) in
            [("idle", Priority::Idle), ("normal", Priority::Normal), ("high", Priority::High)]
        {
            let future = promise.future();
            let waiter = async move |ctx: Ctx| {
                ctx.perform(Wait(future).priority(priority)).await?;
                ctx.log(word).await?;
                // From here on the task has its own priority again.
                ctx.yield_now().await?;
                ctx.log(word).await
            };
            tasks.push(ctx.spawn(waiter).await?);
        }
        ctx.complete(&promise, ()).await?;
        // The completer resumes with the lowest priority of the waiters, so after all of them.
        ctx.log("completer").await?;
        ctx.gather(&tasks).await.map(drop)
    });
    assert_eq!(order, "high normal high normal idle idle completer");
}

#[test]
fn a_cancelled_waiter_resumes_with_the_priority_of_its_task() {
    let order = run_cleanly(async |ctx: Ctx| {
        let promise = ctx.promise::<()>().await?;
        let future = promise.future();
        let waiter = async move |ctx: Ctx| {
            assert!(ctx.perform(Wait(future).priority(Priority::Idle)).await.unwrap_err().is_cancelled());
            ctx.log("waiter").await
        };
        let waiter = ctx.spawn(waiter).await?;
        ctx.cancel(&waiter).await?;
        ctx.yield_now().await?;
        ctx.log("root").await
    });
    assert_eq!(order, "waiter root");
}

#[test]
fn creating_cancelling_and_waiting_for_settled_values_do_not_switch() {
    let order = run_cleanly(async |ctx: Ctx| {
        let done = ctx.spawn(async |_| Ok(1)).await?;
        // The sleeper is ready once it is cancelled, and runs when the root has to wait.
        let promise = ctx.promise::<()>().await?;
        let future = promise.future();
        let sleeper = async move |ctx: Ctx| {
            assert!(ctx.wait(future).await.unwrap_err().is_cancelled());
            ctx.log("sleeper").await
        };
        let sleeper = ctx.spawn(sleeper).await?;
        ctx.cancel(&sleeper).await?;
        let sem = ctx.create_semaphore(1).await?;
        ctx.promise::<()>().await?;
        ctx.wait(&done).await?;
        ctx.gather([&done]).await?;
        ctx.race([&done]).await?;
        assert!(ctx.try_acquire(&sem).await?);
        ctx.release(&sem).await?;
        ctx.perform(semafor_coop::Now).await?;
        ctx.log("root").await?;
        ctx.wait(&sleeper).await
    });
    assert_eq!(order, "root sleeper");
}

#[test]
fn a_cancelled_winner_fails_the_race() {
    run_cleanly(async |ctx: Ctx| {
        let sleeps = async |ctx: Ctx| ctx.delay(9.0).await;
        let (cancelled, other) = (ctx.spawn(sleeps).await?, ctx.spawn(sleeps).await?);
        ctx.cancel(&cancelled).await?;
        assert!(ctx.race([&other, &cancelled]).await.unwrap_err().is_cancelled());
        ctx.cancel(&other).await
    });
}

#[test]
fn a_task_can_be_waited_for_long_after_its_end() {
    run_cleanly(async |ctx: Ctx| {
        let early = ctx.spawn(async |_| Ok("early")).await?;
        for _ in 0..5_000 {
            ctx.spawn(async |_| Ok(())).await?;
        }
        assert_eq!(ctx.wait(&early).await?, "early");
        Ok(())
    });
}
