//! The stress test, for any length of time.

use std::time::Duration;

use crate::args::Args;
use crate::shell::{self, Failure, cargo, step};
use crate::time_limit::TimeLimit;

pub(crate) fn run(mut args: Args) -> Result<(), Failure> {
    let seconds = args.number("--seconds")?.unwrap_or(600);
    args.finish()?;
    let limit = TimeLimit::from_env()?;
    step(&format!("stress test, {seconds} seconds"), || {
        let test = ["test", "--release", "-p", "semafor", "--all-features", "--test", "stress"];
        shell::run(cargo(&test).arg("--no-run"))?;
        let mut command = cargo(&test);
        let command = command.args(["--", "--nocapture"]).env("SEMAFOR_STRESS_SECONDS", seconds.to_string());
        limit.plus(Duration::from_secs(seconds.into())).run(command)
    })
}
