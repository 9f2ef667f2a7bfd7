//! A run that is dropped after any step leaks nothing.

use std::cell::Cell;
use std::rc::Rc;

use semafor_coop::{AcquireSemaphore, CreateExternalPromise, Ctx, Effect, Result, Runtime};

/// Counts its live instances.
struct Alive(Rc<Cell<usize>>);

impl Alive {
    fn new(count: &Rc<Cell<usize>>) -> Self {
        count.set(count.get() + 1);
        Self(count.clone())
    }
}

impl Clone for Alive {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

struct Ask;

impl Effect for Ask {
    type Out = ();
}

/// Uses most effects, with counted values in all places where a value can be.
async fn everything(ctx: Ctx, count: Rc<Cell<usize>>) -> Result {
    let here = Alive::new(&count);
    let ctx = ctx.with_handler(async move |_: Ask, outer: Ctx| {
        let _kept = &here;
        outer.delay(0.5).await
    });
    let sem = ctx.create_semaphore(1).await?;
    let promise = ctx.promise::<Alive>().await?;
    let (outside, from_outside) = ctx.perform(CreateExternalPromise::<()>::new()).await?;
    let mut tasks = Vec::new();
    for number in 0..6 {
        let (sem, promise, held, outside) =
            (sem.clone(), promise.clone(), Alive::new(&count), outside.clone());
        let (future, from_outside) = (promise.future(), from_outside.clone());
        let task = async move |ctx: Ctx| {
            let value = held.clone();
            match number {
                0 => {
                    let _permit = ctx.permit(&sem).await?;
                    ctx.delay(1.0).await?;
                }
                1 => ctx.with_semaphore(&sem, async |ctx: Ctx| ctx.perform(Ask).await).await?,
                2 => drop(ctx.perform(AcquireSemaphore(&sem).timeout(0.1)).await),
                3 => drop(ctx.wait(&future).await?),
                4 => {
                    ctx.delay(2.0).await?;
                    ctx.complete(&promise, held.clone()).await?;
                    outside.complete(());
                }
                _ => ctx.wait(&from_outside).await?,
            }
            Ok(value)
        };
        tasks.push(ctx.spawn(task).await?);
    }
    drop((promise, outside));
    ctx.race(&tasks).await?;
    let cancelled = ctx.spawn(async |ctx: Ctx| ctx.shield(ctx.delay(1.0)).await).await?;
    ctx.cancel(&cancelled).await?;
    let all = ctx.gather(&tasks).await?;
    assert_eq!(all.len(), 6);
    Ok(())
}

#[test]
fn a_run_dropped_after_any_step_drops_all_values() {
    let steps = (0..).find(|steps| {
        let count = Rc::new(Cell::new(0));
        let counted = count.clone();
        let mut running = Runtime::new().record().start(move |ctx| everything(ctx, counted));
        let has_ended = !(0..*steps).all(|_| running.step());
        drop(running);
        assert_eq!(count.get(), 0, "values after {steps} steps");
        has_ended
    });
    assert!(steps > Some(30), "{steps:?}");
}

#[test]
fn a_finished_run_drops_all_values() {
    let count = Rc::new(Cell::new(0));
    let counted = count.clone();
    Runtime::new().run(move |ctx| everything(ctx, counted)).result.unwrap();
    assert_eq!(count.get(), 0);
}

#[test]
fn guards_of_abandoned_tasks_are_dropped_with_them() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        let held = sem.clone();
        let holder = async move |ctx: Ctx| {
            let _permit = ctx.permit(&held).await?;
            ctx.delay(9.0).await
        };
        ctx.spawn(holder).await?;
        assert_eq!(sem.available(), 0);
        Ok(sem)
    });
    assert_eq!(outcome.result.unwrap().available(), 1);
}
