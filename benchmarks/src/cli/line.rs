//! A line: all slots are held until a gate opens, and who comes meanwhile waits.
//!
//! The gate is a lock on a file, which opens with our end as well, however we end: nobody waits for ever.

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
    /// Has so many come one after the other, each when the one before waits, so that it is known who came first.
    pub(super) fn form(
        setup: &Setup,
        limiter: Limiter,
        lock: &str,
        slots: usize,
        waiters: impl IntoIterator<Item = Command>,
    ) -> Self {
        let (held, gate_file) = (setup.file(&format!("{lock}.held")), setup.file(&format!("{lock}.gate")));
        let gate = File::create(&gate_file).expect("it can be written");
        gate.lock().expect("it is nobody else's");
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

    /// Of those who wait.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        self.waiters.iter().map(Process::pid)
    }

    /// Has all slots given back, and returns when everybody is done, well or not.
    pub(super) fn release_all(self) {
        let Self { waiters, holders, gate } = self;
        drop(gate);
        for process in holders.into_iter().chain(waiters) {
            let _ = process.finish();
        }
    }
}
