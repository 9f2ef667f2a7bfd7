//! Invalid input is a typed error where it is awaited, and the scheduler continues.

mod support;

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use semafor_coop::{AcquireSemaphore, Ctx, Error, FailPromise, Priority, Result, Runtime, Spawn, Task};
use support::run_cleanly;

/// Panics when it is dropped.
struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("expected in this test");
        }
    }
}

#[test]
fn a_semaphore_needs_at_least_one_permit() {
    run_cleanly(async |ctx: Ctx| {
        let refused = ctx.create_semaphore(0).await.unwrap_err();
        assert_eq!(refused.to_string(), "permits must be >= 1");
        let absurd = ctx.create_semaphore(u32::MAX).await?;
        ctx.acquire(&absurd).await?;
        assert_eq!(absurd.available(), u32::MAX - 1);
        ctx.perform(AcquireSemaphore(&absurd).weight(u32::MAX - 1)).await?;
        ctx.release(&absurd).await?;
        ctx.release(&absurd).await
    });
}

#[test]
fn releasing_more_than_was_acquired_is_an_error_that_can_be_caught() {
    run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        for _ in 0..2 {
            let refused = ctx.release(&sem).await.unwrap_err();
            assert_eq!(refused.to_string(), "semaphore released too many times");
        }
        ctx.acquire(&sem).await?;
        ctx.release(&sem).await
    });
}

#[test]
fn a_weight_that_can_never_be_granted_is_refused_at_once() {
    run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(3).await?;
        let refused = ctx.perform(AcquireSemaphore(&sem).weight(4)).await;
        assert!(matches!(refused, Err(Error::TooHeavy { weight: 4, permits: 3 })));
        assert!(matches!(ctx.perform(AcquireSemaphore(&sem).weight(0)).await, Err(Error::ZeroWeight)));
        let refused = ctx.perform(AcquireSemaphore(&sem).weight(4).timeout(1.0)).await;
        assert!(matches!(refused, Err(Error::TooHeavy { .. })));
        assert_eq!((sem.available(), sem.waiting()), (3, 0));
        Ok(())
    });
}

#[test]
fn delays_and_timeouts_must_be_finite_and_not_negative() {
    run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        for seconds in [-1.0, -f64::MIN_POSITIVE, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300] {
            assert!(matches!(ctx.delay(seconds).await, Err(Error::InvalidDelay(_))), "{seconds}");
            let refused = ctx.perform(AcquireSemaphore(&sem).timeout(seconds)).await;
            assert!(matches!(refused, Err(Error::InvalidDelay(_))), "{seconds}");
        }
        ctx.delay(-0.0).await?;
        assert_eq!(sem.available(), 1);
        Ok(())
    });
}

#[test]
fn a_delay_out_of_range_does_not_overflow() {
    run_cleanly(async |ctx: Ctx| {
        ctx.delay(std::time::Duration::MAX).await?;
        ctx.delay(std::time::Duration::MAX).await
    });
}

#[test]
fn a_task_that_waits_for_itself_gets_an_error() {
    run_cleanly(async |ctx: Ctx| {
        let own = Rc::new(RefCell::new(None::<Task<()>>));
        let mine = own.clone();
        let task = async move |ctx: Ctx| {
            ctx.yield_now().await?;
            let own = mine.take().unwrap();
            assert!(matches!(ctx.wait(&own).await, Err(Error::WaitsForItself)));
            assert!(matches!(ctx.gather([&own]).await, Err(Error::WaitsForItself)));
            assert!(matches!(ctx.race([&own]).await, Err(Error::WaitsForItself)));
            Ok(())
        };
        let task = ctx.spawn(task).await?;
        *own.borrow_mut() = Some(task.clone());
        ctx.wait(&task).await
    });
}

#[test]
fn a_task_may_be_gathered_twice() {
    run_cleanly(async |ctx: Ctx| {
        let task = ctx.spawn(async |ctx: Ctx| ctx.delay(1.0).await.map(|()| 4)).await?;
        assert_eq!(ctx.gather([&task, &task]).await?, [4, 4]);
        Ok(())
    });
}

#[test]
fn an_empty_race_is_an_error() {
    run_cleanly(async |ctx: Ctx| {
        let error = ctx.race(Vec::<Task<()>>::new()).await.unwrap_err();
        assert!(matches!(error, Error::NothingToRace));
        assert_eq!(error.to_string(), "Race needs at least one task or promise to wait for");
        Ok(())
    });
}

