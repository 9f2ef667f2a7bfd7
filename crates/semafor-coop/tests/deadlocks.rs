//! Deadlocks are found when they form, described, and can be caught.

mod support;

use semafor_coop::{
    AcquireSemaphore, Awaitable, CreateSemaphore, Ctx, Deadlocks, Error, Result, Runtime, Semaphore, Spawn,
};
use support::run_cleanly;

/// A search that assumes that the task that acquired a permit releases it.
fn strict() -> Runtime {
    Runtime::new().deadlocks(Deadlocks::Holders)
}

async fn both(ctx: Ctx, first: Semaphore, second: Semaphore) -> Result {
    let _first = ctx.permit(&first).await?;
    ctx.delay(1.0).await?;
    let _second = ctx.permit(&second).await?;
    Ok(())
}

async fn ab_ba(ctx: &Ctx) -> Result<[semafor_coop::Task<()>; 2]> {
    let a = ctx.perform(CreateSemaphore::new(1).name("A")).await?;
    let b = ctx.perform(CreateSemaphore::new(1).name("B")).await?;
    let (first, second) = (a.clone(), b.clone());
    let left = ctx.perform(Spawn::new(move |ctx| both(ctx, first, second)).name("left")).await?;
    let right = ctx.perform(Spawn::new(move |ctx| both(ctx, b, a)).name("right")).await?;
    Ok([left, right])
}

#[test]
fn a_cycle_is_reported_to_its_youngest_task_with_tasks_and_lines() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let [left, right] = ab_ba(&ctx).await?;
        ctx.wait(&left).await?;
        ctx.wait(&right).await
    });
    let error = outcome.result.unwrap_err();
    let deadlock = error.as_deadlock().unwrap();
    assert!(deadlock.is_cycle);
    let mut names: Vec<_> = deadlock.links.iter().map(|link| link.task.to_string()).collect();
    names.sort();
    assert_eq!(names, ["left (task 2)", "right (task 3)"]);
    let text = error.to_string();
    assert!(
        text.contains("left (task 2) waits for semaphore B (id 1), held by right (task 3), at "),
        "{text}"
    );
    assert!(text.contains("tests/deadlocks.rs:18:"), "{text}");
    assert_eq!(outcome.report.deadlocks.len(), 1);
    assert_eq!(outcome.report.elapsed.as_secs(), 1, "the left task finished");
}

#[test]
fn the_strict_search_finds_a_cycle_while_a_timer_task_runs() {
    let outcome = strict().run(async |ctx: Ctx| {
        let ticker = async |ctx: Ctx| loop {
            ctx.delay(0.25).await?;
        };
        let ticker = ctx.spawn(ticker).await?;
        let tasks = ab_ba(&ctx).await?;
        let failed = ctx.gather(&tasks).await.unwrap_err();
        let found_at = ctx.now();
        ctx.cancel::<()>(&ticker).await?;
        Ok((failed, found_at.as_secs_f64()))
    });
    let (error, found_at) = outcome.result.unwrap();
    assert!(matches!(error, Error::Deadlock(_)));
    assert_eq!(found_at, 1.0);
}

#[test]
fn a_cycle_of_permits_that_stay_with_their_tasks_is_found_while_a_timer_task_runs() {
    for deadlocks in [Deadlocks::Certain, Deadlocks::Holders] {
        let outcome = Runtime::new().deadlocks(deadlocks).run(async |ctx: Ctx| {
            let (a, b) = (ctx.create_semaphore(1).await?, ctx.create_semaphore(1).await?);
            let ticker = async |ctx: Ctx| -> Result {
                loop {
                    ctx.delay(0.25).await?;
                }
            };
            ctx.perform(Spawn::new(ticker).daemon()).await?;
            let mut tasks = Vec::new();
            for (first, second) in [(a.clone(), b.clone()), (b, a)] {
                let cross = async move |ctx: Ctx| {
                    let guarded = |sem| AcquireSemaphore(sem).weight(1).guarded().stays_with_task();
                    let _first = ctx.perform(guarded(&first)).await?;
                    ctx.delay(1.0).await?;
                    let _second = ctx.perform(guarded(&second)).await?;
                    Ok(())
                };
                tasks.push(ctx.spawn(cross).await?);
            }
            ctx.gather(&tasks).await
        });
        let error = outcome.result.unwrap_err();
        assert!(error.as_deadlock().is_some_and(|deadlock| deadlock.is_cycle), "{error}");
        assert_eq!(outcome.report.elapsed.as_secs(), 1);
    }
}

