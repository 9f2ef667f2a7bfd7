//! Ends processes that hang. Linux only: it reads `/proc`.

use std::collections::BTreeMap;
use std::fs;

use crate::shell::{command, probe};

/// How often to look for processes that were started while others were stopped.
const MAX_PASSES: usize = 20;

struct Process {
    id: u32,
    parent: u32,
    group: u32,
    session: u32,
    is_marked: bool,
}

/// Kills a process, its descendants, and all processes in groups or sessions that those lead. Returns lines that name
/// them.
///
/// A daemon has lost its parent, and may lead a session of its own. It is found by `mark`, a variable in the
/// environment of the process and its descendants (`NAME=VALUE`). Other processes in the group of the process are not
/// killed: xtask is among them, and so is the process that started xtask.
pub(crate) fn end_all_of(root: u32, mark: &str) -> String {
    let mut found = BTreeMap::new();
    for _ in 0..MAX_PASSES {
        let new: Vec<_> =
            descendants(root, &all(mark)).into_iter().filter(|id| !found.contains_key(id)).collect();
        if new.is_empty() {
            break;
        }
        // A stopped process starts no other process while we look.
        signal("STOP", &new);
        found.extend(new.into_iter().map(|id| (id, describe(id))));
    }
    signal("KILL", &found.keys().copied().collect::<Vec<_>>());
    found.into_iter().map(|(id, line)| format!("\n    {id} {line}")).collect()
}

fn descendants(root: u32, all: &[Process]) -> Vec<u32> {
    let mut descendants = vec![root];
    loop {
        let is_in = |id: u32| descendants.contains(&id);
        let belongs = |process: &&Process| {
            process.is_marked || is_in(process.parent) || is_in(process.group) || is_in(process.session)
        };
        let new: Vec<_> =
            all.iter().filter(belongs).map(|process| process.id).filter(|id| !is_in(*id)).collect();
        if new.is_empty() {
            return descendants;
        }
        descendants.extend(new);
    }
}

fn all(mark: &str) -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(|id: u32| {
        let process = parse(id, &fs::read_to_string(format!("/proc/{id}/stat")).ok()?)?;
        Some(Process { is_marked: has_in_environment(id, mark), ..process })
    })
    .collect()
}

fn has_in_environment(id: u32, mark: &str) -> bool {
    let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
}

/// From `ID (NAME) STATE PARENT GROUP SESSION …`, where the name may contain any character.
fn parse(id: u32, stat: &str) -> Option<Process> {
    let mut words = stat.rsplit_once(')')?.1.split_whitespace().skip(1).map(str::parse);
    let mut next = || words.next()?.ok();
    Some(Process { id, parent: next()?, group: next()?, session: next()?, is_marked: false })
}

fn describe(id: u32) -> String {
    let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).trim_end_matches('\0').replace('\0', " ");
    line.chars().filter(|char| !char.is_control()).take(200).collect()
}

/// With the `kill` of the shell, which every system has.
fn signal(signal: &str, processes: &[u32]) {
    let script = format!("for id; do kill -{signal} \"$id\"; done");
    let mut kill = command("sh", &["-c", &script, "sh"]);
    // Some may have ended.
    let _ = probe(kill.args(processes.iter().map(u32::to_string)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_parsed_whatever_its_name() {
        let process = parse(7, "7 (a) R (b) S 1 2 3 0 -1").expect("it can be read");
        assert_eq!((process.id, process.parent, process.group, process.session), (7, 1, 2, 3));
        assert!(parse(7, "").is_none() && parse(7, "7 (x) S").is_none());
    }

    #[test]
    fn descendants_are_all_started_processes_and_their_groups() {
        let process =
            |(id, parent, group, session, is_marked)| Process { id, parent, group, session, is_marked };
        let all = [
            (1, 0, 1, 1, false),
            (10, 1, 10, 1, false),
            // Ours, and what it has started.
            (20, 10, 10, 1, true),
            (21, 20, 10, 1, true),
            (22, 21, 22, 22, true),
            // Its parent is gone.
            (23, 1, 22, 22, false),
            // Its session is without a leader. It has started another one, in an environment of its own.
            (25, 1, 30, 30, true),
            (26, 25, 30, 30, false),
            // Of another parent.
            (24, 10, 10, 1, false),
        ]
        .map(process);
        let mut descendants = descendants(20, &all);
        descendants.sort_unstable();
        assert_eq!(descendants, [20, 21, 22, 23, 25, 26]);
    }
}
