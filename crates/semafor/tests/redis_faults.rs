//! Faults of the Python library asyncio-advanced-semaphores on Redis, one test per fault: each creates the situation
//! that breaks the library, and shows that semafor handles it.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::Value;
use semafor::{
    AcquireError, BuildError, Home, HomeErrorKind, Loss, NotHeld, Permit, ReleaseError, Semaphore, secs,
};
use semafor_testkit::by_hand::{in_line, until};
use semafor_testkit::redis::{Keyspace, Monitor, Observed, Proxy, RedisCluster, RedisServer, until_seen};
use tokio::task::JoinSet;

const NAME: &str = "shared";
const QUICK: &str =
    "socket_timeout=0.5&retry_multiplier=0.05&retry_min_delay=0.05&retry_max_delay=0.2&number_of_attempts=20";

/// A connection that does not wait for long before it tries again.
async fn connect(url: &str) -> Home {
    Home::connect(&format!("{url}?{QUICK}")).await.expect("it answers")
}

/// A second home: another configuration has a connection of its own, like another process.
async fn connect_again(url: &str) -> Home {
    Home::connect(&format!("{url}?{QUICK}&max_connections=7")).await.expect("it answers")
}

fn open(home: &Home, slots: u32) -> Semaphore {
    home.named(NAME).slots(slots).build().expect("a valid name")
}

/// A semaphore whose heartbeats come five times a second.
fn open_with_quick_heartbeats(home: &Home, slots: u32) -> Semaphore {
    home.named(NAME).slots(slots).heartbeat_max_interval(secs(1)).build().expect("a valid name")
}

fn id_of(permit: &Permit<'_>) -> String {
    permit.id().to_string()
}

/// Puts a waiter of the Python library in line, which does nothing more.
fn queue_python_waiter(keys: &Keyspace, id: &str, arrival: f64) {
    let (arrival, dead_at) = (arrival.to_string(), (keys.now() + 180.0).to_string());
    keys.ask::<()>(&["ZADD", &keys.key("waiting"), &arrival, id]);
    keys.ask::<()>(&["ZADD", &keys.key("waiting_heartbeat"), &dead_at, id]);
}

/// Repeats `play` until it ran once without a heartbeat in between, so that no heartbeat caused the outcome.
async fn without_heartbeat(home: &Home, server: &RedisServer, what: &str, mut play: impl AsyncFnMut()) {
    let bystanders = home.named("bystanders").slots(1).build().expect("a valid name");
    let bystander = bystanders.acquire().await.expect("it is free");
    let keys = Keyspace::of(server, "bystanders");
    for _ in 0..6 {
        let before = keys.score("main", &id_of(&bystander));
        play().await;
        if keys.score("main", &id_of(&bystander)) == before {
            return;
        }
    }
    panic!("{what}: but only with a heartbeat");
}

/// Runs this same test again in a process of its own.
fn in_another_process(test: &str, server: &RedisServer) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("it runs"));
    command.args(["--exact", test]).env(ROLE, server.url()).stdin(Stdio::piped()).stdout(Stdio::null());
    command.spawn().expect("it can be run again")
}

/// Set in that other process: the server's URL.
const ROLE: &str = "SEMAFOR_TEST_OTHER_PROCESS";

/// The other process: it waits in line until it is killed or its input ends.
async fn wait_in_line(url: &str) {
    let home = connect(url).await;
    let semaphore = open(&home, 1);
    let _waits = in_line(&semaphore, semaphore.acquire()).await;
    let parent_is_gone =
        tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    let _ = parent_is_gone.await;
}

/// There, a waiter whose entry disappears polls for ever a list that is never pushed to.
#[tokio::test]
async fn fault_1_a_waiter_whose_entry_is_lost_hangs() {
    let server = RedisServer::start();
    let (home, other) = (connect(&server.url()).await, connect_again(&server.url()).await);
    let keys = Keyspace::of(&server, NAME);
    let (semaphore, others) = (open_with_quick_heartbeats(&home, 1), open_with_quick_heartbeats(&other, 1));
    let held = others.acquire().await.unwrap();
    let first = in_line(&semaphore, semaphore.acquire()).await;
    let second = in_line(&semaphore, semaphore.acquire()).await;
    let line = keys.members("waiting");
    let places: Vec<_> = line.iter().map(|id| keys.score("waiting", id)).collect();

    // As when the keys expire. The waiters keep their places: a waiter that came meanwhile is behind them.
    keys.ask::<()>(&["DEL", &keys.key("waiting"), &keys.key("waiting_heartbeat")]);
    queue_python_waiter(&keys, "4b0c0ffee", keys.now());
    until_seen("they are back in line", || (keys.members("waiting").len() == 3).then_some(())).await;
    assert_eq!(line.iter().map(|id| keys.score("waiting", id)).collect::<Vec<_>>(), places);
    keys.ask::<()>(&["ZREM", &keys.key("waiting"), "4b0c0ffee"]);
    held.release().await.unwrap();
    let first = first.outcome().await.expect("it is its turn");
    assert_eq!(id_of(&first), line[0]);

    // As when a server comes back without its memory. The holder has lost its slot, and knows it.
    server.kill();
    server.start_again();
    let second = second.outcome().await.expect("it is its turn");
    assert!(matches!(first.lost().await, NotHeld::Lost(_)));
    assert_eq!(Keyspace::of(&server, NAME).members("main"), [id_of(&second)]);

    let third = in_line(&semaphore, semaphore.acquire()).await;
    server.command(&["FLUSHALL"]);
    let third = third.outcome().await.expect("it is its turn");
    assert_eq!(second.lost().await, NotHeld::Lost(Loss::Vanished));
    third.release().await.unwrap();
}