#[test]
fn a_cycle_of_permits_that_may_move_is_reported_once_no_task_can_run() {
    for is_guarded in [true, false] {
        let outcome = Runtime::new().run(async move |ctx: Ctx| {
            let (a, b) = (ctx.create_semaphore(1).await?, ctx.create_semaphore(1).await?);
            ctx.spawn(async |ctx: Ctx| ctx.delay(5.0).await).await?;
            let mut tasks = Vec::new();
            for (first, second) in [(a.clone(), b.clone()), (b, a)] {
                let cross = async move |ctx: Ctx| {
                    if is_guarded {
                        return both(ctx, first, second).await;
                    }
                    ctx.acquire(&first).await?;
                    ctx.delay(1.0).await?;
                    ctx.acquire(&second).await
                };
                tasks.push(ctx.spawn(cross).await?);
            }
            ctx.gather(&tasks).await
        });
        let error = outcome.result.unwrap_err();
        assert!(error.to_string().starts_with("deadlock: 2 tasks wait in a circle"), "{error}");
        assert_eq!(outcome.report.elapsed.as_secs(), 5, "until then another task could have released");
    }
}

#[test]
fn a_gather_with_a_deadlocked_task_is_reported_despite_another_thread() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let stuck = ctx.spawn(async move |ctx: Ctx| ctx.acquire(&sem).await).await?;
        // Whatever the other thread does, the deadlocked task does not end.
        let (_outside, future) = ctx.perform(semafor_coop::CreateExternalPromise::<()>::new()).await?;
        ctx.gather([stuck.eventual(), future]).await
    });
    assert!(matches!(outcome.result, Err(Error::Deadlock(_))));
}

