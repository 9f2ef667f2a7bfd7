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
//! - It never follows a symlink, not even one that is swapped in while it runs, and never leaves the file system: whatever
//!   it does, it does relative to an open directory.
//! - Others may remove and write at the same time. What somebody else removed is no error.
//! - It can be stopped at any time, and run again: it just goes on.
//! - A dry run reports exactly what a real run removes, permissions included.
//!
//! # How it works
//!
//! Threads read directories and look at what is in them. Whoever decides the last entry of a directory decides about the
//! directory, and so on upwards: cascades take no second pass. What is to be looked at waits in a bounded queue, and whoever
//! finds it full does the work itself. The kernel removes one entry of a directory at a time, so only one thread removes in
//! each; each removal holds a slot of a [`Semaphore`](semafor::Semaphore), in this process or of a
//! [fleet](Purger::fleet_limit).
//!
//! | what | where |
//! |---|---|
//! | semaphore limits concurrent removals | `licence.rs`, [`Purger::max_concurrency_deletion`], [`Purger::fleet_limit`] |
//! | bounded queue, limit + small buffer | `queue.rs` |
//! | memory = threads and queue × depth, not the tree | `node.rs`, `walk.rs`; `tests/memory.rs` measures it |
//! | cascade to parents that become empty | `node.rs`, `removal.rs`; one pass |
//! | back-pressure at 85 %, circuit breaker at 95 % | `crew.rs` with [`MemoryGuard`](semafor_pipeline::MemoryGuard) |
//! | limit on removals, exact | `limit.rs`, [`Purger::max_dirs`] |
//! | dynamic worker scaling | `crew.rs`: by waiting, and by memory |
//! | deeper directories first | `queue.rs`: last in, first out |
//! | related directories together | `removal.rs`: one thread removes in a directory, a batch at a time |
//! | metrics: queue depth, workers, memory | [`Progress`] |
//!
//! Linux only: it uses `getdents64` and `statx`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod age;
mod cancelled;
mod crew;
mod descriptor;
mod dry_run;
mod error;
mod exclude;
mod facts;
mod guard_list;
mod licence;
mod limit;
mod node;
mod progress;
mod purger;
mod queue;
mod removal;
mod root;
mod rules;
mod run;
mod summary;
mod tally;
mod walk;

pub use descriptor::make_room_for_directories;
pub use error::{ErrorKind, InvalidPattern, PurgeError};
pub use progress::Progress;
pub use purger::{Purger, Removed};
pub use summary::{StoppedBy, Summary};