/// After a lost reply the library asks again, with the id that holds already: it waits for itself.
#[tokio::test]
async fn fault_2_a_lost_reply_deadlocks_the_client() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let (home, other) = (connect(&proxy.url()).await, connect(&server.url()).await);
    let keys = Keyspace::of(&server, NAME);
    let (semaphore, others) = (open(&home, 1), open(&other, 1));

    // The first time, the server does not know the script and does not execute it, so no reply could be lost.
    let permit = others.acquire().await.unwrap();
    let waits = in_line(&others, others.acquire()).await;
    hand_on(&server, &keys, &id_of(&permit));
    waits.outcome().await.unwrap().release().await.unwrap();
    drop(permit);
    until(&others, |stats| stats.held == 0).await;

    // Granted, and the answer lost.
    proxy.cut_after_request("to-be-lost");
    let permit = semaphore.acquire().ttl(secs(60)).label("to-be-lost").await.expect("it is free");
    proxy.wait_until_cut();
    let id = id_of(&permit);
    assert_eq!((keys.members("main"), keys.members("waiting").len()), (vec![id.clone()], 0));
    assert!(keys.score("ttl", &id).is_some(), "it has its lease");
    assert_eq!(permit.slot(), 0);

    // Released, and the answer lost. It frees one slot, once.
    let next = in_line(&others, others.acquire()).await;
    let after = in_line(&others, others.acquire()).await;
    proxy.cut_after_request("released");
    permit.release().await.expect("it held");
    proxy.wait_until_cut();
    let next = next.outcome().await.unwrap();
    assert_eq!(keys.members("main"), [id_of(&next)]);

    // In line, and the answer lost.
    proxy.cut_after_request("to-be-lost");
    let waits = in_line(&semaphore, semaphore.acquire().label("to-be-lost")).await;
    proxy.wait_until_cut();
    assert_eq!(keys.members("waiting").len(), 2, "a place is a place");
    let id = keys.members("waiting").remove(1);
    next.release().await.unwrap();
    after.outcome().await.unwrap().release().await.unwrap();
    let permit = waits.outcome().await.expect("it does not wait for itself");
    assert_eq!((id_of(&permit), keys.members("waiting").len()), (id, 0));

    // Served by a script that is not ours, and the answer to the confirmation lost.
    let waits = in_line(&semaphore, semaphore.acquire()).await;
    proxy.cut_after_request(&keys.members("waiting")[0]);
    hand_on(&server, &keys, &id_of(&permit));
    let confirmed = waits.outcome().await.expect("it was served");
    proxy.wait_until_cut();
    assert_eq!(keys.members("main"), [id_of(&confirmed)]);
    let gone = permit.release().await;
    assert!(matches!(gone, Err(ReleaseError::NotHeld(_))), "{gone:?}");
    confirmed.release().await.unwrap();
    until(&others, |stats| stats.held == 0 && stats.waiting == 0).await;
}

/// Releases a slot and serves the first waiter, as the library's scripts do.
fn hand_on(server: &RedisServer, keys: &Keyspace, from: &str) {
    let (first, reserved) = (keys.members("waiting").remove(0), (keys.now() + 180.0).to_string());
    let mut script = redis::pipe();
    script.atomic().cmd("ZREM").arg(keys.key("main")).arg(from);
    script.cmd("ZPOPMIN").arg(keys.key("waiting"));
    script.cmd("ZREM").arg(keys.key("waiting_heartbeat")).arg(&first);
    script.cmd("ZADD").arg(keys.key("main")).arg("NX").arg(reserved).arg(&first);
    script.cmd("RPUSH").arg(keys.notification(&first)).arg("1");
    script.exec(&mut server.connection()).expect("the server obeys");
}

/// There, each script sets the expiry of the keys to suit its caller, and so may end the slot of another client.
#[tokio::test]
async fn fault_3_a_shorter_expiry_admits_too_many() {
    let server = RedisServer::start();
    let home = connect(&server.url()).await;
    let keys = Keyspace::of(&server, NAME);
    let semaphore = open(&home, 2);
    let held = semaphore.acquire().ttl(secs(300)).await.unwrap();
    // A holder of the library, with a heartbeat every 36 seconds.
    let alive = (keys.now() + 180.0).to_string();
    keys.ask::<()>(&["ZADD", &keys.key("main"), &alive, "4b0c0ffee"]);
    let _waits = in_line(&semaphore, semaphore.acquire()).await;

    // What a client of the library with ttl=1 does to all of them.
    const KINDS: [&str; 5] = ["main", "ttl", "max", "waiting", "waiting_heartbeat"];
    for kind in KINDS {
        keys.ask::<()>(&["EXPIRE", &keys.key(kind), "11"]);
    }
    until_seen("all of it outlives its owner", || {
        let needed = |kind| if kind == "ttl" { 290_000 } else { 180_000 };
        KINDS.iter().all(|kind| keys.expires_in(kind) > needed(*kind)).then_some(())
    })
    .await;
    assert!(!held.is_lost());
    assert_eq!(keys.members("main").len(), 2);
    assert_eq!(semaphore.try_acquire().await.map(|_| ()), Err(AcquireError::Busy));
}

