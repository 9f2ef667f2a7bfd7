//! Semaphores on the master that the sentinels report.
//!
//! The promises are the same as on a cluster, see `redis_cluster.rs`.

mod redis_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use redis_support::{
    SHORT_TIMEOUTS, assert_hands_over, connected, connections, eventually, in_time, until_waiting,
};
use semafor::{AcquireError, Home, HomeErrorKind, Permit, ReleaseError, secs};
use semafor_testkit::redis::{RedisSentinel, RedisServer};

fn hosts(watched: &RedisSentinel) -> String {
    let ports = watched.sentinels().iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port()));
    ports.collect::<Vec<_>>().join(",")
}

fn url(watched: &RedisSentinel) -> String {
    format!("redis+sentinel://{}/{}?{SHORT_TIMEOUTS}", hosts(watched), watched.master_name())
}

async fn fail_over(watched: &Arc<RedisSentinel>) -> usize {
    let failing = Arc::clone(watched);
    in_time(tokio::task::spawn_blocking(move || failing.fail_over())).await.unwrap()
}

/// Returns when the replica has all that was written.
fn wait_for_replicas(master: &RedisServer) {
    let mut connection = master.connection();
    redis::cmd("SET").arg("mark").arg("").arg("PX").arg(1).exec(&mut connection).unwrap();
    let replicas: u32 = redis::cmd("WAIT").arg(1).arg(0).query(&mut connection).unwrap();
    assert_eq!(replicas, 1);
}

#[tokio::test]
async fn every_sentinel_leads_to_the_master() {
    let watched = RedisSentinel::start();
    let direct = connected(&watched.servers()[watched.master()].url()).await;
    let direct = in_time(direct.named("found").slots(1).open()).await.unwrap();
    for sentinel in watched.sentinels() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let silent_port = silent.local_addr().unwrap().port();
        let hosts = format!("127.0.0.1:{silent_port},127.0.0.1:1,127.0.0.1:{}", sentinel.port());
        let home = connected(&format!("redis+sentinel://{hosts}/tower/0?{SHORT_TIMEOUTS}")).await;
        let semaphore = in_time(home.named("found").slots(1).open()).await.unwrap();
        assert_hands_over(&semaphore, &direct).await;
        assert_hands_over(&direct, &semaphore).await;
    }
    let other = connected(&format!("redis+sentinel://{}/tower/3?{SHORT_TIMEOUTS}", hosts(&watched))).await;
    let elsewhere = in_time(other.named("found").slots(5).open()).await.expect("another database");
    in_time(elsewhere.acquire()).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn sentinel_misconfiguration_is_reported_with_the_remedy() {
    let watched = RedisSentinel::start();
    for (url, kind, remedy) in [
        (
            format!("redis+sentinel://u:hunter2@{}/castle?{SHORT_TIMEOUTS}", hosts(&watched)),
            HomeErrorKind::Unreachable,
            "knows a master of that name",
        ),
        (
            format!("redis+sentinel://u:hunter2@{}/?{SHORT_TIMEOUTS}", hosts(&watched)),
            HomeErrorKind::InvalidUrl,
            "the name of the master is missing",
        ),
        (
            format!("redis+sentinel://u:hunter2@127.0.0.1:1,127.0.0.1:2/tower?{SHORT_TIMEOUTS}"),
            HomeErrorKind::Unreachable,
            "Is it running",
        ),
        (watched.sentinels()[0].url(), HomeErrorKind::Unsupported, "use redis+sentinel://"),
        (
            format!("redis+sentinel://127.0.0.1:{}/tower?{SHORT_TIMEOUTS}", watched.servers()[0].port()),
            HomeErrorKind::InvalidUrl,
            "not a sentinel",
        ),
    ] {
        let error = in_time(Home::connect(&url)).await.expect_err(&url);
        assert_eq!(error.kind(), kind, "{url}: {error}");
        assert!(error.to_string().contains(remedy), "{url}: {error}");
        assert!(!format!("{error:?}").contains("hunter2"));
    }
}

