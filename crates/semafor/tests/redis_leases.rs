//! The server's record decides how long a slot is held, and the holder's process sees every change to it.

use std::time::{Duration, Instant};

use semafor::{Home, Loss, NotHeld, Permit, Semaphore, Span, secs};
use semafor_testkit::by_hand::in_line;
use semafor_testkit::redis::{Keyspace, Proxy, RedisServer, until_seen};

const NAME: &str = "leased";
const QUICK: &str = "retry_multiplier=0.05&retry_min_delay=0.05&retry_max_delay=0.2&number_of_attempts=20";
/// A test that takes longer than this has failed. Not a measure of speed.
const TIME_LIMIT: Duration = Duration::from_secs(60);

async fn connect(url: &str, extra: &str) -> Home {
    Home::connect(&format!("{url}?{QUICK}{extra}")).await.expect("it answers")
}

/// A different configuration has a connection of its own, like another process.
async fn connect_again(server: &RedisServer) -> Semaphore {
    let home = connect(&server.url(), "&max_connections=7").await;
    home.named(NAME).slots(1).build().expect("a valid name")
}

fn open(home: &Home, heartbeat: f64) -> Semaphore {
    home.named(NAME).slots(1).heartbeat_max_interval(secs(heartbeat)).build().expect("a valid name")
}

fn id_of(permit: &Permit<'_>) -> String {
    permit.id().to_string()
}

/// When the server takes the holder for dead.
fn dead_at(keys: &Keyspace, id: &str) -> f64 {
    keys.score("main", id).expect("it holds its slot")
}

/// Returns after a heartbeat: before the first heartbeat, the server does not know the script.
async fn heartbeat(keys: &Keyspace, id: &str) {
    let before = dead_at(keys, id);
    until_seen("a heartbeat", || (dead_at(keys, id) != before).then_some(())).await;
}

fn left(permit: &Permit<'_>) -> Duration {
    permit.expires_at().expect("its lease has an end").saturating_duration_since(Instant::now())
}

async fn lost(permit: &Permit<'_>) -> NotHeld {
    tokio::time::timeout(TIME_LIMIT, permit.lost()).await.expect("the holder is notified")
}

/// The answer to `renew` is still on its way when the next heartbeat is built.
#[tokio::test]
async fn a_heartbeat_does_not_undo_a_renewal() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let home = connect(&proxy.url(), "").await;
    let keys = Keyspace::of(&server, NAME);
    // A heartbeat every 2 seconds.
    let semaphore = open(&home, 10.0);
    let permit = semaphore.acquire().ttl(secs(60)).await.unwrap();
    let id = id_of(&permit);
    heartbeat(&keys, &id).await;
    permit.renew(secs(6)).await.expect("it is held");

    proxy.hold_replies();
    let first_end = keys.score("ttl", &id);
    let renewal = permit.renew(secs(60));
    let other_work = async {
        let end = until_seen("the server has renewed it", || {
            keys.score("ttl", &id).filter(|end| Some(*end) > first_end)
        })
        .await;
        let renewed = end - 60.0 + 10.0;
        let after = until_seen("a heartbeat", || {
            let now = dead_at(&keys, &id);
            ((now - renewed).abs() > 0.001).then_some(now)
        })
        .await;
        proxy.forward();
        (renewed, after)
    };
    let (answer, (renewed, after)) = tokio::join!(renewal, other_work);
    answer.expect("it is held");
    assert!(after > renewed, "the heartbeat moved the end of the holder's life by {} s", after - renewed);
    assert!(left(&permit) > Duration::from_secs(30) && !permit.is_lost());
}

/// The record decides how long the lease is, even if that is shorter than the holder knew.
#[tokio::test]
async fn a_heartbeat_does_not_undo_a_shorter_renewal() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let home = connect(&proxy.url(), "").await;
    let keys = Keyspace::of(&server, NAME);
    let semaphore = open(&home, 20.0);
    let permit = semaphore.acquire().ttl(secs(60)).await.unwrap();
    let id = id_of(&permit);
    permit.renew(secs(60)).await.expect("it is held");
    heartbeat(&keys, &id).await;

    proxy.hold_replies();
    let renewal = permit.renew(secs(12));
    let other_work = async {
        until_seen("the server has renewed it", || {
            (keys.score("ttl", &id)? < keys.now() + 20.0).then_some(())
        })
        .await;
        let renewed = dead_at(&keys, &id);
        until_seen("a heartbeat", || (dead_at(&keys, &id) != renewed).then_some(())).await;
        let life = dead_at(&keys, &id) - keys.now();
        proxy.forward();
        life
    };
    let (answer, life) = tokio::join!(renewal, other_work);
    answer.expect("it is held");
    assert!(life <= 12.0, "{life} s, and its lease is 12 s");
}

