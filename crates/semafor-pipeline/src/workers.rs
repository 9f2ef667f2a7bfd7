//! Workers: each acquires a slot for an item, works on it, releases the slot, hands the result over, and takes the next
//! item.
//!
//! Tasks and threads run the same loop. Tasks are polled by the task that runs the pipeline, so work may borrow and
//! need not be `Send`. Threads are scoped, so their work may borrow, too.
//!
//! A panic in the work fails the item, even if it comes from dropping work whose slot was lost. A panic in any other
//! user code ends the run: it is caught, the other workers finish their items, and then it is propagated to the caller.
//! Nothing more is begun, except items that the producer gave before it panicked.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::thread::{self, Scope};
use std::time::Instant;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use semafor::{NotHeld, Permit, RunError};

use crate::flow::{Flow, StartWorker};
use crate::items::Feed;
use crate::outcome::{Failure, OnError, StoppedBy};

/// How an item is worked on while holding a permit. The permit is released before the result is returned.
pub(crate) trait Work<T> {
    type Done;
    type Error;

    async fn attempt(&self, permit: Permit<'_>, item: T) -> Result<Self::Done, Failure<Self::Error>>;
}

/// Work in a task. It is dropped where it awaits when the slot is lost.
pub(crate) struct InTask<W>(pub(crate) W);

impl<T, R, E, W: AsyncFn(T) -> Result<R, E>> Work<T> for InTask<W> {
    type Done = R;
    type Error = E;

    async fn attempt(&self, permit: Permit<'_>, item: T) -> Result<R, Failure<E>> {
        let work = pin!(Some(async { (self.0)(item).await }));
        let mut caught = Caught(work);
        // Work that finishes at the first poll need not watch for the loss of its slot, which would cost time.
        if let Poll::Ready(result) = poll_fn(|cx| Poll::Ready(caught.poll_unpin(cx))).await {
            return result;
        }
        match permit.run(caught).await {
            Ok(result) => result,
            Err(RunError::Lost(why)) => Err(Failure::Lost(why)),
            Err(_) => Err(Failure::Lost(NotHeld::Unknown)),
        }
    }
}

/// Catches panics of the work, when it is polled and when it is dropped.
struct Caught<'w, F>(Pin<&'w mut Option<F>>);

impl<R, E, F: Future<Output = Result<R, E>>> Future for Caught<'_, F> {
    type Output = Result<R, Failure<E>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = self.0.as_mut().as_pin_mut() else { return Poll::Pending };
        match catch_unwind(AssertUnwindSafe(|| work.poll(cx))) {
            Ok(polled) => polled.map_err(Failure::Failed),
            Err(panic) => Poll::Ready(Err(Failure::Panicked(message(panic)))),
        }
    }
}

impl<F> Drop for Caught<'_, F> {
    fn drop(&mut self) {
        // The panic may be ignored: the item has a result already, or failed because its slot is lost, or the whole run
        // is dropped.
        let _ = catch_unwind(AssertUnwindSafe(|| self.0.set(None)));
    }
}

/// Work on a thread. It cannot be stopped; if its slot is lost, its result is discarded.
pub(crate) struct OnThread<W>(pub(crate) W);

impl<T, R, E, W: Fn(T) -> Result<R, E>> Work<T> for OnThread<W> {
    type Done = R;
    type Error = E;

    async fn attempt(&self, permit: Permit<'_>, item: T) -> Result<R, Failure<E>> {
        let result = match catch_unwind(AssertUnwindSafe(|| (self.0)(item))) {
            Ok(result) => result.map_err(Failure::Failed),
            Err(panic) => Err(Failure::Panicked(message(panic))),
        };
        if permit.is_lost() {
            let _ = catch_unwind(AssertUnwindSafe(|| drop(result)));
            return Err(Failure::Lost(permit.lost().await));
        }
        result
    }
}

fn message(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast_ref::<&str>().copied().unwrap_or("without a message").to_owned(),
    }
}

/// The workers of one run, and where their results go.
pub(crate) struct Workers<'f, 'p, T, W: Work<T>, S> {
    flow: &'f Flow<'p, T>,
    on_error: OnError,
    work: W,
    sink: Mutex<Sink<S>>,
    first_failure: Mutex<Option<Failure<W::Error>>>,
    /// The first panic in user code other than the work. Propagated to the caller when all workers have finished.
    panic: Mutex<Option<Panic>>,
}

type Panic = Box<dyn Any + Send>;

struct Sink<S> {
    each: S,
    /// After a panic, `each` is not called again.
    has_panicked: bool,
}

