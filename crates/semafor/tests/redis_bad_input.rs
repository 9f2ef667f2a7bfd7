//! Every mistake gives an error in time that names the remedy, and leaves nothing behind.

mod redis_support;

use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use redis_support::{
    SHORT_TIMEOUTS, all_data, ask, connected, connections, eventually, in_time, logged, record_events,
    until_waiting,
};
use semafor::{
    AcquireError, BuildError, Home, HomeError, HomeErrorKind, Loss, NotHeld, Permit, PermitId, ReleaseError,
    Semaphore, secs,
};
use semafor_testkit::by_hand::ByHand;
use semafor_testkit::redis::{Proxy, RedisServer};

fn with_short_timeouts(url: &str) -> String {
    format!("{url}?{SHORT_TIMEOUTS}")
}

async fn connect_error(url: &str) -> HomeError {
    let error = in_time(Home::connect(url)).await.expect_err(url);
    assert_silent_about_passwords(&error);
    error
}

#[track_caller]
fn assert_says(error: &HomeError, kind: HomeErrorKind, remedy: &str) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(remedy), "{error}");
}

/// All passwords here are this, or begin with it.
const PASSWORD: &str = "hunter2";

#[track_caller]
fn assert_silent_about_passwords(error: &HomeError) {
    let (display, debug) = (error.to_string(), format!("{error:?}"));
    assert!(!display.contains(PASSWORD) && !debug.contains(PASSWORD), "{debug}");
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        assert!(!format!("{cause} {cause:?}").contains(PASSWORD), "{cause:?}");
        source = cause.source();
    }
}

/// There were no holders and waiters, and the semaphore works.
async fn assert_unused(semaphore: &Semaphore) {
    let permit = in_time(semaphore.acquire()).await.expect("a free slot");
    assert_eq!(permit.slot(), 0);
    in_time(permit.release()).await.expect("it was held");
    let stats = in_time(semaphore.stats()).await.unwrap();
    assert_eq!((stats.held, stats.holders, stats.waiting), (0, 0, 0));
}

// Addresses

#[tokio::test]
async fn invalid_urls_are_refused_without_connecting() {
    for (url, remedy) in [
        ("", "it has no ://"),
        ("hunter2", "it has no ://"),
        ("localhost:6379", "redis://host:port/db"),
        ("http://u:hunter2@localhost", "redis://host:port/db"),
        ("redis://", "is not the URL of a Redis"),
        ("redis://u:hunter2@localhost:port", "is not the URL of a Redis"),
        ("redis://u:hunter2@localhost/first", "is not the URL of a Redis"),
        ("redis://u:hun?ter2@localhost", "%3F"),
        ("redis://u:hunter2@localhost/?namespace=my%20app", "white space"),
        ("redis://u:hunter2@localhost/?namespace=my%0Aapp", "control character"),
        ("redis://u:hunter2@localhost/?retries=3", "the options are namespace, socket_timeout"),
        ("redis+cluster://u:hunter2@localhost/?namespace=app", "such as {app}"),
        ("redis+sentinel://u:hunter2@localhost", "the name of the master is missing"),
    ] {
        assert_says(&connect_error(url).await, HomeErrorKind::InvalidUrl, remedy);
    }
}

#[cfg(not(feature = "redis-tls"))]
#[tokio::test]
async fn tls_without_the_feature_is_refused_with_the_remedy() {
    let error = connect_error("rediss://u:hunter2@localhost").await;
    assert_says(&error, HomeErrorKind::InvalidUrl, "`redis-tls`");
}

#[tokio::test]
async fn an_address_without_a_server_fails_soon() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = connect_error(&with_short_timeouts(&format!("redis://u:hunter2@127.0.0.1:{free}"))).await;
    assert_says(&error, HomeErrorKind::Unreachable, "Is it running, and is this its address?");
    assert!(error.is_unreachable());

    let error = connect_error(&with_short_timeouts("redis://u:hunter2@no-such-host.invalid")).await;
    assert_says(&error, HomeErrorKind::Unreachable, "is this its address?");

    let error = connect_error("unix:///no/such/socket?pass=hunter2").await;
    assert_says(&error, HomeErrorKind::Unreachable, "unix:///no/such/socket");
}

/// Accepts connections and never answers.
fn silent_server() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, format!("redis://u:hunter2@127.0.0.1:{port}/"))
}

#[tokio::test]
async fn silent_server_is_given_up_after_the_configured_timeout() {
    let (_listener, url) = silent_server();
    let started = Instant::now();
    let error = connect_error(&format!("{url}?socket_connect_timeout=0.2")).await;
    assert_says(&error, HomeErrorKind::Unreachable, "within 200ms");
    assert!(started.elapsed() >= Duration::from_millis(200));
}

#[tokio::test]
async fn leaving_while_connecting_does_not_wait() {
    let (silent, url) = silent_server();
    let home = Home::redis(format!("{url}?socket_connect_timeout=600").parse().unwrap()).unwrap();
    let semaphore = home.named("early").slots(1).build().unwrap();
    let mut acquire = semaphore.acquire();
    assert!(ByHand::new(&mut acquire).waits());
    let (_open, _) = in_time(tokio::task::spawn_blocking(move || silent.accept())).await.unwrap().unwrap();
    in_time(acquire.leave()).await;
}

