//! Many clients on Redis: frequent operations cost the server the same, however many waiters there are.

mod redis_support;

use std::collections::BTreeMap;
use std::time::Duration;

use redis_support::{ask, connected, in_time, until_waiting};
use semafor::{AcquireError, Permit, Semaphore, secs};
use semafor_testkit::redis::{Keyspace, Monitor, Observed, Proxy, RedisServer, until_seen};
use tokio::task::JoinSet;

const NAME: &str = "many";

/// The number of waiters from `SEMAFOR_WAITERS`. If it is set, the tests also print figures.
fn waiters_from_environment() -> Option<usize> {
    std::env::var("SEMAFOR_WAITERS").ok().map(|count| count.parse().expect("a number of waiters"))
}

/// How long the server has spent in scripts so far, in microseconds, and how many it has run.
fn script_time(server: &RedisServer) -> (u64, u64) {
    let stats = ask(server, &["INFO", "commandstats"]);
    let of = |command: &str, field: &str| {
        let line = stats.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:")));
        let value = line.and_then(|line| line.split([':', ',']).find_map(|part| part.strip_prefix(field)));
        value.and_then(|value| value.parse::<u64>().ok()).unwrap_or(0)
    };
    (of("evalsha", "usec=") + of("eval", "usec="), of("evalsha", "calls=") + of("eval", "calls="))
}

/// Script time in microseconds that `work` costs.
async fn cost(server: &RedisServer, work: impl Future<Output = ()>) -> u64 {
    let before = script_time(server).0;
    work.await;
    script_time(server).0 - before
}

/// The commands of each script that satisfies `wanted`.
fn scripts(observed: &[Observed], wanted: impl Fn(&Observed) -> bool) -> Vec<Vec<Observed>> {
    let mut scripts = Vec::new();
    let mut is_wanted = false;
    for observed in observed {
        if observed.by != "lua" {
            is_wanted = observed.is_script() && wanted(observed);
            scripts.extend(is_wanted.then(Vec::new));
        } else if let Some(script) = scripts.last_mut().filter(|_| is_wanted) {
            script.push(observed.clone());
        }
    }
    scripts
}

/// True if the answer to the command, or its work, grows with the size of the key.
fn lists_everything(observed: &Observed) -> bool {
    let words: Vec<_> = observed.words.iter().map(|word| word.to_ascii_uppercase()).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        // The buckets of a histogram.
        ["HGETALL", key] if key.contains(":SEMAPHORE_TIMES:") => false,
        ["HGETALL" | "HKEYS" | "HVALS" | "SMEMBERS" | "KEYS", ..] => true,
        ["ZRANGE" | "ZREVRANGE" | "LRANGE", _, from, to, ..] => from != to,
        ["ZRANGEBYSCORE" | "ZREVRANGEBYSCORE" | "ZRANGEBYLEX", ref rest @ ..] => !rest.contains(&"LIMIT"),
        _ => false,
    }
}