/// Its heartbeats continue until it is notified that it was evicted.
#[tokio::test]
async fn a_heartbeat_does_not_change_the_grace_of_an_evicted_holder() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let home = connect(&proxy.url(), "").await;
    let keys = Keyspace::of(&server, NAME);
    let builder = home.named(NAME).slots(1).heartbeat_max_interval(secs(2)).grace(Duration::from_secs(50));
    let semaphore = builder.build().unwrap();
    let others = connect_again(&server).await;
    let permit = semaphore.acquire().await.unwrap();
    let id = id_of(&permit);
    heartbeat(&keys, &id).await;

    proxy.hold_replies();
    others.evict(&permit.id()).await.expect("it is held");
    let end = keys.score("ttl", &id).expect("its grace has an end");
    let calls = pings(&keys);
    until_seen("some heartbeats", || (pings(&keys) >= calls + 3).then_some(())).await;
    assert_eq!(keys.score("ttl", &id), Some(end));
    let dead_at = dead_at(&keys, &id);
    proxy.forward();
    assert!((dead_at - end).abs() < 0.001, "{} s before the end of its grace", end - dead_at);
    assert_eq!(lost(&permit).await, NotHeld::Lost(Loss::Evicted));
}

/// How many scripts have run: while a holder is alone, these are its heartbeats.
fn pings(keys: &Keyspace) -> u64 {
    let stats: String = keys.ask(&["INFO", "commandstats"]);
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    calls.and_then(|calls| calls.split(',').next()?.parse().ok()).expect("scripts have run")
}

/// No heartbeat extends the expiry of the keys after that: they must outlive the grace from the start.
#[tokio::test]
async fn all_keys_outlive_the_grace_of_an_evicted_holder() {
    let server = RedisServer::start();
    let home = connect(&server.url(), "").await;
    let keys = Keyspace::of(&server, NAME);
    for grace in [90, 7200] {
        let builder =
            home.named(NAME).slots(1).heartbeat_max_interval(secs(2)).grace(Duration::from_secs(grace));
        let semaphore = builder.build().unwrap();
        let permit = semaphore.acquire().await.unwrap();
        let end = |kind: &str| keys.now() + keys.expires_in(kind) as f64 / 1000.0;
        // As a client of the Python library does it.
        for kind in ["main", "ttl", "max"] {
            keys.ask::<()>(&["EXPIRE", &keys.key(kind), "11"]);
        }
        semaphore.evict(&permit.id()).await.expect("it is held");
        let grace_ends = keys.score("ttl", &id_of(&permit)).expect("its grace has an end");
        let short: Vec<_> = ["main", "ttl", "max", "info", "records"]
            .into_iter()
            .filter(|kind| end(kind) < grace_ends)
            .map(|kind| format!("{kind} expires {:.0} s before", grace_ends - end(kind)))
            .collect();
        assert_eq!(short, [""; 0], "a grace of {grace} s");
        drop(permit);
        semafor_testkit::by_hand::until(&semaphore, |stats| stats.held == 0).await;
    }
}

/// Without push messages, the answer to a heartbeat must notify it.
#[tokio::test]
async fn evicted_holder_without_push_messages_is_notified_during_its_grace() {
    let server = RedisServer::start();
    let home = connect(&server.url(), "&protocol=resp2").await;
    let builder = home.named(NAME).slots(1).heartbeat_max_interval(secs(2)).grace(Duration::from_secs(3600));
    let semaphore = builder.build().unwrap();
    let others = connect_again(&server).await;
    let permit = semaphore.acquire().await.unwrap();
    let mut next = in_line(&others, others.acquire()).await;
    others.evict(&permit.id()).await.expect("it is held");
    assert_eq!(lost(&permit).await, NotHeld::Lost(Loss::Evicted));
    assert!(next.waits(), "the holder keeps the slot until it releases it");
    drop(permit);
    drop(next.outcome().await.expect("it is served"));
}

