//! Where the agent is found, and checks that no other user can be there.
//!
//! All processes of a user have to find the same place in any environment: a cron job without `XDG_RUNTIME_DIR` and a
//! shell with it have to share their semaphores. So there may be more than one place to look.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use rustix::process::geteuid;

use crate::error::{HomeError, HomeErrorKind};

/// How to reach the agent.
///
/// As a URL, `local:` is the agent of this user, and `local:/some/folder` an agent with its socket in that folder. The
/// folder is created if it is missing; it has to belong to the user, and to be closed to others.
///
/// Without a folder, it is `semafor` in `$XDG_RUNTIME_DIR`, if that is a folder of the user other than `/run/user/UID`;
/// else `/run/user/UID/semafor` if `/run/user/UID` exists, or `/tmp/semafor-UID`, wherever an agent is running already.
/// A folder that is not the user's own is skipped with a [warning](Config::on_warning) if another one can be used.
#[derive(Clone, Default, Debug)]
#[non_exhaustive]
pub struct Config {
    pub(super) directory: Option<PathBuf>,
    pub(super) program: Option<PathBuf>,
    on_warning: Option<OnWarning>,
}

#[derive(Clone)]
struct OnWarning(Arc<dyn Fn(&str) + Send + Sync>);

impl std::fmt::Debug for OnWarning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnWarning")
    }
}

impl Config {
    /// Uses the agent in this folder.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// The `semafor` command to run if no agent is running. By default the one in `PATH`.
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = Some(program.into());
        self
    }

    /// Calls `callback` with warnings that do not stop the work: another user owns a folder for the agent, or a former
    /// agent has left a damaged journal. Called on a thread of the connection. By default warnings are dropped.
    pub fn on_warning(mut self, callback: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_warning = Some(OnWarning(Arc::new(callback)));
        self
    }

    /// True if both can share one connection.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let is_same_callback = match (&self.on_warning, &other.on_warning) {
            (None, None) => true,
            (Some(OnWarning(one)), Some(OnWarning(other))) => Arc::ptr_eq(one, other),
            _ => false,
        };
        is_same_callback && self.directory == other.directory && self.program == other.program
    }

    pub(super) fn warn(&self, message: &str) {
        if let Some(OnWarning(callback)) = &self.on_warning {
            crate::catch_panic::call(|| callback(message));
        }
    }

    /// True if `url` is meant for this home.
    pub fn is_meant_by(url: &str) -> bool {
        url == "local" || url.starts_with("local:")
    }

    /// The folders where an agent may be, the preferred one first.
    pub(super) fn places(&self) -> Vec<PathBuf> {
        match &self.directory {
            Some(directory) => vec![directory.clone()],
            None => usual_places(std::env::var_os("XDG_RUNTIME_DIR").as_deref(), geteuid().as_raw()),
        }
    }
}

impl FromStr for Config {
    type Err = HomeError;

    fn from_str(url: &str) -> Result<Self, HomeError> {
        let rest = url.strip_prefix("local:");
        let directory = rest.map(|rest| rest.strip_prefix("//").unwrap_or(rest));
        match directory {
            Some("") => Ok(Self::default()),
            Some(directory) if directory.starts_with('/') => Ok(Self::default().directory(directory)),
            _ => {
                // The URL of a server may hold a password.
                let server = url.split_once("://").filter(|(scheme, _)| *scheme != "local");
                let shown = server.map_or(url.to_owned(), |(scheme, _)| format!("{scheme}://…"));
                Err(HomeError::new(
                    HomeErrorKind::InvalidUrl,
                    format!(
                        "{shown:?} is not the address of a local agent: write `local:`, or `local:/some/folder`"
                    ),
                ))
            }
        }
    }
}

fn usual_places(runtime_dir: Option<&OsStr>, user: u32) -> Vec<PathBuf> {
    let session_dir = PathBuf::from(format!("/run/user/{user}"));
    let is_own = |path: &Path| fs::metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == user);
    if let Some(runtime_dir) = runtime_dir.map(Path::new)
        && runtime_dir != session_dir
        && runtime_dir.is_absolute()
        && is_own(runtime_dir)
    {
        return vec![runtime_dir.join("semafor")];
    }
    let mut places = Vec::new();
    if is_own(&session_dir) {
        places.push(session_dir.join("semafor"));
    }
    places.push(PathBuf::from(format!("/tmp/semafor-{user}")));
    places
}

