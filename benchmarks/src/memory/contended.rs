//! Many tasks, mostly on two workers. Each holds its slot across one yield, so that a line forms.

use std::sync::Arc;
use std::time::Instant;

use semafor_benchmarks::Report;
use tokio::runtime::Builder;

use super::single::ours;

const CYCLES: usize = 200_000;

macro_rules! contend {
    ($runtime:expr, $sem:expr, $tasks:expr, $sem_name:ident => $acquire:expr) => {{
        let sem = Arc::new($sem);
        let runtime = $runtime.build().expect("a runtime");
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

fn two_workers() -> Builder {
    let mut runtime = Builder::new_multi_thread();
    runtime.worker_threads(2);
    runtime
}

/// Ours on one thread, to compare with peers that have one thread.
pub(super) fn on_one_thread(tasks: usize, slots: u32) -> Box<dyn FnMut() -> f64> {
    contend!(Builder::new_current_thread(), ours(slots), tasks, sem => sem.acquire())
}

pub(super) fn measure(report: &mut Report, rounds: usize) {
    for (tasks, slots) in [(2, 1), (64, 8), (1000, 10)] {
        let work = format!("{tasks} tasks, {slots} slots, 2 workers");
        report.compare(&work, "ns", rounds, vec![
            ("ours", contend!(two_workers(), ours(slots), tasks, sem => sem.acquire())),
            ("tokio", contend!(two_workers(), tokio::sync::Semaphore::new(slots as usize), tasks, sem => sem.acquire())),
            ("async-lock", contend!(two_workers(), async_lock::Semaphore::new(slots as usize), tasks, sem => sem.acquire())),
            ("asyncband", contend!(two_workers(), asyncband::semaphore::Semaphore::new(slots as usize), tasks, sem => sem.acquire(1))),
        ]);
    }
}