#[tokio::test]
async fn all_requests_fail_together_when_the_connection_fails() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let options = "socket_connect_timeout=0.5&socket_timeout=0.5&number_of_attempts=1";
    let home = connected(&format!("{}?{options}", proxy.url())).await;
    let semaphore = in_time(home.named("crowd").slots(1).open()).await.unwrap();
    proxy.swallow_requests();
    // One after the other, each with a timeout of its own, they would take minutes.
    let crowd: Vec<_> = (0..500)
        .map(|_| {
            let semaphore = semaphore.clone();
            tokio::spawn(async move { semaphore.acquire().await.map(drop) })
        })
        .collect();
    for one in crowd {
        let error = in_time(one).await.unwrap().unwrap_err();
        assert!(matches!(&error, AcquireError::Home(error) if error.is_unreachable()), "{error}");
    }
    proxy.forward();
    eventually("it is reached again", || async { semaphore.stats().await.ok() }).await;
    until_idle(&semaphore).await;
    assert_unused(&semaphore).await;
}

/// Returns when there are no holders and waiters.
async fn until_idle(semaphore: &Semaphore) {
    eventually("nothing is left", || async {
        let stats = semaphore.stats().await.ok()?;
        (stats.held == 0 && stats.waiting == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_server_with_another_protocol_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream: TcpStream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream
                .write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    for protocol in ["resp2", "resp3"] {
        let url = format!("redis://u:hunter2@127.0.0.1:{port}/?{SHORT_TIMEOUTS}&protocol={protocol}");
        assert_says(&connect_error(&url).await, HomeErrorKind::InvalidUrl, "is not a Redis");
    }
}

#[tokio::test]
async fn sentinel_node_and_replica_are_distinguished_from_a_server() {
    let master = RedisServer::start();
    let of_master = format!("127.0.0.1 {}", master.port());
    let replica = RedisServer::with(&[("replicaof", &of_master)]);
    let error = connect_error(&with_short_timeouts(&replica.url())).await;
    assert_says(&error, HomeErrorKind::ReadOnly, "use the address of the master");
    let node = RedisServer::with(&[("cluster-enabled", "yes")]);
    assert_says(
        &connect_error(&with_short_timeouts(&node.url())).await,
        HomeErrorKind::Unsupported,
        "redis+cluster://",
    );
}

#[tokio::test]
async fn a_master_that_becomes_a_replica_is_not_written_to() {
    let (server, other) = (RedisServer::start(), RedisServer::start());
    let options = "number_of_attempts=2&retry_multiplier=0.05&retry_min_delay=0.05";
    let home = connected(&format!("{}?{options}", server.url())).await;
    let semaphore = in_time(home.named("demoted").slots(1).open()).await.unwrap();
    server.command(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    let error = in_time(semaphore.acquire()).await.unwrap_err();
    let AcquireError::Home(error) = error else { panic!("{error}") };
    assert_says(&error, HomeErrorKind::ReadOnly, "use the address of the master");
    server.command(&["REPLICAOF", "NO", "ONE"]);
    server.command(&["FLUSHALL"]);
    assert_unused(&semaphore).await;
}

// Users

#[tokio::test]
async fn a_refused_login_is_explained() {
    let server = RedisServer::with(&[("requirepass", "hunter2")]);
    server.command(&["ACL", "SETUSER", "off", "off", ">hunter22", "~*", "&*", "+@all"]);
    let at = |user: &str| format!("redis://{user}127.0.0.1:{}/", server.port());
    for protocol in ["resp2", "resp3"] {
        for (user, remedy) in [
            ("", "redis://user:password@host"),
            (":hunter21@", "check them in the URL"),
            ("nobody:hunter2@", "check them in the URL"),
            ("off:hunter22@", "check them in the URL"),
        ] {
            let error = connect_error(&format!("{}?{SHORT_TIMEOUTS}&protocol={protocol}", at(user))).await;
            assert_says(&error, HomeErrorKind::AccessDenied, remedy);
        }
    }
    eventually("no client is connected", || async { (connections(&server) == 0).then_some(()) }).await;
}

#[tokio::test]
async fn missing_permissions_are_listed() {
    let server = RedisServer::start();
    for (name, rules) in [
        ("no-scripts", &["~*", "&*", "+@all", "-@scripting"][..]),
        ("no-keys", &["&*", "+@all"]),
        ("other-keys", &["~other:*", "&*", "+@all"]),
        ("no-writes", &["~*", "&*", "+@all", "-@sortedset"]),
    ] {
        let rules = [&["ACL", "SETUSER", name, "on", ">hunter2"], rules].concat();
        server.command(&rules);
        let home =
            connected(&format!("redis://{name}:hunter2@127.0.0.1:{}/?{SHORT_TIMEOUTS}", server.port())).await;
        let error = in_time(home.named("denied").slots(1).open()).await.unwrap_err();
        let BuildError::Home(error) = error else { panic!("{name}: {error}") };
        assert_says(&error, HomeErrorKind::AccessDenied, "ACL SETUSER … ~adv-sem:* &adv-sem:* +@all");
        assert_silent_about_passwords(&error);
        let semaphore = home.named("denied").slots(1).build().unwrap();
        let error = in_time(semaphore.acquire()).await.unwrap_err();
        assert!(matches!(&error, AcquireError::Home(error) if error.kind() == HomeErrorKind::AccessDenied));
    }
    assert_eq!(all_data(&server), Vec::<String>::new());
}

/// Otherwise a script would fail half-way, after it has changed some keys.
#[tokio::test]
async fn missing_permission_is_reported_before_any_script_runs() {
    let server = RedisServer::start();
    let admin = connected(&server.url()).await;
    let semaphore = in_time(admin.named("shared").slots(1).open()).await.unwrap();
    let held = in_time(semaphore.acquire()).await.unwrap();
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await.map(Permit::detach) }
    });
    until_waiting(&semaphore, 1).await;
    let before = all_data(&server);
    for (name, rules, missing) in [
        ("no-rpush", &["~*", "&*", "+@all", "-rpush"][..], "RPUSH"),
        ("no-hdel", &["~*", "&*", "+@all", "-hdel", "-pexpire"], "HDEL, PEXPIRE"),
        ("no-lists", &["~adv-sem:semaphore_*", "&*", "+@all"], "acquisition_notification"),
        ("reader", &["~*", "&*", "+@read", "+@scripting", "+@connection", "+time"], "DEL, "),
    ] {
        server.command(&[&["ACL", "SETUSER", name, "on", ">hunter2"], rules].concat());
        let home =
            connected(&format!("redis://{name}:hunter2@127.0.0.1:{}/?{SHORT_TIMEOUTS}", server.port())).await;
        let handle = home.named("shared").slots(1).build().unwrap();
        let errors = [
            match in_time(handle.release(&held.id())).await.unwrap_err() {
                ReleaseError::Home(error) => error,
                error => panic!("{name}: {error}"),
            },
            match in_time(handle.acquire()).await.unwrap_err() {
                AcquireError::Home(error) => error,
                error => panic!("{name}: {error}"),
            },
        ];
        for error in errors {
            assert_says(&error, HomeErrorKind::AccessDenied, missing);
            assert_says(&error, HomeErrorKind::AccessDenied, "ACL SETUSER … ~adv-sem:* &adv-sem:* +@all");
            assert_silent_about_passwords(&error);
        }
        // Reading needs fewer permissions.
        let stats = in_time(handle.stats()).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((stats.held, stats.waiting), (1, 1), "{name}");
        assert_eq!(in_time(handle.holders()).await.unwrap().len(), 1, "{name}");
        assert_eq!(all_data(&server), before, "{name}");
    }
    assert!(!held.is_lost() && !waiting.is_finished());
    // A permission that is granted later counts without a new connection.
    let url = format!("redis://no-rpush:hunter2@127.0.0.1:{}/?{SHORT_TIMEOUTS}", server.port());
    let handle = connected(&url).await.named("other").slots(1).build().unwrap();
    assert!(in_time(handle.acquire()).await.is_err());
    server.command(&["ACL", "SETUSER", "no-rpush", "+rpush"]);
    in_time(handle.acquire()).await.unwrap().release().await.unwrap();

    // A user that may not ask counts as one that has all permissions. The recommended rules are enough.
    let recommended = &["~adv-sem:*", "&adv-sem:*", "+@all", "-@admin", "-@dangerous", "+info"][..];
    let no_eval = &["~adv-sem:*", "&adv-sem:*", "+@all", "-eval"][..];
    let mut handles = Vec::new();
    for (name, rules) in [("recommended", recommended), ("no-eval", no_eval)] {
        server.command(&[&["ACL", "SETUSER", name, "on", ">hunter2"], rules].concat());
        let home =
            connected(&format!("redis://{name}:hunter2@127.0.0.1:{}/?{SHORT_TIMEOUTS}", server.port())).await;
        handles.push(home.named("shared").slots(1).build().unwrap());
    }
    in_time(handles[0].release(&held.id())).await.expect("it was held");
    let id = in_time(waiting).await.unwrap().expect("it was its turn");
    // By now the server knows the script.
    in_time(handles[1].release(&id)).await.expect("it was held");
}

#[tokio::test]
async fn no_password_is_shown_anywhere() {
    record_events();
    let server = RedisServer::with(&[("requirepass", "hunter2")]);
    let url = format!("redis://default:hunter2@127.0.0.1:{}/?{SHORT_TIMEOUTS}&protocol=resp2", server.port());
    let home = connected(&url).await;
    let config: semafor::redis::Config = url.parse().unwrap();
    let builder = home.named("quiet").slots(1).ttl(secs(0.05)).heartbeat_max_interval(secs(0.2));
    let semaphore = in_time(builder.clone().open()).await.unwrap();
    let permit = in_time(semaphore.acquire()).await.unwrap();
    in_time(permit.lost()).await;
    server.kill();
    let error = in_time(semaphore.acquire().timeout(secs(0.2))).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains(PASSWORD), "{error:?}");
    let shown: [&dyn Debug; 5] = [&home, &config, &builder, &semaphore, &permit];
    for shown in shown {
        assert!(!format!("{shown:?} {shown:#?}").contains(PASSWORD), "{shown:?}");
    }
    assert_eq!(logged(PASSWORD), Vec::<String>::new());
    #[cfg(feature = "tracing")]
    assert!(!logged(&format!("***@127.0.0.1:{}", server.port())).is_empty(), "something was said");
}

