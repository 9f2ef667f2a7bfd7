//! The promises of the semaphore.

mod support;

use std::cell::RefCell;
use std::rc::Rc;

use semafor_coop::{
    AcquireSemaphore, CreateSemaphore, Ctx, Error, Priority, Result, Runtime, Semaphore, Spawn, Task,
    TryAcquireSemaphore, WithSemaphore,
};
use support::run_cleanly;

async fn spawn_acquirer(ctx: &Ctx, sem: &Semaphore, word: &'static str) -> Result<Task<()>> {
    spawn_acquirer_at(ctx, sem, word, Priority::Normal).await
}

async fn spawn_acquirer_at(
    ctx: &Ctx,
    sem: &Semaphore,
    word: &'static str,
    priority: Priority,
) -> Result<Task<()>> {
    let sem = sem.clone();
    let program = async move |ctx: Ctx| {
        ctx.acquire(&sem).await?;
        ctx.log(word).await?;
        ctx.release(&sem).await
    };
    ctx.perform(Spawn::new(program).name(word).priority(priority)).await
}

#[test]
fn the_line_is_first_come_first_served_regardless_of_priority() {
    let order = run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let low = spawn_acquirer_at(&ctx, &sem, "low", Priority::Idle).await?;
        ctx.delay(1.0).await?;
        let high = spawn_acquirer_at(&ctx, &sem, "high", Priority::High).await?;
        ctx.release(&sem).await?;
        ctx.gather([low, high]).await?;
        Ok(())
    });
    assert_eq!(order, "low high");
}

#[test]
fn tasks_with_granted_permits_resume_by_priority() {
    let order = run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(2).await?;
        ctx.acquire(&sem).await?;
        ctx.acquire(&sem).await?;
        let low = spawn_acquirer_at(&ctx, &sem, "low", Priority::Idle).await?;
        ctx.delay(1.0).await?;
        let high = spawn_acquirer_at(&ctx, &sem, "high", Priority::High).await?;
        ctx.release(&sem).await?;
        ctx.release(&sem).await?;
        ctx.gather([low, high]).await?;
        Ok(())
    });
    assert_eq!(order, "high low");
}

#[test]
fn a_released_permit_goes_to_the_first_waiter_and_the_releaser_continues() {
    let order = run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let waiter = spawn_acquirer(&ctx, &sem, "waiter").await?;
        ctx.release(&sem).await?;
        assert_eq!(sem.available(), 0, "the waiter has it");
        ctx.log("releaser").await?;
        ctx.acquire(&sem).await?;
        ctx.log("again").await?;
        ctx.release(&sem).await?;
        ctx.wait(&waiter).await
    });
    assert_eq!(order, "releaser waiter again");
}

#[test]
fn try_acquire_never_waits_and_never_overtakes() {
    run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(2).await?;
        assert!(ctx.try_acquire(&sem).await?);
        let heavy = sem.clone();
        let heavy = async move |ctx: Ctx| {
            ctx.perform(AcquireSemaphore(&heavy).weight(2)).await?;
            ctx.release(&heavy).await
        };
        let heavy = ctx.spawn(heavy).await?;
        assert_eq!(sem.available(), 1);
        assert!(!ctx.perform(TryAcquireSemaphore(&sem)).await?, "a task waits for the free permit");
        ctx.release(&sem).await?;
        ctx.wait(&heavy).await?;
        assert!(ctx.try_acquire(&sem).await?);
        ctx.release(&sem).await
    });
}

#[test]
fn a_timed_acquire_times_out_on_the_virtual_clock_and_loses_no_permit() {
    run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let late = sem.clone();
        let late = async move |ctx: Ctx| ctx.perform(AcquireSemaphore(&late).timeout(5.0)).await;
        let late = ctx.spawn(late).await?;
        assert!(matches!(ctx.wait(&late).await, Err(Error::TimedOut)));
        assert_eq!((ctx.now().as_secs(), sem.waiting()), (5, 0));
        ctx.release(&sem).await?;
        assert_eq!(sem.available(), 1);
        let in_time = sem.clone();
        let in_time = async move |ctx: Ctx| {
            ctx.perform(AcquireSemaphore(&in_time).timeout(5.0)).await?;
            ctx.release(&in_time).await
        };
        ctx.acquire(&sem).await?;
        let in_time = ctx.spawn(in_time).await?;
        ctx.delay(3.0).await?;
        ctx.release(&sem).await?;
        ctx.wait(&in_time).await?;
        assert_eq!(ctx.now().as_secs(), 8, "time does not move to the deadline of a wait that has ended");
        Ok(())
    });
}

