//! Interference with our keys on Redis: a client of the Python library shortens their expiry and removes clients that
//! are dead by its clock, a server evicts a key, an operator deletes one. The bound holds, and no client is lost.

mod redis_support;

use std::time::{Duration, Instant};

use redis_support::{connected, in_time};
use semafor::{AcquireError, Home, Loss, NotHeld, Permit, ReleaseError, Semaphore, secs};
use semafor_testkit::by_hand::in_line;
use semafor_testkit::redis::{Keyspace, Monitor, Proxy, RedisServer, until_seen};

const NAME: &str = "shared";

/// Another configuration has a connection of its own, like another process.
async fn second_home(server: &RedisServer) -> Home {
    connected(&format!("{}?max_connections=7", server.url())).await
}

fn open(home: &Home, slots: u32) -> Semaphore {
    home.named(NAME).slots(slots).build().expect("a valid name")
}

/// A holder whose process is cut off from the server: it sends no heartbeats.
struct CutOff {
    proxy: Proxy,
    home: Home,
}

impl CutOff {
    async fn from(server: &RedisServer) -> Self {
        let proxy = Proxy::to(server.port());
        let home = connected(&format!("{}?socket_timeout=0.5&number_of_attempts=1", proxy.url())).await;
        Self { proxy, home }
    }

    fn cut(&self) {
        self.proxy.refuse();
        self.proxy.cut();
    }
}

/// Does what a script of the Python library does when it looks for free slots: removes dead holders, and takes a slot.
fn python_client_takes_a_slot(keys: &Keyspace, id: &str, seconds: f64) {
    let (now, until) = (keys.now().to_string(), (keys.now() + seconds).to_string());
    keys.ask::<()>(&["ZREMRANGEBYSCORE", &keys.key("main"), "-inf", &now]);
    keys.ask::<()>(&["ZADD", &keys.key("main"), &until, id]);
}

async fn until_dead(keys: &Keyspace, id: &str) {
    let ends = keys.score("main", id).expect("it is there");
    until_seen("its time is up", || (keys.now() > ends).then_some(())).await;
}

#[tokio::test]
async fn a_lost_info_key_is_rebuilt_from_the_records() {
    let server = RedisServer::start();
    let (home, other) = (connected(&server.url()).await, second_home(&server).await);
    let keys = Keyspace::of(&server, NAME);
    let (semaphore, others) = (open(&home, 3), open(&other, 3));
    let first = semaphore.acquire().await.unwrap();
    let second = others.acquire().await.unwrap();
    assert_eq!((first.slot(), second.slot()), (0, 1));

    keys.ask::<()>(&["DEL", &keys.key("info")]);
    let third = semaphore.acquire().await.unwrap();
    assert_eq!(third.slot(), 2, "the others have 0 and 1");
    assert!(third.fencing_token() > second.fencing_token());
    assert_eq!(others.try_acquire().await.map(drop), Err(AcquireError::Busy));
    let stats = others.stats().await.unwrap();
    assert_eq!((stats.slots, stats.held, stats.holders), (3, 3, 3));

    // And again with a heavy waiter in line.
    let heavy = in_line(&others, others.acquire().weight(2)).await;
    keys.ask::<()>(&["DEL", &keys.key("info")]);
    first.release().await.unwrap();
    assert_eq!(semaphore.stats().await.unwrap().waiting, 1);
    second.release().await.unwrap();
    let heavy = heavy.outcome().await.expect("two are free");
    assert_eq!(semaphore.stats().await.unwrap().held, 3);
    heavy.release().await.unwrap();
    third.release().await.unwrap();
    assert_eq!(keys.members("own"), [""; 0]);
}