/// A run that fails where it would sleep until another thread completes a promise.
fn without_sleep() -> Runtime {
    thread_local!(static LULLS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
    LULLS.set(0);
    Runtime::new().pause(|_| {
        // The first lull is for a check of all tasks.
        LULLS.set(LULLS.get() + 1);
        if LULLS.get() > 3 { Err(Error::stopping("the run sleeps")) } else { Ok(()) }
    })
}

#[test]
fn a_promise_that_only_deadlocked_tasks_could_complete_is_reported_despite_another_thread() {
    for is_raced in [false, true] {
        let outcome = without_sleep().run(async move |ctx: Ctx| {
            let promise = ctx.promise::<()>().await?;
            let future = promise.future();
            let stuck = ctx.spawn(async move |ctx: Ctx| ctx.wait(future).await).await?;
            let (outside, spoken) = ctx.perform(semafor_coop::CreateExternalPromise::<()>::new()).await?;
            let waited = match is_raced {
                false => ctx.gather([stuck.eventual(), spoken]).await.map(drop),
                // The other thread can end this wait, and then root completes the promise.
                true => ctx.race([stuck.eventual(), spoken]).await,
            };
            drop((promise, outside));
            waited
        });
        let error = outcome.result.unwrap_err();
        assert_eq!(matches!(error, Error::Deadlock(_)), !is_raced, "{error}");
        assert_eq!(error.is_stop(), is_raced, "{error}");
    }
}

#[test]
fn a_deadlock_among_many_tasks_is_reported_despite_another_thread() {
    let outcome = without_sleep().run(async |ctx: Ctx| {
        let broken = ctx.promise::<()>().await?;
        for _ in 0..500 {
            let future = broken.future();
            ctx.perform(Spawn::new(async move |ctx: Ctx| ctx.wait(future).await).daemon()).await?;
        }
        drop(broken);
        let (first, first_word) = ctx.perform(semafor_coop::CreateExternalPromise::<()>::new()).await?;
        let (_second, second_word) = ctx.perform(semafor_coop::CreateExternalPromise::<()>::new()).await?;
        // All tasks are checked between the delays, so another full check is not cheap when the run waits for the
        // thread.
        let wakes = async move |ctx: Ctx| {
            ctx.delay(1.0).await?;
            ctx.delay(1.0).await?;
            first.complete(());
            Ok(())
        };
        ctx.spawn(wakes).await?;
        ctx.wait(first_word).await?;
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let stuck = ctx.spawn(async move |ctx: Ctx| ctx.acquire(&sem).await).await?;
        ctx.gather([stuck.eventual(), second_word]).await
    });
    let error = outcome.result.unwrap_err();
    assert!(matches!(error, Error::Deadlock(_)), "{error}");
}

#[test]
fn a_deadlock_among_many_tasks_is_reported_before_a_long_sleep() {
    thread_local!(static LULLS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
    let runtime = Runtime::new().clock(semafor_coop::Clock::Real).pause(|lull| {
        LULLS.set(LULLS.get() + 1);
        lull.wait_at_most(std::time::Duration::from_millis(1));
        if LULLS.get() > 3_000 { Err(Error::stopping("the run sleeps")) } else { Ok(()) }
    });
    let outcome = runtime.run(async |ctx: Ctx| {
        let broken = ctx.promise::<()>().await?;
        for _ in 0..500 {
            let future = broken.future();
            ctx.perform(Spawn::new(async move |ctx: Ctx| ctx.wait(future).await).daemon()).await?;
        }
        drop(broken);
        // All tasks are checked between the delays, so another full check is not cheap after that.
        for _ in 0..3 {
            ctx.delay(0.001).await?;
        }
        ctx.spawn(async |ctx: Ctx| ctx.delay(3600.0).await).await?;
        // More holders than are visited when a task begins to wait. All of them wait for the end of the waiter.
        let sem = ctx.create_semaphore(100).await?;
        let start = ctx.promise::<semafor_coop::Task<()>>().await?;
        for _ in 0..100 {
            let (sem, start) = (sem.clone(), start.future());
            let holds = async move |ctx: Ctx| {
                let _permit =
                    ctx.perform(AcquireSemaphore(&sem).weight(1).guarded().stays_with_task()).await?;
                let waiter = ctx.wait(start).await?;
                ctx.wait(&waiter).await
            };
            ctx.spawn(holds).await?;
        }
        let waiter = ctx.spawn(async move |ctx: Ctx| ctx.acquire(&sem).await).await?;
        ctx.complete(&start, waiter.clone()).await?;
        ctx.wait(&waiter).await
    });
    let error = outcome.result.unwrap_err();
    assert!(matches!(error, Error::Deadlock(_)), "{error}");
}

#[test]
fn the_strict_search_finds_a_cycle_while_a_task_spins() {
    let outcome = strict().run(async |ctx: Ctx| {
        let a = ctx.create_semaphore(1).await?;
        let b = ctx.create_semaphore(1).await?;
        let cross = |first: Semaphore, second: Semaphore| {
            async move |ctx: Ctx| {
                let _first = ctx.permit(&first).await?;
                // Until the other task has its first permit, too.
                for _ in 0..3 {
                    ctx.yield_now().await?;
                }
                let _second = ctx.permit(&second).await?;
                Ok(())
            }
        };
        let left = ctx.spawn(cross(a.clone(), b.clone())).await?;
        let right = ctx.spawn(cross(b, a)).await?;
        // Never waits, so the run is never idle, and time stands still.
        while !left.is_finished() || !right.is_finished() {
            ctx.yield_now().await?;
        }
        ctx.gather([left, right]).await
    });
    assert!(matches!(outcome.result, Err(Error::Deadlock(_))));
}

#[test]
fn a_deadlock_can_be_caught_and_the_program_continues() {
    let order = run_cleanly(async |ctx: Ctx| {
        let a = ctx.create_semaphore(1).await?;
        let b = ctx.create_semaphore(1).await?;
        let mut tasks = Vec::new();
        for (first, second) in [(a.clone(), b.clone()), (b.clone(), a.clone())] {
            let retries = async move |ctx: Ctx| loop {
                let held = ctx.permit(&first).await?;
                ctx.delay(1.0).await?;
                match ctx.permit(&second).await {
                    Ok(_) => return ctx.log("done").await,
                    Err(Error::Deadlock(_)) => drop(held),
                    Err(error) => return Err(error),
                }
                ctx.log("backs off").await?;
                ctx.delay(1.0).await?;
            };
            tasks.push(ctx.spawn(retries).await?);
        }
        ctx.gather(&tasks).await?;
        assert_eq!((a.available(), b.available()), (1, 1));
        Ok(())
    });
    assert_eq!(order, "backs off done done");
}

#[test]
fn a_cycle_of_waits_and_permits_is_found() {
    let outcome = strict().run(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        let held = sem.clone();
        let inner = async move |ctx: Ctx| ctx.permit(&held).await.map(drop);
        let held = sem.clone();
        let outer = async move |ctx: Ctx| {
            let _permit = ctx.permit(&held).await?;
            let inner = ctx.perform(Spawn::new(inner).name("inner")).await?;
            ctx.wait(&inner).await
        };
        let outer = ctx.perform(Spawn::new(outer).name("outer")).await?;
        let alive = ctx.spawn(async |ctx: Ctx| ctx.delay(99.0).await).await?;
        let failed = ctx.wait(&outer).await;
        ctx.cancel(&alive).await?;
        failed
    });
    let error = outcome.result.unwrap_err();
    assert_eq!(error.as_deadlock().unwrap().links.len(), 2);
    assert_eq!(outcome.report.elapsed.as_secs(), 0);
}

#[test]
fn waiting_for_a_permit_of_an_ended_task_is_a_deadlock() {
    let outcome = strict().run(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        let held = sem.clone();
        let forgets = ctx.spawn(async move |ctx: Ctx| ctx.acquire(&held).await).await?;
        ctx.wait(&forgets).await?;
        let ticker = ctx.spawn(async |ctx: Ctx| ctx.delay(9.0).await).await?;
        let failed = ctx.acquire(&sem).await;
        ctx.cancel(&ticker).await?;
        failed
    });
    let text = outcome.result.unwrap_err().to_string();
    assert!(text.contains("held by a task that has ended, acquired at"), "{text}");
    assert_eq!(outcome.report.unreleased.len(), 1);
    assert!(
        outcome.report.unreleased[0].to_string().contains("task 1 ended with 1 unreleased of semaphore 0")
    );
    assert_eq!(outcome.report.elapsed.as_secs(), 0);
}

