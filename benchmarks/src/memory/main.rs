//! The memory home beside tokio, async-lock, asyncband and, where xtask found one, Python.

mod contended;
mod heap;
mod names;
mod python;
mod single;

use std::path::PathBuf;

use semafor_benchmarks::Report;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

fn main() -> std::io::Result<()> {
    let rounds = std::env::var("SEMAFOR_BENCH_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(11);
    let out =
        std::env::args_os().nth(1).map_or_else(|| PathBuf::from("target/bench/memory.json"), PathBuf::from);

    let mut report = Report::new("memory");
    single::measure(&mut report, rounds);
    contended::measure(&mut report, rounds);
    heap::measure(&mut report);
    names::measure(&mut report, rounds);
    python::measure(&mut report, rounds);
    report.write(&out)?;
    println!("written to {}", out.display());
    Ok(())
}
