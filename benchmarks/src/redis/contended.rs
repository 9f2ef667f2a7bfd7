//! Many more contenders than slots. Measures the total time, per cycle.

use std::time::Instant;

use semafor_benchmarks::Report;

use super::contest::{Contestant, add_medians, contest};
use super::peer::Peer;
use super::setup::{Setup, micros_since};

const SLOTS: u32 = 10;
const ROUNDS: usize = 3;

pub(super) fn measure(report: &mut Report, setup: &Setup) {
    let mut peers = Peer::others(setup);
    let mut few = ours_and_floor(setup, 100, 10);
    few.extend(peers.iter_mut().map(|peer| Contestant::there(peer, "contend 100 10")));
    add_medians(report, "100 contenders, 10 slots, per cycle", &contest(ROUNDS, few));

    println!(
        "left out: the others with 10,000 contenders: those of npm would ask a million times a second, \
         those of PyPI take a connection each"
    );
    let many = ours_and_floor(setup, 10_000, 2);
    add_medians(report, "10,000 contenders, 10 slots, per cycle", &contest(ROUNDS, many));
}

fn ours_and_floor(setup: &Setup, contenders: usize, cycles: usize) -> Vec<Contestant<'_>> {
    let semaphore = setup.semaphore(&format!("contended-by-{contenders}"), SLOTS);
    let ours = move || {
        let semaphore = semaphore.clone();
        all_at_once(setup, contenders, cycles, move || {
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
        let trip = setup.trip();
        all_at_once(setup, contenders, cycles, move || {
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
    setup: &Setup,
    contenders: usize,
    cycles: usize,
    contender: impl Fn() -> F + Send + 'static,
) -> Vec<f64>
where
    F: Future<Output = ()> + Send + 'static,
{
    setup.run(async move {
        let start = Instant::now();
        let all: Vec<_> = (0..contenders).map(|_| tokio::spawn(contender())).collect();
        for one in all {
            one.await.expect("the task does not panic");
        }
        vec![micros_since(start) / (contenders * cycles) as f64]
    })
}
