//! Schedules of one little program: two tasks that take two locks in the same order.

use std::sync::Arc;
use std::time::Instant;

use semafor_benchmarks::Report;
use semafor_coop::{Ctx, Explorer, Result, Search, Semaphore};
use shuttle::sync::Mutex;

const SCHEDULES: usize = 20_000;

async fn both(ctx: Ctx, first: Semaphore, second: Semaphore) -> Result {
    ctx.acquire(&first).await?;
    ctx.acquire(&second).await?;
    ctx.release(&second).await?;
    ctx.release(&first).await
}

async fn program(ctx: Ctx) -> Result {
    let a = ctx.create_semaphore(1).await?;
    let b = ctx.create_semaphore(1).await?;
    let (first, second) = (a.clone(), b.clone());
    let left = ctx.spawn(move |ctx| both(ctx, first, second)).await?;
    let right = ctx.spawn(move |ctx| both(ctx, a, b)).await?;
    ctx.wait(&left).await?;
    ctx.wait(&right).await
}

fn ours() -> f64 {
    let start = Instant::now();
    let explorer = Explorer::new().search(Search::Random { seed: 1 }).schedules(SCHEDULES as u64);
    explorer.run(program).assert_holds();
    start.elapsed().as_nanos() as f64 / SCHEDULES as f64
}

fn theirs() -> f64 {
    let start = Instant::now();
    let program = || {
        let (a, b) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
        let both = |a: Arc<Mutex<()>>, b: Arc<Mutex<()>>| async move {
            let _first = a.lock().expect("never poisoned");
            let _second = b.lock().expect("never poisoned");
        };
        let left = shuttle::future::spawn(both(a.clone(), b.clone()));
        let right = shuttle::future::spawn(both(a, b));
        shuttle::future::block_on(async {
            left.await.expect("it has no reason to panic");
            right.await.expect("it has no reason to panic");
        });
    };
    shuttle::check_random(program, SCHEDULES);
    start.elapsed().as_nanos() as f64 / SCHEDULES as f64
}

pub(super) fn measure(report: &mut Report, rounds: usize) {
    let runs: Vec<(&str, Box<dyn FnMut() -> f64>)> =
        vec![("ours", Box::new(ours)), ("shuttle", Box::new(theirs))];
    report.compare("a random schedule of two tasks and two locks", "ns", rounds, runs);
}