// A server that has gone

#[tokio::test]
async fn the_timeout_bounds_all_attempts_together() {
    let server = RedisServer::start();
    let home = connected(&format!("{}?number_of_attempts=1000&socket_timeout=600", server.url())).await;
    let semaphore = in_time(home.named("patient").slots(1).open()).await.unwrap();
    server.pause();
    let error = in_time(semaphore.acquire().timeout(secs(0.2))).await.unwrap_err();
    assert!(matches!(&error, AcquireError::Home(error) if error.is_unreachable()), "{error}");
    server.resume();
    until_idle(&semaphore).await;
    server.kill();
    let error = in_time(semaphore.acquire().timeout(secs(0.2))).await.unwrap_err();
    assert!(matches!(&error, AcquireError::Home(error) if error.is_unreachable()), "{error}");
    server.start_again();
    until_idle(&semaphore).await;
    assert_unused(&semaphore).await;
}

#[tokio::test]
async fn attempts_and_timeouts_bound_an_acquire_without_timeout() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let options = "socket_connect_timeout=0.2&socket_timeout=0.2&number_of_attempts=3\
        &retry_multiplier=0.01&retry_min_delay=0.01&retry_max_delay=0.02";
    let home = connected(&format!("{}?{options}", proxy.url())).await;
    let semaphore = in_time(home.named("bounded").slots(1).open()).await.unwrap();
    let held = in_time(semaphore.acquire()).await.unwrap().detach();
    proxy.swallow_replies();
    let is_unreachable = |error: &HomeError| assert!(error.is_unreachable(), "{error}");
    match in_time(semaphore.acquire()).await.unwrap_err() {
        AcquireError::Home(error) => is_unreachable(&error),
        error => panic!("{error}"),
    }
    match in_time(semaphore.try_acquire()).await.unwrap_err() {
        AcquireError::Home(error) => is_unreachable(&error),
        error => panic!("{error}"),
    }
    match in_time(semaphore.release(&held)).await.unwrap_err() {
        ReleaseError::Home(error) => is_unreachable(&error),
        error => panic!("{error}"),
    }
    is_unreachable(&in_time(semaphore.stats()).await.unwrap_err());
    is_unreachable(&in_time(semaphore.holders()).await.unwrap_err());
    is_unreachable(&in_time(semaphore.close()).await.unwrap_err());
    proxy.forward();
    eventually("it is reached again", || async { semaphore.stats().await.ok() }).await;
    // The server may have executed it.
    let released = in_time(semaphore.release(&held)).await;
    assert!(matches!(released, Ok(()) | Err(ReleaseError::NotHeld(_))), "{released:?}");
    until_idle(&semaphore).await;
}

