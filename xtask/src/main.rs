//! The commands that CI runs, and that you run before it.

mod apt;
mod args;
mod bench;
mod docs;
mod fuzz;
mod lint;
mod node;
mod package;
mod patch;
mod picture;
mod planted;
mod processes;
mod python;
mod select;
mod shell;
mod simulate;
mod soak;
mod stress;
mod test;
mod time_limit;
mod tools;
mod wire;

use std::process::ExitCode;
use std::time::Instant;

use args::Args;
use shell::{Failure, show};

const USAGE: &str = "\
cargo xtask <command>

  lint                           formatting, clippy, documentation, one version of each dependency
  test [--repeat N] [FILTER...]  everything that has to pass: lint, the tests and the loom models;
                                 with a filter only the tests that contain it in their names,
                                 and all tests of the files in `tests/` that do;
                                 `test python` tests the Python package alone;
                                 --repeat runs the tests N times and stops at the first failing round;
                                 a test that takes longer than 10 minutes is named and ended, with the run
                                 (SEMAFOR_TEST_LIMIT_SECONDS sets another limit)
  docs                           builds the book into target/book and checks the links of all documents
  bench cli                      the command beside flock and GNU sem; rows go to target/bench/cli.json
  bench coop                     the scheduler beside its peers; rows go to target/bench/coop.json
  bench memory                   the memory home beside its peers; rows go to target/bench/memory.json
  bench purge                    the purge beside its peers; rows go to target/bench/purge.json
  bench python                   the Python package beside its peers; rows go to target/bench/python.json
  bench redis                    the Redis home beside its peers; rows go to target/bench/redis.json
  bench AREA --runs N            the same N times, and the median and the spread of the runs as a table
  fuzz [--minutes M] [TARGET...]
                                 searches with libFuzzer for inputs that panic or need too much memory, M minutes (3) for each
                                 target; new inputs are kept in target/fuzz/inputs for the next search
  simulate [--seed N] [--minutes M] [--runs R] [--fleet P] [--threads T]
                                 fleets of clients, a network and a Redis in one thread, with faults, from seed N (1) on, until
                                 a rule is broken; the failure is made smaller and drawn into target/simulation.svg
  simulate --planted [--minutes M] [NAME...]
                                 plants the faults of crates/semafor-testkit/planted, one at a time, in a copy of the sources, and
                                 simulates until each is found, for M minutes (10) at most; prints a table
  soak [--hours H] [--minutes M] [--seed N]
                                 real processes, servers, agents and faults for so long (10 minutes), checked as they go, with
                                 memory and descriptors in target/soak; `soak --help` says more
  stress [--seconds N]           the stress test, in release mode, for N seconds (600)
  picture                        pictures of `semafor top`, into docs/
  help                           this text
";

fn main() -> ExitCode {
    let started = Instant::now();
    match run(Args::from_env()) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(summary)) => {
            println!("\n{summary} in {}", show(started.elapsed()));
            ExitCode::SUCCESS
        }
        Err(Failure::Usage(complaint)) => {
            eprintln!("error: {complaint}\n\n{USAGE}");
            ExitCode::from(2)
        }
        Err(failure @ Failure::Step { .. }) => {
            eprintln!("\nFAILED after {}: {failure}", show(started.elapsed()));
            ExitCode::FAILURE
        }
    }
}

/// Runs one command and returns the words to end the output with.
fn run(mut args: Args) -> Result<Option<&'static str>, Failure> {
    match args.next().as_deref() {
        None | Some("help" | "--help" | "-h") => {
            print!("{USAGE}");
            Ok(None)
        }
        Some("lint") => {
            args.finish()?;
            lint::run().map(|()| Some("lint passed"))
        }
        Some("test") => test::run(args).map(|()| Some("all passed")),
        Some("bench") => bench::run(args).map(|()| Some("measured")),
        Some("docs") => {
            args.finish()?;
            docs::run().map(|()| Some("built"))
        }
        Some("picture") => {
            args.finish()?;
            picture::run().map(|()| Some("drawn"))
        }
        Some("fuzz") => fuzz::run(args).map(|()| Some("no fault was found")),
        Some("simulate") => simulate::run(args).map(Some),
        Some("soak") => soak::run(args).map(|()| None),
        Some("stress") => stress::run(args).map(|()| Some("stress passed")),
        Some(other) => Err(Failure::Usage(format!("there is no command `{other}`"))),
    }
}
