//! A pipeline shares the slots of its semaphore with others.

mod support;

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use pollster::block_on;
use semafor::{ManualClock, Registry, Semaphore, secs};
use semafor_pipeline::{Failure, Pipeline};
use semafor_testkit::stepwise::{now, poll};
use support::until;

fn slots(n: u32) -> Semaphore {
    Registry::new().named("shared").slots(n).build().unwrap()
}

/// How many are at work now, and the most there were.
#[derive(Default)]
struct Crowd {
    now: AtomicU32,
    most: AtomicU32,
}

impl Crowd {
    fn pass(&self) {
        let now = 1 + self.now.fetch_add(1, Ordering::SeqCst);
        self.most.fetch_max(now, Ordering::SeqCst);
        thread::yield_now();
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn two_pipelines_share_the_slots_of_one_semaphore() {
    let (semaphore, crowd) = (slots(3), Crowd::default());
    let run = || {
        let outcome = Pipeline::with(semaphore.clone()).run_blocking(0..500, |item: u32| {
            crowd.pass();
            Ok::<_, String>(item)
        });
        assert!(outcome.is_clean());
    };
    thread::scope(|scope| {
        scope.spawn(run);
        scope.spawn(run);
        scope.spawn(|| {
            let work = async |item: u32| {
                crowd.pass();
                Ok::<_, String>(item)
            };
            assert!(block_on(Pipeline::with(semaphore.clone()).run(0..500, work)).is_clean());
        });
    });
    let most = crowd.most.load(Ordering::SeqCst);
    assert!((1..=3).contains(&most), "{most} at once");
    assert_eq!(now(semaphore.stats()).unwrap().totals.granted, 1500, "one slot for each item");
}

#[test]
fn items_stay_queued_while_others_hold_the_slots() {
    let semaphore = slots(1);
    let held = semaphore.try_acquire().blocking().unwrap();
    let pipeline = Pipeline::with(semaphore.clone());
    let live = pipeline.live();
    thread::scope(|scope| {
        let run = scope.spawn(|| pipeline.run_blocking(0..5, |item: u32| Ok::<_, String>(item)));
        until(|| now(semaphore.stats()).unwrap().waiting == 1);
        until(|| live.metrics().queue_depth == 5);
        assert_eq!(live.metrics().slots_in_use, 0);
        drop(held);
        assert!(run.join().unwrap().is_clean());
    });
}

#[test]
fn workers_can_be_fewer_than_slots() {
    let (semaphore, crowd) = (slots(1000), Crowd::default());
    let outcome = Pipeline::with(semaphore).workers(2).run_blocking(0..500, |item: u32| {
        crowd.pass();
        Ok::<_, String>(item)
    });
    assert!(outcome.is_clean() && outcome.metrics.workers <= 2);
    assert!(crowd.most.into_inner() <= 2);
}

/// A semaphore with a lease of one second, by a clock that the test moves.
fn leased() -> (Semaphore, ManualClock) {
    let clock = ManualClock::new();
    let registry = Registry::builder().clock(&clock).build();
    (registry.named("leased").slots(1).ttl(secs(1)).build().unwrap(), clock)
}

#[test]
fn a_task_that_loses_its_slot_is_dropped_and_its_item_fails() {
    let (semaphore, clock) = leased();
    let mut run = Box::pin(Pipeline::with(semaphore).run(0..3, async |item: u32| match item {
        1 => std::future::pending().await,
        item => Ok::<_, String>(item),
    }));
    assert!(poll(&mut run).is_pending());
    clock.advance(Duration::from_secs(1));
    let outcome = block_on(run);
    assert_eq!((outcome.metrics.done, outcome.metrics.failed), (2, 1));
    assert!(matches!(outcome.first_failure, Some(Failure::Lost(why)) if why.is_expired()));
}

#[test]
fn a_thread_that_loses_its_slot_runs_to_its_end_and_its_item_fails() {
    let (semaphore, clock) = leased();
    let finished = AtomicU32::new(0);
    let outcome = Pipeline::with(semaphore).run_blocking(0..3, |item: u32| {
        if item == 1 {
            clock.advance(Duration::from_secs(1));
        }
        finished.fetch_add(1, Ordering::SeqCst);
        Ok::<_, String>(item)
    });
    assert_eq!((outcome.metrics.done, outcome.metrics.failed), (2, 1));
    assert!(matches!(outcome.first_failure, Some(Failure::Lost(why)) if why.is_expired()));
    assert_eq!(finished.into_inner(), 3);
}

#[test]
fn an_evicted_item_fails_and_the_next_one_begins() {
    let semaphore = slots(1);
    let mut run = Box::pin(Pipeline::with(semaphore.clone()).run(0..3, async |item: u32| match item {
        0 => std::future::pending().await,
        item => Ok::<_, String>(item),
    }));
    assert!(poll(&mut run).is_pending());
    let holder = now(semaphore.holders()).unwrap().remove(0).id;
    now(semaphore.evict(&holder)).unwrap();
    let outcome = block_on(run);
    assert_eq!((outcome.metrics.done, outcome.metrics.failed), (2, 1));
    assert!(matches!(outcome.first_failure, Some(Failure::Lost(_))));
}