/// There, heartbeats wait for connections that waiters occupy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_4_many_waiters_keep_heartbeats_from_being_sent() {
    const WAITERS: usize = 2500;
    let server = RedisServer::start();
    let home = connect(&server.url()).await;
    let keys = Keyspace::of(&server, NAME);
    let semaphore = home.named(NAME).slots(1).heartbeat_max_interval(secs(5)).build().unwrap();
    let held = semaphore.acquire().await.unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..WAITERS {
        let semaphore = semaphore.clone();
        waiting.spawn(async move { semaphore.acquire().await.map(drop) });
    }
    until(&semaphore, |stats| stats.waiting == WAITERS).await;

    let id = id_of(&held);
    let mut last = keys.score("main", &id);
    for _ in 0..4 {
        last = until_seen("another heartbeat", || {
            let score = keys.score("main", &id);
            assert!(score.is_some_and(|score| score > keys.now()), "it was in time");
            (score != last).then_some(score)
        })
        .await;
    }
    assert!(!held.is_lost());
    let stats = semaphore.stats().await.unwrap();
    assert_eq!((stats.waiting, stats.totals.cancelled), (WAITERS, 0), "no process was taken for dead");
    let clients: String = keys.ask(&["CLIENT", "LIST", "TYPE", "NORMAL"]);
    let pubsub: String = keys.ask(&["CLIENT", "LIST", "TYPE", "PUBSUB"]);
    let not_mine = |line: &&str| !line.contains("cmd=client");
    let connections = clients.lines().chain(pubsub.lines()).filter(|line| !line.is_empty()).filter(not_mine);
    assert_eq!(connections.count(), 1, "{clients}{pubsub}");

    // All of them get their turn: none was forgotten.
    held.release().await.unwrap();
    while let Some(done) = waiting.join_next().await {
        done.expect("no panic").expect("its turn comes");
    }
}

/// There, a slot granted to a dead waiter stays reserved for it as if it lived.
#[tokio::test]
async fn fault_5_a_dead_waiter_gets_a_slot_for_long() {
    const TEST: &str = "fault_5_a_dead_waiter_gets_a_slot_for_long";
    if let Ok(url) = std::env::var(ROLE) {
        return wait_in_line(&url).await;
    }
    let of_ours = async {
        let server = RedisServer::start();
        let keys = Keyspace::of(&server, NAME);
        let home = connect(&server.url()).await;
        let semaphore = open(&home, 1);
        let held = semaphore.acquire().await.unwrap();
        let mut child = in_another_process(TEST, &server);
        let dead_waiter = until_seen("it is in line", || keys.members("waiting").pop()).await;
        child.kill().expect("it is our child");
        child.wait().expect("it is our child");
        pass_on(&semaphore, &keys, held, &dead_waiter).await;
    };
    let of_theirs = async {
        let server = RedisServer::start();
        let keys = Keyspace::of(&server, NAME);
        let home = connect(&server.url()).await;
        let semaphore = open(&home, 1);
        let held = semaphore.acquire().await.unwrap();
        queue_python_waiter(&keys, "4b0c0ffee", keys.now());
        pass_on(&semaphore, &keys, held, "4b0c0ffee").await;
    };
    tokio::join!(of_ours, of_theirs);

    async fn pass_on(semaphore: &Semaphore, keys: &Keyspace, held: Permit<'_>, dead_waiter: &str) {
        let waits = tokio::spawn({
            let semaphore = semaphore.clone();
            async move { semaphore.acquire().await.map(Permit::into_owned) }
        });
        until(semaphore, |stats| stats.waiting == 2).await;
        assert!(
            keys.score("waiting_heartbeat", dead_waiter).unwrap() > keys.now() + 60.0,
            "the server takes it for alive"
        );
        held.release().await.unwrap();
        let reserved_until = keys.score("main", dead_waiter).expect("it was its turn");
        assert!(reserved_until <= keys.now() + 10.0, "for a grace only");
        let permit = tokio::time::timeout(Duration::from_secs(60), waits).await;
        let permit = permit.expect("the next one gets it").expect("no panic").expect("no error");
        assert!(keys.now() >= reserved_until, "and not before");
        assert_eq!(keys.members("main"), [id_of(&permit)]);
    }
}