pub(super) fn socket_in(directory: &Path) -> PathBuf {
    directory.join("agent.sock")
}

/// True if an agent is listening there, or died there.
pub(super) fn has_socket(directory: &Path) -> bool {
    fs::symlink_metadata(socket_in(directory)).is_ok_and(|found| found.file_type().is_socket())
}

/// The file that the agent locks for as long as it runs.
pub(super) fn lock_in(directory: &Path) -> PathBuf {
    directory.join("agent.lock")
}

/// Checks that `directory` belongs to the user and is closed to others. False if it does not exist.
pub(super) fn check(directory: &Path) -> Result<bool, HomeError> {
    let found = match fs::symlink_metadata(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        found => found.map_err(|error| io_failure("look at", directory, error))?,
    };
    let shown = directory.display();
    let refusal = if !found.is_dir() {
        format!("{shown} is not a folder: remove it, semafor needs a folder of that name")
    } else if found.uid() != geteuid().as_raw() {
        format!("{shown} belongs to another user, so its agent can't be trusted: have it removed")
    } else if found.mode() & 0o077 != 0 {
        format!("{shown} is open to other users (mode {:03o}): chmod 700 it", found.mode() & 0o777)
    } else {
        return Ok(true);
    };
    Err(HomeError::new(HomeErrorKind::AccessDenied, refusal))
}

/// Creates `directory` if it is missing, and checks it.
pub(super) fn make(directory: &Path) -> Result<(), HomeError> {
    let longest = 100;
    if socket_in(directory).as_os_str().as_bytes().len() > longest {
        let message = format!(
            "{} is too long for a socket's name: at most {longest} bytes with /agent.sock",
            directory.display()
        );
        return Err(HomeError::new(HomeErrorKind::InvalidUrl, message));
    }
    if check(directory)? {
        return Ok(());
    }
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(io_failure("create", directory, error)),
        // Another process may have created it first.
        _ => check(directory).map(drop),
    }
}

pub(super) fn io_failure(what: &str, path: &Path, error: io::Error) -> HomeError {
    let message = format!(
        "can't {what} {}: {error}. Set XDG_RUNTIME_DIR to a folder that you can write to, \
         or choose one with --url local:/some/folder",
        path.display()
    );
    HomeError::caused_by(error, HomeErrorKind::Unreachable, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_the_operating_system_is_the_source() {
        let error = make(Path::new("/nonexistent/folder/of/semafor")).unwrap_err();
        let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(source.map(io::Error::kind), Some(ErrorKind::NotFound));
    }

    #[test]
    fn valid_urls_are_accepted_and_invalid_ones_are_named() {
        let directory = |url: &str| url.parse::<Config>().map(|config| config.directory);
        assert_eq!(directory("local:"), Ok(None));
        assert_eq!(directory("local://"), Ok(None));
        assert_eq!(directory("local:/run/x"), Ok(Some("/run/x".into())));
        assert_eq!(directory("local:///run/x"), Ok(Some("/run/x".into())));
        for wrong in ["local", "local:here", "local://here", "lokal:"] {
            let error = directory(wrong).expect_err(wrong);
            assert!(
                error.to_string().contains(wrong) && error.kind() == HomeErrorKind::InvalidUrl,
                "{error}"
            );
        }
    }

    #[test]
    fn own_runtime_directory_is_the_only_place() {
        let user = geteuid().as_raw();
        let own = tempfile::tempdir().expect("a folder can be made");
        assert_eq!(usual_places(Some(own.path().as_os_str()), user), [own.path().join("semafor")]);
    }

    #[test]
    fn without_own_runtime_directory_all_processes_of_a_user_look_in_the_same_places() {
        let user = geteuid().as_raw();
        let without = usual_places(None, user);
        let session = format!("/run/user/{user}");
        for runtime_dir in [session.as_str(), "/nowhere/at/all", "relative", ""] {
            assert_eq!(usual_places(Some(OsStr::new(runtime_dir)), user), without, "{runtime_dir}");
        }
        assert_eq!(without.last(), Some(&PathBuf::from(format!("/tmp/semafor-{user}"))));
    }

    #[test]
    fn folder_open_to_others_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder can be made");
        let place = folder.path().join("semafor");
        assert_eq!(check(&place), Ok(false));
        make(&place).expect("it can be made");
        assert_eq!(check(&place), Ok(true));
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).expect("it is ours");
        assert!(check(&place).expect_err("it is open").to_string().contains("chmod 700"));
    }
}
