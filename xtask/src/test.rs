//! Everything that has to pass before a change goes in.

use std::num::NonZero;
use std::process::Command;
use std::thread;
use std::time::Instant;

use crate::args::Args;
use crate::select::Selection;
use crate::shell::{self, Failure, cargo, in_background, show, step};
use crate::time_limit::{TimeLimit, colours};
use crate::wire::Peer;
use crate::{lint, package, select, tools};

pub(crate) fn run(mut args: Args) -> Result<(), Failure> {
    let repeat = args.number("--repeat")?.unwrap_or(1);
    let filters = args.words()?;
    let limit = TimeLimit::from_env()?;

    tools::ensure(tools::FOR_REDIS)?;
    let peer = Peer::prepare();
    if filters.is_empty() {
        everything(repeat, limit, &peer)?;
    } else if filters == ["python"] {
        let pythons = package::pythons()?;
        rounds(repeat, |round| {
            let said = step(&format!("the Python package{round}"), || package::test(&pythons, limit, &peer))?;
            print!("{said}");
            Ok(())
        })?;
    } else {
        chosen(repeat, limit, &peer, &filters)?;
    }
    peer.complain();
    Ok(())
}

const THREADS: &str = "RUST_TEST_THREADS";

/// As many as cargo would use, and more on a small machine: most tests mostly wait.
fn threads() -> String {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    std::env::var(THREADS).unwrap_or_else(|_| cores.max(4).to_string())
}

fn everything(repeat: u32, limit: TimeLimit, peer: &Peer) -> Result<(), Failure> {
    let all = ["test", "--workspace", "--all-features"];
    let without_features = ["test", "-p", "semafor", "--no-default-features"];
    lint::run()?;
    // Built first: a compiler may print nothing for longer than a test may take.
    step("building the tests", || {
        shell::run(cargo(&all).arg("--no-run"))?;
        shell::run(cargo(&without_features).arg("--no-run"))
    })?;
    let pythons = package::pythons()?;
    thread::scope(|scope| {
        // Most tests leave a core idle.
        let package = in_background(scope, "the Python package", || package::test(&pythons, limit, peer));
        let loom = in_background(scope, "loom models", || {
            select::any(loom())?.then_some(()).ok_or("there are none")?;
            limit.capture(&mut loom())
        });
        rounds(repeat, |round| {
            step(&format!("tests{round}"), || {
                let mut tests = peer.known_to(cargo(&all));
                // All of them, so that one run names every failure.
                tests.args(["--no-fail-fast", "--"]).args(colours());
                limit.run(tests.env(THREADS, threads()))
            })?;
            step(&format!("tests without features{round}"), || {
                limit.run(cargo(&without_features).arg("--").args(colours()))
            })
        })?;
        loom.wait()?;
        package.wait()
    })
}

fn chosen(repeat: u32, limit: TimeLimit, peer: &Peer, filters: &[String]) -> Result<(), Failure> {
    let name = format!("tests matching {}", filters.join(", "));
    let selections = step(&format!("looking for {name}"), || Selection::matching(filters))?;
    rounds(repeat, |round| {
        selections.iter().try_for_each(|selection| {
            step(&format!("{selection}{round}"), || {
                limit.run(peer.known_to(selection.command()).args(colours()))
            })
        })
    })
}

/// In a target folder of its own: the flags would otherwise cause a rebuild of everything.
fn loom() -> Command {
    let mut command = cargo(&["test", "-p", "semafor", "-p", "semafor-coop", "--lib", "--release"]);
    command.args(["--target-dir", "target/loom", "--", "loom"]).env("RUSTFLAGS", "--cfg semafor_loom");
    command
}

/// Calls `round` with a suffix for a step's name, which has the number of the round if there are several.
fn rounds(count: u32, mut round: impl FnMut(&str) -> Result<(), Failure>) -> Result<(), Failure> {
    if count == 1 {
        return round("");
    }
    let all = Instant::now();
    for number in 1..=count {
        let this = Instant::now();
        round(&format!(", round {number} of {count}"))?;
        println!("==> round {number} of {count} took {}", show(this.elapsed()));
    }
    println!("==> {count} rounds took {}", show(all.elapsed()));
    Ok(())
}
