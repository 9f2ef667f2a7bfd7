//! Work under a slot.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use semafor::{AcquireError, RunError};
use tokio::task::yield_now;

use super::{SHORT, open, semaphore};
use crate::by_hand::{ByHand, in_line, stats, until};
use crate::{Home, Spec};

/// Work that never ends. Sets `begun` when it starts, and holds a reference to it as long as it lives.
async fn hang_on(begun: Arc<AtomicBool>) {
    begun.store(true, Ordering::SeqCst);
    pending::<()>().await;
}

/// Polls `run` until its work has begun.
async fn begin<F: Future>(run: &mut ByHand<F>, begun: &AtomicBool) {
    while !begun.load(Ordering::SeqCst) {
        assert!(run.waits(), "its work never ends");
        yield_now().await;
    }
}

/// And returns its result.
pub async fn work_runs_under_a_slot_that_is_released_afterwards(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let work = async {
        assert_eq!(stats(&sem).await.held, 1);
        "done"
    };
    assert_eq!(sem.run(work).await, Ok("done"));
    until(&sem, |stats| stats.held == 0).await;
}

/// So that it does not run beside the work of the next holder.
pub async fn the_work_is_dropped_when_its_slot_is_lost(home: &impl Home) {
    let sem = open(home, Spec::new("it", 1).ttl(SHORT)).await;
    let begun = Arc::default();
    let mut run = ByHand::new(sem.run(hang_on(Arc::clone(&begun))));
    begin(&mut run, &begun).await;
    let next = in_line(&sem, sem.acquire()).await;
    home.pass(SHORT).await;
    let error = run.outcome().await.expect_err("its slot was lost");
    assert!(error.is_lost(), "{error:?}");
    assert!(matches!(error, RunError::Lost(why) if why.is_expired()), "{error:?}");
    assert_eq!(Arc::strong_count(&begun), 1, "the work was dropped");
    next.outcome().await.expect("it is served").release().await.expect("it was never disturbed");
}

/// It is not even polled.
pub async fn work_without_a_slot_never_starts(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    sem.close().await.expect("the home answers");
    let outcome = sem.run(async { panic!("it started") }).await;
    assert_eq!(outcome, Err::<(), _>(RunError::Acquire(AcquireError::Closed)));
}

/// The caller that drops the future no longer needs the work.
pub async fn dropping_a_run_drops_the_work_and_releases_the_slot(home: &impl Home) {
    let sem = semaphore(home, 1).await;
    let begun = Arc::default();
    let mut run = ByHand::new(sem.run(hang_on(Arc::clone(&begun))));
    begin(&mut run, &begun).await;
    let next = in_line(&sem, sem.acquire()).await;
    drop(run);
    assert_eq!(Arc::strong_count(&begun), 1, "the work was dropped");
    drop(next.outcome().await.expect("it is served"));
}
