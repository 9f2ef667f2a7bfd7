//! Helpers for the tests of the Redis home.
#![allow(dead_code, reason = "no test needs all of it")]

use std::fmt::{self, Write as _};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use semafor::{Home, Semaphore};
use semafor_testkit::redis::RedisServer;

/// A test that waits longer than this has failed. Not a measure of speed.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Options for a URL: gives up soon, and tries again soon.
pub(crate) const SHORT_TIMEOUTS: &str = "socket_timeout=2&socket_connect_timeout=2&number_of_attempts=20\
    &retry_multiplier=0.05&retry_min_delay=0.05&retry_max_delay=0.2";

/// The result of `work`, which must not hang.
#[track_caller]
pub(crate) fn in_time<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    let caller = std::panic::Location::caller();
    async move {
        tokio::time::timeout(TIME_LIMIT, work).await.unwrap_or_else(|_| panic!("it hangs, see {caller}"))
    }
}

/// Calls `look` until it returns something.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> T {
    let deadline = Instant::now() + TIME_LIMIT;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "this never happened: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) async fn connected(url: &str) -> Home {
    in_time(Home::connect(url)).await.unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// Returns when so many waiters are in line.
pub(crate) async fn until_waiting(semaphore: &Semaphore, waiting: usize) {
    eventually("so many wait", || async {
        let stats = semaphore.stats().await.ok()?;
        (stats.waiting == waiting).then_some(())
    })
    .await;
}

/// Checks that a released slot goes to a waiter of another handle.
pub(crate) async fn assert_hands_over(holder: &Semaphore, waiter: &Semaphore) {
    let held = in_time(holder.acquire()).await.expect("a free slot");
    let waiting = tokio::spawn({
        let waiter = waiter.clone();
        async move { waiter.acquire().await.map(|permit| permit.fencing_token()) }
    });
    until_waiting(holder, 1).await;
    let token = held.fencing_token();
    in_time(held.release()).await.expect("it was held");
    let next = in_time(waiting).await.expect("no panic").expect("the slot that was released");
    assert!(next > token);
    eventually("it is released", || async { (holder.stats().await.ok()?.held == 0).then_some(()) }).await;
}

/// The answer of a server, as text.
pub(crate) fn ask(server: &RedisServer, words: &[&str]) -> String {
    redis::from_redis_value(server.command(words)).expect("text")
}

/// The number of connections, without the one that asks.
pub(crate) fn connections(server: &RedisServer) -> usize {
    ask(server, &["CLIENT", "LIST"]).lines().count() - 1
}

/// All keys of all databases, and their values.
pub(crate) fn all_data(server: &RedisServer) -> Vec<String> {
    let mut keys: Vec<String> = redis::from_redis_value(server.command(&["KEYS", "*"])).expect("keys");
    keys.sort();
    keys
}

static LOGGED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// From now on, all events of the whole process are recorded.
pub(crate) fn record_events() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::subscriber::set_global_default(EventRecorder).expect("no other subscriber is set");
    });
}

/// The recorded events that contain `text`.
pub(crate) fn logged(text: &str) -> Vec<String> {
    let logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
    logged.iter().filter(|line| line.contains(text)).cloned().collect()
}

/// Records events as `LEVEL message field=value …`.
struct EventRecorder;

impl tracing::Subscriber for EventRecorder {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn event(&self, event: &tracing::Event<'_>) {
        struct Line(String);
        impl tracing::field::Visit for Line {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
                let _ = write!(self.0, " {}={value:?}", field.name());
            }
        }
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        LOGGED.lock().unwrap_or_else(PoisonError::into_inner).push(line.0);
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}
