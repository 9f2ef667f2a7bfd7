//! Every pair of {acquire, release, cancel, timeout, task end, root end} at the same moment, in every order. The search
//! is exhaustive, with no limit on preemptions. Only two timeouts, with half a million orders, are limited to two
//! preemptions.
//!
//! In every order, the number of holders stays within the permits, and all permits are available in the end.
//!
//! The programs are small enough for that because only the actions race: the root prepares everything else, with a
//! higher priority.

use std::cell::Cell;
use std::rc::Rc;

use semafor_coop::{
    AcquireSemaphore, CreateSemaphore, Ctx, Error, Explorer, Priority, Promise, Result, Search, Semaphore,
    Spawn, Task,
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    /// Acquires, and releases.
    Acquire,
    /// Releases what the holder has acquired.
    Release,
    /// Cancels the waiter.
    Cancel,
    /// The timeout of the waiter ends. If it appears twice, there are two waiters.
    Timeout,
    /// A task ends with a permit in a guard.
    TaskEnd,
    /// The root program ends, and all tasks are dropped.
    RootEnd,
}

const ACTIONS: [Action; 6] =
    [Action::Acquire, Action::Release, Action::Cancel, Action::Timeout, Action::TaskEnd, Action::RootEnd];

/// The moment of the actions, in seconds.
const MOMENT: f64 = 1.0;

/// How many tasks hold a permit.
#[derive(Clone)]
struct Inside {
    count: Rc<Cell<u32>>,
    most: u32,
}

impl Inside {
    /// Releases the permit. Another task may run before that, and must not get it.
    async fn visit(&self, ctx: &Ctx, sem: &Semaphore) -> Result {
        self.count.set(self.count.get() + 1);
        assert!(self.count.get() <= self.most, "too many inside");
        let released = ctx.release(sem).await;
        self.count.set(self.count.get() - 1);
        released
    }
}

#[derive(Clone)]
struct Shared {
    sem: Semaphore,
    inside: Inside,
    end_of_root: Promise<()>,
}

/// Waits in line. A timed wait may time out.
async fn wait_in_line(ctx: Ctx, shared: Shared, is_timed: bool) -> Result {
    let waited = if is_timed {
        ctx.perform(AcquireSemaphore(&shared.sem).timeout(MOMENT)).await
    } else {
        ctx.acquire(&shared.sem).await
    };
    match waited {
        Ok(()) => shared.inside.visit(&ctx, &shared.sem).await,
        Err(Error::TimedOut | Error::TaskCancelled) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn act(ctx: Ctx, shared: Shared, waiter: Task<()>, action: Action) -> Result {
    match action {
        Action::Acquire => {
            ctx.acquire(&shared.sem).await?;
            shared.inside.visit(&ctx, &shared.sem).await
        }
        Action::Release => ctx.release(&shared.sem).await,
        Action::Cancel => ctx.cancel(&waiter).await,
        // The waiter was started before.
        Action::Timeout => Ok(()),
        Action::TaskEnd => ctx.permit(&shared.sem).await.map(drop),
        Action::RootEnd => ctx.complete(&shared.end_of_root, ()).await,
    }
}

async fn race(ctx: Ctx, actions: [Action; 2]) -> Result {
    let permits = if actions == [Action::Release; 2] { 2 } else { 1 };
    // Other tasks than the holder release its permits.
    let sem = ctx.perform(CreateSemaphore::new(permits).signal()).await?;
    let end_of_root = ctx.promise::<()>().await?;
    let shared = Shared { sem, inside: Inside { count: Rc::default(), most: permits }, end_of_root };

    // A holder that never ends, so that its permits are not reported as unreleased.
    let never = ctx.promise::<()>().await?;
    let (held, waits_for) = (shared.sem.clone(), never.future());
    let holder = async move |ctx: Ctx| {
        for _ in 0..permits {
            ctx.acquire(&held).await?;
        }
        ctx.wait(waits_for).await
    };
    ctx.perform(Spawn::new(holder).daemon()).await?;

    // The waiters, which start before the moment.
    let mut tasks = Vec::new();
    let is_timed = actions.contains(&Action::Timeout);
    for _ in 0..actions.iter().filter(|action| **action == Action::Timeout).count().max(1) {
        let shared = shared.clone();
        let waits = Spawn::new(move |ctx| wait_in_line(ctx, shared, is_timed)).priority(Priority::Idle);
        tasks.push(ctx.perform(waits).await?);
    }
    ctx.delay(MOMENT).await?;

    // The moment of the actions. One of them must release, or nothing happens.
    let waiter = tasks[0].clone();
    let release = (!actions.contains(&Action::Release)).then_some(Action::Release);
    for action in actions.into_iter().chain(release).filter(|action| *action != Action::Timeout) {
        let (shared, waiter) = (shared.clone(), waiter.clone());
        let acts = Spawn::new(move |ctx| act(ctx, shared, waiter, action)).priority(Priority::Idle);
        tasks.push(ctx.perform(acts).await?);
    }
    if actions.contains(&Action::RootEnd) {
        return ctx.wait(shared.end_of_root.future()).await;
    }
    ctx.gather(&tasks).await?;
    assert_eq!((shared.sem.available(), shared.sem.waiting()), (permits, 0), "a permit is lost");
    assert_eq!(shared.inside.count.get(), 0);
    Ok(())
}

fn every_order_of(first: Action, second: Action) -> u64 {
    let preemptions = ([first, second] == [Action::Timeout; 2]).then_some(2);
    let explorer = Explorer::new().search(Search::Exhaustive { preemptions }).schedules(100_000);
    let exploration = explorer.run(async move |ctx| race(ctx, [first, second]).await);
    if let Some(failure) = exploration.failure {
        panic!("{first:?} with {second:?}: {failure}");
    }
    assert!(exploration.is_complete, "{first:?} with {second:?}: {}", exploration.schedules);
    exploration.schedules
}

#[test]
fn every_pair_of_actions_in_every_order_keeps_the_limit_and_every_permit() {
    for (place, first) in ACTIONS.into_iter().enumerate() {
        for second in ACTIONS.into_iter().skip(place) {
            // The root can end only once.
            if (first, second) == (Action::RootEnd, Action::RootEnd) {
                continue;
            }
            let schedules = every_order_of(first, second);
            assert!(schedules > 2, "{first:?} with {second:?}: {schedules}, so nothing was raced");
        }
    }
}

#[test]
fn of_two_releases_of_one_permit_one_is_refused() {
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
