use std::fmt;
use std::sync::Arc;

use semafor::{Registry, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::flow::Flow;
use crate::items::Items;
use crate::memory_guard::MemoryGuard;
use crate::metrics::{Live, Meter};
use crate::outcome::{Failure, OnError, Outcome, StoppedBy};
use crate::rate::Rate;
use crate::workers::{InTask, OnThread, Workers};

const BUFFER: usize = 100;

/// Works through items with a limited number of workers, in bounded memory.
///
/// ```
/// use semafor_pipeline::{Pipeline, StoppedBy};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let outcome = Pipeline::new(8)
///     .run(1..=1_000_u64, async |n| if n % 100 == 0 { Err("a hundred") } else { Ok(n) })
///     .await;
/// assert_eq!(outcome.stopped_by, StoppedBy::Completed);
/// assert_eq!((outcome.metrics.done, outcome.metrics.failed), (990, 10));
/// # });
/// ```
///
/// On threads, for work that blocks:
///
/// ```
/// use semafor_pipeline::Pipeline;
///
/// let mut total = 0;
/// let outcome = Pipeline::new(4).run_blocking_each(
///     1..=100_u64,
///     |n| Ok::<_, std::io::Error>(n * n),
///     |result| total += result.unwrap_or(0),
/// );
/// assert!(outcome.is_clean());
/// assert_eq!(total, 338_350);
/// ```
#[must_use = "nothing happens until it is run"]
pub struct Pipeline<T> {
    semaphore: Semaphore,
    workers: Option<u32>,
    meter: Arc<Meter>,
    settings: Settings<T>,
}

pub(crate) struct Settings<T> {
    pub(crate) buffer: usize,
    pub(crate) max_items: u64,
    pub(crate) rate: Option<Rate>,
    pub(crate) guard: Option<MemoryGuard>,
    pub(crate) latency_tolerance: Option<f64>,
    pub(crate) rank: Option<Rank<T>>,
    pub(crate) cancel: CancellationToken,
    on_error: OnError,
}

type Rank<T> = Box<dyn Fn(&T) -> i64 + Send + Sync>;

impl<T> Pipeline<T> {
    /// A pipeline with a semaphore of its own: at most `limit` items are in progress at once.
    ///
    /// # Panics
    ///
    /// If `limit` is 0: no item could ever begin.
    pub fn new(limit: u32) -> Self {
        let semaphore = Registry::new().named("pipeline").slots(limit).build();
        Self::with(semaphore.expect("a pipeline needs at least one slot"))
    }

    /// A pipeline that uses the slots of this semaphore, from any home. Other pipelines, other programs of the machine
    /// or a fleet may use its slots, too.
    ///
    /// There are at most as many workers as the semaphore has slots when the pipeline starts; see
    /// [`workers`](Self::workers). An item whose slot is lost during the work [fails](Failure::Lost).
    pub fn with(semaphore: Semaphore) -> Self {
        Self {
            semaphore,
            workers: None,
            meter: Arc::default(),
            settings: Settings {
                buffer: BUFFER,
                max_items: 0,
                rate: None,
                guard: None,
                latency_tolerance: None,
                rank: None,
                cancel: CancellationToken::new(),
                on_error: OnError::default(),
            },
        }
    }

    /// At most so many workers, for a shared semaphore; 0 means no such bound. Example: a fleet has 1,000 slots, and
    /// this machine uses at most eight of them.
    pub fn workers(mut self, most: u32) -> Self {
        self.workers = Some(most).filter(|most| *most > 0);
        self
    }

    /// How many items wait in the queue beyond one per worker; 100 by default. The producer waits while the queue is
    /// full.
    pub fn buffer(mut self, items: usize) -> Self {
        self.settings.buffer = items;
        self
    }

    /// Takes so many items, then ends with [`StoppedBy::ItemLimit`]; 0 (the default) means no limit.
    pub fn max_items(mut self, items: u64) -> Self {
        self.settings.max_items = items;
        self
    }

    /// Begins at most so many items per second. A worker that waits for its turn holds no slot. Clones of a [`Rate`]
    /// share the turns: one rate for several pipelines.
    pub fn rate(mut self, rate: Rate) -> Self {
        self.settings.rate = Some(rate);
        self
    }

    /// Uses fewer slots (down to one) and no buffer while memory is tight; ends with [`StoppedBy::Breaker`] when memory
    /// is critical.
    pub fn memory(mut self, guard: MemoryGuard) -> Self {
        // Handles returned by `live` earlier see the guard, too. If there are several guards, metrics are of the first.
        let _ = self.meter.guard.set(guard.clone());
        self.settings.guard = Some(guard);
        self
    }

    /// Adapts the number of slots to the latency of the items. It starts with one slot. While items take at most
    /// `tolerance` times as long as the lowest latency of the last 30 to 60 seconds, it uses more slots; when they take
    /// longer, fewer. 2.0 is a good value.
    pub fn scale_by_latency(mut self, tolerance: f64) -> Self {
        self.settings.latency_tolerance = Some(tolerance);
        self
    }

    /// Begins the item with the highest rank in the queue, instead of first in, first out. Items of equal rank are first
    /// in, first out. For example, `.priority(|dir| dir.depth)` begins with deeper directories.
    pub fn priority<K: Into<i64>>(mut self, rank: impl Fn(&T) -> K + Send + Sync + 'static) -> Self {
        self.settings.rank = Some(Box::new(move |item| rank(item).into()));
        self
    }

    /// Ends with [`StoppedBy::Cancelled`] when this token is cancelled: begins nothing more, finishes the items in
    /// progress.
    ///
    /// For Ctrl-C, cancel it from a signal handler.
    pub fn cancelled_by(mut self, token: CancellationToken) -> Self {
        self.settings.cancel = token;
        self
    }

    /// What to do when an item fails, panics or loses its slot; by default the others continue.
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.settings.on_error = policy;
        self
    }

    /// A handle that reads the metrics from another thread or task while the pipeline runs.
    ///
    /// ```
    /// # use semafor_pipeline::Pipeline;
    /// let pipeline = Pipeline::new(2);
    /// let live = pipeline.live();
    /// let outcome = pipeline.run_blocking(0..10_u32, |n| {
    ///     assert!((1..=2).contains(&live.metrics().slots_in_use));
    ///     Ok::<_, String>(n)
    /// });
    /// assert!(outcome.is_clean());
    /// ```
    pub fn live(&self) -> Live {
        Live(Arc::clone(&self.meter))
    }

    /// Runs `work` for every item in the calling task: concurrently, not in parallel. Results are dropped; see
    /// [`run_each`](Self::run_each).
    ///
    /// Work that needs the other cores can `tokio::spawn` and await the task, or use
    /// [`run_blocking`](Self::run_blocking).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work where it awaits and releases all slots. To finish the items in progress
    /// first, use [`cancelled_by`](Self::cancelled_by).
    ///
    /// # Panics
    ///
    /// If the producer or the function of [`priority`](Self::priority) panics; items that were given before are processed
    /// first. If the memory source of the guard panics; the items in progress are finished first. If the work panics,
    /// only its item fails.
    pub async fn run<R, E>(
        self,
        items: impl Items<Item = T>,
        work: impl AsyncFn(T) -> Result<R, E>,
    ) -> Outcome<T, E> {
        self.run_each(items, work, |_| {}).await
    }

    /// Like [`run`](Self::run), but `each` sees every result as it comes, one at a time, in no particular order. There
    /// is no queue of results: a slow `each` delays the workers.
    ///
    /// # Panics
    ///
    /// Like [`run`](Self::run), and if `each` panics. It is then not called again: the items in progress are finished
    /// and their results dropped.
    pub async fn run_each<R, E>(
        self,
        items: impl Items<Item = T>,
        work: impl AsyncFn(T) -> Result<R, E>,
        each: impl FnMut(Result<R, &Failure<E>>),
    ) -> Outcome<T, E> {
        let limit = match self.limit().await {
            Ok(limit) => limit,
            Err(failure) => return self.not_started(failure),
        };
        let flow = Flow::new(&self.settings, &self.semaphore, &self.meter, limit);
        let workers = Workers::new(&flow, self.settings.on_error, InTask(work), each);
        workers.as_tasks(items.feed()).await;
        let first_failure = workers.first_failure();
        self.outcome(flow.end(), first_failure)
    }

    /// Runs `work` for every item on threads, which are started when needed. The producer runs on the calling thread.
    /// Results are dropped; see [`run_blocking_each`](Self::run_blocking_each).
    ///
    /// # Panics
    ///
    /// If not even one thread can be started, and like [`run`](Self::run).
    pub fn run_blocking<R, E>(
        self,
        items: impl IntoIterator<Item = T>,
        work: impl Fn(T) -> Result<R, E> + Sync,
    ) -> Outcome<T, E>
    where
        T: Send,
        E: Send,
    {
        self.run_blocking_each(items, work, |_| {})
    }

    /// Like [`run_blocking`](Self::run_blocking), but `each` sees every result as it comes, one at a time, in no
    /// particular order, on the worker's thread.
    ///
    /// # Panics
    ///
    /// Like `run_blocking`, and if `each` panics. It is then not called again: the items in progress are finished and
    /// their results dropped.
    pub fn run_blocking_each<R, E>(
        self,
        items: impl IntoIterator<Item = T>,
        work: impl Fn(T) -> Result<R, E> + Sync,
        each: impl FnMut(Result<R, &Failure<E>>) + Send,
    ) -> Outcome<T, E>
    where
        T: Send,
        E: Send,
    {
        let limit = match pollster::block_on(self.limit()) {
            Ok(limit) => limit,
            Err(failure) => return self.not_started(failure),
        };
        let flow = Flow::new(&self.settings, &self.semaphore, &self.meter, limit);
        let workers = Workers::new(&flow, self.settings.on_error, OnThread(work), each);
        workers.on_threads(items.feed());
        let first_failure = workers.first_failure();
        self.outcome(flow.end(), first_failure)
    }

    /// The highest number of workers.
    async fn limit<E>(&self) -> Result<u32, Failure<E>> {
        let slots = self.semaphore.slots().await.map_err(|error| Failure::NoSlot(error.into()))?;
        Ok(self.workers.map_or(slots, |most| most.min(slots)).max(1))
    }

    fn outcome<E>(&self, end: (StoppedBy, Vec<T>), first_failure: Option<Failure<E>>) -> Outcome<T, E> {
        let (stopped_by, not_begun) = end;
        Outcome { stopped_by, first_failure, not_begun, metrics: self.meter.read() }
    }

    fn not_started<E>(&self, failure: Failure<E>) -> Outcome<T, E> {
        self.outcome((StoppedBy::Error, Vec::new()), Some(failure))
    }
}

impl<T> fmt::Debug for Pipeline<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline").field("semaphore", &self.semaphore).finish_non_exhaustive()
    }
}
