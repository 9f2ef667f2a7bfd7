//! What the report says about a run, beside the result of the root program.

use semafor_coop::{Ctx, Error, Runtime, Spawn};

#[test]
fn abandoned_tasks_are_reported_except_daemons() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let wants = sem.clone();
        ctx.spawn(async move |ctx: Ctx| ctx.permit(&wants).await.map(drop)).await?;
        ctx.perform(Spawn::new(async |ctx: Ctx| ctx.delay(5.0).await).daemon()).await?;
        let unstarted = Spawn::new(async |_| Ok(())).priority(semafor_coop::Priority::Idle);
        ctx.perform(unstarted).await?;
        ctx.release(&sem).await?;
        ctx.acquire(&sem).await?;
        ctx.release(&sem).await
    });
    outcome.result.unwrap();
    let messages: Vec<_> = outcome.report.abandoned.iter().map(ToString::to_string).collect();
    assert_eq!(messages, ["task 3 was abandoned before it started"]);

    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let wants = sem.clone();
        ctx.perform(Spawn::new(async move |ctx: Ctx| ctx.acquire(&wants).await).name("waiter")).await?;
        Ok(())
    });
    let messages = outcome.report.abandoned[0].to_string();
    assert!(
        messages.starts_with("waiter (task 1) was abandoned, waiting for semaphore 0, held by "),
        "{messages}"
    );
}

#[test]
fn an_unobserved_failure_is_reported() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        ctx.spawn(async |_: Ctx| Err::<(), _>(Error::new("unseen"))).await?;
        let seen = ctx.spawn(async |_: Ctx| Err::<(), _>(Error::new("seen"))).await?;
        assert!(ctx.wait(&seen).await.is_err());
        Ok(())
    });
    outcome.result.unwrap();
    let messages: Vec<_> = outcome.report.unobserved.iter().map(ToString::to_string).collect();
    assert_eq!(messages, ["task 0 failed, and no task waited for it: unseen"]);
}

#[test]
fn an_unreleased_permit_is_reported_with_the_line_of_its_acquire() {
    let messages = report_of_an_unreleased_permit(&Runtime::new());
    assert!(
        messages.starts_with("forgetful (task 1) ended with 1 unreleased of semaphore 0, acquired at "),
        "{messages}"
    );
    assert!(messages.contains("reports.rs:"), "{messages}");
}

#[test]
fn hide_sites_leaves_out_lines_of_rust() {
    let messages = report_of_an_unreleased_permit(&Runtime::new().hide_sites());
    assert_eq!(messages, "forgetful (task 1) ended with 1 unreleased of semaphore 0");

    let outcome = Runtime::new().hide_sites().run(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(2).await?;
        let held = sem.clone();
        let task = ctx.spawn(async move |ctx: Ctx| ctx.acquire(&held).await).await?;
        ctx.wait(&task).await?;
        ctx.acquire(&sem).await?;
        ctx.acquire(&sem).await
    });
    assert_eq!(
        outcome.result.unwrap_err().to_string(),
        "deadlock: a task waits for itself\n  root waits for semaphore 0, held by a task that has ended, root"
    );
}

fn report_of_an_unreleased_permit(runtime: &Runtime) -> String {
    let outcome = runtime.run(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(2).await?;
        let held = sem.clone();
        let fails = async move |ctx: Ctx| {
            ctx.acquire(&held).await?;
            Err::<(), _>(Error::new("before it released"))
        };
        let task = ctx.perform(Spawn::new(fails).name("forgetful")).await?;
        assert!(ctx.wait(&task).await.is_err());
        assert_eq!(sem.available(), 1, "the permit was not released");
        Ok(())
    });
    outcome.result.unwrap();
    outcome.report.unreleased[0].to_string()
}

#[test]
fn log_lines_have_time_and_task() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let task = ctx.perform(Spawn::new(async |ctx: Ctx| ctx.log("hello").await).name("greeter")).await?;
        ctx.wait(&task).await?;
        ctx.delay(1.5).await?;
        ctx.log("bye").await
    });
    let messages: Vec<_> = outcome.report.log.iter().map(ToString::to_string).collect();
    assert_eq!(messages, ["0.000 greeter (task 0): hello", "1.500 root: bye"]);
}

#[test]
fn the_report_says_whether_an_abandoned_task_was_ready_or_waiting() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let promise = ctx.promise::<()>().await?;
        let future = promise.future();
        ctx.spawn(async move |ctx: Ctx| ctx.wait(future).await).await?;
        let yields = async |ctx: Ctx| ctx.yield_now().await;
        ctx.spawn(yields).await?;
        Ok(promise)
    });
    let messages: Vec<_> = outcome.report.abandoned.iter().map(ToString::to_string).collect();
    assert_eq!(
        messages,
        ["task 1 was abandoned, waiting for promise 0", "task 2 was abandoned, ready to run"]
    );
}

#[test]
fn the_report_keeps_the_first_thousand_unreleased_permits() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        for _ in 0..3_000 {
            let leaks = async |ctx: Ctx| {
                let sem = ctx.create_semaphore(1).await?;
                ctx.acquire(&sem).await
            };
            ctx.spawn(leaks).await?;
        }
        Ok(())
    });
    outcome.result.unwrap();
    assert_eq!(outcome.report.unreleased.len(), 1_000);
    assert_eq!(outcome.report.unreleased[0].task.number, Some(0));
}
