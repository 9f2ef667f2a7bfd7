//! Makes a failure smaller: fewer faults, fewer processes, less time, as long as the same rule is broken.

use super::{Outcome, SECOND, Settings, run};

/// Runs it may take.
const MOST_RUNS: usize = 400;

/// The smallest run found that breaks the same rule, and what came of it. Returns what it was given if nothing smaller fails.
pub fn shrink(settings: &Settings, outcome: Outcome) -> (Settings, Outcome) {
    let Some(rule) = outcome.violation.as_ref().map(|violation| violation.rule) else {
        return (settings.clone(), outcome);
    };
    let mut best = (Settings { faults: Some(settings.faults()), ..settings.clone() }, outcome);
    let mut runs = 0;
    let mut fails = |settings: &Settings| {
        runs += 1;
        let outcome = (runs <= MOST_RUNS).then(|| run(settings))?;
        let is_same = outcome.violation.as_ref().is_some_and(|violation| violation.rule == rule);
        is_same.then_some(outcome)
    };
    // Nothing after the failure matters.
    if let Some(at) =
        best.1.violation.as_ref().map(|violation| violation.at).filter(|at| *at < settings.length)
    {
        let shorter = Settings { length: at + SECOND, ..best.0.clone() };
        if let Some(outcome) = fails(&shorter) {
            best = (shorter, outcome);
        }
    }
    let mut part = best.0.faults().len().div_ceil(2);
    while part > 0 {
        let mut at = 0;
        while at < best.0.faults().len() {
            let mut fewer = best.0.faults();
            let end = (at + part).min(fewer.len());
            fewer.drain(at..end);
            let smaller = Settings { faults: Some(fewer), ..best.0.clone() };
            match fails(&smaller) {
                Some(outcome) => best = (smaller, outcome),
                None => at = end,
            }
        }
        part = if part == 1 { 0 } else { part.div_ceil(2) };
    }
    for users in 1..best.0.users {
        let smaller = Settings { users, ..best.0.clone() };
        if let Some(outcome) = fails(&smaller) {
            best = (smaller, outcome);
            break;
        }
    }
    while best.0.processes > 2 {
        let processes = best.0.processes - 1;
        let mut smaller = Settings { processes, ..best.0.clone() };
        let is_there = |fault: &super::Fault| fault.process().is_none_or(|process| process < processes);
        smaller.faults = Some(best.0.faults().into_iter().filter(|(_, fault)| is_there(fault)).collect());
        match fails(&smaller) {
            Some(outcome) => best = (smaller, outcome),
            None => break,
        }
    }
    let recorded = Settings { is_recorded: true, ..best.0 };
    let outcome = run(&recorded);
    (recorded, outcome)
}
