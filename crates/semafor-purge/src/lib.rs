//! Removes empty directories, and old files if asked to, from trees of any size, in memory that does not depend on it.
//!
//! Try it first: a dry run removes nothing, and reports what a real run would remove.
//!
//! ```
//! # let data = tempfile::tempdir()?;
//! # let data = data.path();
//! # std::fs::create_dir_all(data.join("2024/01/logs"))?;
//! use semafor_purge::Purger;
//!
//! let would = Purger::new(data).dry_run(true).purge()?;
//! println!("{} directories would go", would.dirs_removed);
//! let done = Purger::new(data).purge()?;
//! assert_eq!(done.dirs_removed, 3, "logs, then 01, then 2024, which became empty by it");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it promises
//!
//! - Only `rmdir` decides what is empty. A directory that was filled a moment ago stays.
//! - It never follows a symlink, not even one that is swapped in while it runs, and never leaves the file system:
//!   whatever it does, it does relative to an open directory.
//! - However long a removal waits for the [rate](Purger::rate) or for a [slot](Purger::fleet_limit), an old file is
//!   looked at again right before it is removed. It stays, and is counted ([`Summary::files_changed`]), if it was
//!   changed or replaced since it was found, or if a directory it is in was moved, the root included. See
//!   [below](#what-can-still-be-lost).
//! - An empty directory whose removal had to wait stays, and is counted ([`Summary::dirs_changed`]), if a directory it
//!   is in was moved.
//! - Others may remove and write at the same time. What somebody else removed is no error.
//! - It can be stopped at any time, and run again: it just goes on.
//! - A dry run reports exactly what a real run removes, permissions included.
//!
//! # What can still be lost
//!
//! No system call removes a file on condition that it is unchanged. So these gaps remain:
//!
//! - What is written, or gets the file's name, between the last look and the removal. Locally that is the time of one
//!   system call; on a network file system it is the time of a round trip.
//! - What another machine has written and not yet sent to the server of a network file system, and a directory that
//!   another machine has moved, until this machine hears of it.
//! - A change that leaves no trace: the same file with the same size and the same times. `ctime`, which no program can
//!   set, is compared, too, but not for a file that lost one of its other hard links meanwhile, because that sets it.
//! - What a process writes to a file that it opened, or mapped into memory, before the file was removed.
//! - A move of a directory more than 1,300 levels above the file; and a move of the root, or of a directory above it,
//!   if this process can't reach the root by its absolute path.
//!
//! The other way round, a name of a file with several names may count as changed, and stay until the next purge, if it
//! was looked at in the moment in which another name of the file was being removed.
//!
//! Without a wait, empty directories are removed wherever their tree is: if it is moved away while it is being purged,
//! its empty directories go there. With [`min_age`](Purger::min_age), a directory that was used or replaced while its
//! removal waited stays, and is counted; what others did in it before the purge removed the last thing from it can't be
//! told from what the purge did.
//!
//! # How it works
//!
//! Threads read directories and look at what is in them. Whoever decides the last entry of a directory decides about
//! the directory, and so on upwards: cascades take no second pass. What is to be looked at waits in a bounded queue,
//! and whoever finds it full does the work itself. The kernel removes one entry of a directory at a time, so only one
//! thread removes in each; each removal holds a slot of a [`Semaphore`](semafor::Semaphore), in this process or of a
//! [fleet](Purger::fleet_limit).
//!
//! # Where each promise of the seed is kept
//!
//! What is not about directories is the business of `semafor-pipeline`, whose docs have the rest of the table.
//!
//! | the seed | built in | tested in |
//! |---|---|---|
//! | Semaphore limits concurrent deletions | `slot`: [`Purger::max_concurrency_deletion`], [`Purger::fleet_limit`] | `interference`: `no_more_are_at_it_than_the_fleet_has_slots` |
//! | Queue of limit + small buffer, producer held up | `queue`; who finds it full does the work itself | `queue`, `memory` |
//! | Memory: (threads + queue) × depth, not the tree | `node`, `walk` | `memory`: 10,000 and 1,000,000 directories, in a child process |
//! | First pass, then cascading deletion | `node`, `removal`: one pass | `trees`, `faults`: 7, `random_trees` |
//! | Circuit breaker at 95 % | `pool` with [`MemoryGuard`](semafor_pipeline::MemoryGuard), [`StoppedBy::Breaker`] | `faults`: 6 |
//! | Back-pressure at 85 % | `pool`: fewer threads work, none sleeps with a lock | `faults`: 6 |
//! | `max_empty_dirs_to_delete`, exact | `limit`, [`Purger::max_dirs`] | `faults`: 3, 4 |
//! | Rate limit | [`Purger::rate`] | `rules`: `a_rate_removes_the_same`; `changed_meanwhile` |
//! | Configuration: flags and `EFSPURGE_*` | `semafor purge` | `semafor-cli`: `tests/purge.rs` |
//! | `dry_run` | `dry_run`, [`Purger::dry_run`] | `faults`: 5, `random_trees`: equals the real run |
//! | Future 1: worker scaling | `pool`: by waiting, and by memory | `faults`: 6, 9 |
//! | Future 2: deeper directories first | `queue`: last in, first out | `queue`, `memory` |
//! | Future 3: related directories together | `removal`: one thread removes in a directory, a list at a time | `trees`: `a_hundred_thousand_in_one_directory` |
//! | Future 4: metrics | [`Progress`], [`Summary`] | `semafor-cli`: `the_summary_has_these_keys` |
//!
//! Linux only: it uses `getdents64` and `statx`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod age;
mod cancelled;
mod counters;
mod descriptor;
mod dry_run;
mod error;
mod exclude;
mod file_system;
mod limit;
mod location;
mod metadata;
mod node;
mod progress;
mod purger;
mod queue;
mod removal;
mod removal_slot;
mod root;
mod rules;
mod run;
mod summary;
mod system_paths;
mod thread_pool;
mod walk;

pub use descriptor::make_room_for_directories;
pub use error::{ErrorKind, InvalidPattern, PurgeError};
pub use progress::Progress;
pub use purger::{Purger, Removed};
pub use summary::{StoppedBy, Summary};
/// That of [`tokio_util`], whose 0.7 is a part of the interface of this crate. See [`Purger::cancelled_by`].
pub use tokio_util::sync::CancellationToken;
