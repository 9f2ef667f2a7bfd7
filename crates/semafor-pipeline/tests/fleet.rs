//! Pipelines of several clients share the slots of a semaphore on Redis.

use std::sync::atomic::{AtomicU32, Ordering};

use semafor::{Home, Semaphore};
use semafor_pipeline::{Failure, Pipeline, StoppedBy};
use semafor_testkit::redis::RedisServer;

/// Opens a new connection, as another process would.
async fn fleet_wide(server: &RedisServer, slots: u32) -> Semaphore {
    let home = Home::connect(&server.url()).await.unwrap();
    home.named("deletions").slots(slots).build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_pipelines_share_the_slots_of_a_redis() {
    let server = RedisServer::start();
    let (now, most) = (AtomicU32::new(0), AtomicU32::new(0));
    let enter = || most.fetch_max(1 + now.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
    let leave = || now.fetch_sub(1, Ordering::SeqCst);
    let run = async || {
        let pipeline = Pipeline::with(fleet_wide(&server, 3).await).workers(2);
        let work = async |item: u32| {
            enter();
            tokio::task::yield_now().await;
            leave();
            Ok::<_, String>(item)
        };
        pipeline.run(0..40, work).await
    };
    let on_threads = async || {
        let semaphore = fleet_wide(&server, 3).await;
        let work = |item: u32| {
            enter();
            std::thread::yield_now();
            leave();
            Ok::<_, String>(item)
        };
        tokio::task::block_in_place(|| Pipeline::with(semaphore).run_blocking(0..40, work))
    };
    let (one, two, three) = tokio::join!(run(), run(), on_threads());
    for outcome in [one, two, three] {
        assert!(outcome.is_clean(), "{outcome:?}");
        assert_eq!(outcome.metrics.done, 40);
    }
    let most = most.into_inner();
    assert!((1..=3).contains(&most), "{most} at once");
}

#[tokio::test]
async fn an_unreachable_home_stops_the_pipeline_before_it_begins() {
    let server = RedisServer::start();
    let semaphore = fleet_wide(&server, 3).await;
    server.kill();
    let outcome = Pipeline::with(semaphore).run(0..10, async |item: u32| Ok::<_, String>(item)).await;
    assert_eq!(outcome.stopped_by, StoppedBy::Error);
    assert!(matches!(outcome.first_failure, Some(Failure::NoSlot(_))));
    assert_eq!((outcome.metrics.done, outcome.metrics.failed), (0, 0));
}
