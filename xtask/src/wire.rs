//! The other side of the wire contract: the Python library that shares our keys in Redis.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::python;
use crate::shell::framed;

/// A Python with the library, or why there is none. Without it, the tests run only against the recording.
pub(crate) struct Peer(Result<PathBuf, String>);

impl Peer {
    pub(crate) fn prepare() -> Self {
        let peer = Self(python::with(&["asyncio-advanced-semaphores"]));
        peer.complain();
        peer
    }

    pub(crate) fn is_there(&self) -> bool {
        self.0.is_ok()
    }

    /// The interpreter that has it.
    pub(crate) fn python(&self) -> Option<&Path> {
        self.0.as_deref().ok()
    }

    /// Passes it to the tests that `command` runs.
    pub(crate) fn known_to(&self, mut command: Command) -> Command {
        if let Ok(python) = &self.0 {
            command.env("SEMAFOR_WIRE_PYTHON", python);
        }
        command
    }

    /// Prints a conspicuous warning if it is missing: a pass without it proves less.
    pub(crate) fn complain(&self) {
        if let Err(reason) = &self.0 {
            println!("\n{}", framed(&complaint(reason)));
        }
    }
}

fn complaint(reason: &str) -> String {
    format!(
        "WARNING: THE WIRE CONTRACT IS NOT TESTED AGAINST PYTHON\n\
         {reason}\n\
         Its tests run against a recording instead, which may be older than the library.\n\
         Remedy: Python 3.12 or newer with its venv module (python3-venv), able to reach PyPI."
    )
}
