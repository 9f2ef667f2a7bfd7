//! Work is stopped when its slot is lost.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use semafor::{RunError, secs};
use semafor_testkit::stepwise::{answer, now, pend, seconds, standing_still};

/// Sets the flag when it is dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn flag() -> (Flag, Arc<AtomicBool>) {
    let dropped = Arc::new(AtomicBool::new(false));
    (Flag(dropped.clone()), dropped)
}

#[test]
fn run_returns_the_output_and_releases_the_slot() {
    let (registry, _) = standing_still();
    let sem = registry.named("run").slots(1).build().unwrap();
    assert_eq!(now(sem.run(async { 42 })), Ok(42));
    assert_eq!(now(sem.stats()).unwrap().held, 0);
}

#[test]
fn run_drops_the_work_when_its_lease_ends_and_returns_the_reason() {
    let (registry, clock) = standing_still();
    let sem = registry.named("run").slots(1).ttl(secs(5)).build().unwrap();
    let (flag, dropped) = flag();
    let running = pend(sem.run(async move {
        let _flag = flag;
        pending::<()>().await;
    }));
    let next = pend(sem.acquire());
    clock.advance(seconds(5));
    let error = answer(running).unwrap_err();
    assert!(dropped.load(Ordering::SeqCst));
    assert!(error.is_lost());
    assert_eq!(
        error.to_string(),
        "the work was stopped: this permit lost its slot: its time to live ran out"
    );
    drop(answer(next).unwrap());
}

#[test]
fn run_drops_the_work_when_it_is_evicted() {
    let (registry, _) = standing_still();
    let sem = registry.named("run").slots(1).build().unwrap();
    let running = pend(sem.run(pending::<()>()));
    let holder = now(sem.holders()).unwrap().remove(0);
    now(sem.evict(&holder.id)).unwrap();
    assert!(matches!(answer(running), Err(RunError::Lost(why)) if !why.is_expired()));
}

#[test]
fn run_lets_the_work_finish_without_cancel_on_expiry() {
    let (registry, clock) = standing_still();
    let sem = registry.named("run").slots(1).ttl(secs(5)).cancel_on_expiry(false).build().unwrap();
    let (done, is_done) = tokio::sync::oneshot::channel();
    let running = pend(sem.run(is_done));
    clock.advance(seconds(5));
    let running = pend(running);
    assert_eq!(now(sem.stats()).unwrap().held, 0, "the slot is gone all the same");
    done.send("finished").unwrap();
    assert_eq!(answer(running), Ok(Ok("finished")));
}

#[test]
fn a_lost_signal_is_set_by_the_loss_and_not_by_a_release() {
    let (registry, clock) = standing_still();
    let sem = registry.named("token").slots(2).ttl(secs(5)).build().unwrap();
    let (lost, released) = (now(sem.acquire()).unwrap(), now(sem.acquire()).unwrap());
    let (of_lost, of_released) = (lost.lost_signal(), released.lost_signal());
    now(released.release()).unwrap();
    clock.advance(seconds(5));
    assert!(of_lost.is_lost() && !of_released.is_lost());
    assert!(lost.lost_signal().is_lost(), "also when asked too late");
    assert_eq!(
        format!("{of_lost:?} {of_released:?}"),
        "LostSignal { is_lost: true } LostSignal { is_lost: false }"
    );
}

#[test]
fn a_lost_signal_wakes_its_waiters_and_outlives_the_permit() {
    let (registry, clock) = standing_still();
    let sem = registry.named("signal").slots(1).ttl(secs(5)).build().unwrap();
    let permit = now(sem.acquire()).unwrap();
    let signal = permit.lost_signal();
    let (first, second) = (pend(signal.lost()), pend(signal.clone().lost()));
    permit.detach();
    drop(signal);
    clock.advance(seconds(5));
    answer(first);
    answer(second);
}

#[cfg(feature = "tokio-util")]
#[test]
fn cancelling_the_token_of_a_lost_signal_does_not_set_the_signal() {
    let (registry, clock) = standing_still();
    let sem = registry.named("token").slots(1).ttl(secs(5)).build().unwrap();
    let permit = now(sem.acquire()).unwrap();
    let signal = permit.lost_signal();
    signal.cancellation_token().cancel();
    assert!(!signal.is_lost() && !permit.is_lost());
    let token = signal.cancellation_token();
    clock.advance(seconds(5));
    assert!(token.is_cancelled() && signal.cancellation_token().is_cancelled());
}

#[test]
fn guard_is_notified_when_its_slot_is_released_by_id() {
    let (registry, _) = standing_still();
    let sem = registry.named("token").slots(1).build().unwrap();
    let permit = now(sem.acquire()).unwrap();
    let lost = pend(permit.lost());
    now(sem.release(&permit.id())).unwrap();
    assert_eq!(answer(lost), semafor::NotHeld::Released);
    drop(permit);
    assert_eq!(now(sem.stats()).unwrap().totals.released, 1);
}

#[cfg(feature = "tokio")]
#[tokio::test]
async fn spawned_work_is_aborted_with_its_slot() {
    let (registry, clock) = standing_still();
    let sem = registry.named("spawn").slots(1).ttl(secs(5)).build().unwrap();
    let (flag, dropped) = flag();
    let (started, has_started) = tokio::sync::oneshot::channel();
    let task = sem.spawn(async move {
        let _flag = flag;
        started.send(()).unwrap();
        pending::<()>().await;
    });
    has_started.await.unwrap();
    clock.advance(seconds(5));
    assert!(task.await.unwrap().unwrap_err().is_lost());
    assert!(dropped.load(Ordering::SeqCst));
    assert_eq!(sem.spawn(async { "next" }).await.unwrap(), Ok("next"));
}
