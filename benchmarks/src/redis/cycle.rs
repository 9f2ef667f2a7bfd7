//! Acquire and release when nobody is in the way.

use std::time::Instant;

use semafor_benchmarks::Report;

use super::contest::{Contestant, SHORT_TURNS, add_percentiles, contest};
use super::peer::Peer;
use super::stage::{Stage, micros_since};

const CYCLES: usize = 2000;
const WORK: &str = "uncontended acquire+release";

pub(super) fn measure(report: &mut Report, stage: &Stage, rounds: usize) {
    let short = CYCLES / SHORT_TURNS;
    let beside_floor = vec![ours(stage, short), floor(stage, short)];
    add_percentiles(report, WORK, &contest(rounds * SHORT_TURNS, beside_floor));

    let mut peers = Peer::others(stage);
    let mut beside_peers = vec![ours(stage, CYCLES)];
    beside_peers.extend(peers.iter_mut().map(|peer| Contestant::there(peer, "cycle 200")));
    add_percentiles(report, WORK, &contest(rounds, beside_peers));
}

fn ours(stage: &Stage, cycles: usize) -> Contestant<'_> {
    let semaphore = stage.semaphore("cycle", 10);
    Contestant::here("ours", move || {
        let semaphore = semaphore.clone();
        stage.run(async move {
            let mut micros = Vec::with_capacity(cycles);
            for _ in 0..cycles {
                let start = Instant::now();
                let permit = semaphore.acquire().await.expect("a slot");
                permit.release().await.expect("it is held");
                micros.push(micros_since(start));
            }
            micros
        })
    })
}

fn floor(stage: &Stage, cycles: usize) -> Contestant<'_> {
    Contestant::here("two bare EVALSHA trips", move || {
        let mut trip = stage.trip();
        stage.run(async move {
            let mut micros = Vec::with_capacity(cycles);
            for _ in 0..cycles {
                let start = Instant::now();
                trip.take().await;
                trip.take().await;
                micros.push(micros_since(start));
            }
            micros
        })
    })
}
