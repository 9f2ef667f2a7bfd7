use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use serde_json::Value;

/// The output and the exit status of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to stdout, byte by byte.
    pub stdout: Vec<u8>,
    /// What it wrote to stderr.
    pub stderr: String,
}

impl Output {
    pub(super) fn new(status: ExitStatus, stdout: Vec<u8>, stderr: &[u8]) -> Self {
        Self { status, stdout, stderr: String::from_utf8_lossy(stderr).into_owned() }
    }

    /// Its exit code; `None` if a signal ended it.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// The signal that ended it.
    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    /// The stdout of a command that succeeded.
    ///
    /// # Panics
    ///
    /// If it failed, or wrote to stderr.
    #[track_caller]
    pub fn text(&self) -> &str {
        assert_eq!((self.code(), self.stderr.as_str()), (Some(0), ""), "it succeeds");
        std::str::from_utf8(&self.stdout).expect("it is text")
    }

    /// The same, as JSON.
    ///
    /// # Panics
    ///
    /// If it is not JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(self.text()).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The one line that it wrote to stderr, after `semafor: `, when it exited with `code`.
    ///
    /// # Panics
    ///
    /// If it did anything else.
    #[track_caller]
    pub fn complaint(&self, code: i32) -> &str {
        assert_eq!(self.code(), Some(code), "{self:?}");
        assert!(self.stdout.is_empty(), "nothing for a script to read: {self:?}");
        let line = self.stderr.strip_prefix("semafor: ").and_then(|rest| rest.strip_suffix('\n'));
        let line = line.unwrap_or_else(|| panic!("no line of ours: {:?}", self.stderr));
        assert!(!line.contains('\n') && !line.is_empty(), "not one line: {:?}", self.stderr);
        line
    }
}