#[test]
fn waiting_for_a_promise_without_handles_is_a_deadlock() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let promise = ctx.promise::<()>().await?;
        let future = promise.future();
        let waiter = ctx.spawn(async move |ctx: Ctx| ctx.wait(future).await).await?;
        let ticker = ctx.spawn(async |ctx: Ctx| ctx.delay(9.0).await).await?;
        drop(promise);
        let failed = ctx.wait(&waiter).await;
        ctx.cancel(&ticker).await?;
        failed
    });
    let error = outcome.result.unwrap_err();
    assert!(!error.as_deadlock().unwrap().is_cycle);
    assert!(error.to_string().contains("waits for promise 0"), "{error}");
    assert_eq!(outcome.report.elapsed.as_secs(), 0);
}

#[test]
fn waiting_for_a_promise_that_only_the_waiter_could_complete_is_a_deadlock() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let promise = ctx.promise::<()>().await?;
        ctx.wait(promise.future()).await
    });
    assert!(matches!(outcome.result, Err(Error::Deadlock(_))));
}

#[test]
fn acquiring_the_only_permit_twice_is_a_deadlock() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        ctx.acquire(&sem).await
    });
    assert!(outcome.result.unwrap_err().to_string().starts_with("deadlock: a task waits for itself"));
}

#[test]
fn waiting_for_a_signal_is_no_deadlock() {
    run_cleanly(async |ctx: Ctx| {
        let ready = ctx.perform(CreateSemaphore::new(1).signal()).await?;
        ctx.acquire(&ready).await?;
        let raise = ready.clone();
        let producer = async move |ctx: Ctx| {
            ctx.delay(1.0).await?;
            ctx.release(&raise).await
        };
        let producer = ctx.spawn(producer).await?;
        ctx.acquire(&ready).await?;
        ctx.release(&ready).await?;
        ctx.wait(&producer).await
    });
}

#[test]
fn a_timed_acquire_is_no_deadlock_and_times_out() {
    run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let refused = ctx.perform(semafor_coop::AcquireSemaphore(&sem).timeout(1.0)).await;
        assert!(matches!(refused, Err(Error::TimedOut)));
        ctx.release(&sem).await
    });
}

#[test]
fn a_timeout_out_of_range_does_not_prevent_a_deadlock() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        ctx.perform(AcquireSemaphore(&sem).timeout(std::time::Duration::MAX)).await
    });
    assert!(matches!(outcome.result, Err(Error::Deadlock(_))));
    assert_eq!(outcome.report.elapsed.as_secs(), 0, "time did not move to the deadline");
}

