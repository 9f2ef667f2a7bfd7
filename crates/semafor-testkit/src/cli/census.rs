//! Finds the processes that a test has started. Linux only.

use std::fs;
use std::path::Path;

/// The processes that have this in their environment: `NAME=value`. Child processes inherit it, even if a process in
/// between has ended.
pub fn with_variable(variable: &str) -> Vec<u32> {
    having("environ", |words| words.contains(&variable.as_bytes()))
}

/// The processes started with these arguments, for any program.
pub fn with_arguments(arguments: &[&[u8]]) -> Vec<u32> {
    having("cmdline", |words| words.get(1..) == Some(arguments))
}

/// True if it runs, or is stopped. A process that has ended is not alive, even if its exit code has not been read yet.
pub fn is_alive(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != 'Z' && state != 'X')
}

/// True if it was stopped by a signal.
pub fn is_stopped(pid: u32) -> bool {
    state(pid) == Some('T')
}

/// The description of a process for a message.
pub fn describe(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    format!("{pid} ({})", String::from_utf8_lossy(&line).trim_end_matches('\0').replace('\0', " "))
}

fn having(file: &str, wanted: impl Fn(&[&[u8]]) -> bool) -> Vec<u32> {
    let processes = fs::read_dir("/proc").expect("Linux tells").flatten();
    let ids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    let matches = |pid: &u32| {
        // It may have ended meanwhile. An ended process has neither arguments nor an environment.
        let text = fs::read(Path::new("/proc").join(pid.to_string()).join(file)).unwrap_or_default();
        let text = text.strip_suffix(b"\0").unwrap_or(&text);
        wanted(&text.split(|byte| *byte == 0).collect::<Vec<_>>())
    };
    ids.filter(matches).collect()
}

fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Its name, in parentheses, may contain any character.
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::redis::eventually;

    #[test]
    fn a_process_is_known_by_its_environment_and_its_arguments_until_it_ends() {
        let (name, value) = ("SEMAFOR_TESTKIT_CENSUS", std::process::id().to_string());
        let variable = format!("{name}={value}");
        let mut cat = Command::new("cat");
        cat.args(["-", "/dev/null"]).env(name, &value).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut cat = crate::spawner::spawn(cat).expect("it can be started");
        assert_eq!(with_variable(&variable), [cat.id()]);
        assert!(with_arguments(&[b"-", b"/dev/null"]).contains(&cat.id()));
        assert!(is_alive(cat.id()) && !is_stopped(cat.id()));
        drop(cat.stdin.take());
        eventually("it ends", || (!is_alive(cat.id())).then_some(()));
        assert!(with_variable(&variable).is_empty());
        cat.wait().expect("it is our child");
    }
}
