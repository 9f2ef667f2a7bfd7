//! The producer is asked for an item only when there is room for it, and a worker is started only when there is an item
//! for it.

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use pollster::block_on;
use semafor_pipeline::{Pipeline, produced};
use semafor_testkit::stepwise::poll;
use support::until;
use tokio::sync::Semaphore as Gate;

const LIMIT: u32 = 3;
const BUFFER: usize = 5;
/// Items in the queue and with the workers.
const BOUND: usize = 3 + 5 + 3;

#[test]
fn the_producer_is_not_asked_while_the_queue_is_full() {
    let (gate, asked) = (Gate::new(0), AtomicUsize::new(0));
    let items = (0..100).inspect(|_| {
        asked.fetch_add(1, Ordering::SeqCst);
    });
    let pipeline = Pipeline::new(LIMIT).buffer(BUFFER);
    let live = pipeline.live();
    let mut run = Box::pin(pipeline.run(items, async |item: u32| {
        gate.acquire().await.map_err(|closed| closed.to_string())?.forget();
        Ok::<_, String>(item)
    }));
    for done in 0..10 {
        for _ in 0..10 {
            assert!(poll(&mut run).is_pending());
        }
        assert_eq!(asked.load(Ordering::SeqCst), BOUND + done, "one more for each finished item");
        let metrics = live.metrics();
        assert_eq!((metrics.queue_depth, metrics.slots_in_use), (3 + 5, 3));
        assert_eq!(metrics.done, done as u64);
        gate.add_permits(1);
    }
    gate.add_permits(1000);
    let outcome = block_on(run);
    assert!(outcome.is_clean());
    assert_eq!((outcome.metrics.max_queue_depth, outcome.metrics.max_slots_in_use), (3 + 5, 3));
    assert!(outcome.metrics.backpressure_events >= 10);
}

#[test]
fn an_async_producer_is_not_asked_while_the_queue_is_full() {
    let (gate, asked) = (Gate::new(0), AtomicUsize::new(0));
    let items = produced(async || {
        tokio::task::consume_budget().await;
        Some(asked.fetch_add(1, Ordering::SeqCst)).filter(|item| *item < 100)
    });
    let mut run = Box::pin(Pipeline::new(LIMIT).buffer(BUFFER).run(items, async |item| {
        gate.acquire().await.map_err(|closed| closed.to_string())?.forget();
        Ok::<_, String>(item)
    }));
    for _ in 0..10 {
        assert!(poll(&mut run).is_pending());
    }
    assert_eq!(asked.load(Ordering::SeqCst), BOUND);
    gate.add_permits(1000);
    assert_eq!(block_on(run).metrics.done, 100);
}

#[test]
fn the_producer_for_threads_is_not_asked_while_the_queue_is_full() {
    let (open, gate) = mpsc::channel::<()>();
    let (gate, asked) = (std::sync::Mutex::new(gate), AtomicUsize::new(0));
    let items = (0..100).inspect(|_| {
        asked.fetch_add(1, Ordering::SeqCst);
    });
    let pipeline = Pipeline::new(LIMIT).buffer(BUFFER);
    let live = pipeline.live();
    let outcome = thread::scope(|scope| {
        scope.spawn(|| {
            until(|| {
                let metrics = live.metrics();
                let is_full = metrics.slots_in_use == 3 && metrics.queue_depth == 3 + 5;
                is_full && asked.load(Ordering::SeqCst) >= BOUND
            });
            assert_eq!(asked.load(Ordering::SeqCst), BOUND);
            drop(open);
        });
        pipeline.run_blocking(items, |item: u32| {
            let _ = gate.lock().unwrap().recv();
            Ok::<_, String>(item)
        })
    });
    assert!(outcome.is_clean());
    assert_eq!((outcome.metrics.done, outcome.metrics.max_queue_depth), (100, 3 + 5));
    assert!(outcome.metrics.backpressure_events >= 1);
}

#[test]
fn workers_are_started_on_demand() {
    let few = block_on(Pipeline::new(1000).run(0..3, async |item: u32| Ok::<_, String>(item)));
    assert!(few.metrics.workers <= 3, "{} workers for 3 items", few.metrics.workers);
    let none = Pipeline::new(1000).run_blocking(0..0, |item: u32| Ok::<_, String>(item));
    assert_eq!(none.metrics.workers, 0);
}

#[test]
fn an_idle_worker_takes_the_next_item() {
    let is_busy = AtomicBool::new(false);
    let items = (0..50).inspect(|_| until(|| !is_busy.load(Ordering::SeqCst)));
    let pipeline = Pipeline::new(1000);
    let live = pipeline.live();
    let items = items.inspect(|item| until(|| live.metrics().done == u64::from(*item)));
    let items = items.inspect(|_| until(|| live.metrics().slots_in_use == 0));
    let outcome = pipeline.run_blocking(items, |item: u32| {
        is_busy.store(true, Ordering::SeqCst);
        is_busy.store(false, Ordering::SeqCst);
        Ok::<_, String>(item)
    });
    assert_eq!((outcome.metrics.done, outcome.metrics.workers), (50, 1));
}

#[test]
fn all_slots_are_used_when_there_is_work_for_them() {
    let barrier = std::sync::Barrier::new(8);
    let outcome = Pipeline::new(8).buffer(0).run_blocking(0..64, |item: u32| {
        barrier.wait();
        Ok::<_, String>(item)
    });
    assert_eq!((outcome.metrics.done, outcome.metrics.max_slots_in_use), (64, 8));
}

#[test]
fn an_item_may_be_a_batch_of_related_ones() {
    let paths = ["a/1", "a/2", "b/1", "b/2", "b/3"];
    let batches = paths.chunk_by(|one, other| one.split('/').next() == other.split('/').next());
    let mut sizes = Vec::new();
    let outcome = Pipeline::new(2).run_blocking_each(
        batches,
        |batch| Ok::<_, String>(batch.len()),
        |size| sizes.extend(size),
    );
    assert!(outcome.is_clean());
    sizes.sort_unstable();
    assert_eq!(sizes, [2, 3]);
}
