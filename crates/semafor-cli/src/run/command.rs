//! The command to run: checked before waiting in line, and shown to other users.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{env, io};

use rustix::fs::{Access, access};

use crate::cli::Run;
use crate::exit::{Code, Failure};

/// The longest command line that is shown, in characters.
const MAX_SHOWN: usize = 200;

/// An error if the command can't be run. Called before waiting in line.
pub(super) fn check(program: &OsStr) -> Result<(), Failure> {
    match find(program) {
        Search::Runnable => Ok(()),
        Search::NotRunnable(path) => {
            Err(cannot_run(path.as_os_str(), "not an executable file, or no permission to execute it"))
        }
        Search::NotFound => Err(not_found(program)),
    }
}

/// Why a command that passed the check did not start.
pub(super) fn start_failure(program: &OsStr, error: &io::Error) -> Failure {
    match (error.kind(), find(program)) {
        (io::ErrorKind::NotFound, Search::NotFound) => not_found(program),
        (io::ErrorKind::NotFound, _) => {
            cannot_run(program, "the interpreter in its first line (#!) was not found")
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

/// Searches as `execvp` does.
fn find(program: &OsStr) -> Search {
    if program.is_empty() {
        return Search::NotFound;
    }
    if program.as_bytes().contains(&b'/') {
        return check_path(Path::new(program));
    }
    // Without PATH, the system has a default.
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

/// The command as `inspect` and `top` show it. In a shared home without its arguments, which may contain passwords,
/// unless --show-command is given.
pub(super) fn shown(args: &Run) -> String {
    match args.home.is_shared() && !args.show_command {
        true => show_name(&args.command[0]),
        false => show(&args.command),
    }
}

/// The name of the program, without its directory.
fn show_name(program: &OsStr) -> String {
    let name = Path::new(program).file_name().unwrap_or(program);
    show(&[name.to_owned()])
}

/// The command line, quoted roughly as in a shell, and cut if it is long.
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
        assert_eq!(shown(".."), "..", "a path without a file name is shown unchanged");
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
