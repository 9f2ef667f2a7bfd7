//! Every pair of {acquire, release, cancel, timeout, task end, root end} at the same moment, in every order there is.
//!
//! Whatever the order, nobody is admitted beyond the bound, and in the end all permits are there.

use std::cell::Cell;
use std::rc::Rc;

use semafor_coop::{
    AcquireSemaphore, CreateSemaphore, Ctx, Error, Explorer, Result, Search, Semaphore, Task,
};

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

/// A lock that the root holds, and a task that waits for it until second 1.
#[derive(Clone)]
struct Scene {
    sem: Semaphore,
    inside: Inside,
    waiter: Task<()>,
}

async fn visit(ctx: &Ctx, sem: &Semaphore, inside: &Inside) -> Result {
    inside.enter();
    let stayed = ctx.yield_now().await;
    inside.leave();
    ctx.release(sem).await?;
    stayed
}

async fn play(ctx: Ctx, Scene { sem, inside, waiter }: Scene, step: Move) -> Result {
    match step {
        Move::Acquire => {
            ctx.acquire(&sem).await?;
            visit(&ctx, &sem, &inside).await
        }
        // What the root has acquired.
        Move::Release => ctx.release(&sem).await,
        Move::Cancel => ctx.cancel(&waiter).await,
        // At the very moment at which the patience of the other one ends, too.
        Move::Timeout => match ctx.perform(AcquireSemaphore(&sem).timeout(1.0)).await {
            Ok(()) => visit(&ctx, &sem, &inside).await,
            Err(Error::TimedOut) => Ok(()),
            Err(error) => Err(error),
        },
        // With a permit in its hands.
        Move::TaskEnd => ctx.permit(&sem).await.map(drop),
        Move::RootEnd => Ok(()),
    }
}

async fn race(ctx: Ctx, moves: [Move; 2]) -> Result {
    // Others than the root release what it has acquired.
    let sem = ctx.perform(CreateSemaphore::new(1).signal()).await?;
    let inside = Inside::default();
    ctx.acquire(&sem).await?;
    let (theirs, entered) = (sem.clone(), inside.clone());
    let waiter = async move |ctx: Ctx| {
        let waited = match ctx.perform(AcquireSemaphore(&theirs).timeout(1.0)).await {
            Ok(()) => visit(&ctx, &theirs, &entered).await,
            Err(error) => Err(error),
        };
        match waited {
            Err(Error::TimedOut | Error::TaskCancelled) => Ok(()),
            other => other,
        }
    };
    let waiter = ctx.spawn(waiter).await?;
    let scene = Scene { sem: sem.clone(), inside, waiter: waiter.clone() };
    let mut players = Vec::new();
    for step in moves {
        let scene = scene.clone();
        players.push(ctx.spawn(move |ctx| play(ctx, scene, step)).await?);
    }
    if moves.contains(&Move::Timeout) {
        ctx.delay(1.0).await?;
    }
    // Unless one of them does.
    if !moves.contains(&Move::Release) {
        ctx.release(&sem).await?;
    }
    if moves.contains(&Move::RootEnd) {
        // Who ends without what it acquired being released is reported, and rightly so.
        if let Some(release) = moves.iter().position(|step| *step == Move::Release) {
            ctx.wait(&players[release]).await?;
        }
        // The others are dropped wherever they are, and nothing of theirs may complain.
        return Ok(());
    }
    ctx.gather(&players).await?;
    match ctx.wait(&waiter).await {
        // Before it started.
        Err(Error::TaskCancelled) if moves.contains(&Move::Cancel) => {}
        other => other?,
    }
    assert_eq!((sem.available(), sem.waiting()), (1, 0), "a permit is lost");
    Ok(())
}

#[test]
fn every_pair_of_moves_in_every_order_keeps_the_bound_and_every_permit() {
    for (place, first) in MOVES.into_iter().enumerate() {
        for second in MOVES.into_iter().skip(place) {
            // Below.
            if (first, second) == (Move::Release, Move::Release) {
                continue;
            }
            // With timers that are due there are too many orders, unless everybody goes on for as long as it can.
            let preemptions = if first == Move::Timeout || second == Move::Timeout { 0 } else { 1 };
            let search = Search::Exhaustive { preemptions: Some(preemptions) };
            let explorer = Explorer::new().search(search).schedules(1_000_000);
            let exploration = explorer.run(async move |ctx| race(ctx, [first, second]).await);
            if let Some(failure) = exploration.failure {
                panic!("{first:?} with {second:?}: {failure}");
            }
            assert!(exploration.is_complete, "{first:?} with {second:?}: {}", exploration.schedules);
        }
    }
}

#[test]
fn two_releases_of_one_permit_are_refused_if_nobody_has_acquired_it_meanwhile() {
    let program = async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        ctx.acquire(&sem).await?;
        let mut tasks = Vec::new();
        for _ in 0..2 {
            let sem = sem.clone();
            tasks.push(ctx.spawn(async move |ctx: Ctx| ctx.release(&sem).await).await?);
        }
        let mut refused = 0;
        for task in &tasks {
            refused += usize::from(matches!(ctx.wait(task).await, Err(Error::ReleasedTooManyTimes)));
        }
        assert_eq!((refused, sem.available()), (1, 1));
        Ok(())
    };
    let exploration = Explorer::new().search(Search::Exhaustive { preemptions: None }).run(program);
    exploration.assert_holds();
    assert!(exploration.is_complete);
}
