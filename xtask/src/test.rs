//! Everything that has to pass before a change goes in.

use std::ffi::OsStr;
use std::process::Command;

use crate::args::Args;
use crate::lint;
use crate::shell::{self, Failure, cargo, read, step};

pub(crate) fn run(mut args: Args) -> Result<(), Failure> {
    let repeat = args.number("--repeat")?.unwrap_or(1);
    let filters = args.words()?;

    if !filters.is_empty() {
        let chosen = || cargo(&["test", "--workspace", "--all-features"]);
        let name = format!("tests matching {}", filters.join(", "));
        step(&format!("looking for {name}"), || any_match(chosen(), &filters))?;
        return rounds(repeat, |round| {
            step(&format!("{name}{round}"), || shell::run(chosen().arg("--").args(&filters)))
        });
    }

    lint::run()?;
    rounds(repeat, |round| {
        step(&format!("tests{round}"), || {
            shell::run(&mut cargo(&["test", "--workspace", "--all-features"]))
        })?;
        step(&format!("tests without features{round}"), || {
            shell::run(&mut cargo(&["test", "-p", "semafor", "--no-default-features"]))
        })
    })?;
    step("loom models", || {
        any_match(loom(), &["loom"])?;
        shell::run(loom().args(["--", "loom"]))
    })
}

/// In a target folder of its own: the flags would otherwise throw away what is built there.
fn loom() -> Command {
    let mut command = cargo(&["test", "-p", "semafor", "--lib", "--release", "--target-dir", "target/loom"]);
    command.env("RUSTFLAGS", "--cfg semafor_loom");
    command
}

/// Fails if there is nothing to run: a green run of no tests says nothing.
fn any_match(mut test: Command, filters: &[impl AsRef<OsStr>]) -> Result<(), String> {
    let listed = read(test.args(["--", "--list"]).args(filters))?;
    let found = listed.lines().any(|line| line.ends_with(": test"));
    found.then_some(()).ok_or("there are none".into())
}

/// Calls with what to add to a step's name, which tells the rounds apart if there are several.
fn rounds(count: u32, mut round: impl FnMut(&str) -> Result<(), Failure>) -> Result<(), Failure> {
    match count {
        1 => round(""),
        _ => (1..=count).try_for_each(|number| round(&format!(", round {number} of {count}"))),
    }
}
