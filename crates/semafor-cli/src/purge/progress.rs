//! Progress and errors during a purge.
//!
//! On a terminal, progress is one line that is overwritten. Elsewhere it is one JSON object per line on stderr, for log
//! collectors. Only the first errors are printed: a tree may have as many errors as directories.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use semafor_purge::{Progress, Purger, Removed, Summary};
use serde::Serialize;

use super::report::{Report, counted, grouped};
use crate::cli::Purge;
use crate::duration;
use crate::live_line::LiveLine;
use crate::output::say;
use crate::plain::plain;

const LINE_INTERVAL: Duration = Duration::from_millis(200);
const JSON_INTERVAL: Duration = Duration::from_secs(30);
const MAX_PRINTED_ERRORS: u64 = 20;
const BAR_WIDTH: usize = 20;

pub(super) struct ProgressReporter {
    mode: Mode,
    is_dry_run: bool,
    is_summary_on_stdout: bool,
    prints_paths: bool,
    errors: AtomicU64,
    line: Mutex<LiveLine>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// A line that is overwritten on each update.
    Live,
    /// A JSON object per line.
    Json,
    Silent,
}

/// Progress as JSON.
#[derive(Serialize)]
struct ProgressLine {
    event: &'static str,
    dirs_scanned: u64,
    dirs_removed: u64,
    files_scanned: u64,
    files_removed: u64,
    bytes_freed: u64,
    dirs_changed: u64,
    files_changed: u64,
    errors: u64,
    percent: f64,
    dirs_scanned_per_second: f64,
    dirs_removed_per_second: f64,
    remaining_seconds: Option<f64>,
    queued: usize,
    working: usize,
    memory_bytes: u64,
    elapsed_seconds: f64,
}

impl ProgressReporter {
    pub(super) fn of(args: &Purge) -> Self {
        let is_terminal = stderr().is_terminal();
        let mode = match args.quiet {
            true => Mode::Silent,
            // The paths printed to the same terminal show the progress.
            false if is_terminal && args.print && stdout().is_terminal() => Mode::Silent,
            false if is_terminal => Mode::Live,
            false => Mode::Json,
        };
        Self {
            mode,
            is_dry_run: args.dry_run,
            is_summary_on_stdout: args.json,
            prints_paths: args.print,
            errors: AtomicU64::new(0),
            line: Mutex::default(),
        }
    }

    /// Ends the progress output. Only the summary follows.
    pub(super) fn end(&self, summary: &Summary) {
        self.line.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let unprinted = self.errors.load(Ordering::Relaxed).saturating_sub(MAX_PRINTED_ERRORS);
        if unprinted > 0 && self.mode != Mode::Json {
            say(&format!("and {}", counted(unprinted, "more error", "more errors")));
        }
        if self.mode == Mode::Json && !self.is_summary_on_stdout {
            write_line(&Report::of(summary).json());
        }
    }

    fn progress(&self, progress: &Progress, rate: f64) {
        match self.mode {
            Mode::Live => {
                let line = self.in_words(progress, rate);
                self.line.lock().unwrap_or_else(PoisonError::into_inner).show(&line);
            }
            Mode::Json => {
                write_line(&serde_json::to_string(&ProgressLine::of(progress)).unwrap_or_default());
            }
            Mode::Silent => {}
        }
    }

    /// `[########            ]  41%  12,345 removed of 30,000 looked at, 2,400/s, 12s left`
    fn in_words(&self, progress: &Progress, rate: f64) -> String {
        let filled = (progress.fraction * BAR_WIDTH as f64) as usize;
        let percent = (progress.fraction * 100.0) as u64;
        let removed = grouped(progress.dirs_removed + progress.files_removed);
        let verb = if self.is_dry_run { "to remove" } else { "removed" };
        let seen = grouped(progress.dirs_scanned + progress.files_scanned);
        let mut line = format!(
            "[{:BAR_WIDTH$}] {percent:3}%  {removed} {verb} of {seen} looked at, {}/s",
            "#".repeat(filled.min(BAR_WIDTH)),
            grouped(rate as u64)
        );
        if let Some(remaining) = progress.remaining() {
            line += &format!(", {} left", duration::show(remaining));
        }
        if progress.errors > 0 {
            line += &format!(", {}", counted(progress.errors, "error", "errors"));
        }
        line
    }

    fn error(&self, path: &Path, error: &std::io::Error) {
        if self.errors.fetch_add(1, Ordering::Relaxed) >= MAX_PRINTED_ERRORS {
            return;
        }
        let (path, error) = (path.to_string_lossy(), error.to_string());
        if self.mode == Mode::Json {
            let event = serde_json::json!({ "event": "error", "path": path, "error": error });
            return write_line(&event.to_string());
        }
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        line.clear();
        say(&format!("{path}: {error}"));
    }

    fn print_path(path: &Path, is_terminal: bool) {
        // A reader that closes the pipe early does not stop the purge.
        let _ = match is_terminal {
            true => writeln!(stdout(), "{}", plain(&path.to_string_lossy())),
            false => stdout().write_all(&[path.as_os_str().as_bytes(), b"\n"].concat()),
        };
    }
}

/// Reports the events of the purger through `reporter`.
pub(super) fn attach<'p>(reporter: &Arc<ProgressReporter>, mut purger: Purger<'p>) -> Purger<'p> {
    let shared = Arc::clone(reporter);
    purger = purger.on_error(move |path, error| shared.error(path, error));
    if reporter.prints_paths {
        let is_terminal = stdout().is_terminal();
        purger = purger.on_removal(move |path, _: Removed| ProgressReporter::print_path(path, is_terminal));
    }
    let every = match reporter.mode {
        Mode::Silent => return purger,
        Mode::Live => LINE_INTERVAL,
        Mode::Json => JSON_INTERVAL,
    };
    let shared = Arc::clone(reporter);
    let (mut last, mut last_seen) = (Instant::now(), 0);
    purger.on_progress(every, move |progress| {
        let seen = progress.dirs_scanned + progress.files_scanned;
        let rate = (seen - last_seen) as f64 / last.elapsed().as_secs_f64().max(1e-3);
        (last, last_seen) = (Instant::now(), seen);
        shared.progress(progress, rate);
    })
}

fn write_line(line: &str) {
    let _ = writeln!(stderr(), "{line}");
}

impl ProgressLine {
    fn of(progress: &Progress) -> Self {
        let elapsed = progress.elapsed.as_secs_f64();
        let per_second = |count: u64| (count as f64 / elapsed.max(1e-3) * 10.0).round() / 10.0;
        Self {
            event: "progress",
            dirs_scanned: progress.dirs_scanned,
            dirs_removed: progress.dirs_removed,
            files_scanned: progress.files_scanned,
            files_removed: progress.files_removed,
            bytes_freed: progress.bytes_freed,
            dirs_changed: progress.dirs_changed,
            files_changed: progress.files_changed,
            errors: progress.errors,
            percent: (progress.fraction * 1000.0).round() / 10.0,
            dirs_scanned_per_second: per_second(progress.dirs_scanned),
            dirs_removed_per_second: per_second(progress.dirs_removed),
            remaining_seconds: progress.remaining().map(|remaining| remaining.as_secs_f64().round()),
            queued: progress.queued,
            working: progress.working,
            memory_bytes: progress.memory_bytes,
            elapsed_seconds: elapsed,
        }
    }
}