#[test]
fn a_promise_keeps_its_first_value() {
    run_cleanly(async |ctx: Ctx| {
        let promise = ctx.promise::<u32>().await?;
        ctx.complete(&promise, 1).await?;
        assert!(matches!(ctx.complete(&promise, 2).await, Err(Error::AlreadyCompleted)));
        let refused = ctx.perform(FailPromise(&promise, Error::new("late"))).await;
        assert_eq!(refused.unwrap_err().to_string(), "promise was already completed");
        assert_eq!(ctx.wait(promise.future()).await?, 1);
        Ok(())
    });
}

#[test]
fn a_task_that_panics_fails_and_the_others_continue() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        let held = sem.clone();
        let panics = async move |ctx: Ctx| -> Result {
            let _permit = ctx.permit(&held).await?;
            ctx.delay(1.0).await?;
            panic!("expected in {}", "this test");
        };
        let task = ctx.spawn(panics).await?;
        ctx.acquire(&sem).await?;
        ctx.release(&sem).await?;
        ctx.wait(&task).await
    });
    assert_eq!(outcome.result.unwrap_err().to_string(), "panicked: expected in this test");
}

#[test]
fn a_panic_of_the_root_is_an_error_of_the_run() {
    let outcome = Runtime::new().run(async |_: Ctx| -> Result { panic!("expected in this test") });
    assert!(matches!(outcome.result, Err(Error::Panicked(_))));
}

#[test]
fn a_panic_in_drop_does_not_stop_the_run() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        for _ in 0..2 {
            let armed = async |ctx: Ctx| {
                let _panics = PanicsOnDrop;
                ctx.delay(9.0).await
            };
            ctx.spawn(armed).await?;
        }
        Ok(5)
    });
    assert_eq!(outcome.result.unwrap(), 5);
    assert_eq!(outcome.report.abandoned.len(), 2);
}

#[test]
fn awaiting_a_foreign_future_fails_the_task() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let foreign = ctx.spawn(async |_: Ctx| {
            std::future::pending::<()>().await;
            Ok(())
        });
        let foreign = foreign.await?;
        ctx.wait(&foreign).await
    });
    assert!(matches!(outcome.result, Err(Error::NotAnEffect)));
}

#[test]
fn handles_and_contexts_of_an_earlier_run_are_refused() {
    let kept = Rc::new(RefCell::new(None));
    let keep = kept.clone();
    run_cleanly(async move |ctx: Ctx| {
        let task = ctx.spawn(async |_| Ok(1)).await?;
        let promise = ctx.promise::<u8>().await?;
        *keep.borrow_mut() = Some((ctx.clone(), task, promise));
        Ok(())
    });
    let (old, task, promise) = kept.take().unwrap();
    run_cleanly(async move |ctx: Ctx| {
        assert!(matches!(ctx.wait(&task).await, Err(Error::ForeignHandle)));
        assert!(matches!(ctx.cancel(&task).await, Err(Error::ForeignHandle)));
        assert!(matches!(ctx.gather([&task]).await, Err(Error::ForeignHandle)));
        assert!(matches!(ctx.complete(&promise, 1).await, Err(Error::ForeignHandle)));
        assert!(matches!(old.create_semaphore(1).await, Err(Error::ForeignHandle)));
        assert!(matches!(old.delay(1.0).await, Err(Error::ForeignHandle)));
        Ok(())
    });
}

#[test]
fn several_effects_may_be_awaited_at_once_in_one_task() {
    run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let mut acquire = Box::pin(ctx.acquire(&sem));
        let mut delay = Box::pin(ctx.delay(1.0));
        // Not a deadlock: the task also waits for the delay.
        let first = std::future::poll_fn(|cx| {
            if let Poll::Ready(result) = acquire.as_mut().poll(cx) {
                return Poll::Ready(("acquired", result));
            }
            delay.as_mut().poll(cx).map(|result| ("delayed", result))
        });
        let (which, result) = first.await;
        result?;
        assert_eq!((which, sem.waiting()), ("delayed", 1));
        drop(acquire);
        assert_eq!(sem.waiting(), 0);
        ctx.release(&sem).await
    });
}

#[test]
fn a_task_that_awaits_a_foreign_future_releases_its_permit() {
    run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        let held = sem.clone();
        let stuck = async move |ctx: Ctx| {
            let _permit = ctx.permit(&held).await?;
            std::future::pending::<()>().await;
            Ok(())
        };
        let stuck = ctx.spawn(stuck).await?;
        assert!(matches!(ctx.wait(&stuck).await, Err(Error::NotAnEffect)));
        assert_eq!(sem.available(), 1);
        Ok(())
    });
}

