//! Many tasks on two workers. Each holds its slot across one yield, so that a line forms.

use std::sync::Arc;
use std::time::Instant;

use semafor_benchmarks::Report;

use super::single::ours;

const CYCLES: usize = 60_000;

macro_rules! contend {
    ($sem:expr, $tasks:expr, $sem_name:ident => $acquire:expr) => {{
        let sem = Arc::new($sem);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
        Box::new(move || {
            let start = Instant::now();
            let tasks: Vec<_> = (0..$tasks)
                .map(|_| {
                    let $sem_name = Arc::clone(&sem);
                    runtime.spawn(async move {
                        for _ in 0..CYCLES / $tasks {
                            let _permit = $acquire.await;
                            tokio::task::yield_now().await;
                        }
                    })
                })
                .collect();
            runtime.block_on(async {
                for task in tasks {
                    task.await.expect("the task ran");
                }
            });
            start.elapsed().as_nanos() as f64 / (CYCLES / $tasks * $tasks) as f64
        })
    }};
}

pub(super) fn measure(report: &mut Report, rounds: usize) {
    for (tasks, slots) in [(2, 1), (64, 8), (1000, 10)] {
        let work = format!("{tasks} tasks, {slots} slots, 2 workers");
        report.compare(&work, "ns", rounds, vec![
            ("ours", contend!(ours(slots), tasks, sem => sem.acquire())),
            ("tokio", contend!(tokio::sync::Semaphore::new(slots as usize), tasks, sem => sem.acquire())),
            ("async-lock", contend!(async_lock::Semaphore::new(slots as usize), tasks, sem => sem.acquire())),
            ("asyncband", contend!(asyncband::semaphore::Semaphore::new(slots as usize), tasks, sem => sem.acquire(1))),
        ]);
    }
}
