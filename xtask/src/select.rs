//! Selects tests by a filter: tests with it in their names, and all tests of files with it in their names.

use std::fmt::{self, Display, Formatter};
use std::process::Command;

use crate::shell::{cargo, read};

/// Some of the workspace's tests, to run with one command. No two selections share a test.
pub(crate) enum Selection<'a> {
    /// All tests of these files in `tests/`.
    Files(Vec<String>),
    /// Tests with one of these in their names, in the libraries, the programs and the other files.
    Named { filters: &'a [String], files: Vec<String> },
    /// Tests of the documentation, which cargo runs only separately.
    Documentation(&'a [String]),
}

impl<'a> Selection<'a> {
    /// The selections that are not empty. An error if there is no test to run: a pass without tests means nothing.
    pub(crate) fn matching(filters: &'a [String]) -> Result<Vec<Self>, String> {
        let metadata = read(&mut cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
        let files = test_files(&metadata);
        if files.is_empty() {
            return Err("no test files found, does `cargo metadata` look different now?".into());
        }
        let mut found = Vec::new();
        for selection in split(files, filters) {
            if any(selection.command())? {
                found.push(selection);
            }
        }
        if found.is_empty() { Err("there are none".into()) } else { Ok(found) }
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = cargo(&["test", "--workspace", "--all-features"]);
        let (kinds, files, filters): (&[&str], &[String], &[String]) = match self {
            Self::Files(files) => (&[], files, &[]),
            Self::Named { filters, files } => (&["--lib", "--bins"], files, filters),
            Self::Documentation(filters) => (&["--doc"], &[], filters),
        };
        command.args(kinds).args(files.iter().flat_map(|file| ["--test", file])).arg("--").args(filters);
        command
    }
}

impl Display for Selection<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files(files) => write!(f, "all tests in {}", files.join(", ")),
            Self::Named { filters, .. } => write!(f, "tests named {}", filters.join(", ")),
            Self::Documentation(filters) => write!(f, "documentation tests named {}", filters.join(", ")),
        }
    }
}

/// Whether `test`, which ends in `--` and filters, finds tests to run.
pub(crate) fn any(mut test: Command) -> Result<bool, String> {
    let listed = read(test.arg("--list"))?;
    Ok(listed.lines().any(|line| line.ends_with(": test")))
}

fn split(files: Vec<String>, filters: &[String]) -> Vec<Selection<'_>> {
    let is_meant = |file: &String| filters.iter().any(|filter| file.contains(filter));
    let (meant, files) = files.into_iter().partition::<Vec<_>, _>(is_meant);
    let whole = (!meant.is_empty()).then_some(Selection::Files(meant));
    whole
        .into_iter()
        .chain([Selection::Named { filters, files }, Selection::Documentation(filters)])
        .collect()
}

/// The names of the files in `tests/`, from the output of `cargo metadata`.
fn test_files(metadata: &str) -> Vec<String> {
    let targets = metadata.split(r#"{"kind":["test"],"crate_types":["bin"],"name":""#).skip(1);
    let mut names: Vec<_> = targets.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_files_are_read_once_each() {
        let metadata = r#"{"packages":[{"name":"a","targets":[{"kind":["lib"],"crate_types":["lib"],"name":"a"},
            {"kind":["test"],"crate_types":["bin"],"name":"ttl","src_path":"/a/tests/ttl.rs"},
            {"kind":["test"],"crate_types":["bin"],"name":"redis_wire"}]},
            {"name":"b","targets":[{"kind":["test"],"crate_types":["bin"],"name":"ttl"}]}]}"#;
        assert_eq!(test_files(metadata), ["redis_wire", "ttl"]);
    }

    #[test]
    fn file_is_either_run_whole_or_searched() {
        let filters = ["redis".to_owned()];
        let selections = split(["redis_wire", "ttl"].map(str::to_owned).into(), &filters);
        let commands = selections.iter().map(|selection| format!("{:?}", selection.command()));
        let found = commands.map(|command| (command.contains("redis_wire"), command.contains("ttl")));
        assert_eq!(Vec::from_iter(found), [(true, false), (false, true), (false, false)]);
    }

    #[test]
    fn file_that_was_not_named_is_not_run_whole() {
        let filters = ["redis".to_owned()];
        let selections = split(vec!["ttl".to_owned()], &filters);
        assert!(!selections.iter().any(|selection| matches!(selection, Selection::Files(_))));
    }
}
