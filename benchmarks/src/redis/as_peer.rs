//! This program in the role of a peer: a process of ours that waits and holds, to be measured from outside.

use std::io::{BufRead, Write, stdin, stdout};
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use semafor::Home;
use semafor_testkit::heap::live_bytes;
use serde::Serialize;

use super::peer::Answer;
use super::setup::{runtime, until_queued};

/// The first argument of such a process.
pub(super) const WORD: &str = "as-peer";

/// The name and slots that `next` is about.
pub(super) const HANDED_OVER: (&str, u32) = ("handoff-between-processes", 1);

/// Starting more at once would take memory that mere waiters or holders do not need.
const AT_ONCE: usize = 100;

pub(super) fn serve(url: &str) -> std::io::Result<()> {
    let runtime = runtime();
    let home = runtime.block_on(Home::connect(url)).expect("the server answers");
    answer(&Answer::Ok("ours"))?;
    for line in stdin().lock().lines() {
        let line = line?;
        let (work, count) = line.split_once(' ').unwrap_or((&line, "1"));
        let (work, count, home) = (work.to_owned(), count.parse().expect("a number"), home.clone());
        let done = runtime.spawn(async move {
            match work.as_str() {
                "next" => next(&home).await,
                "wait" => wait(&home, count).await,
                "stand" => stand(&home, count).await,
                "hold" => hold(&home, count).await,
                _ => Answer::Skip("not asked of us".into()),
            }
        });
        answer(&runtime.block_on(done).expect("the work does not panic"))?;
    }
    Ok(())
}

fn answer<T: Serialize>(answer: &Answer<T>) -> std::io::Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{}", serde_json::to_string(answer)?)?;
    out.flush()
}

/// Nanoseconds on a clock that all processes of a machine share.
pub(super) fn shared_clock() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Waits in line once, and answers when it got the slot.
async fn next(home: &Home) -> Answer<u64> {
    let semaphore = home.named(HANDED_OVER.0).slots(HANDED_OVER.1).build().expect("valid options");
    let permit = semaphore.acquire().await.expect("a slot");
    let granted = shared_clock();
    permit.release().await.expect("it is held");
    Answer::Ok(granted)
}

async fn wait(home: &Home, count: usize) -> Answer<u64> {
    let semaphore = home.named("idle-waiters").slots(1).build().expect("valid options");
    let _held = semaphore.acquire().await.expect("a slot").detach();
    for first in (0..count).step_by(AT_ONCE) {
        let last = count.min(first + AT_ONCE);
        for _ in first..last {
            let semaphore = semaphore.clone();
            tokio::spawn(async move { semaphore.acquire().await.expect("a slot").detach() });
        }
        until_queued(&semaphore, last).await;
    }
    Answer::Ok(0)
}

/// So many waiters without tasks of their own. Answers how many bytes of heap they need together, futures included.
async fn stand(home: &Home, count: usize) -> Answer<u64> {
    let semaphore = home.named("waiters").slots(1).build().expect("valid options");
    // They wait until the process ends.
    let semaphore: &'static _ = Box::leak(Box::new(semaphore));
    let _held = semaphore.acquire().await.expect("a slot").detach();
    let before = live_bytes();
    let mut waiters = Vec::with_capacity(count);
    while waiters.len() < count {
        for _ in 0..AT_ONCE {
            let mut acquire = semaphore.acquire();
            let first_look = Pin::new(&mut acquire).poll(&mut Context::from_waker(Waker::noop()));
            assert!(first_look.is_pending(), "the slot is held");
            waiters.push(acquire);
        }
        until_queued(semaphore, waiters.len()).await;
    }
    // By now the work of joining is over, and so is a heartbeat that may have been on its way.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let heap = live_bytes() - before;
    std::mem::forget(waiters);
    Answer::Ok(heap.try_into().unwrap_or(0))
}

async fn hold(home: &Home, count: usize) -> Answer<u64> {
    let slots = u32::try_from(count).expect("few enough");
    let semaphore = home.named("idle-holders").slots(slots).build().expect("valid options");
    for first in (0..count).step_by(AT_ONCE) {
        let acquired: Vec<_> = (first..count.min(first + AT_ONCE))
            .map(|_| {
                let semaphore = semaphore.clone();
                tokio::spawn(async move { semaphore.acquire().await.expect("a slot").detach() })
            })
            .collect();
        for acquired in acquired {
            acquired.await.expect("the task does not panic");
        }
    }
    Answer::Ok(0)
}
