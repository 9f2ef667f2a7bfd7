//! Promises that other threads complete.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use semafor_coop::{Clock, CreateExternalPromise, Ctx, Error, Priority, Runtime, Spawn};

#[test]
fn another_thread_completes_a_promise_and_the_run_continues() {
    for clock in [Clock::Virtual, Clock::Real] {
        let (send, receive) = mpsc::channel();
        let outcome = Runtime::new().clock(clock).run(async move |ctx: Ctx| {
            let (promise, future) = ctx.perform(CreateExternalPromise::<u32>::new()).await?;
            let (go, start) = mpsc::channel::<()>();
            let thread = thread::spawn(move || {
                start.recv().unwrap();
                assert!(promise.complete(42));
                assert!(!promise.complete(43), "the first value counts");
                assert!(!promise.fail(Error::new("late")));
            });
            send.send(thread).unwrap();
            let waiter = ctx.spawn(async move |ctx: Ctx| ctx.wait(future).await).await?;
            go.send(()).unwrap();
            ctx.wait(&waiter).await
        });
        assert_eq!(outcome.result.unwrap(), 42);
        receive.recv().unwrap().join().unwrap();
    }
}

#[test]
fn another_thread_can_fail_a_promise() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let (promise, future) = ctx.perform(CreateExternalPromise::<()>::new()).await?;
        thread::spawn(move || promise.fail(Error::new("from afar"))).join().unwrap();
        ctx.wait(future).await
    });
    assert_eq!(outcome.result.unwrap_err().to_string(), "from afar");
}

#[test]
fn dropping_the_last_external_promise_handle_is_a_deadlock() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let (promise, future) = ctx.perform(CreateExternalPromise::<()>::new()).await?;
        let copy = promise.clone();
        drop(promise);
        // The drop may happen before or after the wait.
        thread::spawn(move || drop(copy));
        ctx.wait(future).await
    });
    assert!(matches!(outcome.result, Err(Error::Deadlock(_))));
}

#[test]
fn tasks_run_while_another_waits_for_another_thread() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let (promise, future) = ctx.perform(CreateExternalPromise::<u8>::new()).await?;
        let waiter = ctx.spawn(async move |ctx: Ctx| ctx.wait(future).await).await?;
        for _ in 0..3 {
            ctx.delay(1.0).await?;
        }
        promise.complete(1);
        ctx.wait(&waiter).await
    });
    assert_eq!(outcome.result.unwrap(), 1);
    assert_eq!(outcome.report.elapsed.as_secs(), 3);
}

#[test]
fn an_external_promise_may_be_completed_after_the_run() {
    let (send, receive) = mpsc::channel();
    let outcome = Runtime::new().run(async move |ctx: Ctx| {
        let (promise, _) = ctx.perform(CreateExternalPromise::<u8>::new()).await?;
        send.send(promise).unwrap();
        Ok(())
    });
    outcome.result.unwrap();
    assert!(receive.recv().unwrap().complete(1));
}

#[test]
fn a_stall_calls_the_listener_repeatedly_and_is_reported_once() {
    let (send, receive) = mpsc::channel::<semafor_coop::ExternalPromise<u8>>();
    let receive = std::sync::Mutex::new(receive);
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let runtime = Runtime::new().stall_after(Duration::from_millis(1)).on_stall(move |stall| {
        let text = stall.to_string();
        assert!(text.contains("waiter (task 1) waits for promise 0 of another thread, at "), "{text}");
        // Only this listener completes the promise, in its third call.
        if counted.fetch_add(1, Ordering::Relaxed) == 2 {
            receive.lock().unwrap().recv().unwrap().complete(7);
        }
    });
    let outcome = runtime.run(async move |ctx: Ctx| {
        let (promise, future) = ctx.perform(CreateExternalPromise::<u8>::new()).await?;
        send.send(promise).unwrap();
        let waiter = Spawn::new(async move |ctx: Ctx| ctx.wait(future).await).name("waiter");
        let waiter = ctx.perform(waiter).await?;
        ctx.wait(&waiter).await
    });
    assert_eq!(outcome.result.unwrap(), 7);
    assert_eq!(calls.load(Ordering::Relaxed), 3);
    assert_eq!(outcome.report.stalls.len(), 1);
    assert!(outcome.report.stalls[0].lasted >= Duration::from_millis(3));
}

#[test]
fn a_listener_that_panics_does_not_end_the_run() {
    let (send, receive) = mpsc::channel::<semafor_coop::ExternalPromise<u8>>();
    let receive = std::sync::Mutex::new(receive);
    let runtime = Runtime::new().stall_after(Duration::ZERO).on_stall(move |_| {
        receive.lock().unwrap().recv().unwrap().complete(7);
        panic!("expected in this test");
    });
    let outcome = runtime.run(async move |ctx: Ctx| {
        let (promise, future) = ctx.perform(CreateExternalPromise::<u8>::new()).await?;
        send.send(promise).unwrap();
        ctx.wait(future).await
    });
    assert_eq!(outcome.result.unwrap(), 7);
}

#[test]
fn a_wait_for_another_thread_does_not_starve_other_tasks() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let (promise, future) = ctx.perform(CreateExternalPromise::<u8>::new()).await?;
        let wakes = async move |ctx: Ctx| {
            for _ in 0..3 {
                ctx.yield_now().await?;
            }
            promise.complete(5);
            Ok(())
        };
        ctx.perform(Spawn::new(wakes).priority(Priority::Idle).daemon()).await?;
        ctx.wait(future).await
    });
    assert_eq!(outcome.result.unwrap(), 5);
}
