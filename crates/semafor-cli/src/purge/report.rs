//! The summary, as text and as JSON.

use std::collections::BTreeMap;

use semafor_purge::{StoppedBy, Summary};
use serde::Serialize;

use crate::cli::Purge;
use crate::duration;
use crate::exit::Failure;
use crate::output::{print, say};

/// The summary as JSON. Scripts rely on its keys.
#[derive(Serialize)]
pub(super) struct Report<'a> {
    event: &'static str,
    dry_run: bool,
    dirs_scanned: u64,
    dirs_removed: u64,
    files_scanned: u64,
    files_removed: u64,
    bytes_freed: u64,
    dirs_changed: u64,
    files_changed: u64,
    errors: u64,
    errors_by_kind: &'a BTreeMap<&'static str, u64>,
    peak_memory_bytes: u64,
    backpressure_events: u64,
    stopped_by: &'static str,
    elapsed_seconds: f64,
}

impl<'a> Report<'a> {
    pub(super) fn of(summary: &'a Summary) -> Self {
        Self {
            event: "summary",
            dry_run: summary.dry_run,
            dirs_scanned: summary.dirs_scanned,
            dirs_removed: summary.dirs_removed,
            files_scanned: summary.files_scanned,
            files_removed: summary.files_removed,
            bytes_freed: summary.bytes_freed,
            dirs_changed: summary.dirs_changed,
            files_changed: summary.files_changed,
            errors: summary.errors,
            errors_by_kind: &summary.errors_by_kind,
            peak_memory_bytes: summary.peak_memory_bytes,
            backpressure_events: summary.backpressure_events,
            stopped_by: summary.stopped_by.name(),
            elapsed_seconds: summary.elapsed.as_secs_f64(),
        }
    }

    /// Formats it as one line.
    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

pub(super) fn print_summary(args: &Purge, summary: &Summary) -> Result<(), Failure> {
    if args.json {
        return print(&(Report::of(summary).json() + "\n"));
    }
    let text = in_words(args, summary);
    if args.print {
        // stdout is for the paths.
        text.lines().for_each(say);
        return Ok(());
    }
    print(&text)
}

fn in_words(args: &Purge, summary: &Summary) -> String {
    let mut removed = counted(summary.dirs_removed, "empty directory", "empty directories");
    if args.max_age().is_some() {
        let files = counted(summary.files_removed, "old file", "old files");
        removed += &format!(" and {files} ({})", size(summary.bytes_freed));
    }
    let verb = if summary.dry_run { "Would remove" } else { "Removed" };
    let seen = counted(summary.dirs_scanned, "directory", "directories");
    let elapsed = duration::show(summary.elapsed);
    let mut text = format!("{verb} {removed}; looked at {seen} in {elapsed}.\n");
    if summary.files_changed > 0 || summary.dirs_changed > 0 {
        text += &format!("Kept {}, changed or moved during the purge.\n", changed(summary));
    }
    if summary.dry_run {
        text += "This was a dry run: nothing was removed.\n";
    }
    text += match summary.stopped_by {
        StoppedBy::Limit => "Stopped before the end at --max-empty-dirs-to-delete.\n",
        StoppedBy::Breaker => "Stopped before the end: memory was almost used up (--memory-limit-mb).\n",
        StoppedBy::Cancelled => "Stopped before the end by a signal. Run it again to continue.\n",
        StoppedBy::FleetLimit => "Stopped before the end: the semaphore of --fleet-limit can't be reached.\n",
        _ => "",
    };
    if summary.errors > 0 {
        let kinds = summary.errors_by_kind.iter().map(|(kind, count)| format!("{kind}: {count}"));
        let kinds = kinds.collect::<Vec<_>>().join(", ");
        text += &format!("{} ({kinds}).\n", counted(summary.errors, "error", "errors"));
    }
    text
}

fn changed(summary: &Summary) -> String {
    let files = counted(summary.files_changed, "old file", "old files");
    let dirs = counted(summary.dirs_changed, "empty directory", "empty directories");
    match (summary.files_changed, summary.dirs_changed) {
        (_, 0) => files,
        (0, _) => dirs,
        _ => format!("{dirs} and {files}"),
    }
}

pub(super) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(count), if count == 1 { one } else { many })
}

/// `1,234,567`
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `3.4 MB`
fn size(bytes: u64) -> String {
    let mut amount = bytes as f64;
    for unit in ["B", "kB", "MB", "GB", "TB"] {
        if amount < 999.5 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{amount:.1} {unit}") };
        }
        amount /= 1000.0;
    }
    format!("{amount:.1} PB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_sizes_have_units() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0, 999, 1500, 2_000_000].map(size), ["0 B", "999 B", "1.5 kB", "2.0 MB"]);
    }
}
