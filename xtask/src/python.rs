//! Python interpreters with packages from PyPI, for tests and benchmarks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::shell::{command, probe, root, run};

const OLDEST: (u32, u32) = (3, 12);

/// Fails unless every package named after it is installed.
const VERSIONS: &str = "
import sys
from importlib.metadata import version
print(f'Python {sys.version_info[0]}.{sys.version_info[1]}', *(f'{name} {version(name)}' for name in sys.argv[1:]), sep=', ')
";

/// An interpreter with these packages, in a virtual environment that is kept for the next run.
pub(crate) fn with(packages: &[&str]) -> Result<PathBuf, String> {
    let folder = root().join("target/python").join(packages.join("+"));
    let python = || newest().ok_or(format!("there is no Python of at least {}.{}", OLDEST.0, OLDEST.1));
    ready(Venv { folder }, python, packages)
}

/// The same with this interpreter, in an environment of that name.
pub(crate) fn of(python: &Path, name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let folder = root().join("target/python").join(name);
    ready(Venv { folder }, || Ok(python.to_owned()), packages)
}

fn ready(
    venv: Venv,
    python: impl FnOnce() -> Result<PathBuf, String>,
    packages: &[&str],
) -> Result<PathBuf, String> {
    if venv.versions(packages).is_none() {
        venv.make(&python()?, packages)?;
    }
    let versions = venv.versions(packages).ok_or("the packages that pip installed can't be found")?;
    println!("==> {versions}, kept in {}", venv.folder.display());
    Ok(venv.interpreter())
}

struct Venv {
    folder: PathBuf,
}

impl Venv {
    fn interpreter(&self) -> PathBuf {
        self.folder.join("bin/python")
    }

    /// None if it is missing or incomplete, or its Python is gone.
    fn versions(&self, packages: &[&str]) -> Option<String> {
        probe(command(self.interpreter(), &["-c", VERSIONS]).args(packages))
    }

    fn make(&self, python: &Path, packages: &[&str]) -> Result<(), String> {
        println!("==> installing {} from PyPI into {}", packages.join(", "), self.folder.display());
        run(command(python, &["-m", "venv", "--clear"]).arg(&self.folder))
            .map_err(|reason| format!("the virtual environment can't be made: {reason}"))?;
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        run(command(self.interpreter(), &install).args(packages))
            .map_err(|reason| format!("pip failed: {reason}"))
    }
}

fn newest() -> Option<PathBuf> {
    since(OLDEST).pop_last().map(|(_, python)| python)
}

/// One interpreter of each installed version, from `oldest` on.
pub(crate) fn since(oldest: (u32, u32)) -> BTreeMap<(u32, u32), PathBuf> {
    let on_path = (oldest.1..30).map(|minor| format!("python3.{minor}")).chain(["python3".into()]);
    on_path
        .map(PathBuf::from)
        .chain(in_pyenv())
        .filter_map(|python| Some((version(&python)?, python)))
        .filter(|(version, _)| *version >= oldest)
        .collect()
}

/// Asks the interpreter itself: pyenv leaves programs on the path that only print that they are disabled.
fn version(python: &Path) -> Option<(u32, u32)> {
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
