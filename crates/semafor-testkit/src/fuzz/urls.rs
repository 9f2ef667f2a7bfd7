//! URLs of homes. With a valid one, a client is run whose calls all fail, because times in it may be extreme.

use std::task::Waker;
use std::time::Duration;

use semafor::__client::{AcquireRequest, Client, Failure, Instant, Key, ServerPushes, Wait, unreachable};
use semafor::__redis::OfflineEngine;
use semafor::redis::Config;

const PASSWORD: &str = "hunter2hunter2";
const SCHEMES: [&str; 8] = [
    "redis",
    "rediss",
    "unix",
    "redis+unix",
    "redis+cluster",
    "rediss+cluster",
    "redis+sentinel",
    "rediss+sentinel",
];

pub(super) const WORDS: &[&str] = &[
    "redis://",
    "rediss://",
    "unix://",
    "redis+unix://",
    "redis+cluster://",
    "rediss+cluster://",
    "redis+sentinel://",
    "rediss+sentinel://",
    "local:",
    "local://",
    "://",
    "user:pass@",
    "@",
    ",",
    ":6379",
    ":99999",
    "[::1]",
    "[",
    "]",
    "/0",
    "?namespace=",
    "{app}",
    ":semaphore_main:",
    "&socket_timeout=",
    "&socket_connect_timeout=",
    "&number_of_attempts=",
    "&retry_multiplier=",
    "&retry_min_delay=",
    "&retry_max_delay=",
    "&max_connections=",
    "&protocol=resp2",
    "&ca=/ca.pem",
    "&db=1",
    "&user=u",
    "&pass=p",
    "18446744073709549568",
    "4294967295",
    "1e-9",
    "1e19",
    "%3F",
    "%00",
    "%F0%9F",
];

pub(super) fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let _ = text.parse::<semafor::local::Config>().map(|config| format!("{config:?}"));
    let _ = semafor::local::Config::is_meant_by(&text);
    check(&text);
    if text.contains(PASSWORD) {
        return;
    }
    for scheme in SCHEMES {
        for url in [
            format!("{scheme}://user:{PASSWORD}@{text}"),
            format!("{scheme}://:{PASSWORD}@{text}"),
            format!("{scheme}:///path?pass={PASSWORD}&{text}"),
        ] {
            let shown = check(&url);
            // A password without a place in the URL is only text.
            let is_password = url.starts_with("unix") || !url.contains("?pass=");
            assert!(!is_password || !shown.contains(PASSWORD), "{url:?} shows its password: {shown}");
        }
        let local = format!("{scheme}://user:{PASSWORD}@{text}").parse::<semafor::local::Config>();
        let error = local.expect_err("it is the URL of a Redis").to_string();
        assert!(!error.contains(PASSWORD), "{error}");
    }
}

/// What users may see of the URL.
fn check(url: &str) -> String {
    let config = match url.parse::<Config>() {
        Ok(config) => config,
        Err(error) => return format!("{error} {error:?}"),
    };
    let mut shown = format!("{config:?}");
    let engine = OfflineEngine::new(config, 7);
    let settings = engine.settings();
    shown += &format!(" {} {:?}", settings.no_reply_error, settings.no_reply_error);
    run_client(&engine, Client::new(settings));
    shown
}

/// Lets every call fail, as if the server were unreachable.
fn run_client(engine: &OfflineEngine, mut client: Client) {
    let target = engine.target("it", Some(1), Duration::from_secs(10));
    let mut now = Instant::at(Duration::from_secs(1_000));
    client.connected(ServerPushes { messages: true, tracking: true }, now);
    client.acquire(&target, AcquireRequest::new(1, None, Wait::Unlimited), now);
    client.acquire(&target, AcquireRequest::new(1, None, Wait::For(Duration::from_secs(1))), now);
    for power in 0..64 {
        while let Some(call) = client.poll_transmit(now) {
            let _ = engine.script_of(&call);
            let failure = Failure { error: unreachable("nowhere"), is_transient: true, was_sent: true };
            client.handle_failure(call, &failure, now);
        }
        for key in 1..3 {
            let _ = client.poll_acquire(Key(key), Waker::noop().clone());
        }
        let Some(next) = client.poll_timeout() else { return };
        // Each step is longer than the one before, to reach the longest times.
        now = now.max(next) + Duration::from_secs((1 << power) - 1);
        client.handle_timeout(now);
    }
}