/// There, waiters wake only once a second: not by a release, not by a waiter that leaves, not by an expiry.
#[tokio::test]
async fn fault_6_a_free_slot_wakes_no_waiter() {
    let server = RedisServer::start();
    let (home, other) = (connect(&server.url()).await, connect_again(&server.url()).await);
    let (semaphore, others) = (open(&home, 2), open(&other, 2));
    let keys = Keyspace::of(&server, NAME);
    without_heartbeat(&home, &server, "a release wakes", async || {
        let held = others.acquire().weight(2).await.unwrap();
        let waits = in_line(&semaphore, semaphore.acquire()).await;
        held.release().await.unwrap();
        waits.outcome().await.unwrap().release().await.unwrap();
    })
    .await;
    without_heartbeat(&home, &server, "a drop wakes", async || {
        let held = others.acquire().weight(2).await.unwrap();
        let waits = in_line(&semaphore, semaphore.acquire()).await;
        drop(held);
        waits.outcome().await.unwrap().release().await.unwrap();
    })
    .await;
    without_heartbeat(&home, &server, "a waiter that gives up wakes the one behind it", async || {
        let held = others.acquire().await.unwrap();
        let heavy = in_line(&others, others.acquire().weight(2)).await;
        let waits = in_line(&semaphore, semaphore.acquire()).await;
        drop(heavy);
        waits.outcome().await.unwrap().release().await.unwrap();
        held.release().await.unwrap();
    })
    .await;
    without_heartbeat(&home, &server, "an eviction wakes", async || {
        let held = others.acquire().weight(2).await.unwrap();
        let waits = in_line(&semaphore, semaphore.acquire()).await;
        semaphore.evict(&held.id()).await.unwrap();
        waits.outcome().await.unwrap().release().await.unwrap();
    })
    .await;
    without_heartbeat(&home, &server, "an expiry wakes, also that of a process that is gone", async || {
        let held = others.acquire().await.unwrap();
        let (alive, ends) = ((keys.now() + 180.0).to_string(), (keys.now() + 0.5).to_string());
        keys.ask::<()>(&["ZADD", &keys.key("main"), &alive, "4b0c0ffee"]);
        keys.ask::<()>(&["ZADD", &keys.key("ttl"), &ends, "4b0c0ffee"]);
        let waits = in_line(&semaphore, semaphore.acquire()).await;
        waits.outcome().await.unwrap().release().await.unwrap();
        held.release().await.unwrap();
    })
    .await;
}

/// There, the clocks of the clients decide which process is dead and which waiter came first.
#[tokio::test]
async fn fault_7_clocks_that_differ_evict_and_overtake() {
    let server = RedisServer::start();
    let monitor = Monitor::of(&server);
    let home = connect(&server.url()).await;
    let keys = Keyspace::of(&server, NAME);
    let semaphore = open(&home, 1);
    let before = keys.now();
    let held = semaphore.acquire().await.unwrap();
    let until_then = keys.score("main", &id_of(&held)).unwrap();
    assert!((before + 180.0..=keys.now() + 180.0).contains(&until_then), "it is the server's clock");

    // A client with a fast clock stands in line. Ours stand behind it, in the order in which they came.
    queue_python_waiter(&keys, "4b0c0ffee", keys.now() + 1000.0);
    let first = in_line(&semaphore, semaphore.acquire()).await;
    let second = in_line(&semaphore, semaphore.acquire()).await;
    let line = keys.members("waiting");
    assert_eq!(line[0], "4b0c0ffee");

    // It removes all of our clients, because by its clock they are dead, and leaves. By the server's clock they are
    // alive: the holder keeps its slot, which no other client has taken, and the waiters return to their places.
    let by_its_clock = (keys.now() + 181.0).to_string();
    let mut script = redis::pipe();
    script.atomic().cmd("ZREMRANGEBYSCORE").arg(keys.key("main")).arg("-inf").arg(&by_its_clock);
    script.cmd("ZREMRANGEBYSCORE").arg(keys.key("waiting_heartbeat")).arg("-inf").arg(&by_its_clock);
    script.cmd("ZREM").arg(keys.key("waiting")).arg(&line);
    script.exec(&mut server.connection()).expect("the server obeys");
    until_seen("the holder is back", || keys.score("main", &id_of(&held))).await;
    until_seen("the waiters are back", || (keys.members("waiting") == line[1..]).then_some(())).await;
    held.release().await.expect("it was held all the time");
    let first = first.outcome().await.expect("its turn");
    assert_eq!(id_of(&first), line[1]);
    first.release().await.unwrap();
    assert_eq!(id_of(&second.outcome().await.expect("its turn")), line[2]);

    // semafor sends no times of its own clock to the server.
    let now = keys.now();
    let is_time = |word: &String| word.parse::<f64>().is_ok_and(|time| (time - now).abs() < 100_000.0);
    let places = |word: &String| word.parse().is_ok_and(|time: f64| time > now + 900.0);
    for observed in monitor.so_far(&server).iter().filter(|observed| observed.is_script()) {
        let arguments = observed.words.iter().skip(2);
        let times: Vec<_> = arguments.filter(|word| is_time(word) && !places(word)).collect();
        assert_eq!(times, Vec::<&String>::new(), "{:?}", observed.words);
    }
}

