//! The cost of waiting while nothing happens.

use std::thread::sleep;
use std::time::Duration;

use semafor_benchmarks::Report;

use super::limiter::Limiter;
use super::line::Line;
use super::setup::Setup;
use super::usage::{cpu_in, memory_of, micros};

const MANY: usize = 1_000;
/// As many waiters of GNU sem as leave the machine usable: they take 13 MB each, and poll.
const FEW: usize = 50;

const WINDOW: Duration = Duration::from_secs(10);
/// Until the work of starting is over: GNU sem polls less and less often, down to twice a second.
const SETTLING: Duration = Duration::from_secs(6);

pub(super) fn measure(report: &mut Report, setup: &Setup) {
    let ours = cost(setup, Limiter::Semafor, MANY);
    let flock = cost(setup, Limiter::Flock, MANY);
    ours.add_beside(report, "1,000 wait", "flock", &flock);
    ours.add_agent(report, "1,000 wait");

    if setup.sem().is_some() {
        let ours = cost(setup, Limiter::Semafor, FEW);
        let theirs = cost(setup, Limiter::GnuSem, FEW);
        ours.add_beside(report, "50 wait", Limiter::GnuSem.name(), &theirs);
        println!(
            "left out: {MANY} of GNU sem's: as {FEW} do, they would use {:.1} s of CPU per second and {:.1} GiB",
            theirs.cpu.as_secs_f64() * (MANY / FEW) as f64,
            theirs.memory * MANY as f64 / 1024.0 / 1024.0,
        );
    }
}

/// Of so many waiters for one slot.
struct Cost {
    /// Of all waiters and the agent, per second.
    cpu: Duration,
    cpu_of_agent: Duration,
    /// KiB for each waiter, including its share of the agent.
    memory: f64,
    memory_of_agent: f64,
}

fn cost(setup: &Setup, limiter: Limiter, count: usize) -> Cost {
    let lock = format!("{limiter:?}-idle-{count}");
    let agent = limiter.agent(setup);
    let agent = agent.as_slice();
    let agent_before = memory_of(agent);
    let waiters = (0..count).map(|_| limiter.command(setup, &lock, 1, setup.nothing()));
    let line = Line::form(setup, limiter, &lock, 1, waiters);
    sleep(SETTLING);

    let pids: Vec<_> = line.pids().collect();
    let each = |kib: f64| kib / count as f64;
    let memory_of_agent = each(memory_of(agent) - agent_before);
    let memory = each(memory_of(&pids)) + memory_of_agent;
    let [cpu_of_waiters, cpu_of_agent] = cpu_in(WINDOW, [&pids, agent]);
    line.release_all();
    Cost { cpu: cpu_of_waiters + cpu_of_agent, cpu_of_agent, memory, memory_of_agent }
}

impl Cost {
    fn add_beside(&self, report: &mut Report, work: &str, whose: &str, theirs: &Self) {
        report.add(&format!("{work}: CPU of all"), "µs/s", micros(self.cpu), whose, micros(theirs.cpu));
        report.add(&format!("{work}: memory, each"), "KiB", self.memory, whose, theirs.memory);
    }

    fn add_agent(&self, report: &mut Report, work: &str) {
        let mut add =
            |what: &str, unit, value| report.add(&format!("{work}: {what}"), unit, value, "no client", 0.0);
        add("CPU of the agent alone", "µs/s", micros(self.cpu_of_agent));
        add("memory of the agent, for each", "KiB", self.memory_of_agent);
    }
}