/// `count` waiters that time out together. Returns how many commands the scripts ran for each on the server; without a
/// monitor, prints how long that took the server.
async fn time_out_together(count: usize, is_watched: bool) -> usize {
    let server = RedisServer::start();
    // No limit on the output of MONITOR, or the server would close its connection.
    server.command(&["CONFIG", "SET", "client-output-buffer-limit", "normal 0 0 0"]);
    let home = connected(&format!("{}?socket_timeout=60&number_of_attempts=3", server.url())).await;
    let semaphore = home.named(NAME).slots(1).heartbeat_max_interval(secs(600)).build().unwrap();
    let held = semaphore.acquire().await.unwrap();
    // All get the same deadline, whenever they were queued.
    let deadline = tokio::time::Instant::now() + Duration::from_millis(4_000 + 3 * count as u64);
    let mut waiting = JoinSet::new();
    for _ in 0..count {
        let semaphore = semaphore.clone();
        waiting.spawn(async move {
            let timeout = deadline.saturating_duration_since(tokio::time::Instant::now());
            semaphore.acquire().timeout(timeout).await.map(drop)
        });
    }
    until_waiting(&semaphore, count).await;
    let monitor = is_watched.then(|| Monitor::of(&server));
    // For the figures: heartbeats until then do not count.
    tokio::time::sleep_until(deadline - Duration::from_millis(50)).await;
    let before = script_time(&server);
    let mut kinds = BTreeMap::<String, usize>::new();
    while let Some(outcome) = in_time(waiting.join_next()).await {
        let kind = match outcome.unwrap() {
            Err(AcquireError::TimedOut { held: 1, slots: 1, .. }) => "timed out".to_owned(),
            other => format!("{other:?}"),
        };
        *kinds.entry(kind).or_default() += 1;
    }
    assert_eq!(kinds, [("timed out".to_owned(), count)].into());
    let after = script_time(&server);

    let keys = Keyspace::of(&server, NAME);
    for kind in ["waiting", "waiting_heartbeat"] {
        assert_eq!(keys.members(kind).len(), 0, "in line: {kind}");
    }
    assert_eq!(keys.members("main"), [held.id().to_string()]);
    assert_eq!(keys.members("own"), [held.id().to_string()]);
    let records: Vec<String> = keys.ask(&["HKEYS", &keys.key("records")]);
    assert_eq!(records.len(), 2, "the holder, and the mark that it is not empty");
    assert_eq!(keys.notifications(), [""; 0]);

    held.release().await.unwrap();
    let Some(monitor) = monitor else {
        let (time, calls) = (after.0 - before.0, after.1 - before.1);
        println!(
            "{count} waiters time out: {:.1} us of server time each, {calls} scripts",
            time as f64 / count as f64
        );
        return 0;
    };
    let is_leave = |script: &Observed| script.words.iter().any(|word| word == "timed_out");
    let leaves = scripts(&monitor.so_far(&server), is_leave);
    let listings: Vec<_> = leaves.iter().flatten().filter(|observed| lists_everything(observed)).collect();
    assert!(listings.is_empty(), "{} listings, the first is {:?}", listings.len(), listings[0].words);
    assert!(
        leaves.len() <= count / 10 + 10,
        "{} calls for {count} waiters: they leave together",
        leaves.len()
    );
    leaves.iter().map(Vec::len).sum::<usize>().div_ceil(count)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_that_time_out_together_all_time_out_and_leave_nothing() {
    if let Some(count) = waiters_from_environment() {
        time_out_together(100, false).await;
        time_out_together(count, false).await;
    }
    let few = time_out_together(100, true).await;
    let many = time_out_together(4_000, true).await;
    assert!(many <= few, "{many} commands for each, against {few} with 100");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_line_makes_neither_try_acquire_nor_locked_slower() {
    const ROUNDS: usize = 50;
    let server = RedisServer::start();
    let home = connected(&format!("{}?socket_timeout=60", server.url())).await;
    let semaphore = home.named(NAME).slots(1).build().unwrap();
    // A connection of its own, without heartbeats. The scripts are counted by the connection.
    let visitor = connected(&format!("{}?socket_timeout=61", server.url())).await;
    let visits = visitor.named(NAME).slots(1).build().unwrap();
    let _held = semaphore.acquire().await.unwrap();
    let mut waiting = JoinSet::new();
    let mut work = Vec::new();
    for count in [10, waiters_from_environment().unwrap_or(5_000)] {
        while waiting.len() < count {
            let semaphore = semaphore.clone();
            waiting.spawn(async move { semaphore.acquire().await.map(drop) });
        }
        until_waiting(&semaphore, count).await;
        in_time(visits.try_acquire()).await.map(drop).expect_err("the slot is taken");
        let try_once = async || {
            let refused = in_time(visits.try_acquire().label("a try")).await.map(drop);
            assert_eq!(refused, Err(AcquireError::Busy));
        };
        let look_once = async || assert!(in_time(visits.locked()).await.unwrap());
        if waiters_from_environment().is_some() {
            let (mut tries, mut looks) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                tries.push(cost(&server, try_once()).await);
                looks.push(cost(&server, look_once()).await);
            }
            // Some of the measurements include heartbeats of the others.
            let least = |costs: &[u64]| *costs.iter().min().expect("some");
            println!(
                "{count} in line: a try costs the server {} us, locked() {} us",
                least(&tries),
                least(&looks)
            );
        }
        let monitor = Monitor::of(&server);
        try_once().await;
        look_once().await;
        let observed = monitor.so_far(&server);
        let is_try = |observed: &Observed| observed.words.iter().any(|word| word.contains("\"a try\""));
        let visitor =
            observed.iter().find(|observed| is_try(observed)).expect("the monitor saw it").by.clone();
        let all = scripts(&observed, |script| script.by == visitor);
        assert_eq!(all.len(), 2, "a try and a look are a script each");
        let listings: Vec<_> = all.iter().flatten().filter(|observed| lists_everything(observed)).collect();
        assert!(listings.is_empty(), "with {count} in line: {:?}", listings[0].words);
        work.push((all[0].len(), all[1].len()));
    }
    assert_eq!(work[0], work[1], "commands for a try and for a look, with 10 in line and with many");
    waiting.shutdown().await;
}

/// Without push messages, waiters poll. Many waiters that polled every 100 ms would keep the server from all other work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_waiters_do_not_poll_again_before_the_answer() {
    const WAITERS: usize = 1_200;
    let server = RedisServer::start();
    let (proxy, keys) = (Proxy::to(server.port()), Keyspace::of(&server, NAME));
    // Sends a heartbeat five times a second.
    let other = connected(&server.url()).await;
    let others = other.named(NAME).slots(1).heartbeat_max_interval(secs(1)).build().unwrap();
    let held = others.acquire().await.unwrap();
    let home = connected(&format!("{}?protocol=resp2&socket_timeout=60", proxy.url())).await;
    let semaphore = home.named(NAME).slots(1).build().unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..WAITERS {
        let semaphore = semaphore.clone();
        waiting.spawn(async move { semaphore.acquire().await.map(drop) });
    }
    until_waiting(&others, WAITERS).await;

    let waiter = keys.members("waiting").remove(0);
    let process = waiter[8..20].to_owned();
    proxy.hold_replies();
    let monitor = Monitor::of(&server);
    for _ in 0..10 {
        let before = keys.score("main", &held.id().to_string());
        until_seen("a heartbeat of the other", || {
            (keys.score("main", &held.id().to_string()) != before).then_some(())
        })
        .await;
    }
    let is_roll = |observed: &Observed| {
        observed.words.iter().filter(|word| word.get(8..20) == Some(&process)).count() > 1
    };
    let rolls = scripts(&monitor.so_far(&server), is_roll).len();
    proxy.forward();
    assert!(rolls <= 2, "{rolls} calls of the roll, and no answer to the first");

    // The waiters are served all the same.
    held.release().await.unwrap();
    for _ in 0..3 {
        let served = in_time(waiting.join_next()).await.expect("one of them");
        served.unwrap().expect("its turn comes");
    }
    waiting.shutdown().await;
}

