//! `cargo xtask simulate`: whole fleets, each in one thread, until a rule is broken or the time is over.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use semafor_testkit::simulation::{Outcome, SECOND, Settings, Time, run, shrink, to_svg};

const USAGE: &str =
    "simulate [--seed N] [--minutes M] [--runs R] [--fleet P] [--threads T] [--picture FILE] [--brief]";
/// Runs between two lines of progress.
const REPORT: u64 = 1_000;
/// The exit code of a program that SIGINT has ended.
const INTERRUPTED: i32 = 130;

struct Options {
    seed: u64,
    limit: Option<Duration>,
    runs: Option<u64>,
    fleet: Option<usize>,
    threads: usize,
    picture: String,
    /// Prints one line about a failure, for programs: see [`brief`].
    is_brief: bool,
}

fn main() -> ExitCode {
    match options(std::env::args().skip(1)) {
        Ok(options) => simulate(&options),
        Err(complaint) => {
            eprintln!("error: {complaint}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn options(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let picture = "target/simulation.svg".to_owned();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut options =
        Options { seed: 1, limit: None, runs: None, fleet: None, threads, picture, is_brief: false };
    while let Some(word) = words.next() {
        if word == "--brief" {
            options.is_brief = true;
            continue;
        }
        let value = words.next().ok_or(format!("{word} needs a value"))?;
        let number =
            || value.parse::<u64>().map_err(|_| format!("{word} needs a whole number, not {value:?}"));
        match &*word {
            "--seed" => options.seed = number()?,
            "--minutes" => options.limit = Some(Duration::from_secs(number()? * 60)),
            "--runs" => options.runs = Some(number()?),
            "--fleet" => options.fleet = Some(usize::try_from(number()?.clamp(1, 10_000)).unwrap_or(50)),
            "--threads" => options.threads = usize::try_from(number()?.clamp(1, 1_000)).unwrap_or(1),
            "--picture" => options.picture = value,
            _ => return Err(format!("{word} is not known here")),
        }
    }
    if options.limit.is_none() && options.runs.is_none() {
        options.runs = Some(1);
    }
    Ok(options)
}

/// What all threads have done so far.
struct Progress {
    start: Instant,
    limit: Option<Duration>,
    /// Seeds are handed out in order, so none below one that fails is left out.
    next_seed: u64,
    runs_left: u64,
    total: Outcome,
    runs: u64,
    /// How long each seed took in the simulation.
    simulated: BTreeMap<u64, Time>,
    /// The smallest seed that breaks a rule; without an outcome if the simulation panicked.
    failed: Option<(u64, Option<Outcome>)>,
}

impl Progress {
    fn new(options: &Options) -> Self {
        Self {
            start: Instant::now(),
            limit: options.limit,
            next_seed: options.seed,
            runs_left: options.runs.unwrap_or(u64::MAX),
            total: Outcome::default(),
            runs: 0,
            simulated: BTreeMap::new(),
            failed: None,
        }
    }

    fn hand_out(&mut self) -> Option<u64> {
        let is_over = self.limit.is_some_and(|limit| self.start.elapsed() >= limit);
        if is_over || self.runs_left == 0 || self.failed.is_some() {
            return None;
        }
        let seed = self.next_seed;
        self.next_seed = seed.wrapping_add(1);
        self.runs_left -= 1;
        Some(seed)
    }

    fn add(&mut self, seed: u64, outcome: Option<Outcome>) {
        if let Some(outcome) = &outcome {
            self.total.simulated += outcome.simulated;
            self.total.grants += outcome.grants;
            self.total.faults += outcome.faults;
            self.total.scripts += outcome.scripts;
            self.simulated.insert(seed, outcome.simulated);
        }
        self.runs += 1;
        if self.runs.is_multiple_of(REPORT) {
            self.report();
        }
        let fails = outcome.as_ref().is_none_or(|outcome| outcome.violation.is_some());
        if fails && self.failed.as_ref().is_none_or(|(smallest, _)| seed < *smallest) {
            self.failed = Some((seed, outcome));
        }
    }

    fn report(&self) {
        let Self { total, runs, .. } = self;
        let (simulated, real) =
            (total.simulated as f64 / SECOND as f64, self.start.elapsed().as_secs_f64().max(0.001));
        println!(
            "{runs} runs: {:.1} hours simulated in {real:.0} s ({:.0} seconds per second), {} grants ({:.0} per second), {} \
             faults, {} scripts",
            simulated / 3_600.0,
            simulated / real,
            total.grants,
            total.grants as f64 / real,
            total.faults,
            total.scripts
        );
    }
}

fn simulate(options: &Options) -> ExitCode {
    let progress = Arc::new(Mutex::new(Progress::new(options)));
    report_when_interrupted(&progress);
    thread::scope(|scope| {
        for _ in 0..options.threads {
            scope.spawn(|| run_seeds(&progress, options.fleet));
        }
    });
    let failed = {
        let mut progress = lock(&progress);
        progress.report();
        progress.failed.take()
    };
    match failed {
        None => ExitCode::SUCCESS,
        Some((seed, outcome)) if options.is_brief => {
            println!("{}", brief(&lock(&progress), options.seed, seed, outcome.as_ref()));
            ExitCode::FAILURE
        }
        Some((seed, Some(outcome))) => explain(&settings(seed, options.fleet), outcome, options),
        Some((seed, None)) => {
            println!("\nseed {seed} panics\nrun it again: {}", command(seed, options));
            ExitCode::FAILURE
        }
    }
}

/// What was found, for programs: `found`, the rule, the seed, the number of runs and how many seconds they simulated,
/// separated by tabs. Runs of later seeds do not count, so that the line is always the same.
fn brief(progress: &Progress, first: u64, seed: u64, outcome: Option<&Outcome>) -> String {
    let violation = outcome.and_then(|outcome| outcome.violation.as_ref());
    let rule = violation.map_or("no panic", |violation| violation.rule);
    let simulated: Time = progress.simulated.range(..=seed).map(|(_, time)| time).sum();
    format!("found\t{rule}\t{seed}\t{}\t{}", seed - first + 1, simulated / SECOND)
}

fn lock(progress: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run_seeds(progress: &Mutex<Progress>, fleet: Option<usize>) {
    loop {
        let Some(seed) = lock(progress).hand_out() else { return };
        let outcome = catch_unwind(AssertUnwindSafe(|| run(&settings(seed, fleet)))).ok();
        lock(progress).add(seed, outcome);
    }
}

/// Ctrl-C prints the progress so far and ends the process.
fn report_when_interrupted(progress: &Arc<Mutex<Progress>>) {
    let progress = Arc::clone(progress);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    // Without it, Ctrl-C ends the process without a report.
    let Ok(runtime) = runtime else { return };
    thread::spawn(move || {
        if runtime.block_on(tokio::signal::ctrl_c()).is_ok() {
            lock(&progress).report();
            std::process::exit(INTERRUPTED);
        }
    });
}

/// Small fleets find most faults soonest; a fleet of a given size is what was asked for.
fn settings(seed: u64, fleet: Option<usize>) -> Settings {
    Settings::of_seed(seed, fleet.unwrap_or(2 + (seed % 7) as usize))
}

fn command(seed: u64, options: &Options) -> String {
    let fleet = options.fleet.map(|fleet| format!(" --fleet {fleet}")).unwrap_or_default();
    format!("cargo xtask simulate --seed {seed}{fleet}")
}

fn explain(settings: &Settings, outcome: Outcome, options: &Options) -> ExitCode {
    let violation = outcome.violation.clone().map(|violation| violation.to_string()).unwrap_or_default();
    println!("\nseed {} breaks a rule: {violation}", settings.seed);
    println!("run it again: {}\n\nmaking it smaller ...", command(settings.seed, options));
    let (smaller, outcome) = shrink(settings, outcome);
    if let Some(violation) = &outcome.violation {
        println!(
            "{} processes, {} users each, slots {:?}, heartbeat {:?}",
            smaller.processes, smaller.users, smaller.slots, smaller.heartbeat
        );
        println!("faults that are needed:");
        for (at, fault) in smaller.faults() {
            println!("  {:>12.6} s  {fault:?}", at as f64 / SECOND as f64);
        }
        println!("what happened at the end:");
        let from = outcome.events.len().saturating_sub(60);
        for event in &outcome.events[from..] {
            let place = event.process.map_or("server".into(), |process| format!("process {process}"));
            println!("  {:>12.6} s  {place:<11} {}", event.at as f64 / SECOND as f64, event.text);
        }
        println!("{violation}");
    }
    match std::fs::write(&options.picture, to_svg(&smaller, &outcome)) {
        Ok(()) => println!("a picture is in {}", options.picture),
        Err(error) => println!("no picture: {}: {error}", options.picture),
    }
    ExitCode::FAILURE
}
