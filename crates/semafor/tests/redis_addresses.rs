//! All ways to connect to a Redis, and the permissions that semafor needs there.

mod redis_support;

use std::path::Path;
use std::process::{Command, Stdio};

use redis_support::{
    SHORT_TIMEOUTS, ask, assert_hands_over, connected, connections, eventually, in_time, logged,
    record_events, until_waiting,
};
use semafor::{Home, HomeErrorKind, Semaphore};
use semafor_testkit::redis::RedisServer;

async fn opened(url: &str, name: &str) -> Semaphore {
    let semaphore = connected(url).await.named(name).slots(1).open();
    in_time(semaphore).await.unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// The number of keys in a database.
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
    assert_hands_over(&there, &here).await;
    assert_hands_over(&here, &there).await;
}

#[tokio::test]
async fn a_database_is_chosen_by_its_number() {
    let server = RedisServer::start();
    let by_tcp = opened(&format!("{}2", server.url()), "room").await;
    let by_socket = opened(&format!("{}?db=2", server.unix_url()), "room").await;
    assert_hands_over(&by_tcp, &by_socket).await;
    assert_eq!(keys_in(&server, 0), 0);
    assert!(keys_in(&server, 2) > 0);

    let error = in_time(Home::connect(&format!("{}99?{SHORT_TIMEOUTS}", server.url()))).await.unwrap_err();
    assert_eq!(error.kind(), HomeErrorKind::InvalidUrl, "{error}");
    assert!(error.to_string().contains("has no database of that number"), "{error}");
}

const ODD_PASSWORD: &str = "p@ss:w/o?r#d%25&é+ =";

#[tokio::test]
async fn any_password_can_be_given_to_any_address() {
    let server = RedisServer::start();
    let user = format!(">{ODD_PASSWORD}");
    server.command(&["ACL", "SETUSER", "ben@home", "on", &user, "~*", "&*", "+@all"]);
    let encoded = "p%40ss%3Aw%2Fo%3Fr%23d%2525%26%C3%A9%2B%20%3D";
    let by_tcp = format!("redis://ben%40home:{encoded}@127.0.0.1:{}", server.port());
    let by_socket = format!("{}?user=ben%40home&pass={encoded}", server.unix_url());
    let (by_tcp, by_socket) = (opened(&by_tcp, "gate").await, opened(&by_socket, "gate").await);
    assert_hands_over(&by_tcp, &by_socket).await;
    assert!(ask(&server, &["CLIENT", "LIST"]).matches("user=ben@home").count() == 2);
}

#[tokio::test]
async fn a_password_alone_is_that_of_the_default_user() {
    let server = RedisServer::with(&[("requirepass", "sesame")]);
    let url = format!("redis://:sesame@127.0.0.1:{}/", server.port());
    let (one, other) = (opened(&url, "cave").await, opened(&format!("{url}?protocol=resp2"), "cave").await);
    assert_hands_over(&one, &other).await;
}

// TLS

#[tokio::test]
async fn tls_works_with_a_private_certificate_authority() {
    let server = RedisServer::with_tls();
    let url = format!("{}?ca={}", server.tls_url(), server.ca_certificate().display());
    let (safe, plain) = (opened(&url, "vault").await, opened(&server.url(), "vault").await);
    assert_hands_over(&safe, &plain).await;
    assert_hands_over(&plain, &safe).await;
}

/// In a process of its own, because the choice is for the whole process.
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
async fn tls_problems_are_reported() {
    let (server, other) = (RedisServer::with_tls(), RedisServer::with_tls());
    let tls = |ca: &Path| format!("{}?ca={}&{SHORT_TIMEOUTS}", server.tls_url(), ca.display());
    let nowhere = server.dir().join("nowhere.pem");
    let garbage = server.dir().join("redis.conf");
    let wrong = HomeErrorKind::InvalidUrl;
    for (url, kind, remedy) in [
        (tls(&other.ca_certificate()), wrong, "?ca=/path/to/ca.pem"),
        (format!("{}?{SHORT_TIMEOUTS}", server.tls_url()), wrong, "?ca=/path/to/ca.pem"),
        (tls(&nowhere), wrong, "nowhere.pem can't be used: No such file"),
        (tls(&garbage), wrong, "redis.conf can't be used: the file has no certificate in PEM"),
        // The server waits for more.
        (
            format!("rediss://127.0.0.1:{}?{SHORT_TIMEOUTS}", server.port()),
            HomeErrorKind::Unreachable,
            "use TLS",
        ),
    ] {
        let error = in_time(Home::connect(&url)).await.expect_err(&url);
        assert_eq!(error.kind(), kind, "{url}: {error}");
        assert!(error.to_string().contains(remedy), "{url}: {error}");
    }
    // The server answers with an alert of TLS, or closes the connection: whichever arrives first.
    let error = in_time(Home::connect(&server.tls_url().replace("rediss", "redis"))).await.unwrap_err();
    assert!(error.to_string().contains("use rediss://"), "{error}");
}

