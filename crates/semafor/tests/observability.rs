//! What `tracing` and `metrics` get to see.
#![cfg(all(feature = "tracing", feature = "metrics"))]

mod by_hand;

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex};

use by_hand::{answer, now, pend, seconds, standing_still};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use semafor::secs;

/// Writes down events as `LEVEL message field=value …`.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Listener {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "semafor"
    }

    fn event(&self, event: &tracing::Event<'_>) {
        struct Fields(String, String);
        impl tracing::field::Visit for Fields {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
                match field.name() {
                    "message" => write!(self.0, "{value:?}"),
                    name => write!(self.1, " {name}={value:?}"),
                }
                .unwrap();
            }
        }
        let mut fields = Fields(String::new(), String::new());
        event.record(&mut fields);
        let line = format!("{} {}{}", event.metadata().level(), fields.0, fields.1);
        self.0.lock().unwrap().push(line);
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_life_of_a_semaphore_is_told_to_tracing() {
    let listener = Listener::default();
    let heard = tracing::subscriber::with_default(listener.clone(), || {
        let (registry, clock) = standing_still();
        let sem = registry.semaphore("told").slots(1).build().unwrap();
        let held = now(sem.acquire().ttl(secs(3))).unwrap();
        let waiting = pend(sem.acquire());
        drop(pend(sem.acquire()));
        clock.advance(seconds(3));
        drop(answer(waiting).unwrap());
        drop(held);
        now(sem.resize(2)).unwrap();
        now(sem.close());
        listener.0.lock().unwrap().clone()
    });
    let told: Vec<_> = heard.iter().map(|line| line.split(" name=").next().unwrap_or_default()).collect();
    assert_eq!(
        told,
        [
            "TRACE granted",
            "TRACE waiting",
            "TRACE waiting",
            "DEBUG left the line",
            "WARN a holder lost its slot",
            "TRACE granted",
            "TRACE released",
            "DEBUG nothing to release",
            "INFO resized",
            "INFO closed"
        ]
    );
    let lost = &heard[4];
    assert!(lost.contains("name=\"told\"") && lost.contains("reason=its time to live ran out"), "{lost}");
}

/// Keeps the last value of everything.
#[derive(Clone, Default)]
struct Board(Arc<Mutex<BTreeMap<String, f64>>>);

struct Cell(Board, String);

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

impl Board {
    fn cell(&self, key: &Key) -> Arc<Cell> {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(Cell(self.clone(), format!("{}{{{}}}", key.name(), labels.join(","))))
    }
}

impl Recorder for Board {
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
    let sem = registry.semaphore("measured").slots(4).build().unwrap();
    let _held = now(sem.acquire().weight(4)).unwrap();
    let _waiting = pend(sem.acquire());
    clock.advance(seconds(7));
    let board = Board::default();
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
