//! A line: all slots are held until a gate opens, and processes that come meanwhile wait.
//!
//! The gate is a lock on a file, which also opens when this process ends, for any reason: no process waits for ever.

use std::fs::{self, File};
use std::process::Command;

use semafor_testkit::redis::eventually;

use super::limiter::Limiter;
use super::process::Process;
use super::setup::Setup;

const HOLD: &str = r#"
echo >> "$1"
exec flock --shared "$2" true
"#;

pub(super) struct Line {
    waiters: Vec<Process>,
    holders: Vec<Process>,
    gate: File,
}

impl Line {
    /// Starts so many processes one after the other, each when the one before waits, so that their order is known.
    pub(super) fn form(
        setup: &Setup,
        limiter: Limiter,
        lock: &str,
        slots: usize,
        waiters: impl IntoIterator<Item = Command>,
    ) -> Self {
        let (held, gate_file) = (setup.file(&format!("{lock}.held")), setup.file(&format!("{lock}.gate")));
        let gate = File::create(&gate_file).expect("it can be written");
        gate.lock().expect("no other process has it");
        let hold = setup.script("hold", HOLD);
        let mut line = Self { gate, holders: Vec::new(), waiters: Vec::new() };
        for nth in 1..=slots {
            let mut holder = limiter.command(setup, lock, slots, &hold);
            line.holders.push(Process::start(holder.arg(&held).arg(&gate_file)));
            eventually("it holds a slot", || {
                let held = fs::read_to_string(&held).unwrap_or_default();
                (held.lines().count() == nth).then_some(())
            });
        }
        for mut waiter in waiters {
            line.waiters.push(Process::start(&mut waiter));
            limiter.until_in_line(setup, lock, &line.waiters);
        }
        line
    }

    /// The process ids of the waiters.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        self.waiters.iter().map(Process::pid)
    }

    /// Releases all slots, and returns when all processes have ended, successful or not.
    pub(super) fn release_all(self) {
        let Self { waiters, holders, gate } = self;
        drop(gate);
        for process in holders.into_iter().chain(waiters) {
            let _ = process.finish();
        }
    }
}
