//! `cargo xtask simulate`: whole fleets in one thread, until a rule is broken or the time is over.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use semafor_testkit::simulation::{Outcome, SECOND, Settings, run, shrink, to_svg};

const USAGE: &str = "simulate [--seed N] [--minutes M] [--runs R] [--fleet P] [--picture FILE]";
/// Runs between two lines of progress.
const REPORT: u64 = 1_000;

struct Options {
    seed: u64,
    limit: Option<Duration>,
    runs: Option<u64>,
    fleet: Option<usize>,
    picture: String,
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
    let mut options = Options { seed: 1, limit: None, runs: None, fleet: None, picture };
    while let Some(word) = words.next() {
        let value = words.next().ok_or(format!("{word} needs a value"))?;
        let number =
            || value.parse::<u64>().map_err(|_| format!("{word} needs a whole number, not {value:?}"));
        match &*word {
            "--seed" => options.seed = number()?,
            "--minutes" => options.limit = Some(Duration::from_secs(number()? * 60)),
            "--runs" => options.runs = Some(number()?),
            "--fleet" => options.fleet = Some(usize::try_from(number()?.clamp(1, 10_000)).unwrap_or(50)),
            "--picture" => options.picture = value,
            _ => return Err(format!("{word} is not known here")),
        }
    }
    if options.limit.is_none() && options.runs.is_none() {
        options.runs = Some(1);
    }
    Ok(options)
}

fn simulate(options: &Options) -> ExitCode {
    let start = Instant::now();
    let mut total = Outcome::default();
    let mut runs = 0;
    let mut seed = options.seed;
    loop {
        let settings = settings(seed, options.fleet);
        let outcome = run(&settings);
        total.simulated += outcome.simulated;
        total.grants += outcome.grants;
        total.faults += outcome.faults;
        total.scripts += outcome.scripts;
        runs += 1;
        if outcome.violation.is_some() {
            report(&total, runs, start);
            return explain(&settings, outcome, options);
        }
        let is_over = options.runs.is_some_and(|most| runs >= most)
            || options.limit.is_some_and(|limit| start.elapsed() >= limit);
        if runs % REPORT == 0 || is_over {
            report(&total, runs, start);
        }
        if is_over {
            return ExitCode::SUCCESS;
        }
        seed = seed.wrapping_add(1);
    }
}

/// Small fleets find most faults soonest; a fleet of a given size is what was asked for.
fn settings(seed: u64, fleet: Option<usize>) -> Settings {
    Settings::of_seed(seed, fleet.unwrap_or(2 + (seed % 7) as usize))
}

fn report(total: &Outcome, runs: u64, start: Instant) {
    let (simulated, real) = (total.simulated as f64 / SECOND as f64, start.elapsed().as_secs_f64());
    println!(
        "{runs} runs: {:.1} hours simulated in {real:.0} s ({:.0} seconds per second), {} grants ({:.0} per second), {} \
         faults, {} scripts",
        simulated / 3_600.0,
        simulated / real.max(0.001),
        total.grants,
        total.grants as f64 / real.max(0.001),
        total.faults,
        total.scripts
    );
}

fn explain(settings: &Settings, outcome: Outcome, options: &Options) -> ExitCode {
    let violation = outcome.violation.clone().map(|violation| violation.to_string()).unwrap_or_default();
    println!("\nseed {} breaks a rule: {violation}", settings.seed);
    let fleet = options.fleet.map(|fleet| format!(" --fleet {fleet}")).unwrap_or_default();
    println!("run it again: cargo xtask simulate --seed {}{fleet}\n\nmaking it smaller ...", settings.seed);
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
