//! Every way a pipeline ends: nothing new begins, items in progress are finished, queued items are returned.

mod support;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use pollster::block_on;
use semafor_pipeline::{CancellationToken, Failure, OnError, Outcome, Pipeline, Rate, StoppedBy, produced};
use semafor_testkit::stepwise::{now, poll};
use support::{Dial, until, watched};
use tokio::sync::Semaphore as Gate;

fn counts<T, E>(outcome: &Outcome<T, E>) -> (u64, u64, u64) {
    assert_eq!(outcome.not_begun.len() as u64, outcome.metrics.not_begun);
    assert_eq!((outcome.metrics.queue_depth, outcome.metrics.slots_in_use), (0, 0));
    (outcome.metrics.done, outcome.metrics.failed, outcome.metrics.not_begun)
}

#[test]
fn a_run_without_more_items_is_completed() {
    let outcome = block_on(Pipeline::new(4).run(0..10, async |item: u32| Ok::<_, String>(item)));
    assert_eq!((outcome.stopped_by, counts(&outcome)), (StoppedBy::Completed, (10, 0, 0)));
    assert!(outcome.is_clean() && outcome.first_failure.is_none());
    assert_eq!(outcome.metrics.latency.count(), 10);
}

#[test]
fn a_cancelled_run_finishes_items_in_progress_and_returns_the_others() {
    let (gate, token, begun) = (Gate::new(0), CancellationToken::new(), AtomicU32::new(0));
    let pipeline = Pipeline::new(2).buffer(3).cancelled_by(token.clone());
    let mut run = Box::pin(pipeline.run(0..100, async |item: u32| {
        begun.fetch_add(1, Ordering::SeqCst);
        gate.acquire().await.map_err(|closed| closed.to_string())?.forget();
        Ok::<_, String>(item)
    }));
    for _ in 0..5 {
        assert!(poll(&mut run).is_pending());
    }
    token.cancel();
    for _ in 0..5 {
        assert!(poll(&mut run).is_pending(), "two items are in progress");
    }
    gate.add_permits(100);
    let outcome = block_on(run);
    assert_eq!(outcome.stopped_by, StoppedBy::Cancelled);
    assert_eq!(begun.load(Ordering::SeqCst), 2);
    assert_eq!((counts(&outcome), outcome.not_begun), ((2, 0, 5), vec![2, 3, 4, 5, 6]));
}

#[test]
fn a_run_cancelled_before_it_begins_takes_no_items() {
    let token = CancellationToken::new();
    token.cancel();
    let items = std::iter::from_fn(|| -> Option<u32> { panic!("the producer must not be asked") });
    let outcome = Pipeline::new(2).cancelled_by(token).run_blocking(items, Ok::<_, String>);
    assert_eq!((outcome.stopped_by, counts(&outcome)), (StoppedBy::Cancelled, (0, 0, 0)));
}

#[test]
fn a_run_cancelled_after_its_last_item_is_completed() {
    let token = CancellationToken::new();
    let pipeline = Pipeline::new(1).cancelled_by(token.clone());
    let outcome = block_on(pipeline.run([1], async |item: u32| {
        tokio::task::consume_budget().await;
        token.cancel();
        Ok::<_, String>(item)
    }));
    assert_eq!(outcome.stopped_by, StoppedBy::Completed);
}

#[test]
fn cancelling_ends_every_wait() {
    // The wait for a slot that others hold.
    let semaphore = semafor::Registry::new().named("taken").slots(1).build().unwrap();
    let _held = semaphore.try_acquire().blocking().unwrap();
    let token = CancellationToken::new();
    let pipeline = Pipeline::with(semaphore.clone()).cancelled_by(token.clone());
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            until(|| now(semaphore.stats()).unwrap().waiting == 1);
            token.cancel();
        });
        pipeline.run_blocking(0..3, |item: u32| Ok::<_, String>(item))
    });
    assert_eq!((outcome.stopped_by, outcome.metrics.done), (StoppedBy::Cancelled, 0));

    // The wait for a turn of the rate.
    let token = CancellationToken::new();
    let rate = Rate::per_second(1);
    rate.wait();
    let asleep = Pipeline::new(1).rate(Rate::clone(&rate)).cancelled_by(token.clone());
    let mut run = Box::pin(asleep.run(0..3, async |item: u32| Ok::<_, String>(item)));
    for _ in 0..3 {
        assert!(poll(&mut run).is_pending());
    }
    token.cancel();
    assert_eq!(block_on(run).not_begun, [0, 1, 2]);

    // The wait for an item.
    let token = CancellationToken::new();
    let hungry = Pipeline::new(1).cancelled_by(token.clone());
    let items = produced(async || std::future::pending::<Option<u32>>().await);
    let mut run = Box::pin(hungry.run(items, async |item| Ok::<_, String>(item)));
    assert!(poll(&mut run).is_pending());
    token.cancel();
    assert_eq!(block_on(run).stopped_by, StoppedBy::Cancelled);
}

