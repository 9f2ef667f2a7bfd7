//! From a release to the moment the next waiter has the slot. The waiter is in line before, according to the server.

use std::time::Instant;

use semafor_benchmarks::Report;

use super::as_peer::{HANDED_OVER, shared_clock};
use super::contest::{Contestant, SHORT_TURNS, add_percentiles, contest};
use super::peer::{Peer, PeerCommand};
use super::setup::{Setup, micros_since, until_queued};

const HANDOFFS: usize = 300;
const SHORT: usize = HANDOFFS / SHORT_TURNS;
const IN_ONE: &str = "handoff in one process";

pub(super) fn measure(report: &mut Report, setup: &Setup, rounds: usize) {
    let beside_floor = vec![in_one_process(setup, SHORT), floor(setup)];
    add_percentiles(report, IN_ONE, &contest(rounds * SHORT_TURNS, beside_floor));

    let mut other = PeerCommand::ours(setup).start().expect("ours comes");
    let beside_floor = vec![between_processes(setup, &mut other), floor(setup)];
    let work = "handoff between two processes";
    add_percentiles(report, work, &contest(rounds * SHORT_TURNS, beside_floor));

    let mut peers = Peer::others(setup);
    let mut beside_peers = vec![in_one_process(setup, HANDOFFS)];
    // The Python library takes half a second each.
    beside_peers.extend(peers.iter_mut().map(|peer| Contestant::there(peer, "handoff 8")));
    add_percentiles(report, IN_ONE, &contest(rounds, beside_peers));
}

fn in_one_process(setup: &Setup, handoffs: usize) -> Contestant<'_> {
    let semaphore = setup.semaphore("handoff", 1);
    Contestant::here("ours", move || {
        let semaphore = semaphore.clone();
        setup.run(async move {
            let mut micros = Vec::with_capacity(handoffs);
            let mut held = semaphore.acquire().await.expect("a slot").into_owned();
            for _ in 0..handoffs {
                let line = semaphore.clone();
                let next = tokio::spawn(async move {
                    let permit = line.acquire().await.expect("a slot").into_owned();
                    (permit, Instant::now())
                });
                until_queued(&semaphore, 1).await;
                let start = Instant::now();
                held.release().await.expect("it is held");
                let (permit, granted) = next.await.expect("the task does not panic");
                micros.push(granted.saturating_duration_since(start).as_nanos() as f64 / 1e3);
                held = permit;
            }
            held.release().await.expect("it is held");
            micros
        })
    })
}

fn between_processes<'a>(setup: &'a Setup, other: &'a mut Peer) -> Contestant<'a> {
    let semaphore = setup.semaphore(HANDED_OVER.0, HANDED_OVER.1);
    let mut handoff = move || {
        let (held, line) = (semaphore.clone(), semaphore.clone());
        let held = setup.run(async move { held.acquire().await.expect("a slot").into_owned() });
        other.request("next").expect("it listens");
        let start = setup.run(async move {
            until_queued(&line, 1).await;
            let start = shared_clock();
            held.release().await.expect("it is held");
            start
        });
        let granted: u64 = other.answer().expect("it got the slot");
        granted.saturating_sub(start) as f64 / 1e3
    };
    Contestant::here("ours", move || (0..SHORT).map(|_| handoff()).collect())
}

fn floor(setup: &Setup) -> Contestant<'_> {
    Contestant::here("one bare EVALSHA trip", || {
        let mut trip = setup.trip();
        setup.run(async move {
            let mut micros = Vec::with_capacity(SHORT);
            for _ in 0..SHORT {
                let start = Instant::now();
                trip.take().await;
                micros.push(micros_since(start));
            }
            micros
        })
    })
}
