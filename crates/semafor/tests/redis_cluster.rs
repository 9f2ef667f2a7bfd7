//! Semaphores on a Redis Cluster.
//!
//! What is promised when a master fails: holders and waiters are notified, no call hangs, and work continues at the
//! replica that takes over, with the data it had. Replication is asynchronous: the last writes before the failure may
//! be lost, and with them grants whose holders know of them already. Those holders are notified with the next
//! heartbeat. Until then there may be more holders than slots; the fencing token distinguishes them.

mod redis_support;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use redis_support::{
    SHORT_TIMEOUTS, assert_hands_over, connected, connections, eventually, in_time, until_waiting,
};
use semafor::{AcquireError, Home, HomeErrorKind, Permit, ReleaseError, Semaphore, secs};
use semafor_testkit::redis::{RedisCluster, RedisServer};

fn hosts(cluster: &RedisCluster) -> String {
    let ports = cluster.nodes().iter().map(|node| format!("127.0.0.1:{}", node.port()));
    ports.collect::<Vec<_>>().join(",")
}

fn url(cluster: &RedisCluster) -> String {
    format!("redis+cluster://{}/?namespace={{app}}&{SHORT_TIMEOUTS}", hosts(cluster))
}

/// Another home, with a connection of its own: as if in another process.
async fn second_home(cluster: &RedisCluster) -> Home {
    connected(&format!("{}&max_connections=7", url(cluster))).await
}

/// One cluster for all tests that break nothing, as long as one of them runs.
fn shared_cluster() -> Arc<RedisCluster> {
    static SHARED: Mutex<Weak<RedisCluster>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let started = Arc::new(RedisCluster::start());
        *shared = Arc::downgrade(&started);
        started
    })
}

#[tokio::test]
async fn a_cluster_is_a_home_like_any_other() {
    let cluster = &*shared_cluster();
    let (one, other) = (connected(&url(cluster)).await, second_home(cluster).await);
    let here = in_time(one.named("tower").slots(2).open()).await.unwrap();
    let there = in_time(other.named("tower").slots(2).open()).await.unwrap();

    let first = in_time(here.acquire().label("first").ttl(secs(60))).await.unwrap();
    let second = in_time(there.acquire().label("second")).await.unwrap();
    assert!(second.fencing_token() > first.fencing_token());
    assert_eq!(in_time(here.try_acquire()).await.unwrap_err(), AcquireError::Busy);
    let holders = in_time(there.holders()).await.unwrap();
    let labels: Vec<_> = holders.iter().map(|holder| holder.label.as_deref()).collect();
    assert_eq!(labels, [Some("first"), Some("second")]);

    let (first, second) = (first.detach(), second.detach());
    in_time(there.release(&first)).await.unwrap();
    in_time(here.evict(&second)).await.unwrap();
    let stats = in_time(one.stats(&semafor::StatsQuery::default().names(["tower"]))).await.unwrap();
    assert_eq!((stats[0].held, stats[0].totals.granted, stats[0].totals.evicted), (0, 2, 1));
    let all = in_time(other.stats(&semafor::StatsQuery::default())).await.unwrap();
    assert!(all.iter().any(|stats| &*stats.name == "tower"));
}

#[tokio::test]
async fn slots_are_handed_over_between_processes_in_order() {
    let cluster = &*shared_cluster();
    let (one, other) = (connected(&url(cluster)).await, second_home(cluster).await);
    let here = in_time(one.named("line").slots(1).open()).await.unwrap();
    let there = in_time(other.named("line").slots(1).open()).await.unwrap();
    assert_hands_over(&here, &there).await;

    let held = in_time(here.acquire()).await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut line = Vec::new();
    for place in 0..10 {
        let semaphore = if place % 2 == 0 { here.clone() } else { there.clone() };
        let order = Arc::clone(&order);
        line.push(tokio::spawn(async move {
            let permit = semaphore.acquire().await.unwrap();
            order.lock().unwrap().push(place);
            permit.release().await.unwrap();
        }));
        until_waiting(&here, place + 1).await;
    }
    in_time(held.release()).await.unwrap();
    for waiter in line {
        in_time(waiter).await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..10).collect::<Vec<_>>());
}