/// `ZADD XX CH` counts nothing if the score is unchanged. The library takes that for the end of the holder.
#[tokio::test]
async fn fault_8_a_clock_that_stands_still_declares_dead() {
    let server = RedisServer::start();
    let home = connect(&server.url()).await;
    let keys = Keyspace::of(&server, NAME);
    let semaphore = open_with_quick_heartbeats(&home, 1);
    let held = semaphore.acquire().await.unwrap();
    let waits = in_line(&semaphore, semaphore.acquire()).await;
    let (id, waiting) = (id_of(&held), keys.members("waiting").remove(0));

    // Our heartbeat, as it is sent, with a clock that stands still.
    let monitor = Monitor::of(&server);
    server.command(&["SCRIPT", "FLUSH"]);
    let is_heartbeat = |observed: &Observed| observed.is("EVAL", &id) && observed.is("EVAL", &waiting);
    let mut heartbeat = monitor.until("a heartbeat", is_heartbeat).pop().expect("the last one is it").words;
    let now = keys.now();
    let code = heartbeat[1].replace("redis.call('TIME')", &format!("{{ '{now:.0}', '0' }}"));
    assert_ne!(code, heartbeat[1], "it asks for the time");
    heartbeat[1] = code;
    let heartbeat: Vec<_> = heartbeat.iter().map(String::as_str).collect();
    let mut twice = redis::pipe();
    twice.atomic();
    for _ in 0..2 {
        let mut command = redis::Cmd::new();
        for word in &heartbeat {
            command.arg(word);
        }
        twice.add_command(command);
        twice.cmd("ZSCORE").arg(keys.key("main")).arg(&id);
        twice.cmd("ZSCORE").arg(keys.key("waiting_heartbeat")).arg(&waiting);
    }
    let answers: Vec<Value> = twice.query(&mut server.connection()).unwrap();
    assert_eq!(answers[1..3], answers[4..6], "the scores were equal");
    assert!(answers[1] != Value::Nil && answers[2] != Value::Nil);
    assert_eq!(answers[0], answers[3], "so were the answers");

    // Time goes on, and both are still there.
    let last = keys.score("main", &id);
    until_seen("a heartbeat that counts", || (keys.score("main", &id) != last).then_some(())).await;
    assert!(!held.is_lost());
    held.release().await.unwrap();
    assert_eq!(id_of(&waits.outcome().await.unwrap()), waiting);
}

/// There, each client that runs a script applies its own number of slots and its own times to all clients.
#[tokio::test]
async fn fault_9_the_caller_decides_for_others() {
    let server = RedisServer::start();
    let (home, other) = (connect(&server.url()).await, connect_again(&server.url()).await);
    let keys = Keyspace::of(&server, NAME);
    let semaphore = open(&home, 1);
    let held = semaphore.acquire().await.unwrap();
    let waits = in_line(&semaphore, semaphore.acquire().ttl(secs(50))).await;

    // A client that assumes three slots gets an error, and admits neither itself nor others.
    let mismatch = BuildError::SlotsMismatch { name: NAME.into(), live: 1, asked: 3 };
    assert_eq!(other.named(NAME).slots(3).open().await.map(|_| ()), Err(mismatch.clone()));
    let refused = open(&other, 3).acquire().await.map(|_| ());
    assert_eq!(refused, Err(AcquireError::Open(Box::new(mismatch))));
    // A client of the library that wrote another number of slots last changes nothing.
    keys.ask::<()>(&["SET", &keys.key("max"), "3"]);
    let same = other.named(NAME).heartbeat_max_interval(secs(1)).build().unwrap();
    assert_eq!(same.try_acquire().await.map(|_| ()), Err(AcquireError::Busy));
    assert_eq!((keys.members("main").len(), same.slots().await), (1, Ok(1)));

    // A client with short heartbeats serves other clients by their own intervals.
    let lively = in_line(&same, same.acquire()).await;
    let waiting = keys.members("waiting").remove(0);
    assert!(keys.score("waiting_heartbeat", &waiting).unwrap() > keys.now() + 100.0);
    same.evict(&held.id()).await.unwrap();
    let permit = waits.outcome().await.unwrap();
    let ends = keys.score("ttl", &waiting).expect("it has its lease");
    assert!((keys.now() + 40.0..=keys.now() + 50.0).contains(&ends));
    until_seen("its own heartbeat counts", || {
        (keys.score("main", &waiting)? > keys.now() + 45.0).then_some(())
    })
    .await;
    permit.release().await.unwrap();
    let lively = lively.outcome().await.unwrap();
    assert!(keys.score("main", &id_of(&lively)).unwrap() <= keys.now() + 1.0);
    assert_eq!(keys.score("ttl", &id_of(&lively)), None);
}

/// There, entries of dead holders stay in `semaphore_ttl`, and the lists of waiters that gave up stay for minutes.
#[tokio::test]
async fn fault_10_things_are_left_behind() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let (home, doomed) = (connect(&server.url()).await, connect(&proxy.url()).await);
    let keys = Keyspace::of(&server, NAME);
    let semaphore = open(&home, 2);

    // A holder with a long lease dies, and so does a waiter.
    let dies = open_with_quick_heartbeats(&doomed, 2);
    let held = dies.acquire().ttl(secs(1000)).await.unwrap();
    let kept = semaphore.acquire().ttl(secs(1000)).await.unwrap();
    let dies_waiting = in_line(&dies, dies.acquire()).await;
    proxy.swallow_requests();
    let next = in_line(&semaphore, semaphore.acquire()).await;
    let next = next.outcome().await.expect("what the dead had is free");
    assert_eq!(keys.members("ttl"), [id_of(&kept)]);
    assert!(matches!(held.lost().await, NotHeld::Lost(_)));
    drop((held, dies_waiting));

    // Some waiters leave, one of them after it was served; and some are served.
    let gives_up = in_line(&semaphore, semaphore.acquire()).await;
    drop(gives_up);
    let impatient = semaphore.acquire().timeout(Duration::from_millis(20)).await;
    assert!(impatient.is_err_and(|error| error.is_timeout()));
    let served = in_line(&semaphore, semaphore.acquire()).await;
    let last = in_line(&semaphore, semaphore.acquire()).await;
    next.release().await.unwrap();
    drop(served);
    last.outcome().await.unwrap().release().await.unwrap();
    kept.release().await.unwrap();
    // A client that comes too late, or to the wrong server, leaves nothing either.
    let unknown = home.named("unknown").slots(1).build().unwrap();
    let permit = unknown.acquire().await.unwrap();
    let id = permit.id();
    permit.release().await.unwrap();
    let elsewhere = home.named("never-opened").build().unwrap();
    assert!(elsewhere.release(&id).await.is_err());
    until(&semaphore, |stats| stats.held == 0 && stats.waiting == 0).await;

    assert_eq!(keys.notifications(), [""; 0]);
    for kind in ["main", "ttl", "waiting", "waiting_heartbeat"] {
        assert_eq!(keys.members(kind), [""; 0], "{kind}");
    }
    for key in keys.ask::<Vec<String>>(&["KEYS", "*"]) {
        assert!(keys.ask::<i64>(&["PTTL", &key]) > 0, "{key} stays for ever");
        assert!(!key.contains("never-opened"), "{key}");
    }
}

