//! A cancelled task gets the error, and no permit is lost.

mod support;

use semafor_coop::{Ctx, Error, Result, Runtime, Task};
use support::{lines, run_cleanly};

#[test]
fn a_cancelled_holder_cleans_up_and_may_await_while_it_does() {
    let order = run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        let held = sem.clone();
        let holder = async move |ctx: Ctx| {
            ctx.acquire(&held).await?;
            let cancelled = ctx.delay(100.0).await.unwrap_err();
            ctx.delay(5.0).await?;
            ctx.log(format!("cleaned@{}", ctx.now().as_secs())).await?;
            ctx.release(&held).await?;
            Err::<(), _>(cancelled)
        };
        let holder = ctx.spawn(holder).await?;
        ctx.delay(1.0).await?;
        ctx.cancel(&holder).await?;
        ctx.acquire(&sem).await?;
        ctx.log(format!("next@{}", ctx.now().as_secs())).await?;
        ctx.release(&sem).await?;
        assert!(ctx.wait(&holder).await.unwrap_err().is_cancelled());
        Ok(())
    });
    assert_eq!(order, "cleaned@6 next@6");
}

#[test]
fn a_cancelled_waiter_leaves_the_line_and_consumes_nothing() {
    let order = run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let mut waiters = Vec::new();
        for word in ["first", "second"] {
            let sem = sem.clone();
            let waiter = async move |ctx: Ctx| {
                ctx.acquire(&sem).await?;
                ctx.log(word).await?;
                ctx.release(&sem).await
            };
            waiters.push(ctx.spawn(waiter).await?);
        }
        assert_eq!(sem.waiting(), 2);
        ctx.cancel(&waiters[0]).await?;
        assert_eq!(sem.waiting(), 1, "it leaves the line at once");
        assert!(ctx.wait(&waiters[0]).await.unwrap_err().is_cancelled());
        ctx.release(&sem).await?;
        ctx.wait(&waiters[1]).await?;
        assert_eq!(sem.available(), 1);
        Ok(())
    });
    assert_eq!(order, "second");
}

#[test]
fn a_permit_granted_to_a_cancelled_task_goes_to_the_next_waiter() {
    run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let wants = sem.clone();
        let first = ctx.spawn(async move |ctx: Ctx| ctx.acquire(&wants).await).await?;
        let wants = sem.clone();
        let second = async move |ctx: Ctx| {
            ctx.acquire(&wants).await?;
            ctx.release(&wants).await
        };
        let second = ctx.spawn(second).await?;
        ctx.release(&sem).await?;
        // The first waiter was granted the permit, but has not run since.
        ctx.cancel(&first).await?;
        assert!(ctx.wait(&first).await.unwrap_err().is_cancelled());
        ctx.wait(&second).await?;
        assert_eq!(sem.available(), 1);
        Ok(())
    });
}

#[test]
fn a_permit_granted_to_a_cancelled_task_is_free_if_no_task_waits() {
    run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let wants = sem.clone();
        let first = ctx.spawn(async move |ctx: Ctx| ctx.acquire(&wants).await).await?;
        ctx.release(&sem).await?;
        ctx.cancel(&first).await?;
        assert_eq!(sem.available(), 1);
        Ok(())
    });
}

#[test]
fn a_task_that_was_cancelled_before_it_started_never_runs() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let spawn = semafor_coop::Spawn::new(async |ctx: Ctx| ctx.log("never").await);
        let task = ctx.perform(spawn.priority(semafor_coop::Priority::Idle)).await?;
        ctx.cancel(&task).await?;
        assert!(task.is_finished());
        assert!(ctx.wait(&task).await.unwrap_err().is_cancelled());
        Ok(())
    });
    outcome.result.unwrap();
    assert!(lines(&outcome.report).is_empty());
}