// Permissions

/// The permissions that the error message for a weaker user lists.
const REQUIRED_PERMISSIONS: &[&str] =
    &["resetkeys", "~adv-sem:*", "resetchannels", "&adv-sem:*", "+@all", "-@admin", "-@dangerous"];

fn url_of_user(server: &RedisServer, name: &str, rules: &[&str]) -> String {
    let words = [&["ACL", "SETUSER", name, "on", ">hunter2"], rules].concat();
    server.command(&words);
    format!("redis://{name}:hunter2@127.0.0.1:{}/?{SHORT_TIMEOUTS}", server.port())
}

#[tokio::test]
async fn user_with_the_listed_permissions_can_do_everything() {
    record_events();
    let server = RedisServer::start();
    let url = url_of_user(&server, "modest", REQUIRED_PERMISSIONS);
    let (one, other) = (opened(&url, "desk").await, opened(&server.url(), "desk").await);
    assert_hands_over(&one, &other).await;
    assert_hands_over(&other, &one).await;
    in_time(one.resize(2)).await.unwrap();
    assert_eq!(in_time(other.slots()).await, Ok(2));
    assert_eq!(in_time(one.holders()).await, Ok(Vec::new()));
    in_time(one.close()).await.unwrap();
    let port = format!(":{}/", server.port());
    assert!(logged(&port).is_empty(), "nothing to complain about: {:?}", logged(&port));
}

/// A waiter is served, if later; and the missing permission is logged once.
async fn assert_served_by_polling(rules: &[&str], options: &str) {
    record_events();
    let server = RedisServer::start();
    let url = format!("{}&{options}", url_of_user(&server, "poor", &[REQUIRED_PERMISSIONS, rules].concat()));
    let (one, other) = (opened(&url, "desk").await, opened(&server.url(), "desk").await);
    assert_hands_over(&other, &one).await;
    assert_hands_over(&one, &other).await;
    assert_hands_over(&one, &one).await;
    let warnings = || logged(&format!("@127.0.0.1:{}/", server.port()));
    #[cfg(feature = "tracing")]
    assert_eq!(warnings().len(), 1, "{:?}", warnings());
    // A new connection does not log it again.
    server.command(&["CLIENT", "KILL", "USER", "poor"]);
    assert_hands_over(&one, &other).await;
    assert!(warnings().len() <= 1, "{:?}", warnings());
}

#[tokio::test]
async fn the_old_protocol_is_polled() {
    assert_served_by_polling(&[], "protocol=resp2").await;
}

#[tokio::test]
async fn a_user_without_subscribe_is_served_by_polling() {
    assert_served_by_polling(&["resetchannels"], "").await;
}

#[tokio::test]
async fn a_user_without_tracking_is_served_by_polling() {
    assert_served_by_polling(&["-client|tracking"], "").await;
}

#[tokio::test]
async fn a_user_without_both_is_served_by_polling() {
    assert_served_by_polling(
        &["resetchannels", "-client|tracking", "-client|caching", "-subscribe", "-publish"],
        "",
    )
    .await;
}

#[tokio::test]
async fn a_user_without_client_list_is_served() {
    assert_served_by_polling(&["-client", "-hello", "-info", "-type", "-subscribe"], "").await;
}

// One connection

#[tokio::test]
async fn all_handles_of_a_process_share_one_connection() {
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
async fn thousand_waiters_need_no_other_connection() {
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