#[tokio::test]
async fn a_slot_outlives_the_expiry_that_the_python_library_sets() {
    let server = RedisServer::start();
    let (cut_off, home) = (CutOff::from(&server).await, second_home(&server).await);
    let keys = Keyspace::of(&server, NAME);
    let theirs = open(&cut_off.home, 2);
    let semaphore = open(&home, 2);
    let first = theirs.acquire().ttl(secs(600)).await.unwrap();
    let second = theirs.acquire().ttl(secs(600)).await.unwrap();
    cut_off.cut();

    // A client of the Python library with a short `ttl` came and went. No client of ours ran a script in time.
    for kind in ["main", "ttl", "max"] {
        keys.ask::<()>(&["PEXPIRE", &keys.key(kind), "1"]);
    }
    until_seen("the keys are gone", || (keys.expires_in("main") == -2).then_some(())).await;
    assert_eq!(in_time(semaphore.try_acquire()).await.map(drop), Err(AcquireError::Busy));
    let mut held = keys.members("main");
    held.sort();
    assert_eq!(held, [first.id().to_string(), second.id().to_string()]);
    semaphore.renew(&first.id(), secs(500)).await.expect("it is held");
    assert_eq!(semaphore.stats().await.unwrap().held, 2);
    let holders = semaphore.holders().await.unwrap();
    assert!(holders.iter().all(|holder| holder.expires_in.is_some()), "{holders:?}");

    // The next client of ours corrects the expiry before it does harm.
    keys.ask::<()>(&["EXPIRE", &keys.key("main"), "13"]);
    assert_eq!(semaphore.try_acquire().await.map(drop), Err(AcquireError::Busy));
    assert!(keys.expires_in("main") > 400_000, "{}", keys.expires_in("main"));
    semaphore.release(&first.id()).await.expect("it was held");
    let next = semaphore.acquire().await.expect("one is free");
    keys.ask::<()>(&["EXPIRE", &keys.key("main"), "13"]);
    next.release().await.unwrap();
    assert!(keys.expires_in("main") > 100_000, "{}", keys.expires_in("main"));
}

#[tokio::test]
async fn a_live_slot_that_was_removed_is_put_back_unless_another_has_it() {
    let server = RedisServer::start();
    let (home, other) = (connected(&server.url()).await, second_home(&server).await);
    let keys = Keyspace::of(&server, NAME);
    let (semaphore, others) = (open(&home, 1), open(&other, 1));

    let held = semaphore.acquire().await.unwrap();
    keys.ask::<()>(&["DEL", &keys.key("main")]);
    assert_eq!(in_time(others.try_acquire()).await.map(drop), Err(AcquireError::Busy));
    held.release().await.expect("it was held all the time");

    let held = semaphore.acquire().await.unwrap();
    keys.ask::<()>(&["ZREM", &keys.key("main"), &held.id().to_string()]);
    keys.ask::<()>(&["ZADD", &keys.key("main"), "inf", "4b0c0ffee"]);
    assert_eq!(in_time(held.lost()).await, NotHeld::Lost(Loss::Vanished));
    assert_eq!(held.release().await, Err(ReleaseError::NotHeld(NotHeld::Lost(Loss::Vanished))));
}

#[tokio::test]
async fn a_holder_of_ours_that_python_removed_is_not_counted_for_ever() {
    let server = RedisServer::start();
    let (cut_off, home) = (CutOff::from(&server).await, second_home(&server).await);
    let keys = Keyspace::of(&server, NAME);
    let dies = cut_off.home.named(NAME).slots(1).heartbeat_max_interval(secs(1)).build().unwrap();
    let dead = dies.acquire().await.unwrap();
    let semaphore = open(&home, 1);
    cut_off.cut();
    until_dead(&keys, &dead.id().to_string()).await;

    // A Python client has the slot for a long time; then another Python client, which dies soon.
    python_client_takes_a_slot(&keys, "4b0c0ffee", 300.0);
    assert_eq!(semaphore.try_acquire().await.map(drop), Err(AcquireError::Busy));
    keys.ask::<()>(&["ZREM", &keys.key("main"), "4b0c0ffee"]);
    python_client_takes_a_slot(&keys, "4b0decade", 0.2);
    until_dead(&keys, "4b0decade").await;
    let permit = semaphore.try_acquire().await.expect("both are dead");
    assert_eq!(permit.slot(), 0);
    permit.release().await.unwrap();
}