#[test]
fn cancelling_an_ended_task_changes_nothing() {
    run_cleanly(async |ctx: Ctx| {
        let task = ctx.spawn(async |_| Ok(3)).await?;
        assert_eq!(ctx.wait(&task).await?, 3);
        ctx.cancel(&task).await?;
        ctx.cancel(&task).await?;
        assert_eq!(ctx.wait(&task).await?, 3);
        Ok(())
    });
}

#[test]
fn a_task_that_cancels_itself_gets_the_error_at_its_next_wait() {
    let order = run_cleanly(async |ctx: Ctx| {
        let own = ctx.promise::<Task<()>>().await?;
        let future = own.future();
        let task = async move |ctx: Ctx| {
            let own = ctx.wait(future).await?;
            ctx.cancel(&own).await?;
            ctx.log("continues").await?;
            let error = ctx.delay(1.0).await.unwrap_err();
            ctx.log(error.to_string()).await?;
            Err(error)
        };
        let task = ctx.spawn(task).await?;
        ctx.complete(&own, task.clone()).await?;
        assert!(ctx.wait(&task).await.unwrap_err().is_cancelled());
        assert_eq!(ctx.now().as_secs(), 0);
        Ok(())
    });
    assert_eq!(order, "continues task was cancelled");
}

#[test]
fn a_task_may_ignore_its_cancellation_and_return_a_value() {
    run_cleanly(async |ctx: Ctx| {
        let ignoring = async |ctx: Ctx| {
            let _ = ctx.delay(1.0).await;
            ctx.delay(1.0).await?;
            Ok("continued")
        };
        let ignoring = ctx.spawn(ignoring).await?;
        ctx.cancel(&ignoring).await?;
        assert_eq!(ctx.wait(&ignoring).await?, "continued");
        Ok(())
    });
}

#[test]
fn two_cancels_before_the_task_resumes_count_as_one() {
    run_cleanly(async |ctx: Ctx| {
        let task = async |ctx: Ctx| {
            assert!(ctx.delay(9.0).await.unwrap_err().is_cancelled());
            ctx.delay(1.0).await
        };
        let task = ctx.spawn(task).await?;
        ctx.cancel(&task).await?;
        ctx.cancel(&task).await?;
        ctx.wait(&task).await
    });
}

#[test]
fn a_second_cancel_interrupts_cleanup_unless_it_is_shielded() {
    let order = run_cleanly(async |ctx: Ctx| {
        let interrupted = async |ctx: Ctx| {
            assert!(ctx.delay(9.0).await.unwrap_err().is_cancelled());
            ctx.delay(9.0).await.unwrap_err();
            ctx.log("interrupted").await
        };
        let shielded = async |ctx: Ctx| {
            assert!(ctx.delay(9.0).await.unwrap_err().is_cancelled());
            ctx.shield(ctx.delay(9.0)).await?;
            ctx.log("finished").await?;
            ctx.delay(1.0).await
        };
        let interrupted = ctx.spawn(interrupted).await?;
        let shielded = ctx.spawn(shielded).await?;
        for _ in 0..2 {
            ctx.cancel(&interrupted).await?;
            ctx.cancel(&shielded).await?;
            ctx.delay(1.0).await?;
        }
        ctx.wait(&interrupted).await?;
        assert!(ctx.wait(&shielded).await.unwrap_err().is_cancelled(), "it gets the error afterwards");
        Ok(())
    });
    assert_eq!(order, "interrupted finished");
}

#[test]
fn a_shielded_acquire_keeps_its_place_in_line() {
    run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let wants = sem.clone();
        let task = async move |ctx: Ctx| {
            ctx.shield(ctx.acquire(&wants)).await?;
            ctx.release(&wants).await
        };
        let task = ctx.spawn(task).await?;
        ctx.cancel(&task).await?;
        assert_eq!(sem.waiting(), 1);
        ctx.release(&sem).await?;
        ctx.wait(&task).await?;
        assert_eq!(sem.available(), 1);
        Ok(())
    });
}

