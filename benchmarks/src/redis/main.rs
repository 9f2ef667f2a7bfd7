//! The Redis home beside the bare trips it is made of and, where xtask found their runtimes, the Python library,
//! redis-semaphore of npm and self-limiters of PyPI: on one server, in turns.

mod as_peer;
mod contended;
mod contest;
mod cycle;
mod handoff;
mod idle;
mod peer;
mod server_usage;
mod setup;

use std::path::PathBuf;

use semafor_benchmarks::{Report, is_wanted, print_load, rounds_or};

use semafor_testkit::heap::Counting;
use setup::Setup;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let out = arguments.next().map_or_else(|| PathBuf::from("target/bench/redis.json"), PathBuf::from);
    if out.as_os_str() == as_peer::WORD {
        let url = arguments.next().and_then(|url| url.into_string().ok()).expect("the server's address");
        return as_peer::serve(&url);
    }

    let rounds = rounds_or(7);

    print_load("before");
    let setup = Setup::set();
    let mut report = Report::new("redis");
    if is_wanted("cycle") {
        cycle::measure(&mut report, &setup, rounds);
    }
    if is_wanted("handoff") {
        handoff::measure(&mut report, &setup, rounds);
    }
    if is_wanted("contended") {
        contended::measure(&mut report, &setup);
    }
    if is_wanted("waiters") {
        idle::measure_waiters(&mut report, &setup);
    }
    if is_wanted("idle") {
        idle::measure(&mut report, &setup);
    }
    print_load("after");
    report.write(&out)?;
    println!("written to {}", out.display());
    Ok(())
}