// Keys

/// In the order of the scripts' arguments.
const KINDS: [&str; 10] = [
    "semaphore_main",
    "semaphore_ttl",
    "semaphore_max",
    "semaphore_waiting",
    "semaphore_waiting_heartbeat",
    "semaphore_info",
    "semaphore_records",
    "semaphore_endings",
    "semaphore_times",
    "semaphore_own",
];

#[tokio::test]
async fn key_of_another_type_is_reported_and_nothing_is_acquired() {
    let server = RedisServer::start();
    let home = connected(&with_short_timeouts(&server.url())).await;
    for kind in KINDS {
        let name = format!("occupied-{kind}");
        let key = format!("adv-sem:{kind}:{name}");
        server.command(&["XADD", &key, "*", "what", "something else"]);
        let semaphore = home.named(&name).slots(1).ttl(secs(60)).build().unwrap();
        let assert_named = |error: &HomeError| {
            assert_says(error, HomeErrorKind::WrongType, &format!("{key:?}"));
            assert_says(error, HomeErrorKind::WrongType, "is a stream, not a ");
            assert_says(error, HomeErrorKind::WrongType, "Use another name or namespace, or delete it");
        };
        match in_time(semaphore.acquire()).await {
            Err(AcquireError::Home(error)) => assert_named(&error),
            Err(error) => panic!("{kind}: {error}"),
            Ok(_) => panic!("{kind}: it was not looked at"),
        }
        match in_time(semaphore.try_acquire()).await {
            Err(AcquireError::Home(error)) => assert_named(&error),
            other => panic!("{kind}: {other:?}"),
        }
        // The server notes for a while that these requests were cancelled, in case they arrive late.
        for left in keys_of(&server, &name).into_iter().filter(|left| *left != key) {
            let is_note = left.contains(":semaphore_endings:") || left.contains(":semaphore_info:");
            assert!(is_note, "{left} is left");
            let ttl: i64 = redis::from_redis_value(server.command(&["TTL", &left])).unwrap();
            assert!(ttl > 0, "{left} is left for ever");
        }
        assert_eq!(ask(&server, &["TYPE", &key]), "stream");
        server.command(&["DEL", &key]);
        assert_unused(&semaphore).await;
    }
}

/// The keys of a name.
fn keys_of(server: &RedisServer, name: &str) -> Vec<String> {
    all_data(server).into_iter().filter(|key| key.ends_with(&format!(":{name}"))).collect()
}

/// A key of another application replaces a key of a semaphore in use, and is removed again.
#[tokio::test]
async fn foreign_key_does_no_lasting_harm() {
    let server = RedisServer::start();
    let home = connected(&with_short_timeouts(&server.url())).await;
    for kind in KINDS {
        let name = format!("invaded-{kind}");
        let key = format!("adv-sem:{kind}:{name}");
        let semaphore = in_time(home.named(&name).slots(1).ttl(secs(60)).open()).await.unwrap();
        let permit = in_time(semaphore.acquire()).await.unwrap();
        let id = permit.id().clone();
        server.command(&["DEL", &key]);
        server.command(&["XADD", &key, "*", "what", "something else"]);
        match in_time(permit.release()).await {
            Ok(()) => {}
            Err(ReleaseError::Home(error)) => assert_says(&error, HomeErrorKind::WrongType, "delete it"),
            Err(error) => panic!("{kind}: {error}"),
        }
        server.command(&["DEL", &key]);
        // The server may still count it as held.
        match in_time(semaphore.release(&id)).await {
            Ok(()) | Err(ReleaseError::NotHeld(_)) => {}
            Err(error) => panic!("{kind}: {error}"),
        }
        until_idle(&semaphore).await;
        assert_unused(&semaphore).await;
    }
}

