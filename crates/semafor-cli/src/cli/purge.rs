//! The options of `semafor purge`.
//!
//! The hidden options are those of the tool efspurge, so that its cron jobs work unchanged.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::{ArgAction, Args};

use super::HomeArgs;
use crate::duration;

pub(super) const HELP: &str = "\
Never removed: DIR itself (except with --remove-root), files (except old ones with --older-than, hidden ones \
included), symlinks and their targets, sockets, pipes, devices, mount points. \
A directory with only hidden files is not empty. Directories are removed with rmdir, so a directory that \
gets new content during the purge stays. An old file is checked again right before its removal, even after a wait for \
--rate or --fleet-limit: it stays if it was changed or replaced since it was found, or if DIR or another \
directory above it was moved. A change between this check and the removal is not noticed. A purge can be \
interrupted at any time and started again. Several purges can run on one tree at the same time.

Examples:
  semafor purge --dry-run --print /data       list what would be removed
  semafor purge --dry-run /data               count what would be removed
  semafor purge /data                         remove empty directories, and those that become empty
  semafor purge --older-than 30d --min-age 1d --exclude '.snapshot' --exclude 'users/*' /data
                                              files not changed for 30 days, then empty directories
  semafor purge --fleet-limit purge --max-concurrency-deletion 64 --url redis://db/ /efs/logs
                                              at most 64 removals at once on all machines together

Progress goes to stderr: one line on a terminal, otherwise a JSON object every 30 seconds and at the end.
The summary goes to stdout, with --print to stderr; with --json it is one object: event (\"summary\"), dry_run, \
dirs_scanned, dirs_removed, files_scanned, files_removed, bytes_freed, dirs_changed and \
files_changed (kept because they changed before their removal), errors, errors_by_kind, \
peak_memory_bytes, backpressure_events, stopped_by (completed, limit, breaker, signal, fleet_limit), \
elapsed_seconds.

Exit codes:
  0        completed without errors
  1        some files or directories could not be read or removed, or --fleet-limit failed
  2        nothing was done: the command line is invalid or does not fit the semaphore, or DIR is
           missing or a system directory
  3        stopped by --max-empty-dirs-to-delete, or because memory was almost used up
  69       nothing was done: the semaphore of --fleet-limit at --url can't be used
  74       the summary could not be written to stdout
  129      stopped by SIGHUP; removals in progress completed, summary printed
  130,143  the same for SIGINT (Ctrl-C) and SIGTERM";

#[derive(Args, Debug)]
pub(crate) struct Purge {
    /// The directory to clean. Directories below it are removed if they are empty or become empty
    #[arg(value_name = "DIR")]
    pub(crate) root: PathBuf,

    /// Remove nothing; only report what would be removed. Start with this
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,

    /// Print the path of each removed directory and file (with --dry-run: that would be removed)
    #[arg(long, conflicts_with = "json")]
    pub(crate) print: bool,

    /// Also remove files last modified more than this long before the start, e.g. 30d. Without it, no file is removed
    #[arg(long, value_name = "AGE", value_parser = duration::age, help_heading = "What is removed")]
    pub(crate) older_than: Option<Duration>,

    /// Keep directories last modified at most this long before the start, e.g. 1d
    #[arg(long, value_name = "AGE", default_value = "0", value_parser = duration::any)]
    #[arg(help_heading = "What is removed")]
    pub(crate) min_age: Duration,

    /// Keep all directories; remove only old files
    #[arg(long, requires = "older_than", help_heading = "What is removed")]
    pub(crate) keep_dirs: bool,

    /// Also remove DIR itself if it is empty at the end
    #[arg(long, help_heading = "What is removed")]
    pub(crate) remove_root: bool,

    /// Keep files and directories whose name, or path below DIR, matches, and the directories above them.
    /// Wildcards: *, ?, [a-z], **. Repeatable
    #[arg(long, value_name = "GLOB", help_heading = "What is removed")]
    pub(crate) exclude: Vec<OsString>,

    /// Descend at most N levels; 1 is the content of DIR. Directories with deeper content stay. 0: unlimited
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "What is removed")]
    pub(crate) max_depth: u32,

    /// Do not enter other file systems or any mount point (the default)
    #[arg(long, overrides_with = "cross_file_systems", help_heading = "What is removed")]
    pub(crate) one_file_system: bool,

    /// Enter other file systems and mount points
    #[arg(long, overrides_with = "one_file_system", help_heading = "What is removed")]
    pub(crate) cross_file_systems: bool,

    /// Allow DIR to be a system directory such as /etc, or a directory of users such as /home
    #[arg(long, help_heading = "What is removed")]
    pub(crate) force: bool,

    /// Stop after removing N directories. 0: unlimited
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Limits")]
    #[arg(env = "EFSPURGE_MAX_EMPTY_DIRS_TO_DELETE", hide_env_values = true)]
    pub(crate) max_empty_dirs_to_delete: u64,

    /// At most N removals at once. 0: unlimited; with --fleet-limit, 0 counts as omitted [default: 128]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    #[arg(env = "EFSPURGE_MAX_CONCURRENCY_DELETION", hide_env_values = true)]
    pub(crate) max_concurrency_deletion: Option<u32>,

    /// Read at most N directories and files at once. 0: unlimited [default: 128]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    #[arg(env = "EFSPURGE_MAX_CONCURRENCY_SCANNING", hide_env_values = true)]
    pub(crate) max_concurrency_scanning: Option<u32>,

    /// At most N removals per second. 0: unlimited
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Limits")]
    pub(crate) rate: u32,

    /// Memory limit: work slows down at 85 % and stops at 95 % of it, or of the container's limit. 0: off
    #[arg(long, value_name = "MB", default_value_t = 800, help_heading = "Limits")]
    #[arg(env = "EFSPURGE_MEMORY_LIMIT_MB", hide_env_values = true)]
    pub(crate) memory_limit_mb: u64,

    /// Limit removals of all purges together, also on other machines: each removal holds a slot of semaphore NAME at
    /// --url. If it is new, it gets --max-concurrency-deletion slots; if it is idle, only if you use that option
    #[arg(long, value_name = "NAME", help_heading = "Limits")]
    pub(crate) fleet_limit: Option<String>,

    #[command(flatten)]
    pub(crate) home: HomeArgs,

    /// With Redis: `inspect` and `top` show DIR to all users of that Redis
    #[arg(long, requires = "fleet_limit")]
    pub(crate) show_command: bool,

    /// Print the summary as one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// Show no progress
    #[arg(long, short)]
    pub(crate) quiet: bool,

    #[command(flatten)]
    pub(crate) efspurge: Efspurge,
}

