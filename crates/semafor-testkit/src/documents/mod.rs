//! Documents whose examples are tests: their code blocks, and a shell that runs the commands they show.
//!
//! A `console` block is a session in a shell. A line that begins with `$ ` is a command, `> ` continues it, and all other
//! lines are its output, which is compared with what the command prints:
//!
//! - Durations, ids of permits, numbers of three digits and more (process ids, fencing tokens) and the name of the machine may differ from run to run. So may the
//!   width of a column.
//! - `…` stands for any text within a line, and on a line of its own for any number of lines.
//! - A command that only asks (`semafor status`, `semafor inspect`, `semafor agent status`) is repeated until its output is
//!   what the document shows. So the document can start something in the background and then show its effect.
//!
//! All blocks of one document run in one shell, in an empty folder, with an agent of their own. A document that names
//! `redis://db.example/` gets a Redis server in its place.

mod blocks;
mod compare;
mod shell;

pub use blocks::{Block, Step, blocks, steps};
pub use compare::matches;
pub use shell::Shell;

use std::path::{Path, PathBuf};

/// The folder of the project.
///
/// # Panics
///
/// If it was moved since this was compiled.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the project's folder exists")
}

/// The paths of README.md and of every page of the book, relative to the project's folder, in alphabetical order.
///
/// # Panics
///
/// If the folder can't be read.
pub fn all() -> Vec<String> {
    let mut found = vec!["README.md".to_owned()];
    let mut folders = vec![PathBuf::from("docs/src")];
    while let Some(folder) = folders.pop() {
        for entry in root().join(&folder).read_dir().expect("the book is there") {
            let entry = entry.expect("the book can be read");
            let path = folder.join(entry.file_name());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path.to_string_lossy().into_owned());
            }
        }
    }
    found.sort_unstable();
    found
}

/// Reads a document by its path relative to the project's folder.
///
/// # Panics
///
/// If it can't be read.
pub fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("can't read {path}: {error}"))
}
