//! The rate limit without a pipeline.

mod support;

use std::sync::Mutex;
use std::time::Duration;

use semafor_pipeline::{Clock, Delay, Rate, SystemClock};
use semafor_testkit::stepwise::{now, pend};
use support::Dial;

#[test]
fn a_hundred_turns_at_ten_per_second_take_ten_seconds() {
    let clock = Dial::default();
    let rate = Rate::per_second(10).clock(clock.clone());
    for _ in 0..100 {
        rate.wait();
    }
    assert_eq!(clock.get(), 9_900, "the first one does not wait");
    now(rate.ready());
    assert_eq!(clock.get(), 10_000, "tasks and threads share the turns");
}

#[test]
fn a_clone_shares_the_turns() {
    let clock = Dial::default();
    let rate = Rate::per_second(1).clock(clock.clone());
    let same = rate.clone();
    for _ in 0..5 {
        rate.wait();
        same.wait();
    }
    assert_eq!(clock.get(), 9_000);
}

#[test]
fn an_unlimited_rate_never_waits() {
    let rate = Rate::per_second(0);
    for _ in 0..1000 {
        now(rate.ready());
    }
}

/// A clock that stands still and records the delays it is asked for.
#[derive(Clone, Default)]
struct RecordedDelays(std::sync::Arc<Mutex<Vec<u128>>>);

impl Clock for RecordedDelays {
    fn now(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn delay(&self, span: Duration) -> Delay {
        self.0.lock().unwrap().push(span.as_millis());
        Box::pin(std::future::pending())
    }
}

#[test]
fn turns_are_given_in_the_order_of_the_calls() {
    let clock = RecordedDelays::default();
    let rate = Rate::per_second(10).clock(clock.clone());
    now(rate.ready());
    let (_a, _b, _c) = (pend(rate.ready()), pend(rate.ready()), pend(rate.ready()));
    assert_eq!(*clock.0.lock().unwrap(), [100, 200, 300]);
}

#[test]
fn a_dropped_wait_returns_its_turn_unless_later_turns_were_taken() {
    let clock = RecordedDelays::default();
    let rate = Rate::per_second(10).clock(clock.clone());
    now(rate.ready());
    for _ in 0..3 {
        drop(pend(rate.ready()));
    }
    assert_eq!(*clock.0.lock().unwrap(), [100, 100, 100], "dropped waits delay no one");
    let (first, _second) = (pend(rate.ready()), pend(rate.ready()));
    drop(first);
    let _third = pend(rate.ready());
    assert_eq!(clock.0.lock().unwrap()[3..], [100, 200, 300]);
}

#[test]
fn the_system_clock_waits_without_a_runtime() {
    let (clock, span) = (SystemClock, Duration::from_millis(2));
    let before = clock.now();
    pollster::block_on(clock.delay(span));
    assert!(clock.now() - before >= span);
}