/// No heartbeat comes before the first end of the lease: the server's push message must notify it.
#[tokio::test]
async fn holder_sees_a_renewal_by_another_process() {
    let server = RedisServer::start();
    let home = connect(&server.url(), "").await;
    let semaphore = open(&home, 300.0);
    let others = connect_again(&server).await;
    let permit = semaphore.acquire().ttl(secs(4)).await.unwrap();

    others.renew(&permit.id(), secs(60)).await.expect("it is held");
    until_seen("it is longer", || (left(&permit) > Duration::from_secs(30)).then_some(())).await;
    assert!(permit.safe_until() > Some(Instant::now() + Duration::from_secs(30)));

    others.renew(&permit.id(), Span::UNLIMITED).await.expect("it is held");
    until_seen("it has no end", || permit.expires_at().is_none().then_some(())).await;

    others.renew(&permit.id(), secs(1)).await.expect("it is held");
    let why = tokio::time::timeout(TIME_LIMIT, permit.lost()).await.expect("it is over after a second");
    assert_eq!(why, NotHeld::Lost(Loss::Expired));
}

/// The same without push messages. The holder asks the server before it counts the slot as lost.
#[tokio::test]
async fn holder_without_push_messages_asks_before_its_lease_ends() {
    let server = RedisServer::start();
    let home = connect(&server.url(), "&protocol=resp2").await;
    let keys = Keyspace::of(&server, NAME);
    let semaphore = open(&home, 300.0);
    let others = connect_again(&server).await;
    let permit = semaphore.acquire().ttl(secs(4)).await.unwrap();

    others.renew(&permit.id(), secs(60)).await.expect("it is held");
    until_seen("it is longer", || {
        assert!(!permit.is_lost(), "it gave up");
        (left(&permit) > Duration::from_secs(30)).then_some(())
    })
    .await;
    let end = keys.score("ttl", &id_of(&permit)).expect("its lease has an end");
    assert!(left(&permit).as_secs_f64() <= end - keys.now() + 0.001, "not later than on the server");

    others.renew(&permit.id(), Span::UNLIMITED).await.expect("it is held");
    until_seen("it has no end", || permit.expires_at().is_none().then_some(())).await;

    others.renew(&permit.id(), secs(8)).await.expect("it is held");
    until_seen("it has an end again", || permit.expires_at()).await;
    assert_eq!(lost(&permit).await, NotHeld::Lost(Loss::Expired));
}

/// An answer that is older than the last one changes nothing, and does not restore an old lease.
#[tokio::test]
async fn a_lease_ends_on_time_whatever_was_renewed_before() {
    let server = RedisServer::start();
    let home = connect(&server.url(), "").await;
    let semaphore = open(&home, 1.0);
    let others = connect_again(&server).await;
    let permit = semaphore.acquire().ttl(secs(60)).await.unwrap();
    for round in 0..50 {
        let (ours, theirs) = (secs(100 + round), secs(200 + round));
        let id = permit.id();
        let (ours, theirs) = tokio::join!(permit.renew(ours), others.renew(&id, theirs));
        ours.and(theirs).expect("it is held");
    }
    let keys = Keyspace::of(&server, NAME);
    until_seen("both sides agree", || {
        let there = keys.score("ttl", &id_of(&permit))? - keys.now();
        let here = left(&permit).as_secs_f64();
        (here <= there + 0.001 && here > there - 5.0).then_some(())
    })
    .await;
    permit.renew(secs(0.5)).await.expect("it is held");
    assert_eq!(lost(&permit).await, NotHeld::Lost(Loss::Expired));
}

/// The server has shortened the lease, and the answer that says so is still on its way.
#[tokio::test]
async fn a_holder_does_not_outlive_a_shorter_renewal_that_has_no_answer_yet() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let home = connect(&proxy.url(), "").await;
    let semaphore = open(&home, 300.0);
    let others = connect_again(&server).await;
    let permit = semaphore.acquire().ttl(secs(60)).await.unwrap();
    // Before the first call, the server does not know the script.
    permit.renew(secs(60)).await.expect("it is held");
    let next = in_line(&others, others.acquire()).await;

    proxy.hold_replies();
    let renewal = async { drop(permit.renew(secs(1)).await) };
    let served = async {
        let next = next.outcome().await.expect("the lease is over");
        (permit.is_lost(), permit.safe_until() > Some(Instant::now()), next)
    };
    let (is_lost, is_safe, next) = tokio::select! {
        () = renewal => panic!("no answer comes through"),
        served = served => served,
    };
    proxy.forward();
    assert!(is_lost && !is_safe, "both count the slot as theirs");
    next.release().await.expect("it is held");
}