/// The client asks the server to end leases that have ended here: not once for each lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_that_end_together_are_swept_together() {
    const HOLDERS: u32 = 600;
    let server = RedisServer::start();
    let home = connected(&server.url()).await;
    let semaphore = home.named(NAME).slots(HOLDERS).build().unwrap();
    let mut acquired = JoinSet::new();
    for _ in 0..HOLDERS {
        let semaphore = semaphore.clone();
        acquired.spawn(async move { semaphore.acquire().ttl(secs(600)).await.map(Permit::into_owned) });
    }
    let held: Vec<_> =
        acquired.join_all().await.into_iter().map(|permit| permit.expect("it is free")).collect();
    let mut renewals = JoinSet::new();
    for permit in &held {
        let (semaphore, id) = (semaphore.clone(), permit.id());
        renewals.spawn(async move { semaphore.renew(&id, secs(3)).await });
    }
    renewals.join_all().await.into_iter().for_each(|renewed| renewed.expect("it is held"));
    let monitor = Monitor::of(&server);
    for permit in &held {
        in_time(permit.lost()).await;
    }
    redis_support::eventually("all have ended there", || async {
        (semaphore.stats().await.ok()?.totals.expired == u64::from(HOLDERS)).then_some(())
    })
    .await;
    // A sweep has the keys and the namespace, and writes; a query does not write.
    let observed = monitor.so_far(&server);
    let bare = scripts(&observed, |script| script.words.len() == 14);
    let sweeps = bare
        .iter()
        .filter(|script| script.iter().any(|observed| observed.words[0].eq_ignore_ascii_case("ZREM")));
    let sweeps = sweeps.count();
    assert!(sweeps < HOLDERS as usize / 2, "{sweeps} sweeps for {HOLDERS} leases");
}

/// A runtime ends with thousands of waiters in line and a held slot: nothing of either is left.
#[test]
fn runtime_that_ends_with_thousands_in_line_leaves_nothing() {
    const WAITERS: usize = 2_000;
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let home = connected(&server.url()).await;
        let semaphore = home.named(NAME).slots(1).build().unwrap();
        let held = semaphore.clone().acquire().await.unwrap().into_owned();
        tokio::spawn(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        for _ in 0..WAITERS {
            let semaphore: Semaphore = semaphore.clone();
            tokio::spawn(async move { semaphore.acquire().await.map(drop) });
        }
        until_waiting(&semaphore, WAITERS).await;
    });
    drop(runtime);
    let keys = Keyspace::of(&server, NAME);
    assert_eq!(keys.members("waiting").len(), 0, "in line");
    assert_eq!(keys.members("main"), [""; 0], "held");
}

