//! Effects of the program's own.

mod support;

use semafor_coop::{Ctx, Effect, Error, Result, Runtime};
use support::run_cleanly;

struct Ask(&'static str);

impl Effect for Ask {
    type Out = String;
}

struct Count;

impl Effect for Count {
    type Out = u32;
}

#[test]
fn the_innermost_handler_answers_and_may_ask_the_outer_one() {
    let order = run_cleanly(async |ctx: Ctx| {
        let outer = ctx.with_handler(async |Ask(what), _| Ok(format!("outer-{what}")));
        let inner = outer.with_handler(async |Ask(what), outer: Ctx| {
            let theirs = outer.perform(Ask(what)).await?;
            Ok(format!("inner-{theirs}"))
        });
        ctx.log(inner.perform(Ask("a")).await?).await?;
        ctx.log(outer.perform(Ask("b")).await?).await
    });
    assert_eq!(order, "inner-outer-a outer-b");
}

#[test]
fn spawned_tasks_inherit_the_handlers_in_scope() {
    run_cleanly(async |ctx: Ctx| {
        let ctx = ctx.with_handler(async |_: Count, _| Ok(7));
        let child = async |ctx: Ctx| {
            let grandchild = ctx.spawn(async |ctx: Ctx| ctx.perform(Count).await).await?;
            ctx.wait(&grandchild).await
        };
        let child = ctx.spawn(child).await?;
        assert_eq!(ctx.wait(&child).await?, 7);
        Ok(())
    });
}

#[test]
fn a_handler_may_wait_and_use_semaphores() {
    run_cleanly(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        let limited = sem.clone();
        let ctx = ctx.with_handler(async move |_: Count, outer: Ctx| {
            let _permit = outer.permit(&limited).await?;
            outer.delay(1.0).await?;
            Ok(outer.now().as_secs() as u32)
        });
        let ask = async |ctx: Ctx| ctx.perform(Count).await;
        let tasks = [ctx.spawn(ask).await?, ctx.spawn(ask).await?];
        assert_eq!(ctx.gather(&tasks).await?, [1, 2]);
        Ok(())
    });
}

#[test]
fn an_effect_without_a_handler_is_an_error_that_names_it() {
    let outcome = Runtime::new().run(async |ctx: Ctx| ctx.perform(Count).await);
    let text = outcome.result.unwrap_err().to_string();
    assert!(text.starts_with("no handler for the effect ") && text.ends_with("Count"), "{text}");
}

#[test]
fn a_handler_that_fails_or_panics_fails_the_effect() {
    run_cleanly(async |ctx: Ctx| {
        let failing = ctx.with_handler(async |_: Count, _| Err(Error::new("refused")));
        assert_eq!(failing.perform(Count).await.unwrap_err().to_string(), "refused");
        let panicking =
            ctx.with_handler(async |_: Count, _| -> Result<u32> { panic!("expected in this test") });
        let error = panicking.perform(Count).await.unwrap_err();
        assert_eq!(error.to_string(), "panicked: expected in this test");
        ctx.log("continues").await
    });
}

#[test]
fn the_state_of_a_handler_is_shared_by_the_tasks_that_inherit_it() {
    run_cleanly(async |ctx: Ctx| {
        let total = std::rc::Rc::new(std::cell::Cell::new(0));
        let ctx = ctx.with_handler(async move |_: Count, _| {
            total.set(total.get() + 1);
            Ok(total.get())
        });
        let count = async |ctx: Ctx| ctx.perform(Count).await;
        let tasks = [ctx.spawn(count).await?, ctx.spawn(count).await?];
        assert_eq!(ctx.gather(&tasks).await?, [1, 2]);
        assert_eq!(ctx.perform(Count).await?, 3);
        Ok(())
    });
}

#[test]
fn a_handler_may_spawn_and_is_cancelled_with_its_task() {
    run_cleanly(async |ctx: Ctx| {
        let ctx = ctx.with_handler(async |_: Count, outer: Ctx| {
            let helper = outer.spawn(async |ctx: Ctx| ctx.delay(5.0).await.map(|()| 8)).await?;
            let answer = outer.wait(&helper).await;
            if answer.is_err() {
                outer.cancel(&helper).await?;
            }
            answer
        });
        assert_eq!(ctx.perform(Count).await?, 8);
        let asks = ctx.spawn(async |ctx: Ctx| ctx.perform(Count).await).await?;
        ctx.cancel(&asks).await?;
        assert!(ctx.wait(&asks).await.unwrap_err().is_cancelled());
        assert_eq!(ctx.now().as_secs(), 5);
        Ok(())
    });
}
