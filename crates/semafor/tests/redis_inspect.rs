//! Long lines and many holders are listed in pages, and a broken name does not hide other names.

mod redis_support;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use redis_support::{connected, eventually, in_time};
use semafor::{HomeErrorKind, StatsQuery};
use semafor_testkit::redis::{Keyspace, RedisServer};

const NAME: &str = "long";
const CHUNK: usize = 2000;

/// The id of a client of another process.
fn id(number: usize) -> String {
    format!("5eaf00d0c0ffee000000{number:012x}")
}

/// Puts every `step`th of these waiters in line, as other processes would: with their records.
const FILL_LINE: &str = r#"
local start = tonumber(ARGV[1])
for number = ARGV[2], ARGV[3] - 1, ARGV[4] do
    local id, arrival = string.format('5eaf00d0c0ffee000000%012x', number), start + number * 0.001
    redis.call('ZADD', KEYS[1], arrival, id)
    redis.call('ZADD', KEYS[2], start + 5000, id)
    redis.call('HSET', KEYS[3], id, string.format('1 0 180 %.6f -1 0 0 0 {"host":"far","pid":%d,"command":"%s"}',
        arrival, number, string.rep('x', 300)))
end"#;

fn fill_line(
    connection: &mut redis::Connection,
    keys: &Keyspace,
    start: f64,
    waiters: Range<usize>,
    step: usize,
) {
    let mut fill = redis::cmd("EVAL");
    fill.arg(FILL_LINE).arg(3);
    for kind in ["waiting", "waiting_heartbeat", "records"] {
        fill.arg(keys.key(kind));
    }
    fill.arg(start).arg(waiters.start).arg(waiters.end).arg(step);
    fill.exec(connection).expect("the server obeys");
}

/// Takes waiters out of the line, as if they had left.
fn leave_line(connection: &mut redis::Connection, keys: &Keyspace, waiters: &[usize]) {
    let ids: Vec<_> = waiters.iter().map(|number| id(*number)).collect();
    let mut pipeline = redis::pipe();
    pipeline.cmd("ZREM").arg(keys.key("waiting")).arg(&ids).ignore();
    pipeline.cmd("ZREM").arg(keys.key("waiting_heartbeat")).arg(&ids).ignore();
    pipeline.cmd("HDEL").arg(keys.key("records")).arg(&ids).ignore();
    pipeline.exec(connection).expect("the server obeys");
}

#[tokio::test]
async fn a_line_of_100_000_is_listed_in_answers_of_bounded_size() {
    const WAITERS: usize = 100_000;
    let server = RedisServer::start();
    let keys = Keyspace::of(&server, NAME);
    // A client that is sent more than this at once is cut off.
    server.command(&["CONFIG", "SET", "client-output-buffer-limit", "pubsub 2mb 0 0 normal 2mb 0 0"]);
    let home = connected(&server.url()).await;
    let semaphore = in_time(home.named(NAME).slots(1).open()).await.unwrap();
    let held = in_time(semaphore.acquire()).await.unwrap();
    fill_line(&mut server.connection(), &keys, keys.now() - 1000.0, 0..WAITERS, 1);

    let waiters = in_time(semaphore.waiters()).await.expect("the line is listed");
    assert_eq!(waiters.len(), WAITERS);
    for (number, waiter) in waiters.iter().enumerate() {
        assert_eq!((waiter.ahead, waiter.pid), (number, Some(u32::try_from(number).unwrap())));
    }
    let holders = in_time(semaphore.holders()).await.expect("the holders are listed");
    assert_eq!(holders.iter().map(|holder| holder.id.clone()).collect::<Vec<_>>(), [held.id()]);
    assert!(!held.is_lost());
}

#[tokio::test]
async fn many_holders_are_listed_in_answers_of_bounded_size() {
    const HOLDERS: u32 = 20_000;
    let server = RedisServer::start();
    let keys = Keyspace::of(&server, NAME);
    server.command(&["CONFIG", "SET", "client-output-buffer-limit", "pubsub 2mb 0 0 normal 2mb 0 0"]);
    let home = connected(&server.url()).await;
    let semaphore = in_time(home.named(NAME).slots(HOLDERS + 1).open()).await.unwrap();
    let held = in_time(semaphore.acquire()).await.unwrap();
    let (now, mut connection) = (keys.now(), server.connection());
    let command = "x".repeat(300);
    for some in (1..=HOLDERS).collect::<Vec<_>>().chunks(CHUNK) {
        let mut pipeline = redis::pipe();
        for slot in some {
            let id = id(*slot as usize);
            let record = format!("1 600 180 {now} {slot} {slot} 0 0 {{\"command\":\"{command}\"}}");
            pipeline.cmd("ZADD").arg(keys.key("main")).arg(now + 5000.0).arg(&id).ignore();
            pipeline.cmd("ZADD").arg(keys.key("ttl")).arg(now + 6000.0).arg(&id).ignore();
            pipeline.cmd("HSET").arg(keys.key("records")).arg(&id).arg(record).ignore();
        }
        pipeline.exec(&mut connection).expect("the server obeys");
    }
    // One record is too long for any answer: its holder is listed, without its command.
    let giant = id(1);
    let record = format!("1 600 180 {now} 1 1 0 0 {{\"command\":\"{}\"}}", "y".repeat(4 << 20));
    keys.ask::<()>(&["HSET", &keys.key("records"), &giant, &record]);

    let holders = in_time(semaphore.holders()).await.expect("the holders are listed");
    let slots: Vec<_> = holders.iter().map(|holder| holder.slot).collect();
    assert_eq!(slots, (0..=HOLDERS).map(Some).collect::<Vec<_>>());
    assert!(holders[2].expires_in.is_some() && holders[2].command.is_some());
    assert_eq!((holders[1].fencing_token, holders[1].command.as_deref()), (Some(1), None));
    assert!(!held.is_lost());
}