#[test]
fn a_panic_in_drop_of_an_unstarted_task_does_not_fail_its_canceller() {
    run_cleanly(async |ctx: Ctx| {
        let panics = PanicsOnDrop;
        let armed = async move |ctx: Ctx| {
            let _panics = panics;
            ctx.delay(9.0).await
        };
        let armed = ctx.perform(Spawn::new(armed).priority(Priority::Idle)).await?;
        ctx.cancel(&armed).await?;
        assert!(ctx.wait(&armed).await.unwrap_err().is_cancelled());
        Ok(())
    });
}

type SharedEffect = Rc<RefCell<Option<Pin<Box<dyn Future<Output = Result>>>>>>;

/// Awaits the shared effect. Succeeds if another task has taken it.
async fn await_shared(shared: SharedEffect) -> Result {
    std::future::poll_fn(|cx| match &mut *shared.borrow_mut() {
        Some(effect) => effect.as_mut().poll(cx),
        None => Poll::Ready(Ok(())),
    })
    .await
}

#[test]
fn a_task_is_woken_when_another_task_drops_its_effect() {
    run_cleanly(async |ctx: Ctx| {
        let shared = SharedEffect::default();
        let (inside, its_ctx) = (shared.clone(), ctx.clone());
        *shared.borrow_mut() = Some(Box::pin(async move { its_ctx.delay(9.0).await }));
        let waiter = ctx.spawn(move |_| await_shared(inside)).await?;
        drop(shared.take());
        ctx.wait(&waiter).await?;
        assert_eq!(ctx.now().as_secs(), 0);
        Ok(())
    });
}

#[test]
fn an_effect_moved_to_another_task_waits_there() {
    run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let shared = SharedEffect::default();
        let (inside, its_ctx, wants) = (shared.clone(), ctx.clone(), sem.clone());
        *shared.borrow_mut() = Some(Box::pin(async move { its_ctx.acquire(&wants).await }));
        let first = ctx.spawn(move |_| await_shared(inside)).await?;
        assert_eq!(sem.waiting(), 1);
        let moved = Rc::new(RefCell::new(shared.take()));
        let held = sem.clone();
        let second = async move |ctx: Ctx| {
            await_shared(moved).await?;
            ctx.release(&held).await
        };
        let second = ctx.spawn(second).await?;
        assert_eq!(sem.waiting(), 1);
        ctx.release(&sem).await?;
        ctx.gather([first, second]).await?;
        assert_eq!(sem.available(), 1);
        Ok(())
    });
}

#[test]
fn most_steps_ends_an_endless_program() {
    let spins = async |ctx: Ctx| -> Result {
        loop {
            ctx.yield_now().await?;
        }
    };
    let outcome = Runtime::new().most_steps(1_000).run(spins);
    assert!(matches!(outcome.result, Err(Error::TooManySteps(_))));
    // Exploring has a limit by default.
    let exploration = semafor_coop::explore(spins, 1);
    assert!(matches!(exploration.failure.unwrap().error, Some(Error::TooManySteps(_))));
    let outcome = Runtime::new().most_steps(2).run(async |ctx: Ctx| ctx.yield_now().await);
    outcome.result.unwrap();
}

#[test]
fn an_effect_dropped_while_it_waits_leaves_nothing_behind() {
    run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        let promise = ctx.promise::<u8>().await?;
        let sleeper = ctx.spawn(async |ctx: Ctx| ctx.delay(1.0).await.map(|()| 1)).await?;
        ctx.acquire(&sem).await?;
        for kind in 0..8 {
            let mut effect: Pin<Box<dyn Future<Output = Result>>> = match kind {
                0 => Box::pin(ctx.acquire(&sem)),
                1 => Box::pin(ctx.perform(AcquireSemaphore(&sem).timeout(0.5))),
                2 => Box::pin(async { ctx.permit(&sem).await.map(drop) }),
                3 => Box::pin(ctx.delay(0.5)),
                4 => Box::pin(async { ctx.wait(promise.future()).await.map(drop) }),
                5 => Box::pin(async { ctx.gather([promise.future(), promise.future()]).await.map(drop) }),
                6 => Box::pin(async { ctx.race([promise.future()]).await.map(drop) }),
                _ => Box::pin(ctx.yield_now()),
            };
            let is_pending = std::future::poll_fn(|cx| Poll::Ready(effect.as_mut().poll(cx).is_pending()));
            assert!(is_pending.await, "kind {kind}");
            drop(effect);
            assert_eq!(sem.waiting(), 0, "kind {kind}");
        }
        assert_eq!(ctx.wait(&sleeper).await?, 1);
        assert_eq!(ctx.now().as_secs_f64(), 1.0, "no timer is left");
        ctx.release(&sem).await?;
        ctx.complete(&promise, 2).await
    });
}