#[test]
fn a_timeout_of_zero_does_not_wait() {
    run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.perform(AcquireSemaphore(&sem).timeout(0.0)).await?;
        let refused = ctx.perform(AcquireSemaphore(&sem).timeout(0.0)).await;
        assert!(matches!(refused, Err(Error::TimedOut)));
        ctx.release(&sem).await
    });
}

#[test]
fn weights_are_granted_and_released_whole() {
    run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(5).await?;
        ctx.perform(AcquireSemaphore(&sem).weight(3)).await?;
        ctx.acquire(&sem).await?;
        assert_eq!(sem.available(), 1);
        ctx.release(&sem).await?;
        assert_eq!(sem.available(), 2);
        ctx.release(&sem).await?;
        assert_eq!(sem.available(), 5);
        Ok(())
    });
}

#[test]
fn light_waiters_do_not_overtake_a_heavy_one() {
    let order = run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(3).await?;
        ctx.acquire(&sem).await?;
        let heavy = sem.clone();
        let heavy = async move |ctx: Ctx| {
            ctx.perform(AcquireSemaphore(&heavy).weight(3)).await?;
            ctx.log("heavy").await?;
            ctx.release(&heavy).await
        };
        let heavy = ctx.spawn(heavy).await?;
        let light = spawn_acquirer(&ctx, &sem, "light").await?;
        ctx.delay(1.0).await?;
        ctx.release(&sem).await?;
        ctx.gather([heavy, light]).await?;
        Ok(())
    });
    assert_eq!(order, "heavy light");
}

#[test]
fn another_task_may_release() {
    run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let other = sem.clone();
        let other = ctx.spawn(async move |ctx: Ctx| ctx.release(&other).await).await?;
        ctx.wait(&other).await?;
        assert_eq!(sem.available(), 1);
        let nothing_left = ctx.release(&sem).await;
        assert!(matches!(nothing_left, Err(Error::ReleasedTooManyTimes)));
        Ok(())
    });
}

#[test]
fn an_acquire_succeeds_although_its_permit_is_released_before_it_resumes() {
    run_cleanly(async |ctx: Ctx| {
        let signal = ctx.perform(CreateSemaphore::new(1).signal()).await?;
        ctx.acquire(&signal).await?;
        let awaited = signal.clone();
        let waiter = ctx.spawn(async move |ctx: Ctx| ctx.acquire(&awaited).await).await?;
        ctx.release(&signal).await?;
        ctx.release(&signal).await?;
        assert_eq!(signal.available(), 1);
        ctx.wait(&waiter).await
    });
}

#[test]
fn a_guarded_permit_is_released_only_by_its_guard() {
    run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        let permit = ctx.permit(&sem).await?;
        assert!(matches!(ctx.release(&sem).await, Err(Error::ReleasedTooManyTimes)));
        assert_eq!((sem.available(), permit.slot()), (0, 0));
        permit.release();
        assert_eq!(sem.available(), 1);
        Ok(())
    });
}

#[test]
fn with_semaphore_releases_however_the_program_ends() {
    run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        assert_eq!(ctx.with_semaphore(&sem, async |_| Ok(5)).await?, 5);
        assert_eq!(sem.available(), 1);
        let failed = ctx.perform(WithSemaphore::new(&sem, async |_| Err::<(), _>(Error::new("no")))).await;
        assert!(failed.is_err());
        assert_eq!(sem.available(), 1);
        let held = sem.clone();
        let panics = async move |ctx: Ctx| {
            let boom = async |_: Ctx| -> Result { panic!("expected in this test") };
            ctx.with_semaphore(&held, boom).await
        };
        let panics = ctx.spawn(panics).await?;
        assert!(matches!(ctx.wait(&panics).await, Err(Error::Panicked(_))));
        assert_eq!(sem.available(), 1);
        let held = sem.clone();
        let sleeps = ctx.spawn(async move |ctx: Ctx| {
            ctx.with_semaphore(&held, async |ctx: Ctx| ctx.delay(100.0).await).await
        });
        let sleeps = sleeps.await?;
        assert_eq!(sem.available(), 0);
        ctx.cancel(&sleeps).await?;
        assert!(ctx.wait(&sleeps).await.unwrap_err().is_cancelled());
        assert_eq!(sem.available(), 1);
        Ok(())
    });
}

