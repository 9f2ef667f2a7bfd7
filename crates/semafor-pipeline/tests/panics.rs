//! Panics in user code: a panic in the work fails its item, any other ends the run. Neither interrupts the work on
//! other items.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use pollster::block_on;
use semafor::{ManualClock, Registry, Semaphore, secs};
use semafor_pipeline::{Failure, MemoryGuard, Pipeline};
use semafor_testkit::stepwise::{now, poll};
use support::until;
use tokio::sync::Semaphore as Gate;

fn slots(count: u32) -> Semaphore {
    Registry::new().named("panics").slots(count).build().unwrap()
}

/// The message of a panic.
fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    match panic.downcast_ref::<String>() {
        Some(text) => text,
        None => panic.downcast_ref::<&str>().copied().unwrap_or("something else"),
    }
}

/// Which items began, finished, or were dropped midway.
#[derive(Default)]
struct Seen {
    begun: Mutex<Vec<u32>>,
    finished: Mutex<Vec<u32>>,
    cut_off: AtomicU32,
}

/// Work in progress.
struct UnderWay<'s>(&'s Seen, bool);

impl Seen {
    fn begin(&self, item: u32) -> UnderWay<'_> {
        self.begun.lock().unwrap().push(item);
        UnderWay(self, true)
    }
}

impl UnderWay<'_> {
    fn finish(mut self, item: u32) {
        self.1 = false;
        self.0.finished.lock().unwrap().push(item);
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if self.1 {
            self.0.cut_off.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Runs a pipeline of three as tasks. When three items have begun, item 0 may finish, which causes the panic if there
/// was none before. The panic must not reach the caller before the other items may finish, too, and have finished.
fn run_as_tasks(
    pipeline: Pipeline<u32>,
    items: impl Iterator<Item = u32>,
    each: impl FnMut(Result<u32, &Failure<String>>),
    panic: &str,
) -> (Vec<u32>, Vec<u32>) {
    let (first, others, seen, live) = (Gate::new(0), Gate::new(0), Seen::default(), pipeline.live());
    let work = async |item: u32| {
        let under_way = seen.begin(item);
        let gate = if item == 0 { &first } else { &others };
        gate.acquire().await.map_err(|closed| closed.to_string())?.forget();
        under_way.finish(item);
        Ok::<_, String>(item)
    };
    let mut run = Box::pin(pipeline.run_each(items, work, each));
    for step in 0..10 {
        let polled = catch_unwind(AssertUnwindSafe(|| poll(&mut run)));
        let cut_off = seen.cut_off.load(Ordering::SeqCst);
        assert!(
            matches!(polled, Ok(Poll::Pending)),
            "{panic}: the run ended too early, {cut_off} items were dropped midway"
        );
        if step == 4 {
            assert!(seen.begun.lock().unwrap().starts_with(&[0, 1, 2]));
            first.add_permits(1);
        }
    }
    others.add_permits(1000);
    let ended = catch_unwind(AssertUnwindSafe(|| block_on(&mut run)));
    assert_eq!(panic_message(&*ended.expect_err(panic)), panic);
    drop(run);
    assert_eq!(seen.cut_off.load(Ordering::SeqCst), 0, "{panic}: work was dropped midway");
    assert_eq!(live.metrics().slots_in_use, 0, "{panic}");
    (seen.begun.into_inner().unwrap(), seen.finished.into_inner().unwrap())
}

#[test]
fn panic_in_each_is_propagated_when_all_tasks_have_finished() {
    let (semaphore, mut calls) = (slots(3), 0);
    let each = |_: Result<u32, &Failure<String>>| {
        calls += 1;
        panic!("no, thanks");
    };
    let (begun, finished) = run_as_tasks(Pipeline::with(semaphore.clone()), 0..100, each, "no, thanks");
    assert_eq!((begun, finished), (vec![0, 1, 2], vec![0, 1, 2]), "nothing new was begun");
    assert_eq!(calls, 1, "after its panic the closure is not called again");
    assert_eq!(now(semaphore.stats()).unwrap().held, 0);
}

#[test]
fn panic_in_the_producer_is_propagated_when_all_tasks_have_finished() {
    let semaphore = slots(3);
    let items = (0..10).inspect(|item| assert!(*item < 5, "no more"));
    let (begun, mut finished) =
        run_as_tasks(Pipeline::with(semaphore.clone()).buffer(0), items, |_| {}, "no more");
    finished.sort_unstable();
    assert_eq!(
        (begun, finished),
        (vec![0, 1, 2, 3, 4], vec![0, 1, 2, 3, 4]),
        "items in the queue were processed"
    );
    assert_eq!(now(semaphore.stats()).unwrap().held, 0);
}

#[test]
fn panic_in_the_rank_function_is_handled_like_one_in_the_producer() {
    let pipeline = Pipeline::new(3).buffer(0).priority(|item| if *item < 4 { 0 } else { panic!("unranked") });
    let (begun, _) = run_as_tasks(pipeline, 0..10, |_| {}, "unranked");
    assert_eq!(begun, [0, 1, 2, 3]);
}

#[test]
fn panic_in_the_memory_source_is_propagated_when_all_tasks_have_finished() {
    let is_unreadable = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_unreadable);
    let guard = MemoryGuard::new(1000).sample_every(Duration::ZERO).source(move || {
        assert!(!seen.swap(false, Ordering::SeqCst), "unreadable");
        1
    });
    let each = |done: Result<u32, &Failure<String>>| {
        is_unreadable.store(matches!(done, Ok(0)), Ordering::SeqCst);
    };
    let (begun, _) = run_as_tasks(Pipeline::new(3).memory(guard), 0..100, each, "unreadable");
    assert_eq!(begun, [0, 1, 2]);
}

#[test]
fn panic_in_each_is_propagated_when_all_threads_have_finished() {
    let (seen, calls, has_panicked) = (Seen::default(), AtomicU32::new(0), AtomicBool::new(false));
    let pipeline = Pipeline::new(3);
    let live = pipeline.live();
    let work = |item: u32| {
        let under_way = seen.begin(item);
        if item > 0 {
            until(|| has_panicked.load(Ordering::SeqCst));
        }
        under_way.finish(item);
        Ok::<_, String>(item)
    };
    let each = |_: Result<u32, &Failure<String>>| {
        calls.fetch_add(1, Ordering::SeqCst);
        has_panicked.store(true, Ordering::SeqCst);
        panic!("no, thanks");
    };
    let ended = catch_unwind(AssertUnwindSafe(|| pipeline.run_blocking_each(0..100_000, work, each)));
    assert_eq!(panic_message(&*ended.expect_err("it panics")), "no, thanks", "the panic has its own message");
    let (begun, finished) = (seen.begun.into_inner().unwrap(), seen.finished.into_inner().unwrap());
    assert_eq!((begun.len(), seen.cut_off.into_inner()), (finished.len(), 0));
    assert!(begun.len() < 10_000, "{} were begun", begun.len());
    assert_eq!((calls.into_inner(), live.metrics().slots_in_use), (1, 0));
}

#[test]
fn panic_in_the_producer_for_threads_is_propagated_with_its_message() {
    let finished = AtomicU32::new(0);
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let items = (0..10).inspect(|item| assert!(*item < 5, "no more"));
        Pipeline::new(2).run_blocking(items, |item: u32| {
            finished.fetch_add(1, Ordering::SeqCst);
            Ok::<_, String>(item)
        })
    }));
    assert_eq!(panic_message(&*ended.expect_err("it panics")), "no more");
    assert_eq!(finished.into_inner(), 5);
}