#[tokio::test]
async fn different_number_of_slots_is_an_error_with_both_numbers() {
    let server = RedisServer::start();
    let (one, other) = (connected(&server.url()).await, connected(&with_short_timeouts(&server.url())).await);
    let three = in_time(one.named("shared").slots(3).open()).await.unwrap();
    let _held = in_time(three.acquire()).await.unwrap();
    let mismatch = BuildError::SlotsMismatch { name: "shared".into(), live: 3, asked: 5 };
    assert!(mismatch.to_string().contains("resize(5)"));
    assert_eq!(in_time(other.named("shared").slots(5).open()).await.unwrap_err(), mismatch);
    let lazy = other.named("shared").slots(5).build().unwrap();
    let error = in_time(lazy.acquire()).await.unwrap_err();
    assert_eq!(error, AcquireError::Open(Box::new(mismatch.clone())));
    assert_eq!(error.to_string(), mismatch.to_string());
    let unset = in_time(other.named("unheard-of").open()).await.unwrap_err();
    assert_eq!(unset, BuildError::SlotsNotSet { name: "unheard-of".into() });
    assert_eq!(keys_of(&server, "unheard-of"), Vec::<String>::new());
    assert_eq!(in_time(three.stats()).await.unwrap().held, 1);
}

// Memory

/// Fills the server up to its limit, and frees a little less than the next command would need.
fn fill_up(server: &RedisServer) {
    let used: u64 = {
        let info = ask(server, &["INFO", "memory"]);
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
        line.trim().parse().unwrap()
    };
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    server.command(&["CONFIG", "SET", "maxmemory", &(used / 2).max(1).to_string()]);
}

fn make_room(server: &RedisServer) {
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
}

#[tokio::test]
async fn server_out_of_memory_releases_slots_but_grants_none() {
    let server = RedisServer::start();
    let home = connected(&with_short_timeouts(&server.url())).await;
    let semaphore = in_time(home.named("full").slots(2).open()).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(in_time(semaphore.acquire()).await.unwrap());
    }
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await.map(Permit::detach) }
    });
    until_waiting(&semaphore, 1).await;
    fill_up(&server);

    let before = all_data(&server);
    let refused = in_time(semaphore.acquire()).await.unwrap_err();
    let AcquireError::Home(refused) = refused else { panic!("{refused}") };
    assert_says(&refused, HomeErrorKind::OutOfMemory, "raise maxmemory");
    let error = in_time(home.named("new").slots(1).open()).await.unwrap_err();
    let BuildError::Home(error) = error else { panic!("{error}") };
    assert_says(&error, HomeErrorKind::OutOfMemory, "raise maxmemory");
    assert_eq!(all_data(&server), before);
    let stats = in_time(semaphore.stats()).await.unwrap();
    assert_eq!((stats.held, stats.waiting), (2, 1));

    for permit in held {
        in_time(permit.release()).await.expect("a held slot can be released");
    }
    // The waiters from before have got the released slots.
    let id = in_time(waiting).await.unwrap().expect("it stood in line");
    assert_eq!(in_time(semaphore.stats()).await.unwrap().held, 1);
    in_time(semaphore.release(&id)).await.expect("it is held");
    make_room(&server);
    assert_unused(&semaphore).await;
}

#[tokio::test]
async fn holders_are_kept_alive_by_a_server_out_of_memory() {
    let server = RedisServer::start();
    let home = connected(&with_short_timeouts(&server.url())).await;
    let builder = home.named("kept").slots(1).heartbeat_max_interval(secs(1));
    let semaphore = in_time(builder.open()).await.unwrap();
    let permit = in_time(semaphore.acquire()).await.unwrap();
    fill_up(&server);
    // Three times as long as its heartbeat may stay away.
    let lost = tokio::time::timeout(Duration::from_secs(3), permit.lost()).await;
    assert!(lost.is_err(), "it was lost: {lost:?}");
    assert_eq!(in_time(semaphore.stats()).await.unwrap().held, 1);
    in_time(permit.release()).await.unwrap();
}

/// Without push messages, waiters poll: that needs no memory either.
#[tokio::test]
async fn slots_are_handed_over_on_a_server_out_of_memory_and_without_push_messages() {
    let server = RedisServer::start();
    let home = connected(&format!("{}?{SHORT_TIMEOUTS}&protocol=resp2", server.url())).await;
    let builder = home.named("full").slots(2).grace(Duration::from_secs(600));
    let semaphore = in_time(builder.open()).await.unwrap();
    let first = in_time(semaphore.acquire().ttl(secs(600))).await.unwrap();
    let second = in_time(semaphore.acquire()).await.unwrap();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let semaphore = semaphore.clone();
            tokio::spawn(async move { semaphore.acquire().await.map(Permit::detach) })
        })
        .collect();
    until_waiting(&semaphore, 3).await;
    fill_up(&server);

    in_time(semaphore.renew(&first.id(), secs(900))).await.expect("it is held");
    in_time(second.renew(secs(900))).await.expect("it is held");
    in_time(semaphore.resize(1)).await.expect("that needs no memory");
    in_time(semaphore.resize(2)).await.expect("that needs no memory");
    in_time(semaphore.evict(&first.id())).await.expect("it is held");
    in_time(first.lost()).await;
    in_time(first.release()).await.ok();
    in_time(second.release()).await.expect("a held slot can be released");
    for waiter in waiting {
        let id = in_time(waiter).await.unwrap().expect("it stood in line");
        in_time(semaphore.release(&id)).await.expect("it is held");
    }
    make_room(&server);
    until_idle(&semaphore).await;
}

