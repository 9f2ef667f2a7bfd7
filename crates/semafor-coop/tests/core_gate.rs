//! The core state machine with several contending tasks, explored by this scheduler.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use semafor_coop::{Ctx, Error, Explorer, Promise, Result, Search};
use semafor_core::{Acquired, Cancelled, Claim, Effects, Gate, PermitId, Request, Timestamp};

const NOW: Timestamp = Timestamp::from_nanos(0);

/// A home for a gate, made of promises where the memory home has locks and wakers.
#[derive(Clone)]
struct Home(Rc<RefCell<Gate<Promise<()>, u32>>>);

impl Home {
    fn new(slots: u32) -> Self {
        Self(Rc::new(RefCell::new(Gate::new(1, slots).unwrap())))
    }

    async fn acquire(&self, ctx: &Ctx, contender: u32) -> Result<PermitId> {
        let promise = ctx.promise::<()>().await?;
        let woken = promise.future();
        let mut effects = Effects::default();
        let acquired =
            self.0.borrow_mut().acquire(&Request::default(), promise, contender, NOW, &mut effects);
        let ticket = match acquired.unwrap() {
            Acquired::Granted(id) => return Ok(id),
            Acquired::Queued(ticket) => ticket,
        };
        if let Err(cancelled) = ctx.wait(woken).await {
            let mut effects = Effects::default();
            let left = self.0.borrow_mut().cancel(ticket, NOW, &mut effects);
            assert!(matches!(left, Cancelled::Left(_) | Cancelled::HandedOn));
            wake(ctx, effects).await?;
            return Err(cancelled);
        }
        let claim = self.0.borrow_mut().claim(ticket);
        match claim {
            Claim::Granted { id, .. } => Ok(id),
            other => panic!("woken for {other:?}"),
        }
    }

    async fn release(&self, ctx: &Ctx, id: PermitId) -> Result {
        let mut effects = Effects::default();
        self.0.borrow_mut().release(id, NOW, &mut effects).unwrap();
        wake(ctx, effects).await
    }
}

async fn wake(ctx: &Ctx, effects: Effects<Promise<()>, u32>) -> Result {
    for promise in effects.wake {
        ctx.complete(&promise, ()).await?;
    }
    Ok(())
}

/// More contenders than slots. One of them is cancelled.
async fn contend(ctx: Ctx, contenders: u32, slots: u32) -> Result {
    let home = Home::new(slots);
    let inside = Rc::new(Cell::new(0));
    let mut tasks = Vec::new();
    for number in 0..contenders {
        let (home, inside) = (home.clone(), inside.clone());
        let contender = async move |ctx: Ctx| {
            let id = home.acquire(&ctx, number).await?;
            inside.set(inside.get() + 1);
            assert!(inside.get() <= slots, "{} inside", inside.get());
            let stayed = ctx.yield_now().await;
            inside.set(inside.get() - 1);
            home.release(&ctx, id).await?;
            stayed
        };
        tasks.push(ctx.spawn(contender).await?);
    }
    ctx.cancel(&tasks[1]).await?;
    for task in &tasks {
        match ctx.wait(task).await {
            Ok(()) | Err(Error::TaskCancelled) => {}
            Err(error) => return Err(error),
        }
    }
    let gate = home.0.borrow();
    assert!(gate.is_idle(), "{} held, {} waiting", gate.held(), gate.waiting());
    let totals = gate.stats(NOW).totals;
    assert_eq!(totals.granted, totals.released + totals.handed_on);
    Ok(())
}

#[test]
fn the_gate_keeps_its_limit_and_its_slots_under_every_schedule_of_two_tasks() {
    let search = Search::Exhaustive { preemptions: Some(2) };
    let exploration =
        Explorer::new().search(search).schedules(500_000).run(async |ctx| contend(ctx, 2, 1).await);
    exploration.assert_holds();
    assert!(exploration.is_complete, "{}", exploration.schedules);
}

#[test]
fn the_gate_keeps_its_limit_and_its_slots_under_many_schedules_of_six_tasks() {
    for search in [Search::Random { seed: 7 }, Search::Pct { seed: 7, changes: 3 }] {
        let explorer = Explorer::new().search(search).schedules(5_000);
        explorer.run(async |ctx| contend(ctx, 6, 2).await).assert_holds();
    }
}
