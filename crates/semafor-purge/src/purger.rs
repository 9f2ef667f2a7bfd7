use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use semafor::{Registry, Semaphore};
use semafor_pipeline::{MemoryGuard, Rate};
use tokio_util::sync::CancellationToken;

use crate::age::Moment;
use crate::counters::Counters;
use crate::descriptor::Descriptors;
use crate::error::PurgeError;
use crate::exclude::Pattern;
use crate::file_system::FileSystem;
use crate::limit::Limit;
use crate::progress::Progress;
use crate::queue::Queue;
use crate::removal_slot::Deletions;
use crate::root;
use crate::rules::Rules;
use crate::run::{Run, Stop};
use crate::summary::{StoppedBy, Summary};
use crate::thread_pool::ThreadPool;
use crate::walk::Job;

/// The default maximum of threads: enough for a network file system.
const DEFAULT_THREADS: u32 = 128;
/// The maximum of threads with limit 0.
const MAX_THREADS: u32 = 1024;
/// How many jobs are queued beyond one per thread.
const EXTRA_QUEUED: usize = 128;

/// Removes empty directories, and optionally old files, below a directory.
///
/// By default it removes only empty directories, stays on one file system, and keeps the root. For all limits, 0 means
/// unlimited; for the two limits of concurrency, it means 1,024, or fewer if
/// the process may open few files.
///
/// ```
/// # let data = tempfile::tempdir()?;
/// # std::fs::create_dir_all(data.path().join("a/b"))?;
/// use semafor_purge::Purger;
///
/// let would = Purger::new(data.path()).dry_run(true).purge()?;
/// assert_eq!(would.dirs_removed, 2);
/// let done = Purger::new(data.path()).purge()?;
/// assert_eq!(done.dirs_removed, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "call .purge()"]
pub struct Purger<'p> {
    root: PathBuf,
    is_dry_run: bool,
    older_than: Option<Duration>,
    min_age: Duration,
    keeps_directories: bool,
    removes_root: bool,
    max_dirs: u64,
    max_depth: u32,
    exclude: Vec<Pattern>,
    crosses_file_systems: bool,
    even_system_paths: bool,
    deletions: u32,
    scans: u32,
    rate: u32,
    memory: MemoryGuard,
    fleet: Option<Semaphore>,
    cancelled: CancellationToken,
    observers: Observers,
    progress: Option<OnProgress<'p>>,
    pub(crate) file_system: FileSystem,
}

/// What was removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Removed {
    /// An empty directory.
    Directory,
    /// An old file.
    File,
}

/// The interval, and the callback.
pub(crate) type OnProgress<'p> = (Duration, Box<dyn FnMut(&Progress) + Send + 'p>);
type OnRemoval = Box<dyn Fn(&Path, Removed) + Send + Sync>;
type OnError = Box<dyn Fn(&Path, &io::Error) + Send + Sync>;

#[derive(Default)]
pub(crate) struct Observers {
    pub(crate) removal: Option<OnRemoval>,
    pub(crate) error: Option<OnError>,
}

