//! Ten million items need no more memory than ten thousand. Measured at the allocator.

use std::sync::atomic::{AtomicIsize, Ordering};

use pollster::block_on;
use semafor_pipeline::{Outcome, Pipeline};
use semafor_testkit::heap::{Counting, live_bytes};

#[global_allocator]
static HEAP: Counting = Counting;

const MANY: u64 = if cfg!(debug_assertions) { 300_000 } else { 10_000_000 };

/// The most memory in use during the run, minus the memory in use before it.
fn peak(run: impl Fn(&(dyn Fn(u64) -> Result<u64, String> + Sync)) -> Outcome<u64, String>) -> isize {
    let (before, most) = (live_bytes(), AtomicIsize::new(0));
    let outcome = run(&|item| {
        if item % 64 == 0 {
            most.fetch_max(live_bytes() - before, Ordering::Relaxed);
        }
        Ok::<_, String>(item)
    });
    assert!(outcome.is_clean());
    most.into_inner()
}

/// One test, because the allocator counts for the whole process.
#[test]
fn memory_is_bounded_by_the_limit_and_not_by_the_number_of_items() {
    for (few, many) in
        [(threads(10_000), threads(MANY)), (tasks(10_000), tasks(MANY)), (ranked(10_000), ranked(MANY))]
    {
        println!("{few} bytes for ten thousand items, {many} for {MANY}");
        assert!(many < 256 * 1024, "eight workers and a queue of 108: {many} bytes");
        assert!(many < few + 32 * 1024, "{few} bytes for ten thousand items, {many} for {MANY}");
    }
    the_queue_costs_what_its_items_cost();
}

fn threads(items: u64) -> isize {
    peak(|work| Pipeline::new(8).run_blocking(0..items, work))
}

fn tasks(items: u64) -> isize {
    peak(|work| block_on(Pipeline::new(8).run(0..items, async |item| work(item))))
}

fn ranked(items: u64) -> isize {
    let rank = |item: &u64| (item % 7) as i64;
    peak(|work| block_on(Pipeline::new(8).priority(rank).run(0..items, async |item| work(item))))
}

/// Memory is limit × memory of a worker + queue × size of an item: here 100 items of 1,000 bytes and ten workers.
fn the_queue_costs_what_its_items_cost() {
    let big = |n: u64| vec![n as u8; 1000];
    let before = live_bytes();
    let most = AtomicIsize::new(0);
    let outcome = block_on(Pipeline::new(10).buffer(90).run((0..20_000).map(big), async |item: Vec<u8>| {
        most.fetch_max(live_bytes() - before, Ordering::Relaxed);
        Ok::<_, String>(item.len())
    }));
    assert!(outcome.is_clean());
    assert!(most.into_inner() < 512 * 1024);
}
