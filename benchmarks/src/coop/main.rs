//! The cooperative scheduler beside tokio and async-executor on one thread, shuttle, and, where xtask found one,
//! Python.

mod ours;
mod python;
mod schedules;
mod smol;
mod tokio;

use std::path::PathBuf;

use semafor_benchmarks::{Report, Runs, is_wanted, print_load, rounds_or};

/// Acquire and release in one task.
const PAIRS: usize = 100_000;
/// Tasks that all wait for one of three permits.
const PARKED: usize = 10_000;
const PERMITS: usize = 3;
/// Two tasks that wake each other by turns.
const SWITCHES: usize = 50_000;

/// The works, by the names that the rows have.
const WORKS: [&str; 3] =
    ["acquire+release in one task", "10k tasks parked on 3 permits, gathered", "ping-pong, per switch"];

fn main() -> std::io::Result<()> {
    let rounds = rounds_or(11);
    let out =
        std::env::args_os().nth(1).map_or_else(|| PathBuf::from("target/bench/coop.json"), PathBuf::from);

    print_load("before");
    let mut report = Report::new("coop");
    if is_wanted("rust") {
        let ours: [fn() -> f64; 3] = [ours::pairs, ours::parked, ours::ping_pong];
        let tokio: [fn() -> f64; 3] = [tokio::pairs, tokio::parked, tokio::ping_pong];
        let smol: [fn() -> f64; 3] = [smol::pairs, smol::parked, smol::ping_pong];
        for (work, place) in WORKS.into_iter().zip(0..) {
            let runs: Runs<'_> = vec![
                ("ours", Box::new(ours[place])),
                ("tokio current_thread + LocalSet", Box::new(tokio[place])),
                ("async-executor + async-lock", Box::new(smol[place])),
            ];
            report.compare(work, "ns", rounds, runs);
        }
    }
    if is_wanted("schedules") {
        schedules::measure(&mut report, rounds);
    }
    if is_wanted("python") {
        python::measure(&mut report, rounds);
    }
    print_load("after");
    report.write(&out)?;
    println!("written to {}", out.display());
    Ok(())
}
