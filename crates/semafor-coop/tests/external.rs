//! Promises that other threads complete.

use std::sync::mpsc;
use std::thread;

use semafor_coop::{Clock, CreateExternalPromise, Ctx, Error, Runtime};

#[test]
fn another_thread_completes_a_promise_and_the_run_goes_on() {
    for clock in [Clock::Virtual, Clock::Real] {
        let (send, receive) = mpsc::channel();
        let outcome = Runtime::new().clock(clock).run(async move |ctx: Ctx| {
            let (promise, future) = ctx.perform(CreateExternalPromise::<u32>::new()).await?;
            let (go, start) = mpsc::channel::<()>();
            let thread = thread::spawn(move || {
                start.recv().unwrap();
                assert!(promise.complete(42));
                assert!(!promise.complete(43), "the first counts");
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
fn a_failure_from_another_thread_arrives() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let (promise, future) = ctx.perform(CreateExternalPromise::<()>::new()).await?;
        thread::spawn(move || promise.fail(Error::new("from afar"))).join().unwrap();
        ctx.wait(future).await
    });
    assert_eq!(outcome.result.unwrap_err().to_string(), "from afar");
}

#[test]
fn when_the_last_who_could_complete_it_is_gone_it_is_a_deadlock() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let (promise, future) = ctx.perform(CreateExternalPromise::<()>::new()).await?;
        let copy = promise.clone();
        drop(promise);
        // It may be gone before or after we wait.
        thread::spawn(move || drop(copy));
        ctx.wait(future).await
    });
    assert!(matches!(outcome.result, Err(Error::Deadlock(_))));
}

#[test]
fn tasks_run_on_while_another_is_waited_for_from_outside() {
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
fn completed_after_the_run_it_does_no_harm() {
    let (send, receive) = mpsc::channel();
    let outcome = Runtime::new().run(async move |ctx: Ctx| {
        let (promise, _) = ctx.perform(CreateExternalPromise::<u8>::new()).await?;
        send.send(promise).unwrap();
        Ok(())
    });
    outcome.result.unwrap();
    assert!(receive.recv().unwrap().complete(1));
}
