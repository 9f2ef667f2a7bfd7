//! Everything that can be said about the code without running it.

use std::collections::{BTreeMap, BTreeSet};

use crate::shell::{self, Failure, cargo, read, step};
use crate::tools;

pub(crate) fn run() -> Result<(), Failure> {
    tools::ensure()?;
    step("formatting", || shell::run(&mut cargo(&["fmt", "--all", "--check"])))?;
    step("clippy", || {
        let everything = ["clippy", "--workspace", "--all-targets", "--all-features"];
        shell::run(cargo(&everything).args(["--", "-D", "warnings"]))
    })?;
    step("clippy without features", || {
        let bare = ["clippy", "-p", "semafor", "--all-targets", "--no-default-features"];
        shell::run(cargo(&bare).args(["--", "-D", "warnings"]))
    })?;
    step("documentation", || {
        let doc = ["doc", "--workspace", "--no-deps", "--all-features"];
        shell::run(cargo(&doc).env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    step("one version of each dependency", one_version_each)
}

fn one_version_each() -> Result<(), String> {
    let tree = ["tree", "--quiet", "--workspace", "--all-features", "--edges", "normal,dev"];
    let shape = ["--duplicates", "--depth", "0", "--prefix", "none", "--format", "{p}"];
    let found = several_versions(&read(cargo(&tree).args(shape))?);
    if found.is_empty() { Ok(()) } else { Err(format!("more than one version of {}", found.join(", "))) }
}

/// From lines of `name vVERSION`. A crate built twice in the same version, with other features, is fine.
fn several_versions(tree: &str) -> Vec<String> {
    let mut versions = BTreeMap::<_, BTreeSet<_>>::new();
    for line in tree.lines() {
        let mut words = line.split_whitespace();
        if let (Some(name), Some(version)) = (words.next(), words.next()) {
            versions.entry(name).or_default().insert(version);
        }
    }
    versions.retain(|_, versions| versions.len() > 1);
    versions
        .iter()
        .map(|(name, versions)| format!("{name} ({})", Vec::from_iter(versions.iter().copied()).join(", ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_differing_versions_count() {
        let tree = "syn v1.0.1\nsyn v2.0.0\n\nlibc v0.2.1\nlibc v0.2.1 (*)\n";
        assert_eq!(several_versions(tree), ["syn (v1.0.1, v2.0.0)"]);
        assert!(several_versions("").is_empty());
    }
}
