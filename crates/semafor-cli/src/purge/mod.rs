//! `semafor purge`: remove empty directories, and print a summary.
//!
//! There is a summary however it ends: completed, stopped by a limit, or by a signal. The exit code tells which.

mod fleet;
mod progress;
mod report;

use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use semafor_pipeline::MemoryGuard;
use semafor_purge::{CancellationToken, PurgeError, Purger, StoppedBy, Summary};
use tokio::select;
use tokio::sync::oneshot;

use self::progress::ProgressReporter;
use crate::cli::Purge;
use crate::exit::{Code, Failure};
use crate::output::say;
use crate::stop_signals;

pub(crate) async fn purge(args: Purge) -> Result<ExitCode, Failure> {
    run_purge(args).await.map_err(|failure| match failure.code {
        Code::Usage => Code::PurgeUsage.because(failure.message),
        _ => failure,
    })
}

async fn run_purge(args: Purge) -> Result<ExitCode, Failure> {
    // There is no other thread yet.
    semafor_purge::make_room_for_directories();
    let cancelled = CancellationToken::new();
    let reporter = Arc::new(ProgressReporter::of(&args));
    let mut purger = configure(&args, &cancelled, &reporter)?;
    let (ended, end) = oneshot::channel();
    let start = async {
        if let Some(name) = &args.fleet_limit {
            purger = purger.fleet_limit(fleet::open(&args, name).await?);
        }
        if args.is_for_files_like_efspurge() {
            say(
                "all directories are kept: --max-age-days removes only files, unless --remove-empty-dirs is given",
            );
        }
        let worker = thread::Builder::new().name("purge".to_owned());
        let started = worker.spawn(move || {
            let _ = ended.send(purger.purge());
        });
        started.map_err(|error| Code::Unreachable.because(format!("can't start a thread: {error}")))?;
        Ok::<_, Failure>(end.await)
    };
    tokio::pin!(start);
    // Listen for signals before anything starts.
    let mut signal = None;
    let end = select! {
        biased;
        number = stop_signals::next() => {
            signal = Some(number);
            cancelled.cancel();
            select! {
                end = &mut start => end?,
                // A second signal: exit without waiting for removals under way.
                number = stop_signals::next() => return Ok((128 + number).into()),
            }
        }
        end = &mut start => end?,
    };
    let summary = match end {
        Ok(outcome) => outcome.map_err(to_failure)?,
        Err(_) => return Err(Code::Unreachable.because("the purge thread has panicked; this is a bug")),
    };
    reporter.end(&summary);
    report::print_summary(&args, &summary)?;
    Ok(exit_code(&summary, signal))
}

fn configure<'p>(
    args: &Purge,
    cancelled: &CancellationToken,
    reporter: &Arc<ProgressReporter>,
) -> Result<Purger<'p>, Failure> {
    let mut purger = Purger::new(&args.root)
        .dry_run(args.dry_run)
        .min_age(args.min_age)
        .keep_dirs(args.keep_dirs || args.is_for_files_like_efspurge())
        .remove_root(args.remove_root)
        .max_dirs(args.max_empty_dirs_to_delete)
        .max_depth(args.max_depth)
        .cross_file_systems(args.cross_file_systems)
        .even_system_paths(args.force)
        .rate(args.rate)
        .memory(MemoryGuard::new(args.memory_limit_mb.saturating_mul(1024 * 1024)))
        .cancelled_by(cancelled.clone());
    if let Some(age) = args.max_age() {
        purger = purger.older_than(age);
    }
    if let Some(most) = args.deletions() {
        purger = purger.max_concurrency_deletion(most);
    }
    if let Some(most) = args.scans() {
        purger = purger.max_concurrency_scanning(most);
    }
    for pattern in &args.exclude {
        purger = purger.exclude(pattern).map_err(to_failure)?;
    }
    Ok(progress::attach(reporter, purger))
}

fn to_failure(error: PurgeError) -> Failure {
    let message = match &error {
        PurgeError::SystemPath { .. } => format!("{error}: use --force to purge it anyway"),
        error => error.to_string(),
    };
    Code::PurgeUsage.because(message)
}

/// The exit codes are documented in `semafor purge --help`.
fn exit_code(summary: &Summary, signal: Option<u8>) -> ExitCode {
    match summary.stopped_by {
        StoppedBy::Cancelled => (128 + signal.unwrap_or(0)).into(),
        StoppedBy::Limit | StoppedBy::Breaker => 3.into(),
        _ if summary.errors > 0 => 1.into(),
        _ => ExitCode::SUCCESS,
    }
}
