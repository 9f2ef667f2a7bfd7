//! What to run: found before there is any waiting for it, and shown to others.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{env, io};

use rustix::fs::{Access, access};

use crate::cli::Run;
use crate::exit::{Code, Failure};

/// The longest command line that others are shown, in characters.
const MAX_SHOWN: usize = 200;

/// Complains about what can't be run, before somebody waits in line for it.
pub(super) fn check(program: &OsStr) -> Result<(), Failure> {
    match find(program) {
        Search::Runnable => Ok(()),
        Search::NotRunnable(path) => {
            Err(cannot_run(path.as_os_str(), "it is no program, or not yours to run"))
        }
        Search::NotFound => Err(not_found(program)),
    }
}

/// Why it did not start after all.
pub(super) fn start_failure(program: &OsStr, error: &io::Error) -> Failure {
    match (error.kind(), find(program)) {
        (io::ErrorKind::NotFound, Search::NotFound) => not_found(program),
        (io::ErrorKind::NotFound, _) => {
            cannot_run(program, "what its first line says should run it was not found")
        }
        _ => cannot_run(program, &error.to_string()),
    }
}

fn not_found(program: &OsStr) -> Failure {
    Code::NotFound.because(format!("{}: not found", show_word(program)))
}

fn cannot_run(program: &OsStr, why: &str) -> Failure {
    Code::CannotRun.because(format!("{}: cannot be run: {why}", show_word(program)))
}

enum Search {
    Runnable,
    NotRunnable(PathBuf),
    NotFound,
}

/// Looks where `execvp` will.
fn find(program: &OsStr) -> Search {
    if program.is_empty() {
        return Search::NotFound;
    }
    if program.as_bytes().contains(&b'/') {
        return check_path(Path::new(program));
    }
    // Without it, it is up to the system.
    let Some(path) = env::var_os("PATH") else { return Search::Runnable };
    let mut found = Search::NotFound;
    for directory in env::split_paths(&path) {
        match check_path(&directory.join(program)) {
            Search::Runnable => return Search::Runnable,
            Search::NotRunnable(path) if path.is_file() => found = Search::NotRunnable(path),
            Search::NotRunnable(_) | Search::NotFound => {}
        }
    }
    found
}

fn check_path(path: &Path) -> Search {
    match path.metadata() {
        Ok(file) if file.is_file() && access(path, Access::EXEC_OK).is_ok() => Search::Runnable,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Search::NotFound
        }
        _ => Search::NotRunnable(path.to_owned()),
    }
}

/// What others see of the command that is run. Where others than its user can read it, arguments are not shown unless it
/// was asked for: there may be passwords among them.
pub(super) fn shown(args: &Run) -> String {
    match args.home.is_shared() && !args.show_command {
        true => show_name(&args.command[0]),
        false => show(&args.command),
    }
}

/// The name of the program, without the folder it is in.
fn show_name(program: &OsStr) -> String {
    let name = Path::new(program).file_name().unwrap_or(program);
    show(&[name.to_owned()])
}

/// The command line as one would type it, or nearly, and cut off where it gets long.
fn show(words: &[OsString]) -> String {
    let line = words.iter().map(|word| show_word(word)).collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn show_word(word: &OsStr) -> String {
    let word = word.to_string_lossy().replace(char::is_control, " ");
    let is_plain = |char: char| char.is_alphanumeric() || "-_=+.,:/@%^~".contains(char);
    if !word.is_empty() && word.chars().all(is_plain) {
        word
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn command_lines_are_shown_as_typed() {
        let shown = |words: &[&str]| show(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(shown(&["make", "-j8", "CC=gcc"]), "make -j8 CC=gcc");
        assert_eq!(shown(&["sh", "-c", "echo it's; ls", ""]), r"sh -c 'echo it'\''s; ls' ''");
        assert_eq!(shown(&["x", &"é".repeat(500)]).chars().count(), MAX_SHOWN + 1);
        assert_eq!(show(&[OsString::from_vec(vec![b'a', 0xff])]), "'a\u{fffd}'");
    }

    #[test]
    fn program_name_is_shown_without_its_directory() {
        let shown = |program: &str| show_name(OsStr::new(program));
        assert_eq!((shown("make").as_str(), shown("/usr/local/bin/make").as_str()), ("make", "make"));
        assert_eq!(shown("./my job"), "'my job'");
        assert_eq!(shown(".."), "..", "what is no name of a file is shown as it is");
        assert_eq!(shown(&"x".repeat(500)).chars().count(), MAX_SHOWN + 1);
    }

    #[test]
    fn commands_that_cannot_run_are_refused() {
        assert!(check(OsStr::new("sh")).is_ok());
        assert!(check(OsStr::new("/bin/sh")).is_ok());
        for (program, code) in [
            ("no-such-program", Code::NotFound),
            ("./no-such-program", Code::NotFound),
            ("", Code::NotFound),
            ("/etc", Code::CannotRun),
            ("/etc/passwd", Code::CannotRun),
        ] {
            assert_eq!(check(OsStr::new(program)).unwrap_err().code, code, "{program:?}");
        }
    }
}
