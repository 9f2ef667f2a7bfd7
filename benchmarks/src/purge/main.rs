//! `semafor purge` beside `find`, `fd` piped to `rmdir`, and `rm -rf`, which removes everything without checks.
//!
//! On a file system in memory, on the file system of the build, and on one where every operation takes 2 ms, as over a
//! network. Each tool gets a new tree of the same kind, and the entries left in it are counted afterwards.

mod latency_fs;
mod local;
mod memory;
mod remote;
mod runner;
mod store;
mod tool;

use std::path::PathBuf;

use semafor_benchmarks::{Report, is_wanted, print_load, rounds_or};

use tool::Tool;

fn main() -> std::io::Result<()> {
    let mut words = std::env::args_os().skip(1);
    let first = words.next();
    if first.as_deref() == Some(runner::WORD.as_ref()) {
        return runner::main(words);
    }
    let out = first.map_or_else(|| PathBuf::from("target/bench/purge.json"), PathBuf::from);

    // While there is only one thread: later threads share it.
    let is_private = latency_fs::use_private_mounts();
    print_load("before");
    let tools = Tool::installed();
    let mut report = Report::new("purge");
    for (place, folder) in local::PLACES {
        if is_wanted(place) {
            local::measure(&mut report, &tools, rounds_or(3), place, folder);
        }
    }
    if is_wanted("remote") {
        remote::measure(&mut report, &tools, is_private);
    }
    if is_wanted("memory") {
        memory::measure(&mut report);
    }
    print_load("after");
    report.write(&out)?;
    println!("written to {}", out.display());
    Ok(())
}
