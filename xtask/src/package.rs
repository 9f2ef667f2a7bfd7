//! The Python package: built once, and tested with every installed interpreter that it supports.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;

use crate::shell::{self, Failure, command, root};
use crate::time_limit::TimeLimit;
use crate::wire::Peer;
use crate::{python, tools};

/// As in `requires-python`.
const OLDEST: (u32, u32) = (3, 10);
const FOR_TESTS: &[&str] = &["mypy", "pytest", "typing_extensions", "uvloop"];

/// A build for tests need not be optimised; it is kept beside the release build.
const QUICK_TO_BUILD: [(&str, &str); 3] = [
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1"),
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
];

/// The interpreters that the package supports, by version.
pub(crate) type Pythons = BTreeMap<(u32, u32), PathBuf>;

/// All installed interpreters; installs one if there is none.
pub(crate) fn pythons() -> Result<Pythons, Failure> {
    let found = python::since(OLDEST);
    if !found.is_empty() {
        return Ok(found);
    }
    tools::ensure(tools::PYTHON)?;
    Ok(python::since(OLDEST))
}

/// Builds the package, and tests it with each interpreter. Returns the output of the tests.
pub(crate) fn test(pythons: &Pythons, limit: TimeLimit, peer: &Peer) -> Result<String, String> {
    let (_, newest) = pythons.last_key_value().ok_or("there is no Python")?;
    let wheel = wheel(newest, &QUICK_TO_BUILD)?;
    let mut venvs = Vec::new();
    for ((major, minor), python) in pythons {
        let version = format!("{major}.{minor}");
        let venv = python::of(python, &format!("package-{version}"), FOR_TESTS)?;
        install(&venv, &wheel)?;
        venvs.push((version, venv));
    }
    // The tests mostly wait, so all interpreters run at once.
    thread::scope(|scope| {
        let tests =
            venvs.iter().map(|(version, venv)| (version, scope.spawn(move || tested(venv, limit, peer))));
        let tests: Vec<_> = tests.collect();
        let mut said = String::new();
        for (version, test) in tests {
            let test = test.join().map_err(|_| "xtask has panicked")?;
            said +=
                &format!("--> Python {version}\n{}", test.map_err(|why| format!("Python {version}: {why}"))?);
        }
        Ok(said)
    })
}

fn tested(venv: &Path, limit: TimeLimit, peer: &Peer) -> Result<String, String> {
    let types = limit.capture(&mut command(venv, &["-m", "mypy"]))?;
    // Unbuffered, so that the output shows progress.
    let mut pytest = command(venv, &["-u", "-m", "pytest", "-q"]);
    if !peer.is_there() {
        pytest.args(["-m", "not other_library"]);
    }
    Ok(types + &limit.capture(&mut peer.known_to(pytest))?)
}

/// An interpreter with the package and these other packages.
pub(crate) fn with(packages: &[&str]) -> Result<PathBuf, String> {
    let venv = python::with(packages)?;
    install(&venv, &wheel(&venv, &[])?)?;
    Ok(venv)
}

/// Built with pip, as users do.
fn wheel(python: &Path, settings: &[(&str, &str)]) -> Result<PathBuf, String> {
    let folder = root().join("target/python/wheel");
    let _ = std::fs::remove_dir_all(&folder);
    let build = ["-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--wheel-dir"];
    shell::run(command(python, &build).arg(&folder).arg(".").envs(settings.iter().copied()))?;
    let built = folder.read_dir().map_err(|error| format!("can't find the wheel: {error}"))?;
    let mut built = built.flatten().map(|file| file.path());
    built.next().ok_or("pip built nothing".into())
}

fn install(venv: &Path, wheel: &Path) -> Result<(), String> {
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--force-reinstall"];
    shell::run(command(venv, &install).arg("--no-deps").arg(wheel))
}
