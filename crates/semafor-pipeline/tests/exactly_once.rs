//! Every item that was taken is done, failed or not begun, exactly once, and at most `limit` are in progress at once.
//! With random limits, failures, panics and cancellations.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use proptest::prelude::*;
use semafor_pipeline::{CancellationToken, Failure, OnError, Outcome, Pipeline, StoppedBy};

#[derive(Clone, Debug)]
struct Plan {
    limit: u32,
    buffer: usize,
    items: u64,
    max_items: u64,
    cancel_at: Option<u64>,
    fails: Vec<bool>,
    panics: Vec<bool>,
    stops: bool,
    is_ranked: bool,
    by_latency: bool,
    yields: u32,
}

fn plans() -> impl Strategy<Value = Plan> {
    let flow = (1..9u32, 0..12usize, 0..120u64, prop_oneof![Just(0), 1..150u64]);
    let faults = (
        proptest::option::of(0..150u64),
        proptest::collection::vec(proptest::bool::weighted(0.1), 7),
        proptest::collection::vec(proptest::bool::weighted(0.02), 11),
    );
    (flow, faults, any::<[bool; 3]>(), 0..4u32).prop_map(
        |(flow, faults, [stops, is_ranked, by_latency], yields)| {
            let ((limit, buffer, items, max_items), (cancel_at, fails, panics)) = (flow, faults);
            Plan {
                limit,
                buffer,
                items,
                max_items,
                cancel_at,
                fails,
                panics,
                stops,
                is_ranked,
                by_latency,
                yields,
            }
        },
    )
}

/// What a run did.
#[derive(Default)]
struct Seen {
    taken: AtomicU64,
    in_flight: AtomicU32,
    most: AtomicU32,
    begun: Mutex<BTreeMap<u64, u32>>,
    cancelled: CancellationToken,
}

impl Plan {
    fn pipeline(&self, seen: &Seen) -> Pipeline<u64> {
        let mut pipeline = Pipeline::new(self.limit)
            .buffer(self.buffer)
            .max_items(self.max_items)
            .cancelled_by(seen.cancelled.clone())
            .on_error(if self.stops { OnError::Stop } else { OnError::Continue });
        if self.is_ranked {
            pipeline = pipeline.priority(|item| (item * 31 % 17) as i64);
        }
        if self.by_latency {
            pipeline = pipeline.scale_by_latency(2.0);
        }
        pipeline
    }

    fn items<'a>(&self, seen: &'a Seen) -> impl Iterator<Item = u64> + 'a + use<'a> {
        (0..self.items).inspect(|_| {
            seen.taken.fetch_add(1, Ordering::SeqCst);
        })
    }

    fn begin(&self, seen: &Seen, item: u64) {
        let now = 1 + seen.in_flight.fetch_add(1, Ordering::SeqCst);
        seen.most.fetch_max(now, Ordering::SeqCst);
        *seen.begun.lock().unwrap().entry(item).or_default() += 1;
        if self.cancel_at == Some(item) {
            seen.cancelled.cancel();
        }
    }

    fn finish(&self, seen: &Seen, item: u64) -> Result<u64, u64> {
        seen.in_flight.fetch_sub(1, Ordering::SeqCst);
        if self.panics[(item % 11) as usize] {
            std::panic::panic_any("as planned");
        }
        if self.fails[(item % 7) as usize] { Err(item) } else { Ok(item) }
    }

    fn check(&self, seen: Seen, outcome: &Outcome<u64, u64>, mut done: Vec<u64>, failed: u64) {
        let metrics = &outcome.metrics;
        let taken = seen.taken.load(Ordering::SeqCst);
        assert_eq!(metrics.done + metrics.failed + metrics.not_begun, taken, "{self:?} {outcome:?}");
        assert_eq!((metrics.done, metrics.failed), (done.len() as u64, failed));
        let begun = seen.begun.into_inner().unwrap();
        assert!(begun.values().all(|times| *times == 1));
        assert_eq!(begun.len() as u64, metrics.done + metrics.failed);
        assert!(outcome.not_begun.iter().all(|item| !begun.contains_key(item)));
        done.sort_unstable();
        done.dedup();
        assert_eq!(done.len() as u64, metrics.done, "each result was seen once");
        assert!(seen.most.into_inner() <= self.limit && metrics.max_slots_in_use <= u64::from(self.limit));
        assert!(metrics.max_queue_depth <= u64::from(self.limit) + self.buffer as u64);
        assert_eq!((metrics.queue_depth, metrics.slots_in_use), (0, 0));
        assert_eq!(metrics.latency.count(), metrics.done + metrics.failed);
        match outcome.stopped_by {
            StoppedBy::Completed => assert_eq!((taken, metrics.not_begun), (self.items, 0)),
            StoppedBy::ItemLimit => assert_eq!((taken, metrics.not_begun), (self.max_items, 0)),
            StoppedBy::Cancelled => assert!(seen.cancelled.is_cancelled()),
            StoppedBy::Error => assert!(self.stops && failed > 0 && outcome.first_failure.is_some()),
            other => panic!("the plan has no reason to stop by {other:?}"),
        }
    }
}

fn sort(result: Result<u64, &Failure<u64>>, done: &mut Vec<u64>, failed: &mut u64) {
    match result {
        Ok(item) => done.push(item),
        Err(Failure::Failed(_) | Failure::Panicked(_)) => *failed += 1,
        Err(other) => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_item_is_processed_once_in_tasks(plan in plans()) {
        std::panic::set_hook(Box::new(|_| {}));
        let (seen, mut done, mut failed) = (Seen::default(), Vec::new(), 0);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let work = async |item| {
            plan.begin(&seen, item);
            for _ in 0..plan.yields {
                tokio::task::yield_now().await;
            }
            plan.finish(&seen, item)
        };
        let run = plan.pipeline(&seen).run_each(plan.items(&seen), work, |result| sort(result, &mut done, &mut failed));
        let outcome = runtime.block_on(run);
        plan.check(seen, &outcome, done, failed);
    }

    #[test]
    fn every_item_is_processed_once_on_threads(plan in plans()) {
        std::panic::set_hook(Box::new(|_| {}));
        let (seen, mut done, mut failed) = (Seen::default(), Vec::new(), 0);
        let work = |item| {
            plan.begin(&seen, item);
            (0..plan.yields).for_each(|_| std::thread::yield_now());
            plan.finish(&seen, item)
        };
        let outcome = plan.pipeline(&seen).run_blocking_each(
            plan.items(&seen),
            work,
            |result| sort(result, &mut done, &mut failed),
        );
        plan.check(seen, &outcome, done, failed);
    }
}
