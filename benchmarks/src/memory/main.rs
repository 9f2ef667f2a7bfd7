//! The memory home beside tokio, async-lock, asyncband and, where xtask found one, Python.

mod contended;
mod heap;
mod names;
mod python;
mod single;

use std::path::PathBuf;

use semafor_benchmarks::{Report, is_wanted, rounds_or};
use semafor_testkit::heap::Counting;

#[global_allocator]
static HEAP: Counting = Counting;

fn main() -> std::io::Result<()> {
    let rounds = rounds_or(11);
    let out =
        std::env::args_os().nth(1).map_or_else(|| PathBuf::from("target/bench/memory.json"), PathBuf::from);

    let mut report = Report::new("memory");
    if is_wanted("single") {
        single::measure(&mut report, rounds);
    }
    if is_wanted("contended") {
        contended::measure(&mut report, rounds);
    }
    if is_wanted("heap") {
        heap::measure(&mut report);
    }
    if is_wanted("names") {
        names::measure(&mut report, rounds);
    }
    if is_wanted("python") {
        python::measure(&mut report, rounds);
    }
    report.write(&out)?;
    println!("written to {}", out.display());
    Ok(())
}
