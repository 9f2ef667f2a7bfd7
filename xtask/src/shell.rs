//! Runs other programs, from the workspace's root.

use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// Why a command of xtask ended early.
pub(crate) enum Failure {
    /// Wrong arguments.
    Usage(String),
    /// A step failed.
    Step { name: String, reason: String },
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(complaint) => write!(f, "{complaint}"),
            Self::Step { name, reason } => write!(f, "{name}: {reason}"),
        }
    }
}

/// The folder of the workspace's `Cargo.toml`.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace")
}

pub(crate) fn command(program: impl AsRef<Path>, args: &[&str]) -> Command {
    let mut command = Command::new(program.as_ref());
    command.args(args).current_dir(root());
    command
}

/// The cargo that runs xtask.
pub(crate) fn cargo(args: &[&str]) -> Command {
    command(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()), args)
}

/// Prints the name of a step, runs it, and prints how long it took.
pub(crate) fn step<T>(name: &str, work: impl FnOnce() -> Result<T, String>) -> Result<T, Failure> {
    println!("==> {name}");
    let started = Instant::now();
    let done = work().map_err(|reason| Failure::Step { name: name.into(), reason })?;
    println!("    {}", show(started.elapsed()));
    Ok(done)
}

/// A step that runs in the background. Its output is printed when it is waited for.
pub(crate) struct Background<'scope> {
    name: String,
    work: ScopedJoinHandle<'scope, (Result<String, String>, Duration)>,
}

pub(crate) fn in_background<'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> Result<String, String> + Send + 'scope,
) -> Background<'scope> {
    println!("==> {name}, in the background");
    let started = Instant::now();
    Background { name: name.into(), work: scope.spawn(move || (work(), started.elapsed())) }
}

impl Background<'_> {
    pub(crate) fn wait(self) -> Result<(), Failure> {
        let Self { name, work } = self;
        let (done, took) = work.join().unwrap_or((Err("xtask has panicked".into()), Duration::ZERO));
        let said = done.map_err(|reason| Failure::Step { name: name.clone(), reason })?;
        println!("==> {name}\n{said}    {}", show(took));
        Ok(())
    }
}

/// Runs to the end, and shows its output.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| cannot_start(command, &error))?;
    if status.success() { Ok(()) } else { Err(status.to_string()) }
}

/// Runs to the end and returns its stdout.
pub(crate) fn read(command: &mut Command) -> Result<String, String> {
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| cannot_start(command, &error))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(output.status.to_string())
    }
}

/// As [`read`], but a failure is an answer, and is not shown.
pub(crate) fn probe(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

pub(crate) fn cannot_start(command: &Command, error: &std::io::Error) -> String {
    format!("can't start `{}`: {error}", command.get_program().display())
}

/// `4.2s`, `3m12s`.
pub(crate) fn show(time: Duration) -> String {
    match time.as_secs() {
        0..60 => format!("{:.1}s", time.as_secs_f64()),
        seconds => format!("{}m{:02}s", seconds / 60, seconds % 60),
    }
}

/// Lines that stand out in a log.
pub(crate) fn framed(text: &str) -> String {
    let edge = "#".repeat(text.lines().map(|line| line.chars().count() + 2).max().unwrap_or(0));
    let lines: String = text.lines().map(|line| format!("# {line}\n")).collect();
    format!("{edge}\n{lines}{edge}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_as_wide_as_its_text() {
        assert_eq!(framed("one\nlonger"), "########\n# one\n# longer\n########");
    }

    #[test]
    fn durations_read_well() {
        assert_eq!(show(Duration::from_millis(4_230)), "4.2s");
        assert_eq!(show(Duration::from_secs(60)), "1m00s");
        assert_eq!(show(Duration::from_secs(192)), "3m12s");
    }
}
