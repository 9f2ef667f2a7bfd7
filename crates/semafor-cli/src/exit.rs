//! The exit codes.
//!
//! Numbers come from sysexits.h where one matches, so that mailers and supervisors know which errors to retry.

use std::process::ExitCode;

/// A one-line error message that says what to do, with its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
}

/// The meaning of each exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Code {
    /// Nothing was done: the id holds no slot, or there is no such semaphore.
    Nothing = 1,
    /// The same as 64, for `purge`, which uses the exit codes of other cleanup tools.
    PurgeUsage = 2,
    /// EX_USAGE.
    Usage = 64,
    /// EX_UNAVAILABLE.
    Unreachable = 69,
    /// EX_IOERR.
    Undelivered = 74,
    /// EX_TEMPFAIL.
    TimedOut = 75,
    /// EX_PROTOCOL, the closest match.
    Lost = 76,
    CannotRun = 126,
    NotFound = 127,
}

pub(crate) const HELP: &str = "\
Exit codes:
  any  `run` exits with the exit code of its command; 128+n if signal n ended it
  1    nothing was done: the id holds no slot, there is no such semaphore, or the agent is in use
  64   the command line is invalid, or does not fit the semaphore: number of slots, weight
  69   the agent or the Redis server does not answer, or refuses the request
  74   the output could not be written to stdout; `acquire` has released its slot
  75   no slot within the timeout, or a program has closed the semaphore
  76   the slot was lost: `run` has ended its command, `acquire` has printed no id
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
