use std::rc::Rc;
use std::time::Instant;

use async_executor::LocalExecutor;
use async_lock::Semaphore;

use super::{PAIRS, PARKED, PERMITS, SWITCHES};

fn timed(count: usize, program: impl AsyncFnOnce(&LocalExecutor<'_>)) -> f64 {
    let executor = LocalExecutor::new();
    let start = Instant::now();
    pollster::block_on(executor.run(program(&executor)));
    start.elapsed().as_nanos() as f64 / count as f64
}

pub(super) fn pairs() -> f64 {
    timed(PAIRS, async |_| {
        let sem = Semaphore::new(PERMITS);
        for _ in 0..PAIRS {
            drop(sem.acquire().await);
        }
    })
}

pub(super) fn parked() -> f64 {
    timed(PARKED, async |executor| {
        let sem = Rc::new(Semaphore::new(PERMITS));
        let held: Vec<_> = (0..PERMITS).map(|_| sem.try_acquire()).collect();
        let mut tasks = Vec::with_capacity(PARKED);
        for _ in 0..PARKED {
            let sem = sem.clone();
            tasks.push(executor.spawn(async move { drop(sem.acquire().await) }));
        }
        // So that all of them wait.
        while executor.try_tick() {}
        drop(held);
        for task in tasks {
            task.await;
        }
    })
}

pub(super) fn ping_pong() -> f64 {
    async fn player(own: Rc<Semaphore>, other: Rc<Semaphore>) {
        for _ in 0..SWITCHES / 2 {
            own.acquire().await.forget();
            other.add_permits(1);
        }
    }
    timed(SWITCHES, async |executor| {
        let (ping, pong) = (Rc::new(Semaphore::new(0)), Rc::new(Semaphore::new(0)));
        let first = executor.spawn(player(ping.clone(), pong.clone()));
        let second = executor.spawn(player(pong, ping.clone()));
        ping.add_permits(1);
        first.await;
        second.await;
    })
}
