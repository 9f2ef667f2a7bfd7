//! The events that are sent to `tracing`.
#![cfg(feature = "tracing")]

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex};

use semafor::secs;
use semafor_testkit::stepwise::{answer, now, pend, seconds, standing_still};

/// Records events as `LEVEL message field=value …`.
#[derive(Clone, Default)]
struct EventRecorder(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for EventRecorder {
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
fn tracing_gets_the_events_of_a_semaphore() {
    let listener = EventRecorder::default();
    let logged = tracing::subscriber::with_default(listener.clone(), || {
        let (registry, clock) = standing_still();
        let sem = registry.named("traced").slots(1).build().unwrap();
        let held = now(sem.acquire().ttl(secs(3))).unwrap();
        let waiting = pend(sem.acquire());
        drop(pend(sem.acquire()));
        clock.advance(seconds(3));
        drop(answer(waiting).unwrap());
        drop(held);
        now(sem.resize(2)).unwrap();
        now(sem.close()).unwrap();
        listener.0.lock().unwrap().clone()
    });
    let told: Vec<_> = logged.iter().map(|line| line.split(" name=").next().unwrap_or_default()).collect();
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
    let lost = &logged[4];
    assert!(lost.contains("name=\"traced\"") && lost.contains("reason=its time to live ran out"), "{lost}");
}