#[test]
fn the_item_limit_bounds_the_items_taken() {
    let mut taken = 0;
    let items = std::iter::repeat_with(|| taken += 1);
    let outcome = Pipeline::new(3).max_items(10).run_blocking(items, |()| Ok::<_, String>(()));
    assert_eq!((outcome.stopped_by, counts(&outcome)), (StoppedBy::ItemLimit, (10, 0, 0)));
    assert_eq!(taken, 10);
    let outcome = Pipeline::new(3).max_items(0).run_blocking(0..10, |item: u32| Ok::<_, String>(item));
    assert_eq!(outcome.stopped_by, StoppedBy::Completed, "0 means unlimited");
}

#[test]
fn a_failed_item_does_not_stop_the_others() {
    let work = |item: u32| if item.is_multiple_of(3) { Err(item) } else { Ok(item) };
    let mut failed = Vec::new();
    let outcome = Pipeline::new(4).run_blocking_each(0..30, work, |result| {
        if let Err(Failure::Failed(item)) = result {
            failed.push(*item);
        }
    });
    assert_eq!((outcome.stopped_by, counts(&outcome)), (StoppedBy::Completed, (20, 10, 0)));
    failed.sort_unstable();
    assert_eq!(failed, [0, 3, 6, 9, 12, 15, 18, 21, 24, 27]);
    assert!(matches!(outcome.first_failure, Some(Failure::Failed(item)) if item % 3 == 0));
    assert!(!outcome.is_clean());
}

#[test]
fn a_failed_item_stops_the_run_with_on_error_stop() {
    let work = async |item: u32| if item == 4 { Err("four") } else { Ok(item) };
    let outcome = block_on(Pipeline::new(1).buffer(2).on_error(OnError::Stop).run(0..100, work));
    assert_eq!(outcome.stopped_by, StoppedBy::Error);
    assert_eq!(outcome.first_failure, Some(Failure::Failed("four")));
    assert_eq!((counts(&outcome), outcome.not_begun), ((4, 1, 1), vec![5]), "the next item was not begun");
}

#[test]
fn panic_in_the_work_fails_its_item() {
    for stop in [OnError::Continue, OnError::Stop] {
        let work = async |item: u32| {
            tokio::task::consume_budget().await;
            assert_ne!(item, 3, "three");
            Ok::<_, String>(item)
        };
        let tasks = block_on(Pipeline::new(1).on_error(stop).run(0..10, work));
        let threads = Pipeline::new(1).on_error(stop).run_blocking(0..10, |item: u32| now(work(item)));
        for outcome in [tasks, threads] {
            assert!(matches!(&outcome.first_failure, Some(Failure::Panicked(why)) if why.contains("three")));
            match stop {
                OnError::Continue => assert_eq!(counts(&outcome), (9, 1, 0)),
                OnError::Stop => assert_eq!(outcome.stopped_by, StoppedBy::Error),
            }
        }
    }
}

#[test]
fn panic_in_the_producer_or_in_each_is_propagated_when_all_workers_have_finished() {
    let finished = AtomicU32::new(0);
    let work = |item: u32| {
        finished.fetch_add(1, Ordering::SeqCst);
        Ok::<_, String>(item)
    };
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let items = (0..10).inspect(|item| assert!(*item < 5, "no more"));
        Pipeline::new(2).run_blocking(items, work)
    }));
    assert!(caught.is_err());
    assert_eq!(finished.load(Ordering::SeqCst), 5, "items in the queue were processed");
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        Pipeline::new(2).run_blocking_each(0..1_000_000, work, |_| panic!("no, thanks"))
    }));
    assert!(caught.is_err());
    assert!(finished.load(Ordering::SeqCst) < 1000);
}