/// A release by the Python library notifies no waiter, so a waiter behind its holders watches the set of holders.
#[tokio::test]
async fn a_waiter_watches_a_python_holder_that_took_the_slot_of_a_dead_one_of_ours() {
    let server = RedisServer::start();
    let (cut_off, home) = (CutOff::from(&server).await, second_home(&server).await);
    let (keys, monitor) = (Keyspace::of(&server, NAME), Monitor::of(&server));
    let dies = cut_off.home.named(NAME).slots(1).heartbeat_max_interval(secs(1)).build().unwrap();
    let dead = dies.acquire().await.unwrap();
    let semaphore = open(&home, 1);
    cut_off.cut();
    until_dead(&keys, &dead.id().to_string()).await;
    python_client_takes_a_slot(&keys, "4b0c0ffee", 300.0);
    let waits = in_line(&semaphore, semaphore.acquire()).await;
    let main = keys.key("main");
    monitor.until("the set of holders is watched", |observed| observed.is("EXISTS", &main));
    keys.ask::<()>(&["ZREM", &main, "4b0c0ffee"]);
    in_time(waits.outcome()).await.expect("it is free").release().await.unwrap();
}

/// A client of the Python library may make the key of the holders expire 10 seconds after the last heartbeat. A holder
/// without a connection must know that.
#[tokio::test]
async fn a_slot_is_safe_for_no_longer_than_a_python_client_leaves_it() {
    let server = RedisServer::start();
    let cut_off = CutOff::from(&server).await;
    let keys = Keyspace::of(&server, NAME);
    let semaphore = open(&cut_off.home, 3);
    let held = semaphore.acquire().await.unwrap();
    let safe_for =
        |held: &Permit<'_>| held.safe_until().expect("it is safe").saturating_duration_since(Instant::now());
    assert!(safe_for(&held) > Duration::from_secs(100), "alone: {:?}", safe_for(&held));

    python_client_takes_a_slot(&keys, "4b0c0ffee", 300.0);
    until_seen("a heartbeat tells of it", || (safe_for(&held) <= Duration::from_secs(10)).then_some(()))
        .await;
    let next = semaphore.acquire().await.unwrap();
    assert!(safe_for(&next) <= Duration::from_secs(10), "beside Python: {:?}", safe_for(&next));
    // The Python client was there, and may come again.
    keys.ask::<()>(&["ZREM", &keys.key("main"), "4b0c0ffee"]);
    let last = semaphore.acquire().await.unwrap();
    assert!(safe_for(&last) <= Duration::from_secs(10), "after Python: {:?}", safe_for(&last));
    cut_off.cut();
    assert_eq!(in_time(held.lost()).await, NotHeld::Lost(Loss::OutOfTouch));
    assert!(keys.score("main", &held.id().to_string()).is_some(), "it is notified before others can have it");
}

/// The slot number is in the record. The holder knows it, too, and sends it with its next heartbeat.
#[tokio::test]
async fn slot_numbers_and_tokens_survive_the_loss_of_the_records() {
    let server = RedisServer::start();
    let home = connected(&server.url()).await;
    let keys = Keyspace::of(&server, NAME);
    let builder = home.named(NAME).slots(2).heartbeat_max_interval(secs(2));
    let semaphore = builder.build().expect("a valid name");
    let first = semaphore.acquire().await.unwrap();
    let second = semaphore.acquire().await.unwrap();
    assert_eq!((first.slot(), second.slot()), (0, 1));

    keys.ask::<()>(&["DEL", &keys.key("records")]);
    let before = keys.score("main", &first.id().to_string());
    until_seen("a heartbeat", || (keys.score("main", &first.id().to_string()) != before).then_some(())).await;
    second.release().await.expect("it was held all the time");
    let next = semaphore.acquire().await.expect("one is free");
    assert_eq!(next.slot(), 1, "the first has 0");
    let mut shown: Vec<_> = semaphore.holders().await.unwrap().iter().map(|it| it.fencing_token).collect();
    shown.sort();
    assert_eq!(shown, [Some(first.fencing_token()), Some(next.fencing_token())]);
}