#[tokio::test]
async fn waiters_and_holders_leave_a_server_out_of_memory() {
    let server = RedisServer::start();
    for protocol in ["resp2", "resp3"] {
        let home = connected(&format!("{}?{SHORT_TIMEOUTS}&protocol={protocol}", server.url())).await;
        let semaphore = in_time(home.named(protocol).slots(1).open()).await.unwrap();
        let held = in_time(semaphore.acquire()).await.unwrap();
        let timeout = tokio::spawn({
            let semaphore = semaphore.clone();
            async move { semaphore.acquire().timeout(secs(0.5)).await.map(drop) }
        });
        let waiting = tokio::spawn({
            let semaphore = semaphore.clone();
            async move { semaphore.acquire().await.map(drop) }
        });
        until_waiting(&semaphore, 2).await;
        fill_up(&server);
        let error = in_time(timeout).await.unwrap().unwrap_err();
        assert!(matches!(error, AcquireError::TimedOut { .. }), "{protocol}: {error}");
        waiting.abort();
        eventually("both have left", || async { (semaphore.stats().await.ok()?.waiting == 0).then_some(()) })
            .await;
        in_time(semaphore.close()).await.expect("that needs no memory");
        in_time(held.release()).await.expect("it was held");
        make_room(&server);
    }
}

#[tokio::test]
async fn server_that_may_delete_keys_in_use_causes_a_warning() {
    record_events();
    let server = RedisServer::start();
    let home = connected(&server.url()).await;
    assert_eq!(home.warnings(), Vec::<String>::new());
    let place = format!("127.0.0.1:{}/ has the maxmemory-policy", server.port());
    for policy in ["volatile-lru", "allkeys-lfu"] {
        server.command(&["CONFIG", "SET", "maxmemory-policy", policy]);
        // Other clients see it when they connect, and so does this one when it connects again.
        let other = connected(&format!("{}?{SHORT_TIMEOUTS}&max_connections=7", server.url())).await;
        let [warning] = &other.warnings()[..] else { panic!("{:?}", other.warnings()) };
        assert!(
            warning.contains(&format!("{place} {policy}")) && warning.contains("noeviction"),
            "{warning}"
        );
        #[cfg(feature = "tracing")]
        assert_eq!(logged(&format!("{place} {policy}")).len(), 1);
    }
    // A user that may not ask connects all the same.
    let rules = ["~adv-sem:*", "&adv-sem:*", "+@all", "-@admin", "-@dangerous"];
    server.command(&[&["ACL", "SETUSER", "user", "on", ">hunter2"], &rules[..]].concat());
    let home = connected(&format!("redis://user:hunter2@127.0.0.1:{}/", server.port())).await;
    assert_eq!(home.warnings(), Vec::<String>::new());
    in_time(home.named("any").slots(1).open()).await.unwrap();
}

/// If the server deletes a semaphore to free memory, its holders are notified.
#[tokio::test]
async fn holders_are_notified_when_the_server_deletes_their_semaphore() {
    let server = RedisServer::start();
    let (home, other) =
        (connected(&server.url()).await, connected(&with_short_timeouts(&server.url())).await);
    let semaphore =
        in_time(home.named("evicted").slots(1).heartbeat_max_interval(secs(5)).open()).await.unwrap();
    let held = in_time(semaphore.acquire()).await.unwrap();
    let key = "adv-sem:semaphore_main:evicted";
    let value = "x".repeat(100_000);
    server.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-random"]);
    let info = ask(&server, &["INFO", "memory"]);
    let used: u64 =
        info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().trim().parse().unwrap();
    server.command(&["CONFIG", "SET", "maxmemory", &(used + 1_000_000).to_string()]);
    let mut connection = server.connection();
    for number in 0.. {
        // The server deletes keys with an expiry, and only ours have one.
        let _ = redis::cmd("SET").arg(format!("other:{number}")).arg(&value).exec(&mut connection);
        if redis::cmd("EXISTS").arg(key).query(&mut connection) == Ok(0) {
            break;
        }
    }
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    let next =
        in_time(other.named("evicted").slots(1).build().unwrap().acquire()).await.map(Permit::into_owned);
    let lost = in_time(held.lost()).await;
    assert!(matches!(lost, NotHeld::Lost(_)), "{lost:?}");
    assert!(next.expect("the server has forgotten").fencing_token() > held.fencing_token());
}

// Requests

