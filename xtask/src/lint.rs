//! All checks that do not run the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::read_to_string;
use std::iter;

use crate::shell::{self, Failure, cargo, read, root, step};
use crate::{docs, tools};

pub(crate) fn run() -> Result<(), Failure> {
    tools::ensure(tools::FOR_LINT)?;
    step("formatting", || shell::run(&mut cargo(&["fmt", "--all", "--check"])))?;
    step("clippy", || {
        let everything = ["clippy", "--workspace", "--all-targets", "--all-features"];
        shell::run(cargo(&everything).args(["--", "-D", "warnings"]))
    })?;
    step("clippy without features, and with each one alone", || {
        let manifest = read_to_string(root().join("crates/semafor/Cargo.toml"));
        let manifest = manifest.map_err(|error| format!("can't read semafor's Cargo.toml: {error}"))?;
        iter::once("").chain(features(&manifest)).try_for_each(clippy_with)
    })?;
    step("documentation", || {
        let doc = ["doc", "--workspace", "--no-deps", "--all-features"];
        shell::run(cargo(&doc).env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    docs::build()?;
    step("one version of each dependency", one_version_each)
}

fn clippy_with(feature: &str) -> Result<(), String> {
    let alone = ["clippy", "-p", "semafor", "--lib", "--no-default-features", "--features", feature];
    shell::run(cargo(&alone).args(["--", "-D", "warnings"]))
        .map_err(|reason| format!("with `--features \"{feature}\"`: {reason}"))
}

/// The names in the `[features]` of a manifest.
fn features(manifest: &str) -> impl Iterator<Item = &str> {
    manifest
        .lines()
        .skip_while(|line| *line != "[features]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.split_once('=')?.0.trim()))
        .filter(|name| *name != "default")
}

fn one_version_each() -> Result<(), String> {
    // The dependencies of macros end up in no program, and take years to move from one `syn` to the next.
    let tree = ["tree", "--quiet", "--workspace", "--all-features", "--edges", "normal,dev,no-proc-macro"];
    let shape = ["--duplicates", "--depth", "0", "--prefix", "none", "--format", "{p}"];
    let found = several_versions(&read(cargo(&tree).args(shape))?);
    if found.is_empty() { Ok(()) } else { Err(format!("more than one version of {}", found.join(", "))) }
}

/// Old versions that only one dependency needs: ring, filedescriptor, and shuttle in the benchmarks.
const TOLERATED: &[(&str, &str)] =
    &[("getrandom", "v0.2."), ("thiserror", "v1."), ("rand", "v0.8."), ("rand_core", "v0.6.")];

/// From lines of `name vVERSION`. A crate built twice in the same version, with other features, is fine.
fn several_versions(tree: &str) -> Vec<String> {
    let mut versions = BTreeMap::<_, BTreeSet<_>>::new();
    for line in tree.lines() {
        let mut words = line.split_whitespace();
        if let (Some(name), Some(version)) = (words.next(), words.next())
            && !TOLERATED.iter().any(|(other, old)| *other == name && version.starts_with(old))
        {
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
    fn features_are_read_from_the_manifest() {
        let manifest = "[package]\nname = \"x\"\n\n[features]\ndefault = []\n## Over = TLS.\nredis-tls = [\"redis\"]\n\
            redis = []\n\n[dependencies]\nloom = \"1\"\n";
        assert_eq!(Vec::from_iter(features(manifest)), ["redis-tls", "redis"]);
    }

    #[test]
    fn only_differing_versions_count() {
        let tree = "syn v1.0.1\nsyn v2.0.0\n\nlibc v0.2.1\nlibc v0.2.1 (*)\n";
        assert_eq!(several_versions(tree), ["syn (v1.0.1, v2.0.0)"]);
        assert!(several_versions("").is_empty());
        assert!(several_versions("getrandom v0.2.17\ngetrandom v0.4.3\n").is_empty());
    }
}
