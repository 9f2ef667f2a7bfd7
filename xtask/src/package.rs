//! The Python package: built once, and tested with every interpreter there is that it supports.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use crate::shell::{self, Failure, command, root, step};
use crate::wire::Peer;
use crate::{python, tools};

/// What `requires-python` says.
const OLDEST: (u32, u32) = (3, 10);
const FOR_TESTS: &[&str] = &["mypy", "pytest", "typing_extensions", "uvloop"];

/// What is only tested need not be quick; what is built for it is kept beside what is released.
const QUICK_TO_BUILD: [(&str, &str); 3] = [
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1"),
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
];

/// The package, while it is built beside other work: most tests leave a core idle.
pub(crate) struct Building {
    pythons: BTreeMap<(u32, u32), PathBuf>,
    wheel: JoinHandle<Result<PathBuf, String>>,
}

pub(crate) fn build() -> Result<Building, Failure> {
    let mut pythons = python::since(OLDEST);
    if pythons.is_empty() {
        tools::ensure(tools::PYTHON)?;
        pythons = python::since(OLDEST);
    }
    let newest = pythons.last_key_value().map(|(_, python)| python.clone());
    let build = move || wheel(&newest.ok_or("there is no Python")?, &QUICK_TO_BUILD);
    Ok(Building { pythons, wheel: thread::spawn(build) })
}

pub(crate) fn test(building: Building, peer: &Peer) -> Result<(), Failure> {
    let Building { pythons, wheel } = building;
    let wheel = step("the Python package, as a wheel", || wheel.join().map_err(|_| "xtask has panicked")?)?;
    let mut venvs = Vec::new();
    for ((major, minor), python) in &pythons {
        let version = format!("{major}.{minor}");
        let venv = step(&format!("the package in Python {version}"), || {
            let venv = python::of(python, &format!("package-{version}"), FOR_TESTS)?;
            install(&venv, &wheel)?;
            Ok(venv)
        })?;
        venvs.push((version, venv));
    }
    for (version, venv) in &venvs {
        step(&format!("mypy, Python {version}"), || shell::run(&mut command(venv, &["-m", "mypy"])))?;
    }
    // Most of what the tests do is waiting, so all do it at once.
    step("pytest", || {
        thread::scope(|scope| {
            let tests = venvs.iter().map(|(version, venv)| (version, scope.spawn(|| pytest(venv, peer))));
            let tests: Vec<_> = tests.collect();
            tests.into_iter().try_for_each(|(version, test)| {
                let (output, passed) = test.join().map_err(|_| "xtask has panicked")??;
                println!("--> Python {version}\n{output}");
                if passed { Ok(()) } else { Err(format!("Python {version} has failed")) }
            })
        })
    })
}

/// What it said, and whether all passed.
fn pytest(venv: &Path, peer: &Peer) -> Result<(String, bool), String> {
    let mut pytest = command(venv, &["-m", "pytest", "-q"]);
    if !peer.is_there() {
        pytest.args(["-m", "not other_library"]);
    }
    let output = peer.known_to(pytest).output().map_err(|error| format!("can't start Python: {error}"))?;
    let text = [output.stdout, output.stderr].concat();
    Ok((String::from_utf8_lossy(&text).into_owned(), output.status.success()))
}

/// An interpreter that has the package and these others.
pub(crate) fn with(packages: &[&str]) -> Result<PathBuf, String> {
    let venv = python::with(packages)?;
    install(&venv, &wheel(&venv, &[])?)?;
    Ok(venv)
}

/// Built by pip, as users do.
fn wheel(python: &Path, settings: &[(&str, &str)]) -> Result<PathBuf, String> {
    let folder = root().join("target/python/wheel");
    let _ = std::fs::remove_dir_all(&folder);
    let build = ["-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--wheel-dir"];
    shell::run(command(python, &build).arg(&folder).arg(".").envs(settings.iter().copied()))?;
    let built = folder.read_dir().map_err(|error| format!("where is the wheel? {error}"))?;
    let mut built = built.flatten().map(|file| file.path());
    built.next().ok_or("pip built nothing".into())
}

fn install(venv: &Path, wheel: &Path) -> Result<(), String> {
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--force-reinstall"];
    shell::run(command(venv, &install).arg("--no-deps").arg(wheel))
}
