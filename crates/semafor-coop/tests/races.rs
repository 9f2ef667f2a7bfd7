//! Every pair of {acquire, release, cancel, timeout, task end, root end} at the same moment, in every order there is.
//!
//! Whatever the order, nobody is admitted beyond the bound, and in the end all permits are there.

use std::cell::Cell;
use std::rc::Rc;

use semafor_coop::{AcquireSemaphore, Ctx, Error, Explorer, Result, Search, Semaphore, Task};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Move {
    Acquire,
    Release,
    Cancel,
    Timeout,
    TaskEnd,
    RootEnd,
}

const MOVES: [Move; 6] =
    [Move::Acquire, Move::Release, Move::Cancel, Move::Timeout, Move::TaskEnd, Move::RootEnd];

/// How many are inside.
#[derive(Clone, Default)]
struct Inside(Rc<Cell<u32>>);

impl Inside {
    fn enter(&self) {
        self.0.set(self.0.get() + 1);
        assert!(self.0.get() <= 1, "two inside");
    }

    fn leave(&self) {
        self.0.set(self.0.get() - 1);
    }
}

struct Scene {
    sem: Semaphore,
    inside: Inside,
    /// Waits in line, for the end of its patience at the very moment of the moves.
    waiter: Task<()>,
}

async fn visit(ctx: &Ctx, sem: &Semaphore, inside: &Inside) -> Result {
    inside.enter();
    let stayed = ctx.yield_now().await;
    inside.leave();
    ctx.release(sem).await?;
    stayed
}

/// One move, made at second 1.
async fn play(ctx: Ctx, scene: Rc<Scene>, step: Move) -> Result {
    let Scene { sem, inside, waiter } = &*scene;
    ctx.delay(1.0).await?;
    match step {
        Move::Acquire => {
            ctx.acquire(sem).await?;
            visit(&ctx, sem, inside).await
        }
        // Another permit than the root's: taken and given back.
        Move::Release => {
            if ctx.try_acquire(sem).await? {
                visit(&ctx, sem, inside).await?;
            }
            Ok(())
        }
        Move::Cancel => ctx.cancel(waiter).await,
        Move::Timeout => match ctx.perform(AcquireSemaphore(sem).timeout(1.0)).await {
            Err(Error::TimedOut) => Ok(()),
            Err(error) => Err(error),
            Ok(()) => visit(&ctx, sem, inside).await,
        },
        // Ends with a guard in its hands.
        Move::TaskEnd => {
            let permit = ctx.permit(sem).await?;
            inside.enter();
            inside.leave();
            drop(permit);
            Ok(())
        }
        Move::RootEnd => Ok(()),
    }
}

async fn race(ctx: Ctx, first: Move, second: Move) -> Result {
    let sem = ctx.create_semaphore(1).await?;
    let inside = Inside::default();
    ctx.acquire(&sem).await?;
    let (theirs, entered) = (sem.clone(), inside.clone());
    let waiter = async move |ctx: Ctx| match ctx.perform(AcquireSemaphore(&theirs).timeout(1.0)).await {
        Err(Error::TimedOut | Error::TaskCancelled) => Ok(()),
        Err(error) => Err(error),
        Ok(()) => match visit(&ctx, &theirs, &entered).await {
            Err(Error::TaskCancelled) => Ok(()),
            other => other,
        },
    };
    let waiter = ctx.spawn(waiter).await?;
    let scene = Rc::new(Scene { sem: sem.clone(), inside, waiter: waiter.clone() });
    let mut players = Vec::new();
    for step in [first, second] {
        let scene = scene.clone();
        players.push(ctx.spawn(move |ctx| play(ctx, scene, step)).await?);
    }
    ctx.delay(1.0).await?;
    ctx.release(&sem).await?;
    if [first, second].contains(&Move::RootEnd) {
        // The others are dropped wherever they are. Nothing of theirs must complain.
        return Ok(());
    }
    ctx.gather(&players).await?;
    ctx.wait(&waiter).await?;
    assert_eq!((sem.available(), sem.waiting()), (1, 0), "a permit is lost");
    Ok(())
}

#[test]
fn every_pair_of_moves_in_every_order_keeps_the_bound_and_every_permit() {
    for (place, first) in MOVES.into_iter().enumerate() {
        for second in MOVES.into_iter().skip(place) {
            let search = Search::Exhaustive { preemptions: Some(1) };
            let exploration = Explorer::new()
                .search(search)
                .schedules(200_000)
                .run(async move |ctx| race(ctx, first, second).await);
            if let Some(failure) = exploration.failure {
                panic!("{first:?} with {second:?}: {failure}");
            }
            assert!(exploration.is_complete, "{first:?} with {second:?}: {}", exploration.schedules);
            assert!(exploration.schedules > 1);
        }
    }
}