/// Slot numbers are counts, from one on and not unique. A release that failed is reported as done. After a retry two
/// heartbeats are sent, and one of them never ends. Fractions of seconds are errors.
#[tokio::test]
async fn fault_11_numbers_reports_and_fractions_are_wrong() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let home = connect(&proxy.url()).await;
    let keys = Keyspace::of(&server, NAME);

    // Slot numbers start at zero, and no other holder gets the number while the slot is held.
    let semaphore = open_with_quick_heartbeats(&home, 3);
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(semaphore.acquire().await.unwrap());
    }
    assert_eq!(held.iter().map(Permit::slot).collect::<Vec<_>>(), [0, 1, 2]);
    held.remove(1).release().await.unwrap();
    proxy.cut_after_request("retried");
    let again = semaphore.acquire().label("retried").await.unwrap();
    proxy.wait_until_cut();
    assert_eq!(again.slot(), 1);

    // A released slot gets no more heartbeats, with or without a retry.
    let id = id_of(&again);
    again.release().await.unwrap();
    let monitor = Monitor::of(&server);
    let other = id_of(&held[0]);
    for _ in 0..3 {
        monitor.until("a heartbeat", |observed| {
            assert!(!observed.words.contains(&id), "{observed:?}");
            observed.is_script() && observed.words.contains(&other)
        });
    }

    // Fractions of seconds are times like any other.
    let brief = home.named("brief").slots(1).heartbeat_max_interval(secs(0.75)).build().unwrap();
    let permit = brief.acquire().ttl(secs(0.4)).await.unwrap();
    let waits = in_line(&brief, brief.acquire()).await;
    let next = waits.outcome().await.unwrap();
    assert_eq!(permit.lost().await, NotHeld::Lost(Loss::Expired));
    let id = id_of(&next);
    let brief_keys = Keyspace::of(&server, "brief");
    let mut last = brief_keys.score("main", &id);
    for _ in 0..3 {
        last =
            until_seen("a heartbeat", || Some(brief_keys.score("main", &id)).filter(|score| *score != last))
                .await;
    }
    next.release().await.unwrap();

    // A release that fails is reported as failed. It is repeated until it succeeds, and so are releases without a
    // waiting caller.
    let impatient = format!("{}?socket_timeout=0.2&number_of_attempts=1", proxy.url());
    let impatient = open(&Home::connect(&impatient).await.unwrap(), 3);
    let permit = impatient.acquire().await.unwrap();
    proxy.swallow_requests();
    let released = permit.release().await;
    assert!(matches!(&released, Err(ReleaseError::Home(error)) if error.is_unreachable()), "{released:?}");
    drop(held);
    proxy.forward();
    until_seen("everything is released", || keys.members("main").is_empty().then_some(())).await;
}

/// On a cluster the library's keys are on different nodes; and a tag in the name helps for some ids only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_12_scripts_fail_or_half_run_on_a_cluster() {
    const IDS: usize = 20;
    let cluster = RedisCluster::start();
    let nodes =
        cluster.urls().into_iter().map(|url| url["redis://".len()..].trim_end_matches('/').to_owned());
    let nodes = Vec::from_iter(nodes).join(",");

    // Without a tag, connecting fails at once and names the remedy.
    let error = Home::connect(&format!("redis+cluster://{nodes}/")).await.expect_err("no tag");
    assert_eq!(error.kind(), HomeErrorKind::InvalidUrl);
    assert!(error.to_string().contains("{adv-sem}"), "{error}");
    // So it does if a node is addressed as a single server.
    let node = Home::connect(&cluster.urls()[0]).await;
    let error = match node {
        Ok(home) => match open(&home, 1).acquire().await {
            Err(AcquireError::Home(error)) => error,
            other => panic!("{:?}", other.map(drop)),
        },
        Err(error) => error,
    };
    assert_eq!(error.kind(), HomeErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("redis+cluster://"), "{error}");

    let url = format!("redis+cluster://{nodes}/?namespace={{app}}&{QUICK}");
    let home = Home::connect(&url).await.unwrap();
    let other = Home::connect(&format!("{url}&max_connections=7")).await.unwrap();
    let (semaphore, others) = (open(&home, 1), open(&other, 1));
    let held = others.acquire().await.unwrap();
    let mut contenders = JoinSet::new();
    for n in 0..IDS {
        let semaphore = if n % 2 == 0 { semaphore.clone() } else { others.clone() };
        contenders.spawn(async move {
            let permit = semaphore.acquire().await.expect("its turn comes");
            permit.release().await.expect("it holds");
        });
    }
    until(&semaphore, |stats| stats.waiting == IDS).await;
    held.release().await.unwrap();
    while let Some(done) = contenders.join_next().await {
        done.expect("no id is refused");
    }
    let stats = semaphore.stats().await.unwrap();
    assert_eq!((stats.held, stats.waiting, stats.totals.granted), (0, 0, IDS as u64 + 1));
}

