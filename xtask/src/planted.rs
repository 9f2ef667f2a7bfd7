//! Plants faults, one at a time, in a copy of the sources, and runs the simulation until it finds them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::patch::{self, FilePatch};
use crate::shell::{self, Failure, cannot_start, cargo, command, read, root, show, step};

const FOLDER: &str = "crates/semafor-testkit/planted";
/// Seeds belong to a number of processes.
const FLEET: u32 = 4;
const MINUTES: u32 = 10;

/// A file of [`FOLDER`].
struct Fault {
    name: String,
    /// What is wrong, in one sentence.
    what: String,
    fleet: u32,
    files: Vec<FilePatch>,
}

/// The last line of a simulation that has found something.
struct Found {
    rule: String,
    seed: u64,
    runs: u64,
    simulated: Duration,
    real: Duration,
}

pub(crate) fn run(mut args: Args) -> Result<(), Failure> {
    let minutes = args.number("--minutes")?.unwrap_or(MINUTES);
    let chosen = args.words()?;
    let mut faults = faults(root()).map_err(|reason| Failure::Step { name: FOLDER.into(), reason })?;
    if let Some(unknown) = chosen.iter().find(|word| !faults.iter().any(|fault| fault.is_named(word))) {
        return Err(Failure::Usage(format!("no planted fault has `{unknown}` in its name")));
    }
    faults.retain(|fault| chosen.is_empty() || chosen.iter().any(|word| fault.is_named(word)));

    let tree = root().join("target/planted/tree");
    step("copying the sources into target/planted/tree", || copy_sources(&tree))?;
    let mut rows = Vec::new();
    let mut missed = Vec::new();
    for fault in &faults {
        let found = step(&format!("{}: {}", fault.name, fault.what), || {
            plant(fault, &tree)?;
            let found = build(&tree).and_then(|program| search(&program, fault, minutes));
            unplant(fault, &tree)?;
            let found = found?;
            match &found {
                Some(found) => println!("    {}: seed {}", found.rule, found.seed),
                None => println!("    NOT FOUND within {minutes} minutes"),
            }
            Ok(found)
        })?;
        if found.is_none() {
            missed.push(&*fault.name);
        }
        rows.push(row(fault, found.as_ref()));
    }
    println!("\n{}", table(&rows));
    if missed.is_empty() {
        Ok(())
    } else {
        Err(Failure::Step { name: "not found".into(), reason: missed.join(", ") })
    }
}

impl Fault {
    fn read(root: &Path, path: &Path) -> Result<Self, String> {
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let text = read_file(path)?;
        let (header, files) = patch::parse(&text).map_err(|reason| format!("{name}: {reason}"))?;
        let what = header.first().filter(|line| line.ends_with('.'));
        let what = what.ok_or_else(|| format!("{name}: the first line has to say what is wrong"))?;
        let fleet = header.iter().find_map(|line| line.strip_prefix("fleet: "));
        let fleet = fleet.map_or(Ok(FLEET), str::parse).map_err(|error| format!("{name}: fleet: {error}"))?;
        let fault = Self { what: (*what).to_owned(), fleet, files, name };
        fault.applied(root)?;
        Ok(fault)
    }

    /// The files with the fault, from the root of the sources.
    fn applied(&self, root: &Path) -> Result<Vec<(&str, String)>, String> {
        let apply = |file: &'_ FilePatch| {
            let text = read_file(&root.join(&file.path))?;
            file.apply(&text).map_err(|reason| format!("{} does not apply: {reason}", self.name))
        };
        self.files.iter().map(|file| Ok((&*file.path, apply(file)?))).collect()
    }

    fn is_named(&self, word: &str) -> bool {
        self.name.contains(word)
    }
}

/// All planted faults, in the order of their names. An error if one does not apply to the sources.
fn faults(root: &Path) -> Result<Vec<Fault>, String> {
    let folder = root.join(FOLDER);
    let files = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<PathBuf> = files.flatten().map(|file| file.path()).collect();
    paths.sort();
    paths.iter().map(|path| Fault::read(root, path)).collect()
}

