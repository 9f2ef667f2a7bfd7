//! What the commands need besides cargo, installed when it is missing.

use crate::shell::{Failure, command, probe, run, step};

struct Tool {
    name: &'static str,
    /// Succeeds if the tool is there.
    detect: &'static [&'static str],
    install: &'static [&'static str],
}

/// One line per tool. The install command of a system package is an `apt-get` one.
const TOOLS: &[Tool] = &[
    Tool {
        name: "rustfmt",
        detect: &["cargo", "fmt", "--version"],
        install: &["rustup", "component", "add", "rustfmt"],
    },
    Tool {
        name: "clippy",
        detect: &["cargo", "clippy", "--version"],
        install: &["rustup", "component", "add", "clippy"],
    },
];

/// Installs what is missing, saying so first.
pub(crate) fn ensure() -> Result<(), Failure> {
    for tool in TOOLS {
        let words = |line: &'static [&str]| command(line[0], &line[1..]);
        if probe(&mut words(tool.detect)).is_none() {
            let name = format!("{} is missing, installing it: {}", tool.name, tool.install.join(" "));
            step(&name, || run(&mut words(tool.install)))?;
        }
    }
    Ok(())
}