/// The holder uses the next answer of the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_the_server_never_carried_out_changes_nothing() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let home = connect(&proxy.url(), "&number_of_attempts=1").await;
    let keys = Keyspace::of(&server, NAME);
    let semaphore = open(&home, 300.0);
    let permit = semaphore.acquire().ttl(secs(600)).await.unwrap();
    permit.renew(secs(600)).await.expect("it is held");

    // The request is lost, with its connection.
    proxy.swallow_requests();
    let renewal = permit.renew(secs(20));
    let cut = async {
        tokio::task::block_in_place(|| proxy.wait_until_swallowed());
        proxy.forward();
    };
    let (renewed, ()) = tokio::join!(renewal, cut);
    assert!(matches!(renewed, Err(semafor::RenewError::Home(_))), "{renewed:?}");
    until_seen("both sides agree", || {
        let there = keys.score("ttl", &id_of(&permit))? - keys.now();
        let here = left(&permit).as_secs_f64();
        (here <= there + 0.001 && here > there - 1.0).then_some(())
    })
    .await;
    assert!(!permit.is_lost());
}

/// Byte offset of the fencing counter in the info key: the fourth of its doubles.
const FENCE: &str = "24";

/// As if the server's clock had been ahead by an hour when it granted a slot.
fn set_fencing_counter_ahead(server: &RedisServer, keys: &Keyspace) -> f64 {
    let fence = ((keys.now() + 3600.0) * 1e6).floor();
    let mut command = redis::cmd("SETRANGE");
    command.arg(keys.key("info")).arg(FENCE).arg(&fence.to_le_bytes()[..]);
    command.exec(&mut server.connection()).expect("the server obeys");
    fence
}

async fn token_of_next(semaphore: &Semaphore) -> u64 {
    let permit = semaphore.acquire().await.expect("it is free");
    let token = permit.fencing_token();
    permit.release().await.expect("it was held");
    token
}

#[tokio::test]
async fn tokens_grow_when_the_clock_is_set_back_and_the_counter_is_lost() {
    let server = RedisServer::start();
    let home = connect(&server.url(), "").await;
    let keys = Keyspace::of(&server, NAME);
    let semaphore = open(&home, 60.0);
    token_of_next(&semaphore).await;
    let fence = set_fencing_counter_ahead(&server, &keys);
    let mut last = token_of_next(&semaphore).await;
    assert!(last as f64 > fence);

    for lost in [keys.key("info"), "everything".to_owned()] {
        if lost == "everything" {
            server.command(&["FLUSHALL"]);
        } else {
            keys.ask::<()>(&["DEL", &lost]);
        }
        let next = token_of_next(&semaphore).await;
        assert!(next > last, "{next} after {last}, without {lost}");
        last = next;
    }
}

/// A replica, or a server that comes back from its disk, may lack the last grants.
#[tokio::test]
async fn tokens_grow_when_the_server_has_lost_the_last_grants() {
    let server = RedisServer::start();
    let home = connect(&server.url(), "").await;
    let semaphore = open(&home, 60.0);
    token_of_next(&semaphore).await;
    server.command(&["SAVE"]);
    let fence = set_fencing_counter_ahead(&server, &Keyspace::of(&server, NAME));
    let last = token_of_next(&semaphore).await;
    assert!(last as f64 > fence);
    server.kill();
    server.start_again();
    let next = token_of_next(&semaphore).await;
    assert!(next > last, "{next} after {last}");

    // A home that is opened later belongs to the same process.
    drop((semaphore, home));
    server.command(&["FLUSHALL"]);
    let home = connect(&server.url(), "&socket_timeout=3").await;
    let after = token_of_next(&open(&home, 60.0)).await;
    assert!(after > next, "{after} after {next}");
}

/// It was in line before its process saw the larger token, and the release of another process serves it.
#[tokio::test]
async fn a_waiter_gets_a_token_above_all_that_its_process_has_seen() {
    let server = RedisServer::start();
    let home = connect(&server.url(), "").await;
    let semaphore = open(&home, 60.0);
    let others = connect_again(&server).await;
    let held = others.acquire().await.unwrap();
    let waits = in_line(&semaphore, semaphore.acquire()).await;

    let elsewhere = home.named("elsewhere").slots(1).build().unwrap();
    token_of_next(&elsewhere).await;
    let fence = set_fencing_counter_ahead(&server, &Keyspace::of(&server, "elsewhere"));
    let last = token_of_next(&elsewhere).await;
    assert!(last as f64 > fence);
    held.release().await.expect("it was held");
    let permit = waits.outcome().await.expect("it is its turn");
    assert!(permit.fencing_token() > last, "{} after {last}", permit.fencing_token());
    let shown = semaphore.holders().await.unwrap();
    assert_eq!(shown[0].fencing_token, Some(permit.fencing_token()));
}