/// Waiters come and go between two pages. A waiter that stays in line is listed once, in its order.
#[tokio::test]
async fn a_line_that_moves_is_listed_without_gaps_or_duplicates() {
    const STAYING: usize = 5_000;
    let server = Arc::new(RedisServer::start());
    let keys = Keyspace::of(&server, NAME);
    let home = connected(&server.url()).await;
    let semaphore = in_time(home.named(NAME).slots(1).open()).await.unwrap();
    let _held = in_time(semaphore.acquire()).await.unwrap();
    // Every second waiter leaves while the line is listed, and returns to its place.
    let start = keys.now() - 1000.0;
    fill_line(&mut server.connection(), &keys, start, 0..2 * STAYING, 1);
    let is_over = Arc::new(AtomicBool::new(false));
    let coming_and_going = thread::spawn({
        let (server, is_over) = (Arc::clone(&server), Arc::clone(&is_over));
        move || {
            let (keys, mut connection) = (Keyspace::of(&server, NAME), server.connection());
            let restless: Vec<_> = (0..STAYING).map(|number| 2 * number).collect();
            let mut rounds = 0;
            while !is_over.load(Ordering::Relaxed) {
                for some in restless.chunks(100) {
                    leave_line(&mut connection, &keys, some);
                }
                for first in (0..2 * STAYING).step_by(200) {
                    fill_line(&mut connection, &keys, start, first..first + 200, 2);
                }
                rounds += 1;
            }
            rounds
        }
    });
    for _ in 0..20 {
        let waiters = in_time(semaphore.waiters()).await.expect("the line is listed");
        let staying: Vec<_> =
            waiters.iter().filter_map(|waiter| waiter.pid).filter(|pid| pid % 2 == 1).collect();
        let expected: Vec<_> = (0..STAYING).map(|number| u32::try_from(2 * number + 1).unwrap()).collect();
        assert_eq!(staying, expected);
        let mut all: Vec<_> = waiters.iter().map(|waiter| waiter.pid).collect();
        all.dedup();
        assert_eq!(all.len(), waiters.len(), "no waiter is listed twice");
    }
    is_over.store(true, Ordering::Relaxed);
    coming_and_going.join().expect("no panic");
}

#[tokio::test]
async fn a_key_of_a_wrong_type_breaks_one_name_only() {
    let server = RedisServer::start();
    let home = connected(&server.url()).await;
    let mut held = Vec::new();
    for name in ["before", "between", "later"] {
        let semaphore = in_time(home.named(name).slots(2).open()).await.unwrap();
        held.push(in_time(semaphore.acquire()).await.unwrap().detach());
    }
    for (name, kind) in [("broken", "main"), ("between", "records")] {
        let key = Keyspace::of(&server, name).key(kind);
        server.command(&["DEL", &key]);
        server.command(&["SET", &key, "something else"]);
    }
    server.command(&["SET", "adv-sem:semaphore_times:later", "something else"]);

    let all = in_time(home.stats(&StatsQuery::default())).await.expect("the others are listed");
    let mut found: Vec<_> =
        all.iter().map(|stats| (&*stats.name, stats.held, stats.error.is_some())).collect();
    found.sort_unstable();
    // Holders are listed even without their records.
    let expected = [("before", 1, false), ("between", 1, false), ("broken", 0, true), ("later", 0, true)];
    assert_eq!(found, expected);
    for stats in all.iter().filter(|stats| stats.error.is_some()) {
        let error = stats.error.as_ref().unwrap();
        assert_eq!(error.kind(), HomeErrorKind::WrongType);
        assert!(error.to_string().contains(&format!(":{}\"", stats.name)), "{error}");
    }
    let one = in_time(home.stats(&StatsQuery::default().names(["broken"]))).await.unwrap();
    assert!(one[0].error.is_some());

    // A server that does not answer is an error of the whole call.
    server.kill();
    let error = eventually("the server is unreachable", || async {
        home.stats(&StatsQuery::default().names(["before", "later"])).await.err()
    });
    assert!(in_time(error).await.is_unreachable());
}