impl<'p> Purger<'p> {
    /// Purges this directory.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            is_dry_run: false,
            older_than: None,
            min_age: Duration::ZERO,
            keeps_directories: false,
            removes_root: false,
            max_dirs: 0,
            max_depth: 0,
            exclude: Vec::new(),
            crosses_file_systems: false,
            even_system_paths: false,
            deletions: DEFAULT_THREADS,
            scans: DEFAULT_THREADS,
            rate: 0,
            memory: MemoryGuard::new(0),
            fleet: None,
            cancelled: CancellationToken::new(),
            observers: Observers::default(),
            progress: None,
            file_system: FileSystem::default(),
        }
    }

    /// Removes nothing, and reports what would be removed.
    pub fn dry_run(mut self, is_dry_run: bool) -> Self {
        self.is_dry_run = is_dry_run;
        self
    }

    /// Also removes regular files that were last changed longer than this before the start, and not changed until their
    /// removal. Without it, no file is removed.
    pub fn older_than(mut self, age: Duration) -> Self {
        self.older_than = Some(age);
        self
    }

    /// Keeps directories that were changed within this time before the start, or by others while their removal waited.
    pub fn min_age(mut self, age: Duration) -> Self {
        self.min_age = age;
        self
    }

    /// Keeps all directories: only old files are removed.
    pub fn keep_dirs(mut self, keep: bool) -> Self {
        self.keeps_directories = keep;
        self
    }

    /// Also removes the root itself if it is empty at the end.
    pub fn remove_root(mut self, remove: bool) -> Self {
        self.removes_root = remove;
        self
    }

    /// Removes at most this many directories.
    pub fn max_dirs(mut self, most: u64) -> Self {
        self.max_dirs = most;
        self
    }

    /// Descends at most this many levels; 1 is the content of the root. Deeper entries count as content and stay.
    pub fn max_depth(mut self, depth: u32) -> Self {
        self.max_depth = depth;
        self
    }

    /// Keeps entries whose name, or path relative to the root, matches. They are not entered, and their directory
    /// stays.
    ///
    /// # Errors
    ///
    /// If the pattern is invalid.
    pub fn exclude(mut self, pattern: impl AsRef<OsStr>) -> Result<Self, PurgeError> {
        self.exclude.push(Pattern::parse(pattern.as_ref())?);
        Ok(self)
    }

    /// Enters other file systems, and other mounts of this one.
    pub fn cross_file_systems(mut self, cross: bool) -> Self {
        self.crosses_file_systems = cross;
        self
    }

    /// Purges even directories that belong to the system, such as `/etc`.
    pub fn even_system_paths(mut self, allow: bool) -> Self {
        self.even_system_paths = allow;
        self
    }

    /// At most this many removals at once; 128 by default.
    pub fn max_concurrency_deletion(mut self, most: u32) -> Self {
        self.deletions = most;
        self
    }

    /// Reads at most this many directories and files at once; 128 by default.
    pub fn max_concurrency_scanning(mut self, most: u32) -> Self {
        self.scans = most;
        self
    }

    /// At most this many removals per second.
    pub fn rate(mut self, per_second: u32) -> Self {
        self.rate = per_second;
        self
    }

    /// Uses fewer threads when memory is tight, and stops when it is almost used up.
    pub fn memory(mut self, guard: MemoryGuard) -> Self {
        self.memory = guard;
        self
    }

    /// Removes only while holding a slot of this semaphore, which other processes of the machine or a fleet may share.
    pub fn fleet_limit(mut self, semaphore: Semaphore) -> Self {
        self.fleet = Some(semaphore);
        self
    }

    /// Stops when this token is cancelled. Removals in progress are completed, and there is a summary.
    pub fn cancelled_by(mut self, token: CancellationToken) -> Self {
        self.cancelled = token;
        self
    }

    /// Calls back with the progress at this interval, on the thread that called [`purge`](Self::purge).
    pub fn on_progress(mut self, every: Duration, callback: impl FnMut(&Progress) + Send + 'p) -> Self {
        self.progress = Some((every, Box::new(callback)));
        self
    }

    /// Calls back after each removal; in a dry run, for each removal that a real run would do. On many threads at once.
    pub fn on_removal(mut self, callback: impl Fn(&Path, Removed) + Send + Sync + 'static) -> Self {
        self.observers.removal = Some(Box::new(callback));
        self
    }

    /// Calls back for each error. On many threads at once.
    pub fn on_error(mut self, callback: impl Fn(&Path, &io::Error) + Send + Sync + 'static) -> Self {
        self.observers.error = Some(Box::new(callback));
        self
    }

    /// Purges on its own threads, and returns when it is done.
    ///
    /// May raise the soft limit of open files of this process.
    ///
    /// # Errors
    ///
    /// If the root can't be opened, or belongs to the system. Later errors are in the summary.
    ///
    /// # Panics
    ///
    /// If a callback panics. That ends the purge: removals in progress are completed, and no other begins.
    pub fn purge(mut self) -> Result<Summary, PurgeError> {
        let (began, start) = (Instant::now(), SystemTime::now());
        let threads = |most: u32| if most == 0 { MAX_THREADS } else { most };
        let (scans, deletions) = (threads(self.scans), threads(self.deletions));
        let (descriptors, most) = Descriptors::for_threads(scans.max(deletions) as usize);
        let (top, location) =
            root::open(&self.root, &descriptors, self.even_system_paths, self.removes_root)?;
        let rules = Rules {
            is_dry_run: self.is_dry_run,
            files_before: self.older_than.map(|age| Moment::before(start, age)),
            directories_before: (!self.min_age.is_zero()).then(|| Moment::before(start, self.min_age)),
            keeps_directories: self.keeps_directories,
            exclude: std::mem::take(&mut self.exclude),
            max_depth: (self.max_depth > 0).then_some(self.max_depth),
            crosses_file_systems: self.crosses_file_systems,
            user: Rules::user(),
        };
        if !rules.may_remove_directory(&top.metadata) {
            top.keep();
        }
        let run = Run {
            rules,
            // Each queued job may need its own open directory.
            queue: Queue::new(most + EXTRA_QUEUED.min(descriptors.limit())),
            descriptors,
            counters: Counters::default(),
            limit: Limit::new((self.max_dirs > 0).then_some(self.max_dirs)),
            deletions: match self.fleet.take() {
                Some(semaphore) => Deletions::of_fleet(semaphore),
                None => Deletions::at_once(deletions, most),
            },
            scanning: ((scans as usize) < most).then(|| slots(scans)),
            rate: (self.rate > 0).then(|| Rate::per_second(self.rate)),
            cancelled: self.cancelled.child_token(),
            observers: &self.observers,
            root: &self.root,
            location,
            stop: Default::default(),
            file_system: std::mem::take(&mut self.file_system),
        };
        if self.cancelled.is_cancelled() {
            run.stop(Stop::Cancelled);
        }
        run.counters.dirs_scanned.add(1);
        run.queue.offer(&mut vec![Job::Enter(Arc::new(top))]);
        std::thread::scope(|scope| {
            ThreadPool::new(&run, scope, most).watch(&self.memory, &self.cancelled, &mut self.progress);
        });
        let (counters, stopped_by) = (&run.counters, run.stopped_by());
        let is_completed = stopped_by == StoppedBy::Completed;
        Ok(Summary {
            dry_run: self.is_dry_run,
            dirs_scanned: counters.dirs_scanned.get(),
            dirs_removed: counters.dirs_removed.get(),
            files_scanned: counters.files_scanned.get(),
            files_removed: counters.files_removed.get(),
            bytes_freed: counters.bytes_freed.get(),
            dirs_changed: counters.dirs_changed.get(),
            files_changed: counters.files_changed.get(),
            errors: counters.errors(),
            errors_by_kind: counters.errors_by_kind(),
            peak_memory_bytes: self.memory.peak(),
            backpressure_events: counters.backpressure_events.get(),
            fraction: if is_completed { 1.0 } else { counters.decided_fraction() },
            stopped_by,
            elapsed: began.elapsed(),
        })
    }
}

fn slots(most: u32) -> Semaphore {
    let built = Registry::new().named("scan").slots(most.max(1)).build();
    built.expect("the registry is new and there is at least one slot")
}
