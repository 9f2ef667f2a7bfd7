//! Acquire and release without contention.

use std::time::Instant;

use semafor_benchmarks::Report;

use super::contest::{Contestant, SHORT_TURNS, add_percentiles, contest};
use super::peer::Peer;
use super::setup::{Setup, micros_since};

const CYCLES: usize = 2000;
const WORK: &str = "uncontended acquire+release";

pub(super) fn measure(report: &mut Report, setup: &Setup, rounds: usize) {
    let short = CYCLES / SHORT_TURNS;
    let beside_floor = vec![ours(setup, short), floor(setup, short)];
    add_percentiles(report, WORK, &contest(rounds * SHORT_TURNS, beside_floor));

    let mut peers = Peer::others(setup);
    let mut beside_peers = vec![ours(setup, CYCLES)];
    beside_peers.extend(peers.iter_mut().map(|peer| Contestant::there(peer, "cycle 200")));
    add_percentiles(report, WORK, &contest(rounds, beside_peers));
}

fn ours(setup: &Setup, cycles: usize) -> Contestant<'_> {
    let semaphore = setup.semaphore("cycle", 10);
    Contestant::here("ours", move || {
        let semaphore = semaphore.clone();
        setup.run(async move {
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

fn floor(setup: &Setup, cycles: usize) -> Contestant<'_> {
    Contestant::here("two bare EVALSHA trips", move || {
        let mut trip = setup.trip();
        setup.run(async move {
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