#[test]
fn waiters_of_a_cancelled_task_get_the_error_after_its_cleanup() {
    run_cleanly(async |ctx: Ctx| {
        let task = async |ctx: Ctx| -> Result {
            let error = ctx.delay(9.0).await.unwrap_err();
            ctx.delay(2.0).await?;
            Err(error)
        };
        let task = ctx.spawn(task).await?;
        ctx.cancel(&task).await?;
        assert!(matches!(ctx.gather([&task]).await, Err(Error::TaskCancelled)));
        assert_eq!(ctx.now().as_secs(), 2);
        Ok(())
    });
}

#[test]
fn every_kind_of_wait_can_be_cancelled() {
    run_cleanly(async |ctx: Ctx| {
        let never = ctx.promise::<()>().await?;
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let sleeper = ctx.spawn(async |ctx: Ctx| ctx.delay(50.0).await).await?;
        for kind in 0..6 {
            let (future, sem, sleeper) = (never.future(), sem.clone(), sleeper.clone());
            let task = async move |ctx: Ctx| match kind {
                0 => ctx.wait(&future).await,
                1 => ctx.acquire(&sem).await,
                2 => ctx.wait(&sleeper).await,
                3 => ctx.gather([&sleeper]).await.map(drop),
                4 => ctx.race([&sleeper]).await,
                _ => loop {
                    ctx.yield_now().await?;
                },
            };
            let task = ctx.spawn(task).await?;
            ctx.cancel(&task).await?;
            assert!(ctx.wait(&task).await.unwrap_err().is_cancelled(), "kind {kind}");
        }
        assert_eq!(sem.waiting(), 0);
        ctx.release(&sem).await?;
        ctx.wait(&sleeper).await
    });
}

#[test]
fn cleanup_may_cancel_other_tasks_and_its_own() {
    let order = run_cleanly(async |ctx: Ctx| {
        let own = ctx.promise::<Task<()>>().await?;
        let future = own.future();
        let other = ctx.spawn(async |ctx: Ctx| ctx.delay(9.0).await).await?;
        let victim = other.clone();
        let task = async move |ctx: Ctx| {
            let own = ctx.wait(future).await?;
            assert!(ctx.delay(9.0).await.unwrap_err().is_cancelled());
            ctx.cancel(&victim).await?;
            ctx.cancel(&own).await?;
            assert!(ctx.delay(1.0).await.unwrap_err().is_cancelled());
            ctx.delay(1.0).await?;
            ctx.log("cleaned up").await
        };
        let task = ctx.spawn(task).await?;
        ctx.complete(&own, task.clone()).await?;
        ctx.cancel(&task).await?;
        ctx.wait(&task).await?;
        assert!(ctx.wait(&other).await.unwrap_err().is_cancelled());
        Ok(())
    });
    assert_eq!(order, "cleaned up");
}

#[test]
fn cancelling_a_task_fails_all_of_its_waiting_acquires() {
    run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let wants = sem.clone();
        let waiter = async move |ctx: Ctx| {
            let mut first = Box::pin(ctx.acquire(&wants));
            let mut second = Box::pin(ctx.acquire(&wants));
            let mut cancelled = Vec::new();
            std::future::poll_fn(|cx| {
                for acquire in [&mut first, &mut second] {
                    if let std::task::Poll::Ready(result) = acquire.as_mut().poll(cx) {
                        cancelled.push(result.unwrap_err().is_cancelled());
                    }
                }
                if cancelled.is_empty() { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
            })
            .await;
            assert_eq!(cancelled, [true, true]);
            Ok(())
        };
        let waiter = ctx.spawn(waiter).await?;
        assert_eq!(sem.waiting(), 2);
        ctx.cancel(&waiter).await?;
        assert_eq!(sem.waiting(), 0);
        ctx.wait(&waiter).await?;
        ctx.release(&sem).await
    });
}