#[test]
fn an_acquire_that_is_dropped_while_it_waits_leaves_the_line() {
    run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let theirs = sem.clone();
        let impatient = async move |ctx: Ctx| {
            let mut acquire = Box::pin(ctx.acquire(&theirs));
            let mut is_first = true;
            // Polled once, then dropped.
            std::future::poll_fn(|cx| {
                assert!(acquire.as_mut().poll(cx).is_pending());
                assert!(std::mem::take(&mut is_first));
                std::task::Poll::Ready(())
            })
            .await;
            assert_eq!(theirs.waiting(), 1);
            drop(acquire);
            assert_eq!(theirs.waiting(), 0);
            Ok(())
        };
        let impatient = ctx.spawn(impatient).await?;
        ctx.wait(&impatient).await?;
        ctx.release(&sem).await?;
        assert_eq!(sem.available(), 1);
        Ok(())
    });
}

#[test]
fn a_handle_of_another_run_is_refused() {
    let kept = Rc::new(RefCell::new(None));
    let keep = kept.clone();
    run_cleanly(async move |ctx: Ctx| {
        *keep.borrow_mut() = Some(ctx.create_semaphore(1).await?);
        Ok(())
    });
    let stale = kept.take().unwrap();
    let outcome = Runtime::new().run(async move |ctx: Ctx| {
        let own = ctx.create_semaphore(1).await?;
        assert_eq!(own.id(), stale.id());
        assert!(matches!(ctx.acquire(&stale).await, Err(Error::ForeignHandle)));
        assert!(matches!(ctx.try_acquire(&stale).await, Err(Error::ForeignHandle)));
        assert!(matches!(ctx.release(&stale).await, Err(Error::ForeignHandle)));
        assert!(matches!(ctx.permit(&stale).await, Err(Error::ForeignHandle)));
        assert_eq!(own.available(), 1);
        Ok(())
    });
    outcome.result.unwrap();
}

#[test]
fn a_release_after_a_failure_works() {
    run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        let held = sem.clone();
        let fails = async move |ctx: Ctx| {
            ctx.acquire(&held).await?;
            let result: Result = async { Err(Error::new("no")) }.await;
            ctx.release(&held).await?;
            result
        };
        let fails = ctx.spawn(fails).await?;
        assert_eq!(ctx.wait(&fails).await.unwrap_err().to_string(), "no");
        assert_eq!(sem.available(), 1);
        Ok(())
    });
}

#[test]
fn a_third_task_cannot_take_a_permit_granted_to_a_waiter() {
    let order = run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let waiter = spawn_acquirer_at(&ctx, &sem, "waiter", Priority::Idle).await?;
        ctx.delay(1.0).await?;
        ctx.release(&sem).await?;
        // The waiter has not run since, and will run last.
        assert!(!ctx.try_acquire(&sem).await?);
        let third = spawn_acquirer_at(&ctx, &sem, "third", Priority::High).await?;
        ctx.gather([waiter, third]).await.map(drop)
    });
    assert_eq!(order, "waiter third");
}

#[test]
fn cancelling_an_acquire_that_lost_a_race_loses_no_permit() {
    run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let wants = sem.clone();
        let acquire = ctx.spawn(async move |ctx: Ctx| ctx.acquire(&wants).await).await?;
        let delay = ctx.spawn(async |ctx: Ctx| ctx.delay(5.0).await).await?;
        ctx.race([&acquire, &delay]).await?;
        ctx.cancel(&acquire).await?;
        assert!(ctx.wait(&acquire).await.unwrap_err().is_cancelled());
        ctx.release(&sem).await?;
        assert_eq!((ctx.now().as_secs(), sem.available(), sem.waiting()), (5, 1, 0));
        Ok(())
    });
}
