//! Many more contenders than slots.

use std::fs::File;
use std::time::{Duration, Instant};

use semafor_benchmarks::{Report, median};

use super::limiter::Limiter;
use super::line::Line;
use super::log::{History, Log};
use super::process::Process;
use super::setup::{Setup, on_path};
use super::usage::{cpu_in, cpu_of, millis};

const CONTENDERS: usize = 200;
const SLOTS: usize = 4;

/// How long the waiting line is measured before it moves.
const WINDOW: Duration = Duration::from_secs(3);

/// The results of one limiter, one for each round.
struct Results {
    limiter: Limiter,
    bursts: Vec<Burst>,
    queued_runs: Vec<QueuedRun>,
}

/// The contenders came as fast as they could be started.
struct Burst {
    /// From the first start to the last exit.
    time: Duration,
    /// Of all contenders and the agent.
    cpu: Duration,
    history: History,
}

/// The contenders came one after the other, while all slots were held.
struct QueuedRun {
    /// While nothing happened, per second.
    cpu_in_line: Duration,
    /// From the release of the slots until all were done.
    time: Duration,
    history: History,
}

pub(super) fn measure(report: &mut Report, setup: &Setup, rounds: usize) {
    let limiters = Limiter::with_slots(setup).into_iter();
    let mut entrants: Vec<_> =
        limiters.map(|limiter| Results { limiter, bursts: Vec::new(), queued_runs: Vec::new() }).collect();
    let mut without_limiter = Vec::new();
    for round in 0..rounds {
        for entrant in &mut entrants {
            let limiter = entrant.limiter;
            entrant.bursts.push(burst(setup, limiter, &format!("{limiter:?}-burst-{round}")));
            entrant.queued_runs.push(queued_run(setup, limiter, &format!("{limiter:?}-passage-{round}")));
        }
        without_limiter.extend(with_xargs(setup, &format!("xargs-{round}")));
    }

    let [ours, others @ ..] = &entrants[..] else { return };
    if !without_limiter.is_empty() {
        let (ours, theirs) = (ours.burst(|burst| millis(burst.time)), median(without_limiter));
        report.add("200 at once, 4 slots: all done", "ms", ours, "xargs -P 4", theirs);
    }
    for other in others {
        let mut add = |what: &str, unit, value: &dyn Fn(&Results) -> f64| {
            report.add(what, unit, value(ours), other.limiter.name(), value(other));
        };
        let burst = "200 at once, 4 slots";
        add(&format!("{burst}: all done"), "ms", &|one| one.burst(|burst| millis(burst.time)));
        add(&format!("{burst}: CPU in all"), "ms", &|one| one.burst(|burst| millis(burst.cpu)));
        let queued_run = "200 in line, 4 slots";
        add(&format!("{queued_run}: CPU while waiting"), "ms/s", &|one| {
            one.queued_run(|queued_run| millis(queued_run.cpu_in_line))
        });
        add(&format!("{queued_run}: all done"), "ms", &|one| {
            one.queued_run(|queued_run| millis(queued_run.time))
        });
        add(&format!("{queued_run}: began out of order"), "of 200", &|one| {
            one.queued_run(|queued_run| queued_run.out_of_order() as f64)
        });
        add(&format!("{queued_run}: overtaken by up to"), "places", &|one| {
            one.queued_run(|queued_run| queued_run.history.overtaken().max().unwrap_or(0) as f64)
        });
        // The worst round counts here, not the median: these must never happen.
        let both = "200 contenders, 4 slots";
        add(&format!("{both}: most at once"), "at once", &|one| one.worst(History::most_at_once));
        add(&format!("{both}: failed, no turn"), "of 200", &|one| {
            one.worst(|history| CONTENDERS - history.turns())
        });
    }
}

impl Results {
    fn burst(&self, value: impl Fn(&Burst) -> f64) -> f64 {
        median(self.bursts.iter().map(value).collect())
    }

    fn queued_run(&self, value: impl Fn(&QueuedRun) -> f64) -> f64 {
        median(self.queued_runs.iter().map(value).collect())
    }

    /// Of all rounds.
    fn worst(&self, value: impl Fn(&History) -> usize) -> f64 {
        let bursts = self.bursts.iter().map(|burst| &burst.history);
        let histories = bursts.chain(self.queued_runs.iter().map(|queued_run| &queued_run.history));
        histories.map(value).max().unwrap_or(0) as f64
    }
}

impl QueuedRun {
    /// How many were overtaken by a contender that came so much later that the number of slots does not explain it.
    fn out_of_order(&self) -> usize {
        self.history.overtaken().filter(|places| *places >= SLOTS).count()
    }
}

fn burst(setup: &Setup, limiter: Limiter, lock: &str) -> Burst {
    let log = Log::open(setup, lock);
    let agent = limiter.agent(setup);
    let served = cpu_of(agent.as_slice());
    let start = Instant::now();
    let contenders: Vec<_> = log
        .contenders(setup, limiter, lock, SLOTS, CONTENDERS)
        .map(|mut contender| Process::start(&mut contender))
        .collect();
    let used: Duration = contenders.into_iter().map(|contender| contender.finish().cpu).sum();
    let time = start.elapsed();
    Burst { time, history: log.read(), cpu: used + cpu_of(agent.as_slice()) - served }
}

fn queued_run(setup: &Setup, limiter: Limiter, lock: &str) -> QueuedRun {
    let log = Log::open(setup, lock);
    let contenders = log.contenders(setup, limiter, lock, SLOTS, CONTENDERS);
    let line = Line::form(setup, limiter, lock, SLOTS, contenders);
    let pids: Vec<_> = line.pids().chain(limiter.agent(setup)).collect();
    let [cpu_in_line] = cpu_in(WINDOW, [&pids]);

    let start = Instant::now();
    line.release_all();
    QueuedRun { cpu_in_line, time: start.elapsed(), history: log.read() }
}

/// The same turns, so many at once, limited by `xargs`. In milliseconds.
fn with_xargs(setup: &Setup, name: &str) -> Option<f64> {
    let log = Log::open(setup, name);
    let numbers = setup.file(&format!("{name}.numbers"));
    let lines: String = (0..CONTENDERS).map(|nth| format!("{nth}\n")).collect();
    std::fs::write(&numbers, lines).expect("it can be written");
    let mut xargs = setup.command(&on_path("xargs")?);
    xargs.args(["-n", "1", "-P", &SLOTS.to_string()]).args(log.turn());
    xargs.stdin(File::open(numbers).expect("it was just written"));
    let start = Instant::now();
    let _ = Process::start(&mut xargs).finish().successful();
    let time = start.elapsed();
    assert_eq!(log.read().turns(), CONTENDERS, "every contender had a turn");
    Some(millis(time))
}
