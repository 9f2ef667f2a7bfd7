//! Removes empty directories, and optionally old files, from trees of any size. Memory does not grow with the tree.
//!
//! Start with a dry run: it removes nothing, and reports what a real run would remove.
//!
//! ```
//! # let data = tempfile::tempdir()?;
//! # let data = data.path();
//! # std::fs::create_dir_all(data.join("2024/01/logs"))?;
//! use semafor_purge::Purger;
//!
//! let would = Purger::new(data).dry_run(true).purge()?;
//! println!("{} directories would be removed", would.dirs_removed);
//! let done = Purger::new(data).purge()?;
//! assert_eq!(done.dirs_removed, 3, "logs, then 01 and 2024, which became empty");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it promises
//!
//! - Only `rmdir` decides what is empty. A directory that got content a moment ago stays.
//! - It never follows a symlink below the root, not even one that is swapped in while it runs: all its calls are
//!   relative to an open directory. It stays on one file system, unless you [allow others](Purger::cross_file_systems).
//! - An old file is checked again right before its removal, however long the removal waited for the
//!   [rate](Purger::rate) or for a [slot](Purger::fleet_limit). The file stays and is counted
//!   ([`Summary::files_changed`]) if it was changed or replaced since it was found, or if a directory above it was
//!   moved, including the root. See [below](#what-can-still-be-lost).
//! - An empty directory whose removal had to wait stays and is counted ([`Summary::dirs_changed`]) if a directory above
//!   it was moved.
//! - Other processes may remove and write at the same time. It is not an error if another process removed an entry
//!   first.
//! - It can be stopped at any time. The next run continues.
//! - A dry run reports exactly what a real run would remove, if nothing changes in between. It also checks permissions.
//!
//! # What can still be lost
//!
//! No system call removes a file only if it is unchanged. So these gaps remain:
//!
//! - Data that is written to the file, or a file that gets its name, between the last check and the removal. Locally
//!   that is the time of one system call; on a network file system it is the time of a round trip.
//! - On a network file system: data that another machine has written and not yet sent to the server, and a directory
//!   that another machine has moved, until this machine hears of it.
//! - A change that leaves no trace: the same file with the same size and the same times. `ctime`, which no program can
//!   set, is compared, too, except if another hard link of the file was removed meanwhile: that changes `ctime`.
//! - Data that a process writes to a file that it opened, or mapped into memory, before the removal.
//! - A move of a directory more than 1,300 levels above the file; and a move of the root, or of a directory above it,
//!   if this process can't reach the root by its absolute path.
//!
//! The opposite can happen, too: if a file has several hard links, and one of them is checked at the moment when another
//! one is removed, the checked link counts as changed and stays until the next purge.
//!
//! Without a wait, empty directories are removed wherever their tree is: if the tree is moved during the purge, they
//! are removed in its new place. With [`min_age`](Purger::min_age), a directory that was used or replaced while its
//! removal waited stays, and is counted. Exception: until it has removed the last entry of a directory, the purge
//! can't distinguish changes by other processes from its own. So it still removes a directory that another process
//! used in that time and left empty.
//!
//! # How it works
//!
//! Threads read directories and check their entries. The thread that decides the last entry of a directory decides
//! about the directory itself, and so on upwards, so cascades need no second pass. Entries wait in a bounded queue; a
//! thread that finds it full does the work itself. The kernel removes one entry of a directory at a time, so only one
//! thread removes in each directory. Each removal holds a slot of a [`Semaphore`](semafor::Semaphore), in this process
//! or of a [fleet](Purger::fleet_limit).
//!
//! # Promises, code and tests
//!
//! The second column names modules of `src`, the third one files of `tests` (in `faults`, the number of the fault), or
//! the module whose unit tests it means.
//!
//! | promise | built in | tested in |
//! |---|---|---|
//! | A semaphore limits concurrent removals | `removal_slot`, [`Purger::fleet_limit`] | `interference`: `removals_at…` |
//! | The queue is bounded | `queue`: a thread that finds it full does the work itself | `queue`, `memory` |
//! | Memory grows with (threads + queue) × depth, not with the size of the tree | `node`, `walk` | `memory`: 10,000 and 100,000 directories |
//! | Parents that become empty are removed in one pass | `node`, `removal` | `trees`, `faults`: 7, `random_trees` |
//! | Stops at 95 % of the memory limit | `thread_pool`, [`StoppedBy::Breaker`] | `faults`: 6 |
//! | Fewer threads at 85 % of the memory limit | `thread_pool`: no thread sleeps with a lock | `faults`: 6 |
//! | The limit of removed directories is exact | `limit`, [`Purger::max_dirs`] | `faults`: 3, 4 |
//! | Removals per second | [`Purger::rate`] | `rules`: `purge_with_a_rate…`, `changed_meanwhile` |
//! | Flags and variables `EFSPURGE_*` of efspurge | `semafor purge` | `semafor-cli`: `tests/purge.rs` |
//! | A dry run reports what the real run removes | `dry_run`, [`Purger::dry_run`] | `faults`: 5, `random_trees` |
//! | More threads while they wait for the file system | `thread_pool`: by load and by memory | `faults`: 6, 9 |
//! | Deeper directories first | `queue`: last in, first out | `queue`, `memory` |
//! | One thread removes in a directory, many entries in a row | `removal` | `trees`: `hundred_thousand…` |
//! | Metrics | [`Progress`], [`Summary`] | `semafor-cli`: `summary_has_the_documented_keys` |
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
/// The token of [`tokio_util`] 0.7, which is a part of this crate's public interface. See [`Purger::cancelled_by`].
pub use tokio_util::sync::CancellationToken;
