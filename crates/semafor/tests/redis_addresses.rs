//! All ways to a Redis, and how much is needed of it.

mod redis_support;

use std::path::Path;
use std::process::{Command, Stdio};

use redis_support::{
    HASTY, ask, connected, connections, eventually, heard, in_time, listen, passes_on, until_waiting,
};
use semafor::{Home, HomeErrorKind, Semaphore};
use semafor_testkit::redis::RedisServer;

async fn opened(url: &str, name: &str) -> Semaphore {
    let semaphore = connected(url).await.named(name).slots(1).open();
    in_time(semaphore).await.unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// Names in a database.
fn keys_in(server: &RedisServer, database: u8) -> usize {
    let mut connection = server.connection();
    redis::cmd("SELECT").arg(database).exec(&mut connection).expect("there are 16");
    redis::cmd("DBSIZE").query(&mut connection).expect("a number")
}

#[tokio::test]
async fn a_unix_socket_leads_to_the_same_semaphore() {
    let server = RedisServer::with(&[("unixsocketperm", "700")]);
    let there = opened(&server.unix_url(), "door").await;
    let here = opened(&server.url(), "door").await;
    passes_on(&there, &here).await;
    passes_on(&here, &there).await;
}

#[tokio::test]
async fn a_database_is_chosen_by_its_number() {
    let server = RedisServer::start();
    let by_tcp = opened(&format!("{}2", server.url()), "room").await;
    let by_socket = opened(&format!("{}?db=2", server.unix_url()), "room").await;
    passes_on(&by_tcp, &by_socket).await;
    assert_eq!(keys_in(&server, 0), 0);
    assert!(keys_in(&server, 2) > 0);

    let error = in_time(Home::connect(&format!("{}99?{HASTY}", server.url()))).await.unwrap_err();
    assert_eq!(error.kind(), HomeErrorKind::InvalidUrl, "{error}");
    assert!(error.to_string().contains("has no database of that number"), "{error}");
}

const TRICKY: &str = "p@ss:w/o?r#d%25&é+ =";

#[tokio::test]
async fn any_password_can_be_given_to_any_address() {
    let server = RedisServer::start();
    let user = format!(">{TRICKY}");
    server.command(&["ACL", "SETUSER", "ben@home", "on", &user, "~*", "&*", "+@all"]);
    let encoded = "p%40ss%3Aw%2Fo%3Fr%23d%2525%26%C3%A9%2B%20%3D";
    let by_tcp = format!("redis://ben%40home:{encoded}@127.0.0.1:{}", server.port());
    let by_socket = format!("{}?user=ben%40home&pass={encoded}", server.unix_url());
    let (by_tcp, by_socket) = (opened(&by_tcp, "gate").await, opened(&by_socket, "gate").await);
    passes_on(&by_tcp, &by_socket).await;
    assert!(ask(&server, &["CLIENT", "LIST"]).matches("user=ben@home").count() == 2);
}

#[tokio::test]
async fn a_password_alone_is_that_of_the_default_user() {
    let server = RedisServer::with(&[("requirepass", "sesame")]);
    let url = format!("redis://:sesame@127.0.0.1:{}/", server.port());
    let (one, other) = (opened(&url, "cave").await, opened(&format!("{url}?protocol=resp2"), "cave").await);
    passes_on(&one, &other).await;
}

// TLS

#[tokio::test]
async fn tls_works_out_of_the_box_with_an_authority_of_ones_own() {
    let server = RedisServer::with_tls();
    let url = format!("{}?ca={}", server.tls_url(), server.ca_certificate().display());
    let (safe, plain) = (opened(&url, "vault").await, opened(&server.url(), "vault").await);
    passes_on(&safe, &plain).await;
    passes_on(&plain, &safe).await;
}

/// In a process of its own, since there is one choice for a whole process.
#[tokio::test]
async fn tls_leaves_the_users_choice_of_cryptography_alone() {
    const URL: &str = "SEMAFOR_TEST_TLS_URL";
    if let Ok(url) = std::env::var(URL) {
        let mut chosen = rustls::crypto::ring::default_provider();
        chosen.cipher_suites.truncate(1);
        chosen.install_default().expect("it is the first");
        opened(&url, "vault").await;
        let used = rustls::crypto::CryptoProvider::get_default().expect("there is one");
        assert_eq!(used.cipher_suites.len(), 1);
        return;
    }
    let server = RedisServer::with_tls();
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.args(["--exact", "tls_leaves_the_users_choice_of_cryptography_alone"]);
    test.env(URL, format!("{}?ca={}", server.tls_url(), server.ca_certificate().display()));
    let output = tokio::task::spawn_blocking(move || test.stdin(Stdio::null()).output());
    let output = in_time(output).await.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[tokio::test]
async fn what_is_wrong_with_tls_is_said() {
    let (server, other) = (RedisServer::with_tls(), RedisServer::with_tls());
    let tls = |ca: &Path| format!("{}?ca={}&{HASTY}", server.tls_url(), ca.display());
    let nowhere = server.dir().join("nowhere.pem");
    let garbage = server.dir().join("redis.conf");
    let wrong = HomeErrorKind::InvalidUrl;
    for (url, kind, remedy) in [
        (tls(&other.ca_certificate()), wrong, "?ca=/path/to/ca.pem"),
        (format!("{}?{HASTY}", server.tls_url()), wrong, "?ca=/path/to/ca.pem"),
        (tls(&nowhere), wrong, "nowhere.pem can't be used: No such file"),
        (tls(&garbage), wrong, "redis.conf can't be used: there is none in it"),
        // It waits for more.
        (format!("rediss://127.0.0.1:{}?{HASTY}", server.port()), HomeErrorKind::Unreachable, "speak TLS"),
    ] {
        let error = in_time(Home::connect(&url)).await.expect_err(&url);
        assert_eq!(error.kind(), kind, "{url}: {error}");
        assert!(error.to_string().contains(remedy), "{url}: {error}");
    }
    // It complains in its own language, or hangs up: whichever arrives first.
    let error = in_time(Home::connect(&server.tls_url().replace("rediss", "redis"))).await.unwrap_err();
    assert!(error.to_string().contains("use rediss://"), "{error}");
}

// How much is needed

/// The permissions that the error message for a weaker user lists.
const ENOUGH: &[&str] =
    &["resetkeys", "~adv-sem:*", "resetchannels", "&adv-sem:*", "+@all", "-@admin", "-@dangerous"];

fn url_of_user(server: &RedisServer, name: &str, rules: &[&str]) -> String {
    let words = [&["ACL", "SETUSER", name, "on", ">hunter2"], rules].concat();
    server.command(&words);
    format!("redis://{name}:hunter2@127.0.0.1:{}/?{HASTY}", server.port())
}

#[tokio::test]
async fn a_user_with_few_rights_has_all_that_is_needed() {
    listen();
    let server = RedisServer::start();
    let url = url_of_user(&server, "modest", ENOUGH);
    let (one, other) = (opened(&url, "desk").await, opened(&server.url(), "desk").await);
    passes_on(&one, &other).await;
    passes_on(&other, &one).await;
    in_time(one.resize(2)).await.unwrap();
    assert_eq!(in_time(other.slots()).await, Ok(2));
    assert_eq!(in_time(one.holders()).await, Ok(Vec::new()));
    in_time(one.close()).await.unwrap();
    let port = format!(":{}/", server.port());
    assert!(heard(&port).is_empty(), "nothing to complain about: {:?}", heard(&port));
}

/// A waiter is served, if not as soon; and it is announced, once.
async fn goes_without(rules: &[&str], options: &str) {
    listen();
    let server = RedisServer::start();
    let url = format!("{}&{options}", url_of_user(&server, "poor", &[ENOUGH, rules].concat()));
    let (one, other) = (opened(&url, "desk").await, opened(&server.url(), "desk").await);
    passes_on(&other, &one).await;
    passes_on(&one, &other).await;
    passes_on(&one, &one).await;
    let announced = || heard(&format!("@127.0.0.1:{}/", server.port()));
    #[cfg(feature = "tracing")]
    assert_eq!(announced().len(), 1, "{:?}", announced());
    // A new connection is no news.
    server.command(&["CLIENT", "KILL", "USER", "poor"]);
    passes_on(&one, &other).await;
    assert!(announced().len() <= 1, "{:?}", announced());
}

#[tokio::test]
async fn the_old_protocol_is_polled() {
    goes_without(&[], "protocol=resp2").await;
}

#[tokio::test]
async fn a_user_without_subscribe_is_served_by_polling() {
    goes_without(&["resetchannels"], "").await;
}

#[tokio::test]
async fn a_user_without_tracking_is_served_by_polling() {
    goes_without(&["-client|tracking"], "").await;
}

#[tokio::test]
async fn a_user_without_both_is_served_by_polling() {
    goes_without(&["resetchannels", "-client|tracking", "-client|caching", "-subscribe", "-publish"], "")
        .await;
}

#[tokio::test]
async fn a_user_without_client_list_is_served() {
    goes_without(&["-client", "-hello", "-info", "-type", "-subscribe"], "").await;
}

// One connection

#[tokio::test]
async fn all_of_a_process_share_one_connection_until_the_last_one_goes() {
    let server = RedisServer::start();
    let one = connected(&server.url()).await;
    let other = connected(&server.url()).await;
    let semaphore = in_time(other.named("pool").slots(1).open()).await.unwrap();
    drop((one, other));
    let permit = in_time(semaphore.acquire()).await.unwrap().into_owned();
    drop(semaphore);
    assert_eq!(connections(&server), 1);
    drop(permit);
    eventually("the connection is gone", || async { (connections(&server) == 0).then_some(()) }).await;

    let again = opened(&server.url(), "pool").await;
    assert_eq!(in_time(again.stats()).await.unwrap().held, 0);
    let detached = in_time(again.acquire()).await.unwrap().detach();
    drop(again);
    assert_eq!(connections(&server), 1, "what is held by id is kept alive");
    let back = opened(&server.url(), "pool").await;
    in_time(back.release(&detached)).await.unwrap();
    drop(back);
    eventually("the connection is gone", || async { (connections(&server) == 0).then_some(()) }).await;
}

#[tokio::test]
async fn a_thousand_waiters_need_no_other_connection() {
    const WAITERS: usize = 1000;
    let server = RedisServer::start();
    let home = connected(&server.url()).await;
    let semaphore = in_time(home.named("turnstile").slots(1).open()).await.unwrap();
    let held = in_time(semaphore.acquire()).await.unwrap();
    let waiters: Vec<_> = (0..WAITERS)
        .map(|_| {
            let semaphore = semaphore.clone();
            tokio::spawn(async move {
                semaphore.acquire().await?.release().await.map_err(|error| panic!("{error}"))
            })
        })
        .collect();
    until_waiting(&semaphore, WAITERS).await;
    assert_eq!(connections(&server), 1);
    drop(held);
    for waiter in waiters {
        let served: Result<(), semafor::AcquireError> = in_time(waiter).await.unwrap();
        served.unwrap();
    }
    assert_eq!(connections(&server), 1);
    let stats = in_time(semaphore.stats()).await.unwrap();
    assert_eq!((stats.held, stats.waiting, stats.totals.granted), (0, 0, WAITERS as u64 + 1));
}
