//! Runs a program and returns its log.
#![allow(dead_code, reason = "not every test file uses all of it")]

use semafor_coop::{Ctx, Outcome, Report, Result, Runtime};

pub(crate) fn lines(report: &Report) -> Vec<String> {
    report.log.iter().map(|line| line.text.clone()).collect()
}

/// Runs a program, which must succeed with nothing to report. Returns its log in one line.
#[track_caller]
pub(crate) fn run_cleanly<P, F>(program: P) -> String
where
    P: FnOnce(Ctx) -> F + 'static,
    F: Future<Output = Result> + 'static,
{
    let Outcome { result, report, .. } = Runtime::new().run(program);
    if let Err(error) = result {
        panic!("{error}");
    }
    assert_eq!(report.complaint(), None);
    lines(&report).join(" ")
}
