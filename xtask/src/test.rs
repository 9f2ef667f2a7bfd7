//! Everything that has to pass before a change goes in.

use std::process::Command;
use std::time::Instant;

use crate::args::Args;
use crate::select::Selection;
use crate::shell::{self, Failure, cargo, show, step};
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
        rounds(repeat, |_| package::test(package::build()?, &peer))?;
    } else {
        chosen(repeat, &peer, &filters)?;
    }
    peer.complain();
    Ok(())
}

fn everything(repeat: u32, peer: &Peer) -> Result<(), Failure> {
    lint::run()?;
    let package = package::build()?;
    rounds(repeat, |round| {
        step(&format!("tests{round}"), || {
            shell::run(&mut peer.known_to(cargo(&["test", "--workspace", "--all-features"])))
        })?;
        step(&format!("tests without features{round}"), || {
            shell::run(&mut cargo(&["test", "-p", "semafor", "--no-default-features"]))
        })
    })?;
    step("loom models", || {
        select::any(loom())?.then_some(()).ok_or("there are none")?;
        shell::run(&mut loom())
    })?;
    package::test(package, peer)
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