/// Each script of the Python library shortens the expiry of some keys. Any script of ours corrects all of them.
#[tokio::test]
async fn the_expiry_of_every_shared_key_is_set_right() {
    let server = RedisServer::start();
    let (cut_off, home) = (CutOff::from(&server).await, second_home(&server).await);
    let keys = Keyspace::of(&server, NAME);
    let (theirs, semaphore) = (open(&cut_off.home, 2), open(&home, 2));
    let _leased = theirs.acquire().ttl(secs(600)).await.unwrap();
    let held = semaphore.acquire().await.unwrap();
    let waits = in_line(&theirs, theirs.acquire()).await;
    cut_off.cut();

    for kind in ["main", "ttl", "waiting", "waiting_heartbeat"] {
        keys.ask::<()>(&["EXPIRE", &keys.key(kind), "13"]);
        assert_eq!(semaphore.try_acquire().await.map(drop), Err(AcquireError::Busy));
        assert!(keys.expires_in(kind) > 100_000, "{kind}: {} ms", keys.expires_in(kind));
    }
    // The shortest way to release and to acquire a slot corrects them, too.
    drop(waits);
    keys.ask::<()>(&["DEL", &keys.key("waiting"), &keys.key("waiting_heartbeat")]);
    for step in ["release", "acquire"] {
        for kind in ["main", "ttl"] {
            keys.ask::<()>(&["EXPIRE", &keys.key(kind), "13"]);
        }
        match step {
            "release" => semaphore.release(&held.id()).await.expect("it is held"),
            _ => drop(semaphore.acquire().await.expect("it is free").into_owned()),
        }
        for kind in ["main", "ttl"] {
            assert!(keys.expires_in(kind) > 100_000, "{step}, {kind}: {} ms", keys.expires_in(kind));
        }
    }
}

/// A slot held by id gets no heartbeats. So the server must know how long its keys are needed.
#[tokio::test]
async fn a_resize_does_not_forget_how_long_the_keys_are_needed() {
    let server = RedisServer::start();
    let (cut_off, home) = (CutOff::from(&server).await, second_home(&server).await);
    let keys = Keyspace::of(&server, NAME);
    let _leased = open(&cut_off.home, 1).acquire().ttl(secs(600)).await.unwrap().into_owned();
    cut_off.cut();
    let semaphore = open(&home, 1);
    assert_eq!(semaphore.try_acquire().await.map(drop), Err(AcquireError::Busy));
    semaphore.resize(2).await.unwrap();
    semaphore.resize(1).await.unwrap();
    assert_eq!(keys.ask::<u32>(&["GET", &keys.key("max")]), 1, "as the Python library reads it");
    keys.ask::<()>(&["EXPIRE", &keys.key("main"), "100"]);
    assert_eq!(semaphore.try_acquire().await.map(drop), Err(AcquireError::Busy));
    assert!(keys.expires_in("main") > 400_000, "{} ms", keys.expires_in("main"));
}

