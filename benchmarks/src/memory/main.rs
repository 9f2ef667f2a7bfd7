//! The memory home beside tokio, async-lock, asyncband and, where xtask found one, Python.

mod contended;
mod heap;
mod names;
mod python;
mod single;

use std::path::PathBuf;

use semafor_benchmarks::Report;
use semafor_testkit::heap::Counting;

#[global_allocator]
static HEAP: Counting = Counting;

fn main() -> std::io::Result<()> {
    let rounds = std::env::var("SEMAFOR_BENCH_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(11);
    let out =
        std::env::args_os().nth(1).map_or_else(|| PathBuf::from("target/bench/memory.json"), PathBuf::from);

    let only = std::env::var("SEMAFOR_BENCH_ONLY").ok();
    let wanted = |part: &str| only.as_deref().is_none_or(|only| only == part);

    let mut report = Report::new("memory");
    if wanted("single") {
        single::measure(&mut report, rounds);
    }
    if wanted("contended") {
        contended::measure(&mut report, rounds);
    }
    if wanted("heap") {
        heap::measure(&mut report);
    }
    if wanted("names") {
        names::measure(&mut report, rounds);
    }
    if wanted("python") {
        python::measure(&mut report, rounds);
    }
    report.write(&out)?;
    println!("written to {}", out.display());
    Ok(())
}
