//! How long a slot is safe when its home falls silent.

use std::time::{Duration, Instant};

use semafor::{Home, Loss, NotHeld, Permit, Semaphore, secs};
use semafor_testkit::by_hand::in_line;
use semafor_testkit::redis::{RedisServer, until_seen};

/// A semaphore that takes a process for dead after a second.
async fn open_with_quick_heartbeats(server: &RedisServer, extra: &str) -> Semaphore {
    let url = format!("{}?socket_timeout=0.5&number_of_attempts=20{extra}", server.url());
    let home: Home = Home::connect(&url).await.expect("it answers");
    home.named("silent").slots(1).heartbeat_max_interval(secs(1)).build().expect("a valid name")
}

fn safe_until(permit: &Permit<'_>) -> Instant {
    permit.safe_until().expect("it is still held")
}

#[tokio::test]
async fn no_other_client_has_the_slot_before_safe_until() {
    let server = RedisServer::start();
    // Another configuration has a connection of its own, like another process.
    let (semaphore, others) = (
        open_with_quick_heartbeats(&server, "").await,
        open_with_quick_heartbeats(&server, "&max_connections=7").await,
    );
    let permit = semaphore.acquire().await.unwrap();
    let first = safe_until(&permit);
    assert!(first <= Instant::now() + Duration::from_secs(1), "that is all a dead process has");
    until_seen("every heartbeat moves it on", || (safe_until(&permit) > first).then_some(())).await;

    let next = in_line(&others, others.acquire()).await;
    server.pause();
    assert_eq!(permit.lost().await, NotHeld::Lost(Loss::OutOfTouch));
    let safe = safe_until(&permit);
    server.resume();
    let next = next.outcome().await.expect("it is its turn");
    assert!(Instant::now() >= safe);
    next.release().await.unwrap();
}

#[tokio::test]
async fn safe_until_is_before_the_end_of_the_lease() {
    let server = RedisServer::start();
    let semaphore = open_with_quick_heartbeats(&server, "").await;
    let permit = semaphore.acquire().ttl(secs(0.5)).await.unwrap();
    assert_eq!(permit.safe_until(), permit.expires_at());
    permit.renew(secs(60)).await.unwrap();
    assert!(permit.safe_until() < permit.expires_at(), "it still has to send heartbeats");

    semaphore.evict(&permit.id()).await.unwrap();
    assert_eq!(permit.lost().await, NotHeld::Lost(Loss::Evicted));
    assert_eq!(permit.safe_until(), None, "others may have it");
}

#[tokio::test]
async fn memory_needs_no_heartbeats() {
    let semaphore = Semaphore::memory("no signs of life").slots(1).ttl(secs(60)).build().unwrap();
    assert_eq!(semaphore.acquire().await.unwrap().safe_until(), None);
}
