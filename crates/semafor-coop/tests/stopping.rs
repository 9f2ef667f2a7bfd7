//! Runs that a stop ends before their root program has ended, and pause functions of the caller.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use semafor_coop::{
    Clock, CreateExternalPromise, Ctx, Error, Explorer, Lull, Result, Runtime, Search, explore, run,
};

#[test]
fn a_task_that_fails_with_a_stop_ends_the_run() {
    let is_dropped = Rc::new(Cell::new(false));
    let noticed = is_dropped.clone();
    let ended: Result = run(async move |ctx: Ctx| {
        struct Noticed(Rc<Cell<bool>>);
        impl Drop for Noticed {
            fn drop(&mut self) {
                self.0.set(true);
            }
        }
        let _noticed = Noticed(noticed);
        let task = ctx.spawn(async |_: Ctx| Err::<(), _>(Error::stopping("interrupted"))).await?;
        ctx.wait(&task).await
    });
    let error = ended.unwrap_err();
    assert!(error.is_stop());
    assert_eq!(error.to_string(), "interrupted");
    assert!(is_dropped.get());
}

#[test]
fn a_stop_in_the_root_program_ends_the_run() {
    let outcome = Runtime::new().run(async |_: Ctx| Err::<(), _>(Error::stopping("interrupted")));
    assert!(outcome.result.unwrap_err().is_stop());
    assert!(outcome.report.unobserved.is_empty());
}

#[test]
fn a_pause_function_may_wait_in_short_steps() {
    fn doze(lull: &Lull<'_>) -> Result {
        lull.wait_at_most(Duration::from_millis(1));
        Ok(())
    }
    let runtime = Runtime::new().clock(Clock::Real).pause(doze);
    let outcome = runtime.run(async |ctx: Ctx| ctx.delay(0.02).await);
    assert!(outcome.result.is_ok());
    assert!(outcome.report.elapsed >= Duration::from_millis(20));
}

#[test]
fn an_error_of_the_pause_function_ends_the_run() {
    fn refuse(_: &Lull<'_>) -> Result {
        Err(Error::stopping("enough"))
    }
    let outcome = Runtime::new().pause(refuse).run(async |ctx: Ctx| {
        let (_promise, future) = ctx.perform(CreateExternalPromise::<u8>::new()).await?;
        ctx.wait(&future).await
    });
    assert_eq!(outcome.result.unwrap_err().to_string(), "enough");
}

#[test]
fn a_stop_ends_an_exploration_too() {
    let runs = Rc::new(Cell::new(0));
    let counted = runs.clone();
    let exploration = explore(
        async move |ctx: Ctx| {
            counted.set(counted.get() + 1);
            ctx.yield_now().await?;
            if counted.get() == 3 { Err(Error::stopping("interrupted")) } else { Ok(()) }
        },
        100,
    );
    assert!(exploration.failure.unwrap().error.unwrap().is_stop());
    assert_eq!(runs.get(), 3);
}

#[test]
fn a_stop_ends_the_search_for_a_simpler_schedule() {
    let runs = Rc::new(Cell::new(0));
    let counted = runs.clone();
    let explorer = Explorer::new().search(Search::Random { seed: 7 });
    let exploration = explorer.run(async move |ctx: Ctx| {
        counted.set(counted.get() + 1);
        if counted.get() == 5 {
            return Err(Error::stopping("interrupted"));
        }
        for _ in 0..10 {
            let task = ctx.spawn(async |ctx: Ctx| ctx.yield_now().await).await?;
            ctx.wait(&task).await?;
        }
        Err::<(), _>(Error::new("always"))
    });
    assert!(exploration.failure.unwrap().error.unwrap().is_stop());
    assert_eq!(runs.get(), 5);
}

#[test]
fn only_unobserved_failures_are_reported() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        for number in 0..1000 {
            let task = ctx.spawn(async move |_: Ctx| Err::<(), _>(Error::new(format!("{number}")))).await?;
            if number % 100 != 0 {
                assert!(ctx.wait(&task).await.is_err());
            }
        }
        Ok(())
    });
    assert!(outcome.result.is_ok());
    let unseen: Vec<_> = outcome.report.unobserved.iter().map(|each| each.error.to_string()).collect();
    assert_eq!(unseen, ["0", "100", "200", "300", "400", "500", "600", "700", "800", "900"]);
}

#[test]
fn a_task_knows_its_name() {
    let name = run(async |ctx: Ctx| {
        assert_eq!(ctx.task().to_string(), "root");
        let task = ctx.spawn(async |ctx: Ctx| Ok(ctx.task().to_string())).await?;
        ctx.wait(&task).await
    });
    assert_eq!(name.unwrap(), "task 0");
}
