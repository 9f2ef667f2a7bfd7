//! The commands that limit how many run at once, and how to call each.

use std::path::Path;
use std::process::Command;

use semafor_testkit::redis::eventually;

use super::process::Process;
use super::setup::Setup;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Limiter {
    Semafor,
    GnuSem,
    /// With one slot only.
    Flock,
}

impl Limiter {
    /// The limiters that can have more than one slot and are installed.
    pub(super) fn with_slots(setup: &Setup) -> Vec<Self> {
        let mut all = vec![Self::Semafor];
        all.extend(setup.sem().map(|_| Self::GnuSem));
        all
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Semafor => "ours",
            Self::GnuSem => "GNU sem --fg",
            Self::Flock => "flock",
        }
    }

    /// Waits for one of so many slots, and runs `program` in it.
    pub(super) fn command(self, setup: &Setup, lock: &str, slots: usize, program: &Path) -> Command {
        let mut command = match self {
            Self::Semafor => {
                let mut semafor = setup.semafor();
                semafor.args(["run", "--name", lock, "--slots", &slots.to_string(), "--"]);
                semafor
            }
            Self::GnuSem => {
                let mut sem = setup.sem().expect("it is installed");
                sem.args(["--fg", "--id", lock, "-j", &slots.to_string()]);
                sem
            }
            Self::Flock => {
                let mut flock = setup.flock();
                flock.arg(setup.file(lock));
                flock
            }
        };
        command.arg(program);
        command
    }

    /// The process that works for the waiters, if there is one.
    pub(super) fn agent(self, setup: &Setup) -> Option<u32> {
        (self == Self::Semafor).then(|| setup.agent())
    }

    /// Returns when the last process of the line waits as well.
    pub(super) fn until_in_line(self, setup: &Setup, lock: &str, line: &[Process]) {
        let Some(last) = line.last() else { return };
        let is_in_line = || match self {
            Self::Semafor => setup.ask(&["status", lock])[0]["waiting"] == line.len(),
            // Only the kernel knows which process waits for a file or sleeps until its next attempt.
            Self::GnuSem => last.is_in_call(libc::SYS_pselect6),
            Self::Flock => last.is_in_call(libc::SYS_flock),
        };
        eventually("the last one is in line", || is_in_line().then_some(()));
    }
}