#[test]
fn global_detection_reports_only_when_no_task_can_run() {
    let partial = async |ctx: Ctx| {
        let tasks = ab_ba(&ctx).await?;
        ctx.delay(50.0).await?;
        Ok(tasks.iter().any(semafor_coop::Task::is_finished))
    };
    let outcome = Runtime::new().deadlocks(Deadlocks::Global).run(partial);
    assert!(!outcome.result.unwrap(), "while root could run, no deadlock was reported");
    let total = async |ctx: Ctx| {
        let tasks = ab_ba(&ctx).await?;
        ctx.gather(&tasks).await
    };
    let outcome = Runtime::new().deadlocks(Deadlocks::Global).run(total);
    assert!(matches!(outcome.result, Err(Error::Deadlock(_))));
}

#[test]
fn without_detection_the_run_still_ends() {
    let outcome = Runtime::new().deadlocks(Deadlocks::Off).run(async |ctx: Ctx| {
        let tasks = ab_ba(&ctx).await?;
        let result = ctx.gather(&tasks).await;
        ctx.log("not reached").await?;
        result
    });
    assert!(matches!(outcome.result, Err(Error::Deadlock(_))));
    assert!(outcome.report.log.is_empty());
    assert_eq!(outcome.report.abandoned.len(), 2);
}

#[test]
fn a_daemon_that_waits_forever_is_no_deadlock() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let promise = ctx.promise::<()>().await?;
        let future = promise.future();
        let idle = Spawn::new(async move |ctx: Ctx| ctx.wait(future).await).daemon();
        ctx.perform(idle).await?;
        drop(promise);
        ctx.delay(1.0).await
    });
    outcome.result.unwrap();
    assert!(outcome.report.deadlocks.is_empty() && outcome.report.abandoned.is_empty());
}

#[test]
fn a_cycle_longer_than_one_check_covers_is_found() {
    // A cycle far longer than what is visited when a task begins to wait.
    let outcome = strict().run(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let last = sem.clone();
        let mut task = ctx.spawn(async move |ctx: Ctx| ctx.acquire(&last).await).await?;
        for _ in 0..500 {
            let next = task;
            task = ctx.spawn(async move |ctx: Ctx| ctx.wait(&next).await).await?;
        }
        let ticker = ctx.spawn(async |ctx: Ctx| ctx.delay(9.0).await).await?;
        let failed = ctx.wait(&task).await;
        ctx.cancel(&ticker).await?;
        ctx.release(&sem).await?;
        failed
    });
    let error = outcome.result.unwrap_err();
    assert_eq!(error.as_deadlock().unwrap().links.len(), 502);
    assert_eq!(outcome.report.elapsed.as_secs(), 0);
}

#[test]
fn a_release_too_small_for_the_first_waiter_triggers_a_check() {
    let outcome = strict().run(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(2).await?;
        let leaked = sem.clone();
        let leaks = ctx.spawn(async move |ctx: Ctx| ctx.acquire(&leaked).await).await?;
        ctx.wait(&leaks).await?;
        ctx.acquire(&sem).await?;
        let both = sem.clone();
        let heavy = async move |ctx: Ctx| {
            let result = ctx.perform(semafor_coop::AcquireSemaphore(&both).weight(2)).await;
            assert!(matches!(result, Err(Error::Deadlock(_))));
            ctx.log("deadlock").await
        };
        let heavy = ctx.spawn(heavy).await?;
        ctx.delay(1.0).await?;
        assert!(!heavy.is_finished(), "one of the two permits could still be released");
        ctx.release(&sem).await?;
        // No task waits for the heavy one, and the root keeps running.
        for _ in 0..100 {
            ctx.delay(1.0).await?;
        }
        Ok(())
    });
    outcome.result.unwrap();
    assert_eq!(outcome.report.log.len(), 1);
    assert!(outcome.report.log[0].at.as_secs() <= 10, "{}", outcome.report.log[0]);
}

