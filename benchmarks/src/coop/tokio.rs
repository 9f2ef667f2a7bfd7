use std::rc::Rc;
use std::time::Instant;

use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::task::{LocalSet, spawn_local};

use super::{PAIRS, PARKED, PERMITS, SWITCHES};

fn timed(count: usize, program: impl AsyncFnOnce()) -> f64 {
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let start = Instant::now();
    LocalSet::new().block_on(&runtime, program());
    start.elapsed().as_nanos() as f64 / count as f64
}

pub(super) fn pairs() -> f64 {
    timed(PAIRS, async || {
        let sem = Semaphore::new(PERMITS);
        for _ in 0..PAIRS {
            drop(sem.acquire().await);
        }
    })
}

pub(super) fn parked() -> f64 {
    timed(PARKED, async || {
        let sem = Rc::new(Semaphore::new(PERMITS));
        let held = sem.acquire_many(PERMITS as u32).await;
        let mut tasks = Vec::with_capacity(PARKED);
        for _ in 0..PARKED {
            let sem = sem.clone();
            tasks.push(spawn_local(async move { drop(sem.acquire().await) }));
        }
        // So that all of them wait.
        tokio::task::yield_now().await;
        drop(held);
        for task in tasks {
            task.await.expect("it has no reason to panic");
        }
    })
}

pub(super) fn ping_pong() -> f64 {
    async fn player(own: Rc<Semaphore>, other: Rc<Semaphore>) {
        for _ in 0..SWITCHES / 2 {
            own.acquire().await.expect("never closed").forget();
            other.add_permits(1);
        }
    }
    timed(SWITCHES, async || {
        let (ping, pong) = (Rc::new(Semaphore::new(0)), Rc::new(Semaphore::new(0)));
        let first = spawn_local(player(ping.clone(), pong.clone()));
        let second = spawn_local(player(pong, ping.clone()));
        ping.add_permits(1);
        first.await.expect("it has no reason to panic");
        second.await.expect("it has no reason to panic");
    })
}