#[tokio::test]
async fn holders_and_waiters_stay_when_the_replica_takes_over() {
    let watched = Arc::new(RedisSentinel::start());
    let home = connected(&url(&watched)).await;
    let builder = home.named("steady").slots(1).heartbeat_max_interval(secs(60));
    let semaphore = in_time(builder.open()).await.unwrap();
    let held = in_time(semaphore.acquire()).await.unwrap();
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await.map(Permit::detach) }
    });
    until_waiting(&semaphore, 1).await;
    wait_for_replicas(&watched.servers()[watched.master()]);

    let after = fail_over(&watched).await;
    let stats = eventually("the new master is found", || async { semaphore.stats().await.ok() }).await;
    assert_eq!((stats.held, stats.waiting), (1, 1));
    assert_eq!(connections_of_ours(&watched.servers()[after]), 1);
    assert!(!held.is_lost());
    in_time(held.release()).await.expect("it was held all the time");
    let id = in_time(waiting).await.unwrap().expect("it stood in line all the time");
    in_time(semaphore.release(&id)).await.unwrap();
}

/// The connections of our clients, without those of sentinels and replicas.
fn connections_of_ours(server: &RedisServer) -> usize {
    assert!(connections(server) > 0);
    redis_support::ask(server, &["CLIENT", "LIST"]).lines().filter(|line| line.contains("resp=3")).count()
}

/// The replica had no data: holders and waiters notice that, too.
#[tokio::test]
async fn lost_holders_are_notified_and_waiters_keep_waiting() {
    let watched = Arc::new(RedisSentinel::start());
    let home = connected(&url(&watched)).await;
    let builder = home.named("forgotten").slots(1).heartbeat_max_interval(secs(60));
    let semaphore = in_time(builder.open()).await.unwrap();
    let held = in_time(semaphore.acquire()).await.unwrap();
    let token = held.fencing_token();
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move {
            let permit = semaphore.acquire().await?;
            Ok::<_, AcquireError>((permit.fencing_token(), permit.detach()))
        }
    });
    until_waiting(&semaphore, 1).await;
    let after = fail_over(&watched).await;
    watched.servers()[after].command(&["FLUSHALL"]);

    in_time(held.lost()).await;
    assert!(held.is_lost());
    let (next, id) = in_time(waiting).await.unwrap().expect("it went back in line");
    assert!(next > token, "tokens grow, whatever was forgotten");
    in_time(semaphore.release(&id)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_under_load_is_survived() {
    const SLOTS: u32 = 2;
    let watched = Arc::new(RedisSentinel::start());
    let home = connected(&url(&watched)).await;
    let semaphore =
        in_time(home.named("busy").slots(SLOTS).heartbeat_max_interval(secs(2)).open()).await.unwrap();
    let (inside, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (rounds, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let work = || {
        let (semaphore, inside, most) = (semaphore.clone(), Arc::clone(&inside), Arc::clone(&most));
        let (rounds, stop) = (Arc::clone(&rounds), Arc::clone(&stop));
        async move {
            while !stop.load(Ordering::SeqCst) {
                let permit = match in_time(semaphore.acquire()).await {
                    Ok(permit) => permit,
                    Err(AcquireError::Home(error))
                        if matches!(error.kind(), HomeErrorKind::Unreachable | HomeErrorKind::ReadOnly) =>
                    {
                        continue;
                    }
                    Err(error) => panic!("{error}"),
                };
                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                let _ = tokio::time::timeout(Duration::from_millis(2), permit.lost()).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                match in_time(permit.release()).await {
                    Ok(()) => {
                        rounds.fetch_add(1, Ordering::SeqCst);
                    }
                    Err(ReleaseError::NotHeld(_) | ReleaseError::Home(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    };
    let workers: Vec<_> = (0..6).map(|_| tokio::spawn(work())).collect();
    let until_rounds = |more: usize| {
        let goal = rounds.load(Ordering::SeqCst) + more;
        let rounds = Arc::clone(&rounds);
        async move {
            let look = || async { (rounds.load(Ordering::SeqCst) >= goal).then_some(()) };
            eventually("they go on", look).await;
        }
    };
    until_rounds(50).await;
    assert!(most.load(Ordering::SeqCst) <= SLOTS);
    let before = watched.master();
    assert_ne!(fail_over(&watched).await, before);
    until_rounds(50).await;
    stop.store(true, Ordering::SeqCst);
    for worker in workers {
        in_time(worker).await.unwrap();
    }
    // Grants that were lost in the failover may have been made again, once each.
    assert!(most.load(Ordering::SeqCst) <= 2 * SLOTS);
    eventually("nothing is left", || async {
        let stats = semaphore.stats().await.ok()?;
        (stats.held == 0 && stats.waiting == 0).then_some(())
    })
    .await;
    let next = in_time(home.named("next").slots(1).open()).await.unwrap();
    assert_hands_over(&next, &next).await;
}
