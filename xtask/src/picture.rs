//! Pictures of `semafor top` for the documentation, taken from a terminal by one of its tests.

use crate::shell::{self, Failure, cargo, root, step};
use crate::tools;

pub(crate) fn run() -> Result<(), Failure> {
    tools::ensure(tools::FOR_REDIS)?;
    step("pictures of semafor top", || {
        let test = ["test", "-p", "semafor-cli", "--features", "_test-redis", "--test", "top", "picture"];
        shell::run(cargo(&test).env("SEMAFOR_PICTURES", root().join("docs/src/images")))
    })
}
