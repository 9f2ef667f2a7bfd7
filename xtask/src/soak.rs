//! Real processes and faults for hours.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use crate::args::Args;
use crate::shell::{self, Failure, cargo, root, step};
use crate::tools;
use crate::wire::Peer;

/// As quick as a release, and quick to build.
const PROFILE: &str = "simulate";

const USAGE: &str = "\
cargo xtask soak [--hours H] [--minutes M] [--seconds S] [--seed N] [--folder PATH]

Real processes share semaphores on real Redis servers and with real agents, together with clients of the Python library
asyncio-advanced-semaphores, while clients, servers, agents and connections are killed, stopped, cut and restarted. What
they see is checked as they go; memory and descriptors are watched. Installs redis-server and the library if they are missing.

  --hours, --minutes, --seconds  how long things go wrong, in sum (10 minutes)
  --seed N                       which faults happen; they meet another load in every run (a random number)
  --folder PATH                  where soak.svg and soak.json go (target/soak)

Ctrl-C ends everything that was started and prints the summary so far. The exit code is 1 if a rule was broken or a process
grows, and the output then has the seed and the events before it.
";

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let words = args.rest();
    if words.iter().any(|word| matches!(&**word, "--help" | "-h" | "help")) {
        print!("{USAGE}");
        return Ok(());
    }
    tools::ensure(tools::FOR_REDIS)?;
    let peer = Peer::prepare();
    step("building the programs", || {
        shell::run(&mut cargo(&["build", "--profile", PROFILE, "-p", "semafor-cli", "--bin", "semafor"]))?;
        let programs = ["--features", "soak", "--bin", "soak", "--bin", "contender"];
        shell::run(cargo(&["build", "--profile", PROFILE, "-p", "semafor-testkit"]).args(programs))
    })?;
    let built = target().join(PROFILE);
    let mut soak = shell::command(built.join("soak"), &[]);
    soak.arg("--semafor").arg(built.join("semafor")).args(words);
    if let Some(python) = peer.python() {
        soak.arg("--python").arg(python);
    }
    // It takes our place, so that Ctrl-C ends no process before it has printed its summary.
    let error = soak.exec();
    let reason = shell::cannot_start(&soak, &error);
    Err(Failure::Step { name: "soak".into(), reason })
}

fn target() -> PathBuf {
    let target = root().join("target");
    std::env::var_os("CARGO_TARGET_DIR").map_or(target, |path| root().join(path))
}
