//! Many more who want a slot than there are. What counts is how long it takes all of them, per cycle.

use std::time::Instant;

use semafor_benchmarks::Report;

use super::contest::{Contestant, add_medians, contest};
use super::peer::Peer;
use super::stage::{Stage, micros_since};

const SLOTS: u32 = 10;
const ROUNDS: usize = 3;

pub(super) fn measure(report: &mut Report, stage: &Stage) {
    let mut peers = Peer::others(stage);
    let mut few = ours_and_floor(stage, 100, 10);
    few.extend(peers.iter_mut().map(|peer| Contestant::there(peer, "contend 100 10")));
    add_medians(report, "100 contenders, 10 slots, per cycle", &contest(ROUNDS, few));

    println!(
        "left out: the others with 10,000 contenders: those of npm would ask a million times a second, \
         those of PyPI take a connection each"
    );
    let many = ours_and_floor(stage, 10_000, 2);
    add_medians(report, "10,000 contenders, 10 slots, per cycle", &contest(ROUNDS, many));
}

fn ours_and_floor(stage: &Stage, contenders: usize, cycles: usize) -> Vec<Contestant<'_>> {
    let semaphore = stage.semaphore(&format!("contended-by-{contenders}"), SLOTS);
    let ours = move || {
        let semaphore = semaphore.clone();
        all_at_once(stage, contenders, cycles, move || {
            let semaphore = semaphore.clone();
            async move {
                for _ in 0..cycles {
                    let permit = semaphore.acquire().await.expect("a slot");
                    permit.release().await.expect("it is held");
                }
            }
        })
    };
    let floor = move || {
        let trip = stage.trip();
        all_at_once(stage, contenders, cycles, move || {
            let mut trip = trip.clone();
            async move {
                for _ in 0..cycles {
                    trip.take().await;
                    trip.take().await;
                }
            }
        })
    };
    vec![Contestant::here("ours", ours), Contestant::here("two bare EVALSHA trips, no limit", floor)]
}

/// Microseconds per cycle.
fn all_at_once<F>(
    stage: &Stage,
    contenders: usize,
    cycles: usize,
    contender: impl Fn() -> F + Send + 'static,
) -> Vec<f64>
where
    F: Future<Output = ()> + Send + 'static,
{
    stage.run(async move {
        let start = Instant::now();
        let all: Vec<_> = (0..contenders).map(|_| tokio::spawn(contender())).collect();
        for one in all {
            one.await.expect("the task does not panic");
        }
        vec![micros_since(start) / (contenders * cycles) as f64]
    })
}
