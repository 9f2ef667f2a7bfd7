//! The stress test, for as long as one has patience.

use crate::args::Args;
use crate::shell::{self, Failure, cargo, step};

pub(crate) fn run(mut args: Args) -> Result<(), Failure> {
    let seconds = args.number("--seconds")?.unwrap_or(600);
    args.finish()?;
    step(&format!("stress test, {seconds} seconds"), || {
        let test = ["test", "--release", "-p", "semafor", "--all-features", "--test", "stress"];
        let mut command = cargo(&test);
        shell::run(command.args(["--", "--nocapture"]).env("SEMAFOR_STRESS_SECONDS", seconds.to_string()))
    })
}