/// How many keys the server tracks for clients.
fn tracked(keys: &Keyspace) -> u64 {
    let info: String = keys.ask(&["INFO", "stats"]);
    let line = info.lines().find_map(|line| line.strip_prefix("tracking_total_keys:"));
    line.expect("it is in INFO").trim().parse().expect("a number")
}

/// The server tracks a waiter's list until it changes. The list of a waiter that leaves without a slot never changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_left_the_line_is_not_tracked() {
    const WAITERS: usize = 200;
    let server = RedisServer::start();
    let keys = Keyspace::of(&server, NAME);
    let home = connect(&server.url()).await;
    let semaphore = open(&home, 2);
    let held = semaphore.acquire().weight(2).await.unwrap();
    let mut waiting = JoinSet::new();
    for place in 0..WAITERS {
        let semaphore = semaphore.clone();
        waiting.spawn(async move {
            let acquire = semaphore.acquire().weight(1 + (place % 2) as u32);
            let timeout = if place % 4 < 2 { secs(2) } else { semafor::Span::UNLIMITED };
            acquire.timeout(timeout).await.map(drop)
        });
    }
    until(&semaphore, |stats| stats.waiting == WAITERS).await;
    until_seen("they are tracked", || (tracked(&keys) >= WAITERS as u64).then_some(())).await;
    // Half of them time out, the others are cancelled.
    for _ in 0..WAITERS / 2 {
        let ended = waiting.join_next().await.expect("half of them");
        assert!(matches!(ended, Ok(Err(AcquireError::TimedOut { .. }))), "{ended:?}");
    }
    waiting.shutdown().await;
    until(&semaphore, |stats| stats.waiting == 0).await;
    until_seen("nothing is tracked", || (tracked(&keys) == 0).then_some(())).await;
    assert_eq!(keys.notifications(), Vec::<String>::new());

    // The same for waiters that a close refuses.
    let waits = in_line(&semaphore, semaphore.acquire()).await;
    until_seen("it is tracked", || (tracked(&keys) == 1).then_some(())).await;
    semaphore.close().await.unwrap();
    assert_eq!(waits.outcome().await.map(drop), Err(AcquireError::Closed));
    until_seen("nothing is tracked", || (tracked(&keys) == 0).then_some(())).await;
    drop(held);
}

/// Found by a long run: the list of the last part of a weight did not change when the weight was granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_was_granted_its_weight_is_not_tracked() {
    let server = RedisServer::start();
    let keys = Keyspace::of(&server, NAME);
    let home = connect(&server.url()).await;
    let semaphore = open(&home, 3);
    for (weight, lists) in [(1, 1), (2, 2), (3, 2)] {
        let held = semaphore.acquire().weight(3).await.unwrap();
        let waits = in_line(&semaphore, semaphore.acquire().weight(weight)).await;
        until_seen("it is tracked", || (tracked(&keys) == lists).then_some(())).await;
        held.release().await.unwrap();
        waits.outcome().await.unwrap().release().await.unwrap();
        assert_eq!(tracked(&keys), 0, "weight {weight}");
        assert_eq!(keys.notifications(), Vec::<String>::new());
    }
}

/// A process that dies in line is removed from it when the server takes it for dead.
#[tokio::test]
async fn a_waiter_that_died_in_line_is_not_tracked() {
    const TEST: &str = "a_waiter_that_died_in_line_is_not_tracked";
    if let Ok(url) = std::env::var(ROLE) {
        let home = connect(&url).await;
        let semaphore = open_with_quick_heartbeats(&home, 1);
        let _waits = in_line(&semaphore, semaphore.acquire()).await;
        return std::future::pending().await;
    }
    let server = RedisServer::start();
    let keys = Keyspace::of(&server, NAME);
    let home = connect(&server.url()).await;
    let semaphore = open_with_quick_heartbeats(&home, 1);
    let _held = semaphore.acquire().await.unwrap();
    let mut child = in_another_process(TEST, &server);
    until_seen("it is tracked", || (tracked(&keys) == 1).then_some(())).await;
    child.kill().expect("it is our child");
    child.wait().expect("it is our child");
    until_seen("nothing is tracked", || (tracked(&keys) == 0).then_some(())).await;
}