impl<'f, 'p, T, W, S> Workers<'f, 'p, T, W, S>
where
    W: Work<T>,
    S: FnMut(Result<W::Done, &Failure<W::Error>>),
{
    pub(crate) fn new(flow: &'f Flow<'p, T>, on_error: OnError, work: W, sink: S) -> Self {
        let sink = Mutex::new(Sink { each: sink, has_panicked: false });
        Self { flow, on_error, work, sink, first_failure: Mutex::new(None), panic: Mutex::new(None) }
    }

    pub(crate) fn first_failure(self) -> Option<Failure<W::Error>> {
        self.first_failure.into_inner()
    }

    /// The loop of a worker, until there is nothing more to begin.
    async fn work_until_end(&self, start_worker: StartWorker<'_>) {
        let _end = WorkerEnd(self.flow);
        loop {
            let (permit, item) = match self.flow.begin(start_worker).await {
                Ok(Some(begun)) => begun,
                Ok(None) => return,
                Err(error) => {
                    self.keep(Failure::NoSlot(error));
                    return self.flow.stop(StoppedBy::Error);
                }
            };
            let begun = Instant::now();
            let result = self.work.attempt(permit, item).await;
            let (is_done, took) = (result.is_ok(), begun.elapsed());
            if !is_done && self.on_error == OnError::Stop {
                self.flow.stop(StoppedBy::Error);
            }
            let handed_over = catch_unwind(AssertUnwindSafe(|| self.hand_over(result)));
            self.flow.settle(is_done, took);
            if let Err(panic) = handed_over {
                self.flow.stop(StoppedBy::Error);
                return self.keep_panic(panic);
            }
        }
    }

    /// Runs the future, and keeps a panic for the caller.
    async fn guard(&self, work: impl Future<Output = ()>) {
        let mut work = pin!(work);
        poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(polled) => polled,
            Err(panic) => {
                self.keep_panic(panic);
                Poll::Ready(())
            }
        })
        .await;
    }

    fn keep_panic(&self, panic: Panic) {
        self.panic.lock().get_or_insert(panic);
    }

    /// Propagates a panic that was kept. Called when all workers have finished.
    fn propagate_panic(&self) {
        let panic = self.panic.lock().take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    fn hand_over(&self, result: Result<W::Done, Failure<W::Error>>) {
        // The sink has a lock of its own: only workers with a result wait for a slow `each`.
        let mut sink = self.sink.lock();
        if sink.has_panicked {
            return;
        }
        sink.has_panicked = true;
        match result {
            Ok(done) => (sink.each)(Ok(done)),
            Err(failure) => {
                (sink.each)(Err(&failure));
                self.keep(failure);
            }
        }
        sink.has_panicked = false;
    }

    fn keep(&self, failure: Failure<W::Error>) {
        self.first_failure.lock().get_or_insert(failure);
    }

    /// Runs the workers concurrently in this task.
    pub(crate) async fn as_tasks(&self, items: impl Feed<Item = T>) {
        let to_start = AtomicU32::new(0);
        let start_worker = || {
            to_start.fetch_add(1, Ordering::Relaxed);
        };
        let mut feed = pin!(self.guard(self.flow.feed(items, &start_worker)));
        let mut is_feeding = true;
        let mut workers = FuturesUnordered::new();
        poll_fn(|cx| {
            is_feeding = is_feeding && feed.as_mut().poll(cx).is_pending();
            loop {
                for _ in 0..to_start.swap(0, Ordering::Relaxed) {
                    workers.push(self.guard(self.work_until_end(&start_worker)));
                }
                let polled = workers.poll_next_unpin(cx);
                let all_started = to_start.load(Ordering::Relaxed) == 0;
                match polled {
                    Poll::Ready(None) if all_started && !is_feeding => return Poll::Ready(()),
                    Poll::Ready(None) | Poll::Pending if all_started => return Poll::Pending,
                    _ => {}
                }
            }
        })
        .await;
        self.propagate_panic();
    }

    /// Runs the workers on threads of their own, and the producer on this one.
    pub(crate) fn on_threads(&self, items: impl Feed<Item = T>)
    where
        Self: Sync,
    {
        thread::scope(|scope| {
            pollster::block_on(self.guard(self.flow.feed(items, &|| self.start_thread(scope))));
        });
        self.propagate_panic();
    }

    fn start_thread<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>)
    where
        Self: Sync,
    {
        let body = move || pollster::block_on(self.guard(self.work_until_end(&|| self.start_thread(scope))));
        let started = thread::Builder::new().name("semafor worker".into()).spawn_scoped(scope, body);
        if let Err(error) = started {
            self.flow.thread_not_started(&error);
        }
    }
}

/// Records that a worker ended, even by a panic.
struct WorkerEnd<'f, 'p, T>(&'f Flow<'p, T>);

impl<T> Drop for WorkerEnd<'_, '_, T> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop(StoppedBy::Error);
        }
        self.0.worker_left();
    }
}
