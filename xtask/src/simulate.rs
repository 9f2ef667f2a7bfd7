//! Whole fleets in one thread.

use crate::args::Args;
use crate::shell::{self, Failure, cargo, step};

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    step("simulation", || {
        let simulate =
            ["run", "--quiet", "--profile", "simulate", "-p", "semafor-testkit", "--features", "simulation"];
        shell::run(cargo(&simulate).args(["--bin", "simulate", "--"]).args(args.rest()))
    })
}
