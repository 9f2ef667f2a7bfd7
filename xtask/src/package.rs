//! The Python package: built once, and tested with every interpreter there is that it supports.

use std::path::{Path, PathBuf};

use crate::shell::{self, Failure, command, root, step};
use crate::wire::Peer;
use crate::{python, tools};

/// What `requires-python` says.
const OLDEST: (u32, u32) = (3, 10);
const FOR_TESTS: &[&str] = &["mypy", "pytest", "typing_extensions", "uvloop"];

pub(crate) fn test(peer: &Peer) -> Result<(), Failure> {
    let mut pythons = python::since(OLDEST);
    if pythons.is_empty() {
        tools::ensure(tools::PYTHON)?;
        pythons = python::since(OLDEST);
    }
    let newest = pythons.last_key_value().map(|(_, python)| python.clone());
    let wheel = step("the Python package, as a wheel", || wheel(&newest.ok_or("there is no Python")?))?;
    for ((major, minor), python) in &pythons {
        let name = format!("package-{major}.{minor}");
        let venv = step(&format!("the package in Python {major}.{minor}"), || {
            let venv = python::of(python, &name, FOR_TESTS)?;
            install(&venv, &wheel)?;
            Ok(venv)
        })?;
        step(&format!("mypy, Python {major}.{minor}"), || shell::run(&mut command(&venv, &["-m", "mypy"])))?;
        step(&format!("pytest, Python {major}.{minor}"), || {
            let mut pytest = command(&venv, &["-m", "pytest", "-q"]);
            if !peer.is_there() {
                pytest.args(["-m", "not other_library"]);
            }
            shell::run(&mut peer.known_to(pytest))
        })?;
    }
    Ok(())
}

/// An interpreter that has the package and these others.
pub(crate) fn with(packages: &[&str]) -> Result<PathBuf, String> {
    let venv = python::with(packages)?;
    install(&venv, &wheel(&venv)?)?;
    Ok(venv)
}

/// Built by pip, as users do.
fn wheel(python: &Path) -> Result<PathBuf, String> {
    let folder = root().join("target/python/wheel");
    let _ = std::fs::remove_dir_all(&folder);
    let build = ["-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--wheel-dir"];
    shell::run(command(python, &build).arg(&folder).arg("."))?;
    let built = folder.read_dir().map_err(|error| format!("where is the wheel? {error}"))?;
    let mut built = built.flatten().map(|file| file.path());
    built.next().ok_or("pip built nothing".into())
}

fn install(venv: &Path, wheel: &Path) -> Result<(), String> {
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--force-reinstall"];
    shell::run(command(venv, &install).arg("--no-deps").arg(wheel))
}