/// Far beyond what a server can count with.
#[tokio::test]
async fn durations_too_long_for_redis_are_refused() {
    let server = RedisServer::start();
    let home = connected(&server.url()).await;
    let semaphore = in_time(home.named("ages").slots(1).open()).await.unwrap();
    let before = all_data(&server);
    let too_long = "at most 2147483637 seconds (68 years) on Redis";
    for ttl in [1e14, 1e17, 3e9] {
        let error = in_time(semaphore.acquire().ttl(secs(ttl))).await.unwrap_err();
        assert!(matches!(error, AcquireError::InvalidDuration(_)), "{error:?}");
        assert!(error.to_string().contains(too_long), "{error}");
        let lazy = home.named("ages").slots(1).ttl(secs(ttl)).build().unwrap();
        assert!(matches!(in_time(lazy.acquire()).await, Err(AcquireError::InvalidDuration(_))));
    }
    assert_eq!(all_data(&server), before);
    let held = in_time(semaphore.acquire().ttl(secs(2e9))).await.expect("that can be counted");
    let error = in_time(held.renew(secs(1e14))).await.unwrap_err();
    assert!(error.to_string().contains(too_long), "{error}");
    let error = in_time(semaphore.renew(&held.id(), secs(1e14))).await.unwrap_err();
    assert!(error.to_string().contains(too_long), "{error}");
    in_time(held.release()).await.unwrap();

    // Unlimited is not too long.
    for unlimited in [secs(1e300), semafor::Span::UNLIMITED] {
        in_time(semaphore.acquire().ttl(unlimited)).await.unwrap().release().await.unwrap();
    }
    let patient =
        home.named("ages").slots(1).heartbeat_max_interval(secs(1e14)).grace(Duration::MAX).build().unwrap();
    let held = in_time(patient.acquire().timeout(secs(1e14))).await.unwrap();
    in_time(patient.evict(&held.id())).await.unwrap();
    in_time(held.lost()).await;
    // Its grace is very long.
    assert_eq!(in_time(patient.stats()).await.unwrap().held, 1);
    drop(held);
    until_idle(&semaphore).await;
}

#[tokio::test]
async fn invalid_requests_are_refused_at_once() {
    let server = RedisServer::start();
    let home = connected(&server.url()).await;
    let before = all_data(&server);
    assert_eq!(home.named("").slots(1).build().unwrap_err(), BuildError::EmptyName);
    assert!(matches!(home.named("x").slots(0).build(), Err(BuildError::ZeroSlots(_))));
    assert!(matches!(home.named("x".repeat(513)).slots(1).build(), Err(BuildError::NameTooLong { .. })));
    for ttl in [0.0, -1.0, f64::NAN] {
        let error = home.named("x").slots(1).ttl(secs(ttl)).build().unwrap_err();
        assert!(error.to_string().starts_with("ttl must be longer than zero seconds"), "{error}");
    }
    let error = home.named("x").slots(1).heartbeat_max_interval(secs(0)).build().unwrap_err();
    assert!(error.to_string().starts_with("heartbeat_max_interval must be"), "{error}");
    assert_eq!(all_data(&server), before);

    let semaphore = in_time(home.named("x").slots(2).open()).await.unwrap();
    let error = in_time(semaphore.acquire().weight(0)).await.unwrap_err();
    assert_eq!(error, AcquireError::ZeroWeight);
    let error = in_time(semaphore.acquire().weight(3)).await.unwrap_err();
    assert_eq!(error, AcquireError::TooHeavy { weight: 3, slots: 2 });
    let error = in_time(semaphore.acquire().weight(u32::MAX)).await.unwrap_err();
    assert_eq!(error, AcquireError::TooHeavy { weight: u32::MAX, slots: 2 });
    for ttl in [0.0, -1.0] {
        let error = in_time(semaphore.acquire().ttl(secs(ttl))).await.unwrap_err();
        assert!(matches!(error, AcquireError::InvalidDuration(_)), "{error}");
    }
    let error = in_time(semaphore.acquire().ttl(secs(0.001))).await.unwrap_err();
    assert_eq!(error, AcquireError::Lost(NotHeld::Lost(Loss::Expired)), "it takes longer to hear of it");
    let held = in_time(semaphore.acquire().weight(2)).await.unwrap();
    let waiting = semaphore.clone();
    let late = tokio::spawn(async move { waiting.acquire().ttl(secs(0.001)).await.map(drop) });
    until_waiting(&semaphore, 1).await;
    drop(held);
    let error = in_time(late).await.unwrap().unwrap_err();
    assert_eq!(error, AcquireError::Lost(NotHeld::Lost(Loss::Expired)));
    assert!(matches!(in_time(semaphore.resize(0)).await, Err(semafor::ResizeError::ZeroSlots(_))));
    until_idle(&semaphore).await;
    assert_unused(&semaphore).await;
}

#[tokio::test]
async fn ids_that_were_never_issued_hold_nothing() {
    let server = RedisServer::start();
    let home = connected(&server.url()).await;
    let semaphore = in_time(home.named("ids").slots(1).open()).await.unwrap();
    let held = in_time(semaphore.acquire()).await.unwrap();
    for text in ["0-0", "garbage", "deadbeefdeadbeefdeadbeefdeadbeef", "0"] {
        let Ok(id) = text.parse::<PermitId>() else { continue };
        for error in [semaphore.release(&id).await.unwrap_err(), semaphore.evict(&id).await.unwrap_err()] {
            assert!(matches!(error, ReleaseError::NotHeld(_)), "{text}: {error}");
        }
        assert!(semaphore.renew(&id, secs(5)).await.is_err(), "{text}");
    }
    for text in ["", " ", "a b", "a%s", "a#00001", "*", "a\nb", &"a".repeat(65)] {
        assert!(text.parse::<PermitId>().is_err(), "{text:?}");
    }
    assert_eq!(in_time(semaphore.stats()).await.unwrap().held, 1);
    in_time(held.release()).await.unwrap();
    assert_unused(&semaphore).await;
}