/// With heartbeats every five seconds and a hundred hand-overs: by polling, it would take minutes.
#[tokio::test]
async fn waiters_are_woken_and_do_not_poll() {
    let cluster = &*shared_cluster();
    let (one, other) = (connected(&url(cluster)).await, second_home(cluster).await);
    let here = in_time(one.named("woken").slots(1).open()).await.unwrap();
    let there = in_time(other.named("woken").slots(1).open()).await.unwrap();
    let turns = |semaphore: Semaphore| async move {
        for _ in 0..50 {
            let permit = semaphore.acquire().await.unwrap();
            permit.release().await.unwrap();
        }
    };
    // Both take turns: with one slot and a fair line, each release is a hand-over.
    let pair = [tokio::spawn(turns(here.clone())), tokio::spawn(turns(there))];
    for one in pair {
        in_time(one).await.unwrap();
    }
    assert_eq!(in_time(here.stats()).await.unwrap().totals.granted, 100);
}

#[tokio::test]
async fn a_process_has_one_connection_to_a_whole_cluster() {
    let cluster = RedisCluster::start();
    let all = || cluster.nodes().iter().map(connections).sum::<usize>();
    // The nodes are connected to each other, too.
    let before = all();
    let home = connected(&url(&cluster)).await;
    let semaphore = in_time(home.named("one").slots(1).open()).await.unwrap();
    let held = in_time(semaphore.acquire()).await.unwrap();
    let _waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await.map(drop) }
    });
    until_waiting(&semaphore, 1).await;
    eventually("those that only looked for it are gone", || async { (all() == before + 1).then_some(()) })
        .await;
    drop(held);
}

#[tokio::test]
async fn any_node_leads_to_the_cluster() {
    let cluster = &*shared_cluster();
    let master = cluster.master_of("{app}:any");
    for (place, node) in cluster.nodes().iter().enumerate() {
        // Silent nodes, and nodes that are gone, delay no client.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let silent_port = silent.local_addr().unwrap().port();
        let seeds = format!("127.0.0.1:{silent_port},127.0.0.1:1,127.0.0.1:{}", node.port());
        let url = format!(
            "redis+cluster://{seeds}/?namespace={{app}}&{SHORT_TIMEOUTS}&max_connections={}",
            place + 10
        );
        let home = connected(&url).await;
        let semaphore = in_time(home.named("way").slots(1).open()).await.unwrap();
        in_time(semaphore.acquire()).await.unwrap().release().await.unwrap();
    }
    assert!(connections(&cluster.nodes()[master]) > 0);
}

#[tokio::test]
async fn cluster_misconfiguration_is_reported_with_the_remedy() {
    let cluster = &*shared_cluster();
    for (url, kind, remedy) in [
        (
            format!("redis+cluster://{}/?namespace=app", hosts(cluster)),
            HomeErrorKind::InvalidUrl,
            "it needs a tag in braces, such as {app}",
        ),
        (format!("redis+cluster://{}/", hosts(cluster)), HomeErrorKind::InvalidUrl, "such as {adv-sem}"),
        (
            format!("redis+cluster://{}/?namespace={{}}app", hosts(cluster)),
            HomeErrorKind::InvalidUrl,
            "it needs a tag in braces",
        ),
        (
            format!("redis+cluster://127.0.0.1:1,127.0.0.1:2/?namespace={{app}}&{SHORT_TIMEOUTS}"),
            HomeErrorKind::Unreachable,
            "Is it running",
        ),
        (
            cluster.nodes()[0].url(),
            HomeErrorKind::Unsupported,
            "use redis+cluster:// and a namespace with a {tag}",
        ),
        (
            format!("{}?namespace={{app}}", cluster.nodes()[4].url()),
            HomeErrorKind::Unsupported,
            "use redis+cluster:// and a namespace with a {tag}",
        ),
    ] {
        let error = in_time(Home::connect(&url)).await.expect_err(&url);
        assert_eq!(error.kind(), kind, "{url}: {error}");
        assert!(error.to_string().contains(remedy), "{url}: {error}");
    }
    // A single server looks like a cluster of one.
    let alone = RedisServer::start();
    let home = connected(&format!("redis+cluster://127.0.0.1:{}/?namespace={{app}}", alone.port())).await;
    in_time(home.named("alone").slots(1).open()).await.unwrap();
}

