//! The tools that the commands need besides cargo, installed when they are missing.

use crate::apt;
use crate::shell::{Failure, command, probe, run, step};

pub(crate) struct Tool {
    name: &'static str,
    /// Succeeds if the tool is there.
    detect: &'static [&'static str],
    source: Source,
}

enum Source {
    /// A component of the Rust toolchain.
    Rustup(&'static str),
    /// A package of the system, and a note that is printed before it is installed.
    Apt { package: &'static str, note: &'static str },
}

pub(crate) const FOR_LINT: &[Tool] = &[
    Tool { name: "rustfmt", detect: &["cargo", "fmt", "--version"], source: Source::Rustup("rustfmt") },
    Tool { name: "clippy", detect: &["cargo", "clippy", "--version"], source: Source::Rustup("clippy") },
];

/// A sentinel needs no package of its own: it is `redis-server --sentinel`.
pub(crate) const FOR_REDIS: &[Tool] = &[Tool {
    name: "redis-server",
    detect: &["redis-server", "--version"],
    source: Source::Apt {
        package: "redis-server",
        note: "the package may start a service on port 6379, which nothing here uses",
    },
}];

pub(crate) const PYTHON: &[Tool] = &[Tool {
    name: "Python",
    detect: &["python3", "-m", "ensurepip", "--version"],
    source: Source::Apt { package: "python3-venv", note: "it brings python3" },
}];

pub(crate) const FLOCK: &[Tool] = &[Tool {
    name: "flock",
    detect: &["flock", "--version"],
    source: Source::Apt { package: "util-linux", note: "it brings flock" },
}];

pub(crate) const GNU_SEM: &[Tool] = &[Tool {
    name: "GNU sem",
    detect: &["sem", "--version"],
    source: Source::Apt { package: "parallel", note: "it brings sem, which is the same program" },
}];

/// Debian uses another name for it.
pub(crate) const FD: &[Tool] = &[Tool {
    name: "fd",
    detect: &["sh", "-c", "fd --version || fdfind --version"],
    source: Source::Apt { package: "fd-find", note: "it brings fdfind" },
}];

/// Root can mount without it.
pub(crate) const FUSE: &[Tool] = &[Tool {
    name: "fusermount3",
    detect: &["sh", "-c", "test $(id -u) = 0 || fusermount3 --version"],
    source: Source::Apt { package: "fuse3", note: "it brings fusermount3, with which any user may mount" },
}];

/// Installs missing tools, and prints which.
pub(crate) fn ensure(tools: &[Tool]) -> Result<(), Failure> {
    tools.iter().filter(|tool| !tool.is_there()).try_for_each(|tool| {
        step(&format!("{} is missing, installing it", tool.name), || {
            tool.source.install()?;
            let complaint = || format!("installed, but `{}` still fails", tool.detect.join(" "));
            tool.is_there().then_some(()).ok_or_else(complaint)
        })
    })
}

impl Tool {
    fn is_there(&self) -> bool {
        probe(&mut command(self.detect[0], &self.detect[1..])).is_some()
    }
}

impl Source {
    fn install(&self) -> Result<(), String> {
        match self {
            Self::Rustup(component) => {
                println!("    rustup component add {component}");
                run(&mut command("rustup", &["component", "add", component]))
            }
            Self::Apt { package, note } => {
                println!("    {note}");
                apt::install(package)
            }
        }
    }
}