/// Another client deletes the records of the waiters, which only our scripts know.
#[tokio::test]
async fn waiters_without_a_record_get_it_back() {
    let server = RedisServer::start();
    let (home, other) = (connect(&server.url()).await, connect_again(&server.url()).await);
    let keys = Keyspace::of(&server, NAME);
    let (semaphore, others) = (open_with_quick_heartbeats(&home, 1), open_with_quick_heartbeats(&other, 1));
    let held = others.acquire().await.unwrap();
    let first = in_line(&semaphore, semaphore.acquire().label("first").ttl(secs(600))).await;
    let second = in_line(&semaphore, semaphore.acquire().label("second")).await;
    let line = keys.members("waiting");

    keys.ask::<()>(&["DEL", &keys.key("records")]);
    until_seen("their identities are known again", || {
        let known: usize =
            line.iter().map(|id| keys.ask::<usize>(&["HEXISTS", &keys.key("records"), id])).sum();
        (known == 2).then_some(())
    })
    .await;
    assert_eq!(keys.members("waiting"), line, "they stand where they stood");
    let labels: Vec<_> = semaphore.waiters().await.unwrap().into_iter().map(|waiter| waiter.label).collect();
    assert_eq!(labels, [Some("first".into()), Some("second".into())]);

    // And again, right before it is the turn of the first.
    keys.ask::<()>(&["DEL", &keys.key("records")]);
    held.release().await.unwrap();
    let first = first.outcome().await.expect("its turn");
    assert_eq!((first.slot(), id_of(&first)), (0, line[0].clone()));
    assert!(keys.score("ttl", &line[0]).is_some(), "it has its lease");
    keys.ask::<()>(&["DEL", &keys.key("records")]);
    first.release().await.unwrap();
    let second = second.outcome().await.expect("its turn");
    keys.ask::<()>(&["DEL", &keys.key("records")]);
    semaphore.renew(&second.id(), secs(600)).await.ok();
    assert_eq!(semaphore.holders().await.unwrap().len(), 1);
    second.release().await.expect("it was held");
    until(&semaphore, |stats| stats.held == 0 && stats.waiting == 0).await;
}

/// Clients of another library may arrive between two microseconds.
#[tokio::test]
async fn places_in_line_are_restored_exactly() {
    let server = RedisServer::start();
    let home = connect(&server.url()).await;
    let keys = Keyspace::of(&server, NAME);
    let semaphore = open_with_quick_heartbeats(&home, 1);
    let _held = semaphore.acquire().await.unwrap();
    // Its clock is fast: the next waiter is right behind it, a microsecond later.
    queue_python_waiter(&keys, "4b0c0ffee", (keys.now() + 1000.0).floor() + 0.12345655);
    let first = in_line(&semaphore, semaphore.acquire()).await;
    let second = in_line(&semaphore, semaphore.acquire()).await;
    let line = keys.members("waiting");
    let places: Vec<_> = line.iter().map(|id| keys.score("waiting", id)).collect();

    keys.ask::<()>(&["DEL", &keys.key("waiting"), &keys.key("waiting_heartbeat")]);
    until_seen("they are back in line", || (keys.members("waiting").len() == 2).then_some(())).await;
    assert_eq!(keys.members("waiting"), line[1..]);
    assert_eq!(line[1..].iter().map(|id| keys.score("waiting", id)).collect::<Vec<_>>(), places[1..]);
    drop((first, second));
}

/// A server whose policy allows it deletes keys in use when its memory runs out.
#[tokio::test]
async fn holder_whose_keys_were_evicted_is_notified_when_another_gets_its_slot() {
    let server = RedisServer::start();
    let (home, other) = (connect(&server.url()).await, connect_again(&server.url()).await);
    let keys = Keyspace::of(&server, NAME);
    let (semaphore, others) = (open(&home, 1), open(&other, 1));
    without_heartbeat(&home, &server, "the new holder tells the former one", async || {
        let held = semaphore.acquire().await.unwrap();
        // Holders are in two keys. Without both, nothing says that the holder lives.
        keys.ask::<()>(&["DEL", &keys.key("main"), &keys.key("own")]);
        let next = others.acquire().await.unwrap();
        let lost = tokio::time::timeout(Duration::from_secs(60), held.lost()).await;
        assert_eq!(lost, Ok(NotHeld::Lost(Loss::Vanished)));
        assert!(next.fencing_token() > held.fencing_token());
        next.release().await.unwrap();
    })
    .await;
}

/// A part of a weight without a record would keep the server busy for ever, if it were taken for the whole weight.
#[tokio::test]
async fn a_heavy_waiter_without_a_record_is_served() {
    let server = RedisServer::start();
    let home = connect(&server.url()).await;
    let keys = Keyspace::of(&server, NAME);
    let semaphore = open_with_quick_heartbeats(&home, 2);
    semaphore.acquire().await.unwrap().release().await.unwrap();
    let alive = (keys.now() + 180.0).to_string();
    keys.ask::<()>(&["ZADD", &keys.key("main"), &alive, "4b0c0ffee", &alive, "4b0c0ffef"]);
    let heavy = in_line(&semaphore, semaphore.acquire().weight(2)).await;
    let behind = in_line(&semaphore, semaphore.acquire()).await;
    let mut script = redis::pipe();
    script.atomic().cmd("DEL").arg(keys.key("records"));
    script.cmd("ZREM").arg(keys.key("main")).arg("4b0c0ffee").arg("4b0c0ffef");
    script.exec(&mut server.connection()).expect("the server obeys");
    let heavy = heavy.outcome().await.expect("its turn");
    assert_eq!(semaphore.stats().await.unwrap().held, 2);
    heavy.release().await.unwrap();
    behind.outcome().await.expect("its turn").release().await.unwrap();
    until(&semaphore, |stats| stats.held == 0 && stats.waiting == 0).await;
}