/// Makes `tree` the same as the tracked files. Files that are the same already are not touched, so cargo builds only what
/// has changed.
fn copy_sources(tree: &Path) -> Result<(), String> {
    let listed =
        read(&mut command("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"]))?;
    // Those that were deleted are still listed.
    let listed: BTreeSet<_> =
        listed.split('\0').filter(|path| root().join(path).is_file()).map(PathBuf::from).collect();
    for path in &listed {
        let source = root().join(path);
        let bytes = fs::read(&source).map_err(|error| format!("{}: {error}", source.display()))?;
        let copy = tree.join(path);
        if fs::read(&copy).is_ok_and(|copied| copied == bytes) {
            continue;
        }
        write_file(&copy, &bytes)?;
    }
    remove_others(tree, tree, &listed)
}

fn remove_others(tree: &Path, folder: &Path, listed: &BTreeSet<PathBuf>) -> Result<(), String> {
    for entry in fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            remove_others(tree, &path, listed)?;
        } else if path.strip_prefix(tree).is_ok_and(|name| !listed.contains(name)) {
            fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    Ok(())
}

fn plant(fault: &Fault, tree: &Path) -> Result<(), String> {
    fault.applied(tree)?.iter().try_for_each(|(path, text)| write_file(&tree.join(path), text.as_bytes()))
}

fn unplant(fault: &Fault, tree: &Path) -> Result<(), String> {
    let restore = |file: &FilePatch| {
        write_file(&tree.join(&file.path), read_file(&root().join(&file.path))?.as_bytes())
    };
    fault.files.iter().try_for_each(restore)
}

/// Builds the simulation, and returns the program.
fn build(tree: &Path) -> Result<PathBuf, String> {
    let target = root().join("target/planted/build");
    let mut build = cargo(&["build", "--quiet", "--profile", "simulate", "-p", "semafor-testkit"]);
    build.args(["--features", "simulation", "--bin", "simulate"]);
    // Few functions change, so most of the last build can be used again.
    build.args(["--config", "profile.simulate.package.semafor-testkit.codegen-units=16"]);
    build.env("CARGO_INCREMENTAL", "1").env("CARGO_TARGET_DIR", &target).current_dir(tree);
    shell::run(&mut build)?;
    Ok(target.join("simulate/simulate"))
}

/// Runs seeds from 1 on until a rule is broken.
fn search(program: &Path, fault: &Fault, minutes: u32) -> Result<Option<Found>, String> {
    let mut simulate = Command::new(program);
    simulate.args(["--brief", "--seed", "1", "--minutes", &minutes.to_string()]);
    simulate.args(["--fleet", &fault.fleet.to_string()]).stderr(Stdio::inherit());
    let started = Instant::now();
    let output = simulate.output().map_err(|error| cannot_start(&simulate, &error))?;
    let real = started.elapsed();
    if output.status.success() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let words: Vec<_> = text.lines().last().unwrap_or_default().split('\t').collect();
    let found = match words[..] {
        ["found", rule, seed, runs, seconds] => (|| {
            let simulated = Duration::from_secs(seconds.parse().ok()?);
            Some(Found {
                rule: rule.into(),
                seed: seed.parse().ok()?,
                runs: runs.parse().ok()?,
                simulated,
                real,
            })
        })(),
        _ => None,
    };
    found.map(Some).ok_or_else(|| format!("the simulation ended with {}: {text}", output.status))
}

fn row(fault: &Fault, found: Option<&Found>) -> [String; 7] {
    let Fault { what, fleet, .. } = fault;
    let what = what.trim_end_matches('.').to_owned();
    let Some(Found { rule, seed, runs, simulated, real }) = found else {
        return [what, "not found".into(), fleet.to_string(), "".into(), "".into(), "".into(), "".into()];
    };
    let hours = format!("{:.1} h", simulated.as_secs_f64() / 3_600.0);
    [what, rule.clone(), fleet.to_string(), seed.to_string(), runs.to_string(), hours, show(*real)]
}

fn table(rows: &[[String; 7]]) -> String {
    let head =
        ["planted fault", "rule that was broken", "fleet", "seed", "runs", "simulated time", "real time"];
    let lines = rows.iter().map(|row| format!("| {} |\n", row.join(" | ")));
    format!("| {} |\n|{}\n{}", head.join(" | "), "---|".repeat(head.len()), lines.collect::<String>())
}

fn read_file(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, bytes))
        .map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_planted_fault_applies_to_the_sources() {
        match faults(root()) {
            Ok(faults) => assert!(faults.len() >= 30, "only {} are left", faults.len()),
            Err(reason) => panic!("{reason}"),
        }
    }
}
