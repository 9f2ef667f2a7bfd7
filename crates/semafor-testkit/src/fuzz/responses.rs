//! What an agent sends to a client that has acquisitions and questions of several kinds.
//!
//! See [`messages`](super::messages) for the lines of an input. The numbers of the client's calls start at 1, in the order
//! of [`run`].

use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use semafor::__local::OfflineAgent;
use semafor::{Permit, Span, StatsQuery};

use super::messages::{Line, lines};

pub(super) const WORDS: &[&str] = &[
    r#"{"n":0,"say":{"welcome":{"protocol":1,"version":"0","pid":1}}}"#,
    r#"{"n":1,"say":{"granted":{"id":"1-0-5","slot":0,"token":5,"waited":{"secs":0,"nanos":0},"slots":2}}}"#,
    r#"{"n":1,"say":{"lost":{"why":"expired","is_kept":false}}}"#,
    r#"{"n":1,"say":{"renewed":{"ttl":{"secs":9,"nanos":0}}}}"#,
    r#"{"n":2,"say":{"no":{"timed_out":{"waited":{"secs":1,"nanos":0},"held":1,"slots":1,"waiting":1}}}}"#,
    r#"{"n":3,"say":{"no":"closed"}}"#,
    r#"{"n":4,"more":true,"say":{"stats":[]}}"#,
    r#"{"n":5,"say":{"holders":[]}}"#,
    r#"{"n":6,"say":{"waiters":[]}}"#,
    r#"{"n":7,"say":{"truth":true}}"#,
    r#"{"n":8,"say":"done"}"#,
    r#"{"n":9,"say":{"misunderstood":""}}"#,
    r#"{"slots_mismatch":{"live":1,"asked":2}}"#,
    r#"{"not_held":"evicted"}"#,
    r#"{"lost_before":"vanished"}"#,
    r#"{"other":"x"}"#,
    r#""ttl":{"secs":18446744073709551615,"nanos":999999999}"#,
    "4294967295",
    "18446744073709551615",
    "null",
    "true",
    "[[[[[[[[",
];

/// How an acquisition goes on when it is granted.
async fn hold(permit: Permit<'_>) {
    let _ = (permit.id().to_string(), permit.slot(), permit.fencing_token(), permit.waited());
    let _ = (permit.expires_at(), permit.safe_until(), permit.why_not_held());
    let _ = permit.renew(Duration::from_secs(5)).await;
    let _ = permit.release().await;
}

pub(super) fn run(input: &[u8]) {
    let mut agent = OfflineAgent::new().expect("a pair of sockets");
    let home = agent.home();
    let semaphore = home.named("it").slots(2).build().expect("a valid name");
    let query = StatsQuery::default();
    let mut tasks: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> = vec![
        Box::pin(async {
            if let Ok(permit) = semaphore.acquire().await {
                hold(permit).await;
            }
        }),
        Box::pin(async {
            let _ = semaphore.acquire().ttl(Duration::from_secs(9)).timeout(Duration::from_secs(5)).await;
        }),
        Box::pin(async {
            let _ = semaphore.try_acquire().await;
        }),
        Box::pin(async {
            if let Ok(permit) = semaphore.acquire().ttl(Span::UNLIMITED).await {
                let _ = permit.detach();
            }
        }),
        Box::pin(async {
            let stats = home.stats(&query).await.unwrap_or_default();
            for one in stats {
                let _ = (one.waits.mean(), one.holds.quantile(0.99), format!("{one:?}"));
            }
        }),
        Box::pin(async {
            let _ = semaphore.holders().await.map(|holders| format!("{holders:?}"));
        }),
        Box::pin(async {
            let _ = semaphore.waiters().await.map(|waiters| format!("{waiters:?}"));
        }),
        Box::pin(async {
            let _ = semaphore.locked().await;
        }),
        Box::pin(async {
            let _ = semaphore.resize(3).await;
        }),
        Box::pin(async {
            let _ = semaphore.is_closed().await;
        }),
    ];
    let mut cx = Context::from_waker(Waker::noop());
    tasks.retain_mut(|task| task.as_mut().poll(&mut cx).is_pending());
    for line in lines(input) {
        if let Line::Bytes { bytes, .. } = line
            && agent.send(&bytes).is_err()
        {
            break;
        }
        agent.handle_timeouts();
        tasks.retain_mut(|task| task.as_mut().poll(&mut cx).is_pending());
    }
}