/// How many tasks are at work, and the most at once.
#[derive(Default)]
struct AtWork {
    inside: AtomicU32,
    most: AtomicU32,
    rounds: AtomicUsize,
    lost: AtomicUsize,
    errors: AtomicUsize,
}

impl AtWork {
    fn enter(&self) {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
    }

    fn leave(&self) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Acquires and releases until `stop` is set. Only temporary errors are allowed.
async fn work(semaphore: Semaphore, at_work: Arc<AtWork>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::SeqCst) {
        match in_time(semaphore.acquire()).await {
            Ok(permit) => {
                at_work.enter();
                // The work ends early if the permit is lost.
                let _ = tokio::time::timeout(Duration::from_millis(2), permit.lost()).await;
                at_work.leave();
                match in_time(permit.release()).await {
                    Ok(()) => at_work.rounds.fetch_add(1, Ordering::SeqCst),
                    Err(ReleaseError::NotHeld(_)) => at_work.lost.fetch_add(1, Ordering::SeqCst),
                    Err(ReleaseError::Home(error)) if error.is_unreachable() => {
                        at_work.errors.fetch_add(1, Ordering::SeqCst)
                    }
                    Err(error) => panic!("{error}"),
                };
            }
            Err(AcquireError::Home(error))
                if matches!(error.kind(), HomeErrorKind::Unreachable | HomeErrorKind::ReadOnly) =>
            {
                at_work.errors.fetch_add(1, Ordering::SeqCst);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_under_load_is_survived() {
    const SLOTS: u32 = 2;
    let cluster = RedisCluster::start();
    let (one, other) = (connected(&url(&cluster)).await, second_home(&cluster).await);
    let mut workers = Vec::new();
    let (at_work, stop) = (Arc::new(AtWork::default()), Arc::new(AtomicBool::new(false)));
    let opened =
        |home: &Home| home.named("busy").slots(SLOTS).heartbeat_max_interval(secs(2)).build().unwrap();
    let (here, there) = (opened(&one), opened(&other));
    for place in 0..8 {
        let semaphore = if place % 2 == 0 { here.clone() } else { there.clone() };
        workers.push(tokio::spawn(work(semaphore, Arc::clone(&at_work), Arc::clone(&stop))));
    }
    let until_rounds = |more: usize| {
        let (at_work, goal) = (Arc::clone(&at_work), at_work.rounds.load(Ordering::SeqCst) + more);
        async move {
            eventually("they go on", || async {
                (at_work.rounds.load(Ordering::SeqCst) >= goal).then_some(())
            })
            .await;
        }
    };
    until_rounds(50).await;
    assert!(at_work.most.load(Ordering::SeqCst) <= SLOTS);

    let before = cluster.master_of("{app}:any");
    let cluster = Arc::new(cluster);
    let failing = Arc::clone(&cluster);
    let after = tokio::task::spawn_blocking(move || failing.fail_over("{app}:any"));
    let after = in_time(after).await.unwrap();
    assert_ne!(after, before);
    until_rounds(50).await;

    // And back: the first master returns as a replica.
    let failing = Arc::clone(&cluster);
    let back = tokio::task::spawn_blocking(move || {
        failing.nodes()[before].start_again();
        failing.master_of("{app}:any")
    });
    assert_eq!(in_time(back).await.unwrap(), after);
    until_rounds(50).await;

    stop.store(true, Ordering::SeqCst);
    for worker in workers {
        in_time(worker).await.unwrap();
    }
    // Grants that were lost in the failover may have been made again, once each.
    assert!(at_work.most.load(Ordering::SeqCst) <= 2 * SLOTS, "{:?}", at_work.most);
    eventually("nothing is left", || async {
        let stats = here.stats().await.ok()?;
        (stats.held == 0 && stats.waiting == 0).then_some(())
    })
    .await;
    // Wake-ups work on the new connections as on the old ones.
    let here = in_time(one.named("next").slots(1).open()).await.unwrap();
    let there = in_time(other.named("next").slots(1).open()).await.unwrap();
    assert_hands_over(&here, &there).await;
    assert_hands_over(&there, &here).await;
}

/// The replica had all data: holders keep their slots and waiters their places.
#[tokio::test]
async fn holders_and_waiters_stay_when_the_replica_had_all_data() {
    let cluster = RedisCluster::start();
    let home = connected(&url(&cluster)).await;
    let builder = home.named("steady").slots(1).heartbeat_max_interval(secs(30));
    let semaphore = in_time(builder.open()).await.unwrap();
    let held = in_time(semaphore.acquire()).await.unwrap();
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await.map(Permit::detach) }
    });
    until_waiting(&semaphore, 1).await;
    let master = cluster.master_of("{app}:any");
    wait_for_replicas(&cluster.nodes()[master]);

    let cluster = Arc::new(cluster);
    let failing = Arc::clone(&cluster);
    in_time(tokio::task::spawn_blocking(move || failing.fail_over("{app}:any"))).await.unwrap();
    let stats = eventually("it is reached again", || async { semaphore.stats().await.ok() }).await;
    assert_eq!((stats.held, stats.waiting), (1, 1));
    assert!(!held.is_lost());
    in_time(held.release()).await.expect("it was held all the time");
    let id = in_time(waiting).await.unwrap().expect("it stood in line all the time");
    in_time(semaphore.release(&id)).await.unwrap();
}

/// Returns when the replicas have all that was written.
fn wait_for_replicas(master: &RedisServer) {
    let mut connection = master.connection();
    // `WAIT` covers the writes of its own connection, and all writes before them.
    redis::cmd("EVAL")
        .arg("return redis.call('SET', KEYS[1], '', 'PX', 1)")
        .arg(1)
        .arg("{app}:mark")
        .exec(&mut connection)
        .unwrap();
    let replicas: u32 = redis::cmd("WAIT").arg(1).arg(0).query(&mut connection).unwrap();
    assert_eq!(replicas, 1);
}

/// The replica had no data: holders learn that they lost their slots.
#[tokio::test]
async fn holders_lost_in_a_failover_are_notified() {
    let cluster = Arc::new(RedisCluster::start());
    let home = connected(&url(&cluster)).await;
    let builder = home.named("forgotten").slots(1).heartbeat_max_interval(secs(60));
    let semaphore = in_time(builder.open()).await.unwrap();
    let held = in_time(semaphore.acquire()).await.unwrap();
    let token = held.fencing_token();
    let failing = Arc::clone(&cluster);
    let forget = move || {
        let master = failing.fail_over("{app}:any");
        failing.nodes()[master].command(&["FLUSHALL"]);
    };
    in_time(tokio::task::spawn_blocking(forget)).await.unwrap();

    let why = in_time(held.lost()).await;
    assert!(held.is_lost(), "{why:?}");
    let next = eventually("a master is elected", || async { semaphore.acquire().await.ok() }).await;
    assert!(next.fencing_token() > token, "tokens grow, whatever was forgotten");
}

fn is_replica_of(node: &RedisServer, master: &RedisServer) -> bool {
    redis_support::ask(node, &["INFO", "replication"]).contains(&format!("master_port:{}\r", master.port()))
}

/// Masters can change without a failure.
#[tokio::test]
async fn a_planned_change_of_masters_is_followed() {
    let cluster = RedisCluster::start();
    let home = connected(&url(&cluster)).await;
    let semaphore = in_time(home.named("moving").slots(1).open()).await.unwrap();
    let held = in_time(semaphore.acquire()).await.unwrap();
    let master = cluster.master_of("{app}:any");
    let replica =
        cluster.nodes().iter().position(|node| is_replica_of(node, &cluster.nodes()[master])).unwrap();
    wait_for_replicas(&cluster.nodes()[master]);
    cluster.nodes()[replica].command(&["CLUSTER", "FAILOVER"]);
    eventually("they have changed places", || async {
        (cluster.master_of("{app}:any") == replica).then_some(())
    })
    .await;
    in_time(held.release()).await.expect("it was held all the time");
    assert_hands_over(&semaphore, &semaphore).await;
    eventually("it is connected there", || async {
        (connections(&cluster.nodes()[replica]) > 0).then_some(())
    })
    .await;
}

/// While a hash slot of the cluster moves to another node, keys that have arrived there are found there.
#[tokio::test]
async fn keys_that_moved_to_another_node_are_found_there() {
    let cluster = RedisCluster::start();
    let home = connected(&url(&cluster)).await;
    let builder = home.named("resharded").slots(2).heartbeat_max_interval(secs(60));
    let semaphore = in_time(builder.open()).await.unwrap();
    // A script needs all its keys on one node, so all of them must exist.
    in_time(semaphore.acquire()).await.unwrap().release().await.unwrap();
    let evicted = in_time(semaphore.acquire()).await.unwrap();
    in_time(semaphore.evict(&evicted.id())).await.unwrap();
    let first = in_time(semaphore.acquire().ttl(secs(600))).await.unwrap();
    let second = in_time(semaphore.acquire().ttl(secs(600))).await.unwrap();
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await.map(Permit::detach) }
    });
    until_waiting(&semaphore, 1).await;

    let source = &cluster.nodes()[cluster.master_of("{app}:any")];
    let target = &cluster.nodes()[(0..3).find(|node| *node != cluster.master_of("{app}:any")).unwrap()];
    let number = |node: &RedisServer, words: &[&str]| -> String {
        let answer: i64 = redis::from_redis_value(node.command(words)).unwrap();
        answer.to_string()
    };
    let slot = number(source, &["CLUSTER", "KEYSLOT", "{app}:any"]);
    let [from, to] = [source, target].map(|node| redis_support::ask(node, &["CLUSTER", "MYID"]));
    target.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from]);
    source.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to]);
    let keys: Vec<String> =
        redis::from_redis_value(source.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"])).unwrap();
    assert_eq!(keys.len(), 10, "{keys:?}");
    let port = target.port().to_string();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    source.command(&[&["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"][..], &keys].concat());

    let stats = in_time(semaphore.stats()).await.expect("it is found where it is");
    assert_eq!((stats.held, stats.waiting), (2, 1));
    in_time(semaphore.renew(&first.id(), secs(900))).await.expect("it is held");
    in_time(first.release()).await.expect("it is held");
    // The hash slot has moved as a whole, and other clients find it, too.
    for master in [target, source] {
        master.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &to]);
    }
    let id = in_time(waiting).await.unwrap().expect("its turn");
    in_time(semaphore.release(&id)).await.expect("it is held");
    in_time(second.release()).await.expect("it was held all the time");
    let single = in_time(home.named("afterwards").slots(1).open()).await.unwrap();
    assert_hands_over(&single, &single).await;
}

#[tokio::test]
async fn a_master_that_falls_silent_is_given_up_in_time() {
    let cluster = RedisCluster::start();
    let quick = "socket_timeout=0.3&socket_connect_timeout=1";
    let home = connected(&format!("{}&{quick}", url(&cluster))).await;
    let semaphore = in_time(home.named("silent").slots(1).open()).await.unwrap();
    let master = cluster.master_of("{app}:any");
    cluster.nodes()[master].pause();
    // The other nodes notice, and promote the replica.
    let permit = eventually("a master is elected", || async { semaphore.acquire().await.ok() }).await;
    in_time(permit.release()).await.unwrap();
    cluster.nodes()[master].resume();
}