/// While a heavy weight is acquired, kept alive and released, the command of another client takes no longer than usual.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heavy_weight_costs_the_server_what_a_light_one_does() {
    const HEAVY: u32 = 300_000;
    let server = RedisServer::start();
    let home = connected(&format!("{}?socket_timeout=60", server.url())).await;
    let semaphore = home.named(NAME).slots(HEAVY + 10).heartbeat_max_interval(secs(2)).build().unwrap();
    let keys = Keyspace::of(&server, NAME);
    let mut costs = Vec::new();
    for weight in [64, HEAVY] {
        let cycle = cost(&server, async {
            let held = in_time(semaphore.acquire().weight(weight)).await.unwrap();
            let stats = semaphore.stats().await.unwrap();
            assert_eq!((stats.held, stats.holders), (weight, 1));
            let before = keys.score("main", &held.id().to_string());
            redis_support::eventually("a heartbeat", || async {
                (keys.score("main", &held.id().to_string()) > before).then_some(())
            })
            .await;
            if weight == HEAVY {
                // The remaining slots are counted right.
                let rest = semaphore.acquire().weight(10).await.unwrap();
                assert_eq!(semaphore.try_acquire().await.map(drop), Err(AcquireError::Busy));
                assert_eq!(
                    semaphore.holders().await.unwrap().iter().map(|h| h.weight).sum::<u32>(),
                    HEAVY + 10
                );
                rest.release().await.unwrap();
            }
            held.release().await.unwrap();
        });
        costs.push(cycle.await);
    }
    assert!(keys.members("main").is_empty());
    assert!(costs[1] <= costs[0] * 20, "{} us, against {} us for a weight of 64", costs[1], costs[0]);
}

/// It waits, is served in its turn, and no other waiter passes it.
#[tokio::test]
async fn a_heavy_weight_waits_its_turn() {
    let server = RedisServer::start();
    let home = connected(&server.url()).await;
    let semaphore = home.named(NAME).slots(1_000).build().unwrap();
    let first = semaphore.acquire().weight(600).await.unwrap();
    let mut second = semafor_testkit::by_hand::in_line(&semaphore, semaphore.acquire().weight(900)).await;
    let third = semafor_testkit::by_hand::in_line(&semaphore, semaphore.acquire().weight(100)).await;
    assert!(second.waits(), "400 are free, and it wants 900");
    assert_eq!(semaphore.stats().await.unwrap().waiting, 2);
    first.release().await.unwrap();
    let second = second.outcome().await.unwrap();
    let third = third.outcome().await.expect("there is room for both");
    assert_eq!(semaphore.stats().await.unwrap().held, 1_000);
    assert!(third.fencing_token() > second.fencing_token());
    second.release().await.unwrap();
    third.release().await.unwrap();
    assert_eq!(semaphore.stats().await.unwrap().held, 0);
}

/// Clients of the Python library see at most 64 members of a weight. Where there are such clients, more is refused.
#[tokio::test]
async fn a_weight_that_the_python_library_cannot_see_is_refused_beside_it() {
    let server = RedisServer::start();
    let home = connected(&server.url()).await;
    let keys = Keyspace::of(&server, NAME);
    let semaphore = home.named(NAME).slots(1_000).build().unwrap();
    let theirs = (keys.now() + 180.0).to_string();
    keys.ask::<()>(&["ZADD", &keys.key("main"), &theirs, "4b0c0ffee"]);
    keys.ask::<()>(&["SET", &keys.key("max"), "1000"]);
    let seen = semaphore.acquire().weight(64).await.unwrap();
    let refused = semaphore.acquire().weight(65).await.map(drop).unwrap_err().to_string();
    assert!(refused.contains("65") && refused.contains("64") && refused.contains("Python"), "{refused}");
    seen.release().await.unwrap();
    // Python clients come and go: the next one would count slots that it does not see as free.
    keys.ask::<()>(&["ZREM", &keys.key("main"), "4b0c0ffee"]);
    let refused = semaphore.acquire().weight(65).await.map(drop).unwrap_err().to_string();
    assert!(refused.contains("Python"), "{refused}");
    let other = home.named("others").slots(1_000).build().unwrap();
    other.acquire().weight(65).await.expect("they are not here").release().await.unwrap();
}
