//! The metrics that are published.
#![cfg(feature = "metrics")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use semafor_testkit::stepwise::{now, pend, seconds, standing_still};

/// Stores the last value of every metric.
#[derive(Clone, Default)]
struct LastValues(Arc<Mutex<BTreeMap<String, f64>>>);

struct Cell(LastValues, String);

impl Cell {
    fn put(&self, value: f64) {
        self.0.0.lock().unwrap().insert(self.1.clone(), value);
    }
}

impl CounterFn for Cell {
    fn increment(&self, _: u64) {}
    fn absolute(&self, value: u64) {
        self.put(value as f64);
    }
}

impl GaugeFn for Cell {
    fn increment(&self, _: f64) {}
    fn decrement(&self, _: f64) {}
    fn set(&self, value: f64) {
        self.put(value);
    }
}

impl LastValues {
    fn cell(&self, key: &Key) -> Arc<Cell> {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(Cell(self.clone(), format!("{}{{{}}}", key.name(), labels.join(","))))
    }
}

impl Recorder for LastValues {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key))
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn the_numbers_of_all_semaphores_are_published_to_metrics() {
    let (registry, clock) = standing_still();
    let sem = registry.named("measured").slots(4).build().unwrap();
    let _held = now(sem.acquire().weight(4)).unwrap();
    let _waiting = pend(sem.acquire());
    clock.advance(seconds(7));
    let board = LastValues::default();
    metrics::with_local_recorder(&board, || registry.publish_metrics());
    let values = board.0.lock().unwrap();
    assert_eq!(values["semafor_held{name=measured}"], 4.0);
    assert_eq!(values["semafor_capacity{name=measured}"], 4.0);
    assert_eq!(values["semafor_waiting{name=measured}"], 1.0);
    assert_eq!(values["semafor_longest_wait_seconds{name=measured}"], 7.0);
    assert_eq!(values["semafor_events_total{name=measured,event=granted}"], 1.0);
    assert_eq!(values["semafor_events_total{name=measured,event=queued}"], 1.0);
    assert_eq!(values["semafor_hold_seconds{name=measured,quantile=0.99}"], 0.0);
}
