//! A Python to measure against.

use std::path::PathBuf;

use crate::shell::{command, probe, root, run};

const OLDEST: (u32, u32) = (3, 12);

/// A virtual environment, removed when dropped.
pub(crate) struct Venv {
    folder: PathBuf,
}

impl Venv {
    /// With these packages from PyPI, in the newest Python there is.
    pub(crate) fn prepare(packages: &[&str]) -> Result<Self, String> {
        let (version, python) =
            newest().ok_or(format!("there is none of at least {}.{}", OLDEST.0, OLDEST.1))?;
        println!(
            "==> installing {} from PyPI for Python {}.{}, into a virtual environment of its own",
            packages.join(", "),
            version.0,
            version.1
        );
        let venv = Self { folder: root().join(format!("target/bench/python-{}", std::process::id())) };
        run(command(python, &["-m", "venv"]).arg(&venv.folder))
            .map_err(|reason| format!("the virtual environment can't be made: {reason}"))?;
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        run(command(venv.interpreter(), &install).args(packages))
            .map_err(|reason| format!("pip failed: {reason}"))?;
        Ok(venv)
    }

    pub(crate) fn interpreter(&self) -> PathBuf {
        self.folder.join("bin/python")
    }
}

impl Drop for Venv {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn newest() -> Option<((u32, u32), PathBuf)> {
    let on_path = ["python3.14", "python3.13", "python3.12", "python3"].map(PathBuf::from);
    on_path
        .into_iter()
        .chain(in_pyenv())
        .filter_map(|python| Some((version(&python)?, python)))
        .filter(|(version, _)| *version >= OLDEST)
        .max()
}

/// Asks the interpreter itself: pyenv leaves programs on the path that only say they are switched off.
fn version(python: &PathBuf) -> Option<(u32, u32)> {
    let answer = probe(&mut command(python, &["-c", "import sys; print(*sys.version_info[:2])"]))?;
    let (major, minor) = answer.split_once(' ')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn in_pyenv() -> Vec<PathBuf> {
    let pyenv = std::env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".pyenv")));
    let versions = pyenv.and_then(|pyenv| pyenv.join("versions").read_dir().ok());
    versions.into_iter().flatten().flatten().map(|version| version.path().join("bin/python")).collect()
}
