//! Whole fleets in one thread.

use crate::args::Args;
use crate::planted;
use crate::shell::{self, Failure, cargo, step};

pub(crate) fn run(mut args: Args) -> Result<&'static str, Failure> {
    if args.flag("--planted") {
        return planted::run(args).map(|()| "all planted faults were found");
    }
    step("simulation", || {
        let simulate =
            ["run", "--quiet", "--profile", "simulate", "-p", "semafor-testkit", "--features", "simulation"];
        shell::run(cargo(&simulate).args(["--bin", "simulate", "--"]).args(args.rest()))?;
        Ok("no rule was broken")
    })
}
