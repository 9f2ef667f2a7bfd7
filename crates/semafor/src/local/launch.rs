//! Starting an agent where there is none.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::address;
use crate::error::{HomeError, HomeErrorKind};

/// Has an agent started in `directory`. If somebody else is quicker, that will do as well.
pub(super) fn start(program: Option<&Path>, directory: &Path) -> Result<(), HomeError> {
    address::make(directory)?;
    let program = program.map(Path::to_owned).or_else(|| in_path("semafor"));
    let program = program.unwrap_or_else(|| PathBuf::from("semafor"));
    let mut command = Command::new(&program);
    command.args(["agent", "start"]).arg(directory);
    // It is the agent of all, not a part of whoever happened to need it first.
    command.env_clear().current_dir("/").stdin(Stdio::null());
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let message = format!(
                "there is no agent in {}, and no {program:?} to start one: install the `semafor` command \
                 (cargo install semafor-cli), or name it with Config::program",
                directory.display()
            );
            return Err(HomeError::new(HomeErrorKind::Unreachable, message));
        }
        Err(error) => return Err(address::trouble("start the agent for", directory, &error)),
    };
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().trim_start_matches("semafor: ");
    let message = if said.is_empty() {
        format!("{} could not start an agent: {}", program.display(), output.status)
    } else {
        said.to_owned()
    };
    Err(HomeError::new(HomeErrorKind::Unreachable, message))
}

/// Looked for here, because the agent gets none of this environment.
fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}