/// Options of efspurge that have another name here or are not needed.
#[derive(Args, Debug)]
pub(crate) struct Efspurge {
    /// The same as --older-than, in days. Directories are kept, except with --remove-empty-dirs
    #[arg(long, hide = true, value_parser = duration::days, env = "EFSPURGE_MAX_AGE_DAYS", hide_env_values = true)]
    pub(crate) max_age_days: Option<Duration>,

    /// Also remove empty directories. Without --max-age-days this is the default
    #[arg(long, hide = true, action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    #[arg(env = "EFSPURGE_REMOVE_EMPTY_DIRS", hide_env_values = true)]
    pub(crate) remove_empty_dirs: bool,

    /// Sets both --max-concurrency-scanning and --max-concurrency-deletion
    #[arg(long, hide = true, env = "EFSPURGE_MAX_CONCURRENCY", hide_env_values = true)]
    pub(crate) max_concurrency: Option<u32>,

    /// Ignored
    #[arg(long, hide = true, env = "EFSPURGE_MAX_CONCURRENT_SUBDIRS", hide_env_values = true)]
    max_concurrent_subdirs: Option<u64>,

    /// Ignored
    #[arg(long, hide = true, env = "EFSPURGE_TASK_BATCH_SIZE", hide_env_values = true)]
    task_batch_size: Option<u64>,

    /// Ignored
    #[arg(long, hide = true, env = "EFSPURGE_LOG_LEVEL", hide_env_values = true)]
    log_level: Option<String>,
}

impl Purge {
    /// The minimum age of files to remove; `None` removes no files.
    pub(crate) fn max_age(&self) -> Option<Duration> {
        self.older_than.or(self.efspurge.max_age_days)
    }

    /// True if directories are kept, as efspurge does without --remove-empty-dirs.
    pub(crate) fn is_for_files_like_efspurge(&self) -> bool {
        let asks_like_efspurge = self.older_than.is_none() && self.efspurge.max_age_days.is_some();
        asks_like_efspurge && !self.efspurge.remove_empty_dirs
    }

    /// The limit of concurrent removals, by its own option or by that of efspurge.
    pub(crate) fn deletions(&self) -> Option<u32> {
        self.max_concurrency_deletion.or(self.efspurge.max_concurrency)
    }

    /// The limit of concurrent reads, by its own option or by that of efspurge.
    pub(crate) fn scans(&self) -> Option<u32> {
        self.max_concurrency_scanning.or(self.efspurge.max_concurrency)
    }
}