/// Characters with a special meaning somewhere: patterns and tags of Redis, formats and patterns of Lua, JSON, lines.
const ODD: [&str; 12] = [
    "with spaces  and\ttabs",
    "naïve 日本語 🦀",
    "*",
    "a?[b-c]^\\d",
    "{",
    "}{tag}{",
    "line\nbreak\r\n",
    "100%s %d %%",
    "\"quoted\" 'twice' \\ \u{7f}\u{1}",
    "a:semaphore_main:b",
    "#00001",
    "{\"label\":null}",
];

#[tokio::test]
async fn any_text_is_a_name() {
    let server = RedisServer::start();
    let home = connected(&server.url()).await;
    for name in ODD {
        let semaphore = in_time(home.named(name).slots(1).open())
            .await
            .unwrap_or_else(|error| panic!("{name:?}: {error}"));
        redis_support::assert_hands_over(&semaphore, &semaphore).await;
        assert_eq!(semaphore.name(), name);
        let _held = in_time(semaphore.acquire().weight(1)).await.unwrap();
        assert!(in_time(semaphore.locked()).await.unwrap(), "{name:?}");
    }
    for name in ODD {
        let query = semafor::StatsQuery::default().names([name]);
        let stats = in_time(home.stats(&query)).await.unwrap();
        assert_eq!(stats.len(), 1, "{name:?}");
        assert_eq!(&*stats[0].name, name);
    }
    let mut names: Vec<_> = in_time(names_of(&home)).await;
    let mut odd = ODD.map(str::to_owned).to_vec();
    names.sort();
    odd.sort();
    assert_eq!(names, odd);
}

async fn names_of(home: &Home) -> Vec<String> {
    let stats = home.stats(&semafor::StatsQuery::default()).await.unwrap();
    stats.iter().map(|stats| stats.name.to_string()).collect()
}

#[tokio::test]
async fn any_text_is_a_label() {
    let server = RedisServer::start();
    let home = connected(&server.url()).await;
    let slots = u32::try_from(ODD.len()).unwrap();
    let semaphore = in_time(home.named("labels").slots(slots).open()).await.unwrap();
    let mut permits = Vec::new();
    for label in ODD {
        permits.push(in_time(semaphore.acquire().label(label)).await.unwrap());
    }
    let holders = in_time(semaphore.holders()).await.unwrap();
    let labels: Vec<_> = holders.iter().map(|holder| holder.label.as_deref().unwrap()).collect();
    assert_eq!(labels, ODD);
    let waiting: Vec<_> = [ODD[6], ODD[8]]
        .map(|label| {
            let semaphore = semaphore.clone();
            tokio::spawn(async move { semaphore.acquire().label(label).await.map(drop) })
        })
        .into();
    until_waiting(&semaphore, 2).await;
    let waiters = in_time(semaphore.waiters()).await.unwrap();
    let mut labels: Vec<_> = waiters.iter().map(|waiter| waiter.label.as_deref().unwrap()).collect();
    labels.sort_unstable();
    let mut wanted = [ODD[6], ODD[8]];
    wanted.sort_unstable();
    assert_eq!(labels, wanted);
    drop(permits);
    for waiter in waiting {
        in_time(waiter).await.unwrap().unwrap();
    }
    until_idle(&semaphore).await;
}

#[tokio::test]
async fn names_in_different_namespaces_are_separate() {
    let server = RedisServer::start();
    let mut homes = Vec::new();
    // Namespaces whose keys could be those of another namespace and another name.
    for namespace in
        ["a:semaphore_main", "n:semaphore_main:x", "n:semaphore_waiting_heartbeat:x", "a:semaphore_info:"]
    {
        let error = connect_error(&format!("{}?namespace={namespace}", server.url())).await;
        assert_says(&error, HomeErrorKind::InvalidUrl, "its keys could be those of a name in the namespace");
    }
    for namespace in
        ["*", "a*", "a[bc]", "a?", "ab", "%25s", "{", "é", "a:semaphore_mainly", "semaphore_main:a", "x%5C"]
    {
        let home = connected(&format!("{}?namespace={namespace}&{SHORT_TIMEOUTS}", server.url())).await;
        let semaphore = in_time(home.named("same").slots(1).open()).await.unwrap();
        homes.push((home, semaphore, namespace));
    }
    let mut held = Vec::new();
    for (_, semaphore, _) in &homes {
        held.push(in_time(semaphore.acquire()).await.expect("a slot of its own"));
    }
    for (home, _, namespace) in &homes {
        assert_eq!(in_time(names_of(home)).await, ["same"], "{namespace}");
    }
}

#[tokio::test]
#[should_panic(expected = "Acquire::weight() was called after the first poll")]
async fn setting_an_option_after_the_first_poll_panics() {
    let home = Home::redis("redis://127.0.0.1:1/".parse().unwrap()).unwrap();
    let semaphore = home.named("one").slots(1).build().unwrap();
    let mut acquire = semaphore.acquire();
    let mut first_poll = std::task::Context::from_waker(std::task::Waker::noop());
    let _ = std::pin::Pin::new(&mut acquire).poll(&mut first_poll);
    drop(acquire.weight(2));
}
