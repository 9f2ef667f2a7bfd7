//! Traces of the scheduler: as text, and replayed.

use semafor_coop::{Ctx, Result, Runtime, Schedule, Trace};

pub(super) const WORDS: &[&str] = &[
    "1:",
    "2:",
    "0",
    "1",
    "z",
    "-5-",
    "-4-",
    "-4294967295-",
    "-18446744073709551615-",
    "(",
    ")",
    "(36)",
    "(4294967295)",
];

pub(super) fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let Ok(trace) = text.parse::<Trace>() else { return };
    let printed = trace.to_string();
    assert_eq!(printed.parse().as_ref(), Ok(&trace), "{text:?} is printed as {printed:?}");
    // What follows the last switch does not count, and may be very long.
    let _ = trace.choices().take(10_000).map(u64::from).sum::<u64>();

    let first = replay(trace);
    let again = replay(first.report_trace.clone());
    assert_eq!(first, again, "the trace of a replayed run makes another run");
}

#[derive(PartialEq, Debug)]
struct Run {
    log: Vec<String>,
    result: std::result::Result<(), String>,
    report_trace: Trace,
}

fn replay(trace: Trace) -> Run {
    let outcome = Runtime::new().most_steps(10_000).schedule(Schedule::Replay(trace)).run(program);
    Run {
        log: outcome.report.log.iter().map(|line| format!("{line:?}")).collect(),
        result: outcome.result.map_err(|error| error.to_string()),
        report_trace: outcome.report.trace,
    }
}

/// Its tasks wait for slots in opposite orders, so some schedules end in a deadlock.
async fn program(ctx: Ctx) -> Result {
    let (a, b) = (ctx.create_semaphore(1).await?, ctx.create_semaphore(2).await?);
    let mut tasks = Vec::new();
    for number in 0..4 {
        let (a, b) = (a.clone(), b.clone());
        let task = ctx.spawn(async move |ctx: Ctx| {
            let (first, second) = if number % 2 == 0 { (&a, &b) } else { (&b, &a) };
            let _first = ctx.permit(first).await?;
            ctx.log(format!("{number} has one")).await?;
            ctx.delay(0.001).await?;
            let _second = ctx.permit(second).await?;
            ctx.log(format!("{number} has both")).await
        });
        tasks.push(task.await?);
    }
    ctx.gather(tasks).await?;
    Ok(())
}
