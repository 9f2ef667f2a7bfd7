//! Tasks of any runtime and plain threads share a semaphore.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use semafor::{Registry, Semaphore, secs};

const ROUNDS: usize = 300;

/// Counts how many tasks are inside, and the most at once.
#[derive(Default)]
struct Occupancy {
    inside: AtomicUsize,
    most: AtomicUsize,
}

impl Occupancy {
    fn enter(&self) {
        self.most.fetch_max(self.inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    }

    fn leave(&self) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn hold_briefly(sem: Semaphore, occupancy: Arc<Occupancy>) {
    for _ in 0..ROUNDS {
        let _permit = sem.acquire().await.unwrap();
        occupancy.enter();
        smol::future::yield_now().await;
        occupancy.leave();
    }
}

#[test]
fn tokio_smol_and_plain_threads_contend_for_the_same_slots() {
    let sem = Registry::new().named("everybody").slots(3).build().unwrap();
    let occupancy = Arc::<Occupancy>::default();
    let mut threads = Vec::new();
    for kind in 0..6 {
        let (sem, occupancy) = (sem.clone(), occupancy.clone());
        threads.push(thread::spawn(move || match kind % 3 {
            0 => {
                let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
                runtime.block_on(async {
                    let tasks: Vec<_> =
                        (0..4).map(|_| tokio::spawn(hold_briefly(sem.clone(), occupancy.clone()))).collect();
                    for task in tasks {
                        task.await.unwrap();
                    }
                });
            }
            1 => smol::block_on(async {
                let tasks: Vec<_> =
                    (0..4).map(|_| smol::spawn(hold_briefly(sem.clone(), occupancy.clone()))).collect();
                for task in tasks {
                    task.await;
                }
            }),
            _ => {
                for _ in 0..ROUNDS {
                    let _permit = sem.acquire().blocking().unwrap();
                    occupancy.enter();
                    thread::yield_now();
                    occupancy.leave();
                }
            }
        }));
    }
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(occupancy.most.load(Ordering::SeqCst) <= 3);
    let stats = smol::block_on(sem.stats()).unwrap();
    assert_eq!((stats.held, stats.waiting), (0, 0));
    assert_eq!(stats.totals.granted as usize, (2 * 4 + 2 * 4 + 2) * ROUNDS);
}

#[test]
fn a_permit_acquired_in_one_runtime_can_end_in_another() {
    let sem = Registry::new().named("moved").slots(1).build().unwrap();
    let permit = smol::block_on(async { sem.acquire().await.unwrap().into_owned() });
    let tokio = tokio::runtime::Runtime::new().unwrap();
    tokio.block_on(async move { permit.release().await.unwrap() });
    drop(sem.try_acquire().blocking().unwrap());
}

#[test]
fn a_timeout_fires_under_a_runtime_without_timers() {
    let sem = Registry::new().named("no timers").slots(1).build().unwrap();
    let _held = sem.try_acquire().blocking().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let error = runtime.block_on(async { sem.acquire().timeout(secs(0.02)).await.unwrap_err() });
    assert!(error.is_timeout());
}