/// Panics when it is dropped, if true.
struct PanicsOnDrop(bool);

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        assert!(!self.0, "not now");
    }
}

/// A semaphore with a lease of one second, by a clock that the test moves.
fn leased(count: u32) -> (Semaphore, ManualClock) {
    let clock = ManualClock::new();
    let registry = Registry::builder().clock(&clock).build();
    (registry.named("leased").slots(count).ttl(secs(1)).build().unwrap(), clock)
}

#[test]
fn work_that_panics_on_drop_after_losing_its_slot_fails_only_its_item() {
    let (semaphore, clock) = leased(2);
    let work = async |item: u32| {
        let mut panics_on_drop = PanicsOnDrop(item < 2);
        if item < 2 {
            std::future::pending::<()>().await;
        }
        panics_on_drop.0 = false;
        Ok::<_, String>(item)
    };
    let mut run = Box::pin(Pipeline::with(semaphore.clone()).run(0..10, work));
    assert!(poll(&mut run).is_pending());
    clock.advance(Duration::from_secs(1));
    let outcome = catch_unwind(AssertUnwindSafe(|| block_on(&mut run))).expect("the run goes on");
    assert_eq!((outcome.metrics.done, outcome.metrics.failed), (8, 2));
    assert!(matches!(outcome.first_failure, Some(Failure::Lost(why)) if why.is_expired()));
    assert_eq!(now(semaphore.stats()).unwrap().held, 0);
}

#[test]
fn result_that_panics_on_drop_after_losing_its_slot_fails_only_its_item() {
    let (semaphore, clock) = leased(1);
    let outcome = Pipeline::with(semaphore).run_blocking(0..5, |item: u32| {
        if item == 1 {
            clock.advance(Duration::from_secs(1));
        }
        Ok::<_, String>(PanicsOnDrop(item == 1))
    });
    assert_eq!((outcome.metrics.done, outcome.metrics.failed), (4, 1));
    assert!(matches!(outcome.first_failure, Some(Failure::Lost(_))));
}
