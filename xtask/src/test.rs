//! Everything that has to pass before a change goes in.

use std::num::NonZero;
use std::process::Command;
use std::thread;
use std::time::Instant;

use crate::args::Args;
use crate::select::Selection;
use crate::shell::{self, Failure, beside, cargo, show, step};
use crate::wire::Peer;
use crate::{lint, package, select, tools};

pub(crate) fn run(mut args: Args) -> Result<(), Failure> {
    let repeat = args.number("--repeat")?.unwrap_or(1);
    let filters = args.words()?;

    tools::ensure(tools::FOR_REDIS)?;
    let peer = Peer::prepare();
    if filters.is_empty() {
        everything(repeat, &peer)?;
    } else if filters == ["python"] {
        let pythons = package::pythons()?;
        rounds(repeat, |round| {
            let said = step(&format!("the Python package{round}"), || package::test(&pythons, &peer))?;
            print!("{said}");
            Ok(())
        })?;
    } else {
        chosen(repeat, &peer, &filters)?;
    }
    peer.complain();
    Ok(())
}

const THREADS: &str = "RUST_TEST_THREADS";

/// As many as cargo would take, and more on a small machine: most tests wait most of the time.
fn threads() -> String {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    std::env::var(THREADS).unwrap_or_else(|_| cores.max(4).to_string())
}

fn everything(repeat: u32, peer: &Peer) -> Result<(), Failure> {
    lint::run()?;
    let pythons = package::pythons()?;
    thread::scope(|scope| {
        // Most tests leave a core idle.
        let package = beside(scope, "the Python package", || package::test(&pythons, peer));
        let loom = beside(scope, "loom models", || {
            select::any(loom())?.then_some(()).ok_or("there are none")?;
            shell::hear(&mut loom())
        });
        rounds(repeat, |round| {
            step(&format!("tests{round}"), || {
                let tests = ["test", "--workspace", "--all-features"];
                shell::run(peer.known_to(cargo(&tests)).env(THREADS, threads()))
            })?;
            step(&format!("tests without features{round}"), || {
                shell::run(&mut cargo(&["test", "-p", "semafor", "--no-default-features"]))
            })
        })?;
        loom.wait()?;
        package.wait()
    })
}

fn chosen(repeat: u32, peer: &Peer, filters: &[String]) -> Result<(), Failure> {
    let name = format!("tests matching {}", filters.join(", "));
    let selections = step(&format!("looking for {name}"), || Selection::matching(filters))?;
    rounds(repeat, |round| {
        selections.iter().try_for_each(|selection| {
            step(&format!("{selection}{round}"), || shell::run(&mut peer.known_to(selection.command())))
        })
    })
}

/// In a target folder of its own: the flags would otherwise throw away what is built there.
fn loom() -> Command {
    let mut command = cargo(&["test", "-p", "semafor", "-p", "semafor-coop", "--lib", "--release"]);
    command.args(["--target-dir", "target/loom", "--", "loom"]).env("RUSTFLAGS", "--cfg semafor_loom");
    command
}

/// Calls with what to add to a step's name, which tells the rounds apart if there are several.
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
