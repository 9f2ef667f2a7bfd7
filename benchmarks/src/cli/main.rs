//! The command beside `flock`, GNU `sem` and, where there is no limit, the bare command it runs.
//!
//! All files, those of the agent included, are in a directory of their own, which is removed at the end.

mod contended;
mod idle;
mod limiter;
mod line;
mod log;
mod once;
mod process;
mod setup;
mod usage;

use std::path::PathBuf;

use semafor_benchmarks::{Report, is_wanted, print_load, rounds_or};

use setup::Setup;

fn main() -> std::io::Result<()> {
    let out =
        std::env::args_os().nth(1).map_or_else(|| PathBuf::from("target/bench/cli.json"), PathBuf::from);

    print_load("before");
    let setup = Setup::set();
    let mut report = Report::new("cli");
    if is_wanted("once") {
        once::measure(&mut report, &setup, rounds_or(11));
    }
    if is_wanted("contended") {
        contended::measure(&mut report, &setup, rounds_or(3));
    }
    if is_wanted("idle") {
        idle::measure(&mut report, &setup);
    }
    setup.clear();
    print_load("after");
    report.write(&out)?;
    println!("written to {}", out.display());
    Ok(())
}
