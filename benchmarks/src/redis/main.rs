//! The Redis home beside the bare trips it is made of and, where xtask found their runtimes, the Python library,
//! redis-semaphore of npm and self-limiters of PyPI: on one server, in turns.

mod as_peer;
mod contended;
mod contest;
mod cycle;
mod handoff;
mod idle;
mod ledger;
mod peer;
mod stage;

use std::path::PathBuf;

use semafor_benchmarks::Report;

use stage::Stage;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let out = arguments.next().map_or_else(|| PathBuf::from("target/bench/redis.json"), PathBuf::from);
    if out.as_os_str() == as_peer::WORD {
        let url = arguments.next().and_then(|url| url.into_string().ok()).expect("the server's address");
        return as_peer::serve(&url);
    }

    let rounds = std::env::var("SEMAFOR_BENCH_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(7);
    let only = std::env::var("SEMAFOR_BENCH_ONLY").ok();
    let wanted = |part: &str| only.as_deref().is_none_or(|only| only == part);

    print_load("before");
    let stage = Stage::set();
    let mut report = Report::new("redis");
    if wanted("cycle") {
        cycle::measure(&mut report, &stage, rounds);
    }
    if wanted("handoff") {
        handoff::measure(&mut report, &stage, rounds);
    }
    if wanted("contended") {
        contended::measure(&mut report, &stage);
    }
    if wanted("idle") {
        idle::measure(&mut report, &stage);
    }
    print_load("after");
    report.write(&out)?;
    println!("written to {}", out.display());
    Ok(())
}

/// Trips take several times as long on a busy machine, and not everybody's trips in the same proportion.
fn print_load(when: &str) {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(f64::NAN);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("load {when}: {load:.1} on {cores} cores");
    if when == "before" && load > 0.5 {
        println!("WARNING: other work is running here; ratios to the bare trips vary widely with it");
    }
}
