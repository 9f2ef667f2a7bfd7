//! From start to exit without contention: the cost of putting the command before another.

use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use semafor_benchmarks::{Report, Runs, median};
use semafor_testkit::redis::RedisServer;

use super::limiter::Limiter;
use super::process::Process;
use super::setup::{Setup, on_path};
use super::usage::{cpu_of, micros};

const STARTS: usize = 40;
/// For limiters that take a hundred times as long.
const FEW_STARTS: usize = 5;

const MARK: &str = "echo > \"$1\"\n";

const LOCK: &str = "once";

pub(super) fn measure(report: &mut Report, setup: &Setup, rounds: usize) {
    assert_runs(setup, Limiter::Semafor.command(setup, LOCK, 1, &setup.script("mark", MARK)));
    let warm = turn(STARTS, limited(setup, Limiter::Semafor));
    report.compare("start to exit of `true`", "µs", rounds, beside_peers(setup, warm, turn));

    // CPU time depends less than elapsed time on other load.
    let agent = setup.agent();
    let mut start = limited(setup, Limiter::Semafor);
    let warm = Box::new(move || {
        let before = cpu_of(&[agent]);
        let used = cpu_of_starts(STARTS, &mut start);
        used + micros(cpu_of(&[agent]) - before) / STARTS as f64
    });
    report.compare("start to exit of `true`, CPU", "µs", rounds, beside_peers(setup, warm, cpu_turn));

    let mut first = limited(setup, Limiter::Semafor);
    let cold = Box::new(move || {
        setup.stop_agent();
        start_to_exit(&mut first)
    });
    report.compare("start to exit of `true`, no agent yet", "µs", rounds, beside_peers(setup, cold, turn));

    if on_path("redis-server").is_none() {
        println!("left out: through Redis: redis-server is not installed");
        return;
    }
    let server = RedisServer::start();
    assert_runs(setup, through(&server, setup, &setup.script("mark", MARK)));
    let runs = vec![
        ("ours", turn(STARTS, through(&server, setup, setup.nothing()))),
        ("true alone", turn(STARTS, bare(setup))),
        ("ours, local:", turn(STARTS, limited(setup, Limiter::Semafor))),
    ];
    report.compare("start to exit of `true`, through Redis", "µs", rounds, runs);
}

/// `turn` measures so many starts of a peer's command.
fn beside_peers<'a>(setup: &'a Setup, ours: Turn<'a>, turn: fn(usize, Command) -> Turn<'a>) -> Runs<'a> {
    let mut runs = vec![
        ("ours", ours),
        ("true alone", turn(STARTS, bare(setup))),
        ("flock", turn(STARTS, limited(setup, Limiter::Flock))),
    ];
    if setup.sem().is_some() {
        runs.push((Limiter::GnuSem.name(), turn(FEW_STARTS, limited(setup, Limiter::GnuSem))));
    }
    runs
}

fn bare(setup: &Setup) -> Command {
    setup.command(setup.nothing())
}

fn limited(setup: &Setup, limiter: Limiter) -> Command {
    limiter.command(setup, LOCK, 1, setup.nothing())
}

fn through(server: &RedisServer, setup: &Setup, program: &Path) -> Command {
    let mut semafor = setup.semafor();
    semafor.args(["run", "--url", &server.url(), "--name", LOCK, "--slots", "1", "--"]).arg(program);
    semafor
}

/// A command that does not run its program would be quick, and not worth measuring.
fn assert_runs(setup: &Setup, mut leave_mark: Command) {
    let mark = setup.file("mark.left");
    let status = leave_mark.arg(&mark).status();
    assert!(std::fs::remove_file(mark).is_ok(), "{leave_mark:?} ran nothing: {status:?}");
}

type Turn<'a> = Box<dyn FnMut() -> f64 + 'a>;

/// Several in a row, because for the first one the caches are full of other data.
fn turn<'a>(starts: usize, mut command: Command) -> Turn<'a> {
    Box::new(move || median((0..starts).map(|_| start_to_exit(&mut command)).collect()))
}

/// Microseconds.
fn start_to_exit(command: &mut Command) -> f64 {
    let start = Instant::now();
    let status = command.status();
    let time = start.elapsed();
    assert!(status.as_ref().is_ok_and(ExitStatus::success), "{command:?}: {status:?}");
    micros(time)
}

fn cpu_turn<'a>(starts: usize, mut command: Command) -> Turn<'a> {
    Box::new(move || cpu_of_starts(starts, &mut command))
}

/// Microseconds for each, including all child processes that it has waited for.
fn cpu_of_starts(starts: usize, command: &mut Command) -> f64 {
    let used: Duration = (0..starts).map(|_| Process::start(command).finish().successful().cpu).sum();
    micros(used) / starts as f64
}
