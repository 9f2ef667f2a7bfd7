//! A pipeline uses fewer slots while memory is tight or items take too long, and all of them again afterwards.

mod support;

use pollster::block_on;
use semafor_pipeline::{Pipeline, StoppedBy};
use semafor_testkit::stepwise::poll;
use support::watched;
use tokio::sync::Semaphore as Gate;

#[test]
fn it_narrows_while_memory_is_tight_down_to_one_and_widens_again() {
    let (guard, used) = watched();
    let gate = Gate::new(0);
    let pipeline = Pipeline::new(8).buffer(4).memory(guard);
    let live = pipeline.live();
    let mut run = Box::pin(pipeline.run(0..1000, async |item: u32| {
        gate.acquire().await.map_err(|closed| closed.to_string())?.forget();
        Ok::<_, String>(item)
    }));
    let mut in_use_at = |bytes| {
        used.set(bytes);
        // Enough turns for surplus items to finish and for new ones to begin.
        for turn in 0..120 {
            gate.add_permits(usize::from(turn % 3 == 0));
            assert!(poll(&mut run).is_pending());
        }
        let metrics = live.metrics();
        (metrics.slots_in_use, metrics.width, metrics.queue_depth)
    };
    assert_eq!(in_use_at(0), (8, 8, 12));
    assert_eq!(in_use_at(900), (4, 4, 4), "halfway to critical: half of the slots, and no buffer");
    assert_eq!(in_use_at(949), (1, 1, 1), "one slot stays in use");
    assert_eq!(in_use_at(850), (7, 7, 7));
    assert_eq!(in_use_at(849), (8, 8, 12));
    assert_eq!(in_use_at(925), (2, 2, 2));
    assert_eq!(live.metrics().narrowings, 2);
    gate.add_permits(10_000);
    let outcome = block_on(run);
    assert_eq!(
        (outcome.stopped_by, outcome.metrics.done),
        (StoppedBy::Completed, 1000),
        "tight memory does not stop it"
    );
    assert_eq!(outcome.metrics.memory.unwrap().peak, 949);
}

#[test]
fn threads_narrow_too_and_all_items_are_done() {
    let (guard, used) = watched();
    used.set(949);
    let tight =
        Pipeline::new(8).memory(guard.clone()).run_blocking(0..500, |item: u64| Ok::<_, String>(item));
    assert!(tight.is_clean());
    assert_eq!((tight.metrics.done, tight.metrics.max_slots_in_use, tight.metrics.narrowings), (500, 1, 1));

    let relieved = Pipeline::new(8).memory(guard).run_blocking(0..5_000, |item: u64| {
        if item == 100 {
            used.set(0);
        }
        Ok::<_, String>(item)
    });
    assert!(relieved.is_clean());
    assert_eq!((relieved.metrics.done, relieved.metrics.width, relieved.metrics.narrowings), (5_000, 8, 1));
}

#[test]
fn scaling_by_latency_begins_with_one_slot_and_uses_all_if_latency_allows() {
    let pipeline = Pipeline::new(16).scale_by_latency(1e9);
    let live = pipeline.live();
    let gate = Gate::new(0);
    let mut run = Box::pin(pipeline.run(0..1000, async |item: u32| {
        gate.acquire().await.map_err(|closed| closed.to_string())?.forget();
        Ok::<_, String>(item)
    }));
    assert!(poll(&mut run).is_pending());
    assert_eq!((live.metrics().slots_in_use, live.metrics().workers), (1, 1));
    for turn in 0..300 {
        gate.add_permits(usize::from(turn % 3 == 0));
        assert!(poll(&mut run).is_pending());
    }
    assert_eq!(live.metrics().slots_in_use, 16);
    gate.add_permits(1000);
    assert!(block_on(run).is_clean());
}

#[test]
fn scaling_by_latency_widens_after_the_producer_has_ended() {
    let outcome = Pipeline::new(4)
        .buffer(1000)
        .scale_by_latency(1e9)
        .run_blocking(0..500, |item: u32| Ok::<_, String>(std::hint::black_box(item)));
    assert_eq!((outcome.metrics.done, outcome.metrics.width), (500, 4));
    assert!(outcome.metrics.workers > 1);
}