#[test]
fn a_daemon_in_a_cycle_with_other_tasks_is_a_deadlock() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let promise = ctx.promise::<()>().await?;
        let future = promise.future();
        drop(promise);
        let idle = Spawn::new(async move |ctx: Ctx| ctx.wait(future).await).daemon();
        ctx.perform(idle).await?;
        ctx.delay(1.0).await
    });
    outcome.result.unwrap();
    assert!(outcome.report.deadlocks.is_empty(), "{:?}", outcome.report.deadlocks);

    let outcome = strict().run(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let wants = sem.clone();
        let waits = Spawn::new(async move |ctx: Ctx| ctx.permit(&wants).await.map(drop)).daemon();
        let daemon = ctx.perform(waits).await?;
        ctx.spawn(async |ctx: Ctx| ctx.delay(9.0).await).await?;
        let result = ctx.wait(&daemon).await;
        ctx.release(&sem).await?;
        result
    });
    assert!(matches!(outcome.result, Err(Error::Deadlock(_))));
    assert_eq!(outcome.report.elapsed.as_secs(), 0);
}

#[test]
fn of_two_acquires_in_one_task_the_first_gets_the_deadlock_and_the_other_keeps_its_place() {
    run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let mut first = Box::pin(ctx.acquire(&sem));
        let mut second = Box::pin(ctx.acquire(&sem));
        let result = std::future::poll_fn(|cx| {
            let poll = first.as_mut().poll(cx);
            assert!(second.as_mut().poll(cx).is_pending());
            poll
        });
        assert!(matches!(result.await, Err(Error::Deadlock(_))));
        assert_eq!(sem.waiting(), 1);
        ctx.release(&sem).await?;
        second.await?;
        ctx.release(&sem).await
    });
}

#[test]
fn retrying_a_deadlock_forever_ends_at_the_step_limit_with_a_bounded_report() {
    let outcome = Runtime::new().most_steps(100_000).run(async |ctx: Ctx| -> Result {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        loop {
            assert!(matches!(ctx.acquire(&sem).await, Err(Error::Deadlock(_))));
        }
    });
    assert!(matches!(outcome.result, Err(Error::TooManySteps(_))));
    assert_eq!(outcome.report.deadlocks.len(), 1_000);
}

#[test]
fn the_error_names_semaphores_and_tasks_by_number_and_the_root() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let wants = sem.clone();
        let waiter = ctx.spawn(async move |ctx: Ctx| ctx.acquire(&wants).await).await?;
        ctx.gather([&waiter]).await
    });
    let error = outcome.result.unwrap_err();
    let links: Vec<_> = error.as_deadlock().unwrap().links.iter().collect();
    let waits: Vec<_> = links.iter().map(|link| format!("{} for {}", link.task, link.waits_for)).collect();
    assert_eq!(waits, ["root for the end of task 1", "task 1 for semaphore 0, held by root"]);
}

#[test]
fn cleanup_runs_after_a_deadlock_error() {
    let order = run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let result = ctx.acquire(&sem).await;
        ctx.delay(1.0).await?;
        ctx.release(&sem).await?;
        ctx.log("cleaned up").await?;
        assert!(result.is_err());
        Ok(())
    });
    assert_eq!(order, "cleaned up");
}

#[test]
fn the_strict_search_finds_a_cycle_despite_a_wait_for_another_thread() {
    let outcome = strict().run(async |ctx: Ctx| {
        let (outside, future) = ctx.perform(semafor_coop::CreateExternalPromise::<()>::new()).await?;
        let listener = ctx.spawn(async move |ctx: Ctx| ctx.wait(future).await).await?;
        let tasks = ab_ba(&ctx).await?;
        let found = ctx.gather(&tasks).await.unwrap_err();
        outside.complete(());
        ctx.wait(&listener).await?;
        Ok(found)
    });
    assert!(matches!(outcome.result.unwrap(), Error::Deadlock(_)));
}

#[test]
fn a_waiter_behind_a_timed_acquire_is_not_deadlocked() {
    run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(2).await?;
        ctx.acquire(&sem).await?;
        let both = sem.clone();
        let heavy = async move |ctx: Ctx| {
            let late = ctx.perform(semafor_coop::AcquireSemaphore(&both).weight(2).timeout(1.0)).await;
            assert!(matches!(late, Err(Error::TimedOut)));
            Ok(())
        };
        let heavy = ctx.spawn(heavy).await?;
        // One permit is free once the heavy waiter has timed out.
        ctx.acquire(&sem).await?;
        assert_eq!(ctx.now().as_secs(), 1);
        ctx.release(&sem).await?;
        ctx.release(&sem).await?;
        ctx.wait(&heavy).await
    });
}
