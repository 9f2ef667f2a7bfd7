//! Durations and numbers of slots of the command line, and what is done with them.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use semafor::__client::{AcquireRequest, Call, Client, Command, Instant, Key, ServerPushes, Wait};
use semafor::__local::OfflineAgent;
use semafor::__redis::OfflineEngine;
use semafor::{ManualClock, Registry};
use semafor_cli::duration;
use semafor_cli::slots::Slots;

pub(super) const WORDS: &[&str] = &[
    "ns",
    "us",
    "ms",
    "s",
    "m",
    "h",
    "d",
    "days",
    "w",
    "months",
    "y",
    " ",
    "-1",
    "+2",
    "0.5",
    "1e300",
    "1e-300",
    "inf",
    "NaN",
    "%",
    "18446744073709551615s",
    "18446744073709551615ns",
    "584542046090y",
    "18446744073709551616",
    "4294967295",
    "9223372036854775807",
];

pub(super) fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let parsers = [duration::any, duration::longer_than_zero, duration::age, duration::days];
    for duration in parsers.iter().filter_map(|parse| parse(&text).ok()) {
        check_shown(duration);
        hold(duration);
        send(duration);
    }
    if let Ok(slots) = text.parse::<Slots>() {
        for cores in [1, 2, 64, u32::MAX] {
            assert!(slots.resolve(cores) >= 1, "{text:?} on {cores} cores");
        }
        let registry = Registry::new();
        let semaphore = registry.named("it").slots(slots.resolve(4)).build().expect("a number of slots");
        let mut cx = Context::from_waker(Waker::noop());
        let tried = std::pin::pin!(semaphore.try_acquire()).poll(&mut cx);
        assert!(matches!(tried, Poll::Ready(Ok(_))), "{text:?} is no number of slots");
    }
}

/// A duration that is shown can be read, and is about the same.
fn check_shown(duration: Duration) {
    let shown = duration::show(duration);
    let read =
        duration::any(&shown).unwrap_or_else(|error| panic!("{duration:?} is shown as {shown:?}: {error}"));
    let unit = match duration.as_secs() {
        0..10 => Duration::from_millis(51),
        10..3600 => Duration::from_secs(1),
        3600..86400 => Duration::from_secs(60),
        _ => Duration::from_secs(3600),
    };
    assert!(read.abs_diff(duration) <= unit, "{duration:?} is shown as {shown:?}");
}

/// As a timeout and as a lease, in memory.
fn hold(duration: Duration) {
    let clock = ManualClock::new();
    let registry = Registry::builder().clock(&clock).build();
    let semaphore = registry.named("it").slots(1).ttl(duration).timeout(duration).build();
    // A lease of zero seconds is refused.
    let Ok(semaphore) = semaphore else { return };
    let mut cx = Context::from_waker(Waker::noop());
    let mut held = Box::pin(semaphore.acquire().into_future());
    let held = held.as_mut().poll(&mut cx);
    let mut waiting = Box::pin(semaphore.acquire().into_future());
    let _ = waiting.as_mut().poll(&mut cx);
    clock.advance(Duration::from_secs(1));
    clock.advance(duration);
    let _ = waiting.as_mut().poll(&mut cx);
    drop(held);
}

/// In the protocols of the agent and of Redis.
fn send(duration: Duration) {
    let agent = OfflineAgent::new().expect("a pair of sockets");
    let mut cx = Context::from_waker(Waker::noop());
    let home = agent.home();
    let builder = home.named("it").slots(1).ttl(duration).timeout(duration).grace(duration);
    if let Ok(semaphore) = builder.heartbeat_max_interval(duration).build() {
        let mut acquire = Box::pin(semaphore.acquire().into_future());
        let _ = acquire.as_mut().poll(&mut cx);
    }

    let engine = OfflineEngine::new("redis://simulated".parse().expect("a valid URL"), 7);
    let mut client = Client::new(engine.settings());
    let target = engine.target("it", Some(1), duration);
    let mut now = Instant::at(Duration::from_secs(1_000));
    client.connected(ServerPushes { messages: true, tracking: true }, now);
    let request = AcquireRequest::new(1, Some(duration), Wait::For(duration)).with_grace(duration);
    client.acquire(&target, request, now);
    while let Some(call) = client.poll_transmit(now) {
        let _ = engine.script_of(&call);
    }
    let renew = Command::Renew { id: "0".into(), ttl: Some(duration) };
    let _ = engine.script_of(&Call { number: 9, target, command: renew, is_repeat: false });
    for _ in 0..4 {
        now = client.poll_timeout().unwrap_or(now).max(now);
        client.handle_timeout(now);
    }
    let _ = client.poll_acquire(Key(1), Waker::noop().clone());
}