/// Only a client of the Python library holds a slot, so no record of ours says how many there are.
#[tokio::test]
async fn a_waiter_is_served_although_the_number_of_slots_was_lost() {
    let server = RedisServer::start();
    let home = connected(&server.url()).await;
    let keys = Keyspace::of(&server, NAME);
    let semaphore = open(&home, 1);
    for lost in [&["info"][..], &["info", "max"], &["info", "records"]] {
        semaphore.acquire().await.unwrap().release().await.unwrap();
        python_client_takes_a_slot(&keys, "4b0c0ffee", 300.0);
        let waits = in_line(&semaphore, semaphore.acquire()).await;
        for kind in lost {
            keys.ask::<()>(&["DEL", &keys.key(kind)]);
        }
        keys.ask::<()>(&["ZREM", &keys.key("main"), "4b0c0ffee"]);
        let permit = tokio::time::timeout(Duration::from_secs(60), waits.outcome()).await;
        let permit = permit.unwrap_or_else(|_| panic!("it is not served without {lost:?}"));
        permit.expect("it is free").release().await.unwrap();
    }
}

/// A key that was lost right before a slot was granted comes back with an expiry.
#[tokio::test]
async fn no_key_is_kept_for_ever() {
    let server = RedisServer::start();
    let home = connected(&server.url()).await;
    let keys = Keyspace::of(&server, NAME);
    let semaphore = open(&home, 3);
    let _first = semaphore.acquire().await.unwrap();
    let mut held = Vec::new();
    for kind in ["records", "own"] {
        keys.ask::<()>(&["DEL", &keys.key(kind)]);
        held.push(semaphore.acquire().await.unwrap());
        assert!(keys.expires_in(kind) > 0, "{kind}: {}", keys.expires_in(kind));
    }
}

/// One call sends the heartbeat of both, and its answer counts for both.
#[tokio::test]
async fn every_handle_of_a_name_learns_that_the_python_library_uses_it() {
    let server = RedisServer::start();
    let home = connected(&server.url()).await;
    let keys = Keyspace::of(&server, NAME);
    let handles: Vec<_> = (0..8)
        .map(|_| home.named(NAME).slots(20).heartbeat_max_interval(secs(300)).build().expect("a valid name"))
        .collect();
    let mut held = Vec::new();
    for handle in &handles {
        held.push(handle.acquire().await.expect("it is free"));
    }
    python_client_takes_a_slot(&keys, "4b0c0ffee", 180.0);
    // Their scripts may let the key expire after 10 seconds without a heartbeat of ours.
    let bound = Duration::from_secs(10);
    until_seen("no holder counts on more than that", || {
        let most = Instant::now() + bound;
        held.iter().all(|permit| permit.safe_until().is_some_and(|until| until <= most)).then_some(())
    })
    .await;
    assert!(held.iter().all(|permit| !permit.is_lost()));
}

/// The rest of its weight is still in line, and its record is lost: it must not be taken for a holder.
#[tokio::test]
async fn a_waiter_that_python_served_in_part_is_served_although_the_records_were_lost() {
    let server = RedisServer::start();
    let home = connected(&server.url()).await;
    let keys = Keyspace::of(&server, NAME);
    let semaphore = open(&home, 3);
    let held = semaphore.acquire().weight(2).await.expect("it is free");
    let waits = in_line(&semaphore, semaphore.acquire().weight(3)).await;
    let part = keys.members("waiting").remove(0);
    let alive = (keys.now() + 180.0).to_string();
    let mut script = redis::pipe();
    script.atomic().cmd("ZREM").arg(keys.key("waiting")).arg(&part);
    script.cmd("ZREM").arg(keys.key("waiting_heartbeat")).arg(&part);
    script.cmd("ZADD").arg(keys.key("main")).arg(alive).arg(&part);
    script.cmd("DEL").arg(keys.key("records"));
    script.exec(&mut server.connection()).expect("the server obeys");

    in_time(held.release()).await.expect("the server is not blocked");
    let served = in_time(waits.outcome()).await.expect("its turn");
    assert_eq!(semaphore.stats().await.expect("it answers").held, 3);
    assert_eq!(keys.members("main").len(), 3);
    served.release().await.expect("it is held");
    assert_eq!(semaphore.stats().await.expect("it answers").held, 0);
}
