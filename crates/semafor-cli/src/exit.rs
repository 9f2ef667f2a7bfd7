//! Every way this command can end.
//!
//! Numbers from sysexits.h where it has one for the case, so that mailers and supervisors know what to retry.

use std::process::ExitCode;

/// A one-line complaint that says what to do, and how to exit with it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
}

/// What the exit code tells the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Code {
    /// Nothing was done, because it could not be: an id that holds nothing, a name that nobody uses.
    Nothing = 1,
    /// The same as 64, for `purge`: it has the codes that other cleaners have.
    PurgeUsage = 2,
    /// EX_USAGE.
    Usage = 64,
    /// EX_UNAVAILABLE.
    Unreachable = 69,
    /// EX_IOERR.
    Undelivered = 74,
    /// EX_TEMPFAIL.
    TimedOut = 75,
    /// EX_PROTOCOL, the nearest there is.
    Lost = 76,
    CannotRun = 126,
    NotFound = 127,
}

pub(crate) const HELP: &str = "\
Exit codes:
  any  `run` exits with the exit code of its command; 128+n if signal n ended it
  1    nothing was done: the id holds no slot, or the name is not in use
  64   the command line is invalid, or does not match the semaphore in use
  69   the agent or the Redis server cannot be reached
  74   the output could not be written to stdout; `acquire` has released its slot
  75   no slot was free within the timeout
  76   the slot was lost, and `run` has ended its command
  126  the command cannot be executed
  127  the command was not found
`purge` has its own exit codes: see `semafor purge --help`";

impl Code {
    pub(crate) fn because(self, message: impl Into<String>) -> Failure {
        Failure { code: self, message: message.into() }
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}
