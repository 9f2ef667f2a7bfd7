//! The order in which items begin.

use std::sync::Mutex;

use pollster::block_on;
use semafor_pipeline::Pipeline;

#[test]
fn first_in_first_out_by_default() {
    let mut order = Vec::new();
    let work = async |item: u32| Ok::<_, String>(item);
    let outcome = block_on(Pipeline::new(3).run_each(0..200, work, |item| order.extend(item)));
    assert!(outcome.is_clean());
    assert!(order.is_sorted());
}

#[test]
fn highest_rank_in_the_queue_first() {
    let dirs = ["a", "a/b", "c", "a/b/c", "d/e", "a/b/d", "f"];
    let mut order = Vec::new();
    let depth = |dir: &&str| dir.matches('/').count() as i32;
    let outcome = block_on(Pipeline::new(1).priority(depth).run_each(
        dirs,
        async |dir| Ok::<_, String>(dir),
        |dir| order.extend(dir),
    ));
    assert!(outcome.is_clean());
    assert_eq!(order, ["a/b/c", "a/b/d", "a/b", "d/e", "a", "c", "f"]);
}

#[test]
fn the_queue_is_bounded_with_priorities_too() {
    let order = Mutex::new(Vec::new());
    let outcome =
        block_on(Pipeline::new(1).buffer(9).priority(|item: &u32| *item).run(0..30, async |item| {
            order.lock().unwrap().push(item);
            Ok::<_, String>(())
        }));
    assert_eq!(outcome.metrics.max_queue_depth, 10);
    assert_eq!(order.lock().unwrap()[..10], [9, 8, 7, 6, 5, 4, 3, 2, 1, 0], "the highest of ten at a time");
}

#[test]
fn not_begun_items_are_in_the_order_in_which_they_would_have_begun() {
    let token = semafor_pipeline::CancellationToken::new();
    let pipeline = Pipeline::new(1).buffer(3).priority(|item: &u32| *item).cancelled_by(token.clone());
    let outcome = block_on(pipeline.run(0..30, async |item| {
        token.cancel();
        Ok::<_, String>(item)
    }));
    assert_eq!((outcome.metrics.done, outcome.not_begun), (1, vec![2, 1, 0]));
}