#[test]
fn the_breaker_begins_nothing_more_and_finishes_items_in_progress() {
    let (guard, used) = watched();
    let (gate, begun) = (Gate::new(0), AtomicU32::new(0));
    let mut run = Box::pin(Pipeline::new(3).buffer(0).memory(guard).run(0..100, async |item: u32| {
        begun.fetch_add(1, Ordering::SeqCst);
        gate.acquire().await.map_err(|closed| closed.to_string())?.forget();
        Ok::<_, String>(item)
    }));
    for _ in 0..5 {
        assert!(poll(&mut run).is_pending());
    }
    assert_eq!(begun.load(Ordering::SeqCst), 3);
    used.set(950);
    gate.add_permits(1);
    for _ in 0..5 {
        assert!(poll(&mut run).is_pending());
    }
    used.set(10);
    gate.add_permits(100);
    let outcome = block_on(run);
    assert_eq!(outcome.stopped_by, StoppedBy::Breaker, "it stays stopped when memory is fine again");
    assert_eq!(counts(&outcome), (3, 0, 3));
    let memory = outcome.metrics.memory.unwrap();
    assert_eq!((memory.at_start, memory.now, memory.peak), (0, 10, 950));
}

#[test]
fn the_breaker_stops_threads_too() {
    let (guard, used) = watched();
    let is_first = AtomicBool::new(true);
    let outcome = Pipeline::new(4).memory(guard).run_blocking(0.., |item: u64| {
        if item == 1000 && is_first.swap(false, Ordering::SeqCst) {
            used.set(2000);
        }
        Ok::<_, String>(item)
    });
    assert_eq!(outcome.stopped_by, StoppedBy::Breaker);
    assert!(outcome.metrics.done >= 1000 && outcome.metrics.not_begun <= 104);
}

#[test]
fn a_closed_semaphore_stops_the_run() {
    let semaphore = semafor::Registry::new().named("closed").slots(2).build().unwrap();
    now(semaphore.close()).unwrap();
    let outcome = block_on(Pipeline::with(semaphore).run(0.., async |item: u64| Ok::<_, String>(item)));
    assert_eq!(outcome.stopped_by, StoppedBy::Error);
    assert!(matches!(outcome.first_failure, Some(Failure::NoSlot(why)) if why.is_closed()));
    assert_eq!((outcome.metrics.done, outcome.metrics.failed), (0, 0));
    assert!(outcome.metrics.not_begun > 0);
}

#[test]
fn items_begin_at_the_rate() {
    let clock = Dial::default();
    let begun_at = Mutex::new(Vec::new());
    let pipeline = Pipeline::new(4).rate(Rate::per_second(10).clock(clock.clone()));
    let outcome = block_on(pipeline.run(0..20, async |item: u32| {
        begun_at.lock().unwrap().push(clock.get());
        Ok::<_, String>(item)
    }));
    assert!(outcome.is_clean());
    assert_eq!(clock.get(), 1_900);
    let begun_at = begun_at.into_inner().unwrap();
    assert!(begun_at.iter().zip(1..).all(|(at, nth)| *at >= (nth - 1) * 100), "{begun_at:?}");
}

#[test]
fn dropping_a_run_releases_its_slots() {
    let semaphore = semafor::Registry::new().named("dropped").slots(2).build().unwrap();
    let work = async |_: u32| std::future::pending::<Result<(), String>>().await;
    let mut run = Box::pin(Pipeline::with(semaphore.clone()).run(0..10, work));
    assert!(poll(&mut run).is_pending());
    assert_eq!(now(semaphore.stats()).unwrap().held, 2);
    drop(run);
    assert_eq!(now(semaphore.stats()).unwrap().held, 0);
}

#[test]
fn a_worker_checks_for_a_stop_again_after_waiting_for_a_slot() {
    for expected in [StoppedBy::Cancelled, StoppedBy::Breaker] {
        let semaphore = semafor::Registry::new().named("taken").slots(1).build().unwrap();
        let held = semaphore.try_acquire().blocking().unwrap();
        let ((guard, used), token) = (watched(), CancellationToken::new());
        let pipeline = Pipeline::with(semaphore.clone()).memory(guard).cancelled_by(token.clone());
        let mut run = Box::pin(pipeline.run(0..3, async |item: u32| Ok::<_, String>(item)));
        assert!(poll(&mut run).is_pending());
        match expected {
            StoppedBy::Cancelled => token.cancel(),
            _ => used.set(950),
        }
        drop(held);
        let outcome = block_on(run);
        assert_eq!((outcome.stopped_by, counts(&outcome)), (expected, (0, 0, 3)));
        assert_eq!(now(semaphore.stats()).unwrap().held, 0);
    }
}
