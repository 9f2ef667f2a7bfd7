//! One task may hold several slots of one semaphore, and releases them in reverse order.

use semafor::{Registry, ReleaseError, secs, task};
use semafor_testkit::stepwise::{now, seconds, standing_still};

#[test]
fn nested_guards_of_one_task_hold_a_slot_each() {
    let (registry, _) = standing_still();
    let sem = registry.named("nested").slots(3).build().unwrap();
    let outer = now(sem.acquire()).unwrap();
    let inner = now(sem.acquire()).unwrap();
    assert_ne!(outer.id(), inner.id());
    assert_eq!(now(sem.stats()).unwrap().held, 2);
    drop((outer, inner));
}

#[test]
fn release_latest_releases_the_latest_permit_still_held() {
    let (registry, clock) = standing_still();
    let sem = registry.named("nested").slots(4).build().unwrap();
    let outer = now(sem.acquire()).unwrap().detach();
    let by_id = now(sem.acquire()).unwrap().detach();
    let expires = now(sem.acquire().ttl(secs(1))).unwrap().detach();
    let inner = now(sem.acquire()).unwrap().detach();
    now(sem.release(&by_id)).unwrap();
    clock.advance(seconds(1));
    assert!(now(sem.release(&expires)).unwrap_err().is_expired());
    assert_eq!(now(sem.release_latest()), Ok(inner));
    assert_eq!(now(sem.release_latest()), Ok(outer));
    assert_eq!(now(sem.release_latest()), Err(ReleaseError::NothingDetached));
}

#[test]
fn release_latest_does_not_release_a_live_guard() {
    let (registry, _) = standing_still();
    let sem = registry.named("nested").slots(2).build().unwrap();
    let _guard = now(sem.acquire()).unwrap();
    assert_eq!(now(sem.release_latest()), Err(ReleaseError::NothingDetached));
}

#[test]
fn each_thread_has_its_own_latest_permit() {
    let sem = Registry::new().named("threads").slots(2).build().unwrap();
    let ours = sem.try_acquire().blocking().unwrap().detach();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(now(sem.release_latest()), Err(ReleaseError::NothingDetached));
            let theirs = sem.try_acquire().blocking().unwrap().detach();
            assert_eq!(now(sem.release_latest()), Ok(theirs));
        });
    });
    assert_eq!(now(sem.release_latest()), Ok(ours));
}

#[test]
fn scopes_distinguish_tasks_on_one_thread() {
    let sem = Registry::new().named("scopes").slots(2).build().unwrap();
    let executor = smol::LocalExecutor::new();
    let work = || {
        task::scope(async {
            let mine = sem.acquire().await.unwrap().detach();
            smol::future::yield_now().await;
            assert_eq!(sem.release_latest().await, Ok(mine));
        })
    };
    smol::block_on(executor.run(async {
        let (a, b) = (executor.spawn(work()), executor.spawn(work()));
        a.await;
        b.await;
    }));
    assert_eq!(now(sem.stats()).unwrap().held, 0);
}

#[cfg(feature = "tokio")]
#[tokio::test]
async fn tokio_tasks_are_distinguished_without_scopes() {
    let sem = Registry::new().named("tokio").slots(2).build().unwrap();
    let barrier = std::sync::Arc::new(tokio::sync::Barrier::new(2));
    let tasks: Vec<_> = (0..2)
        .map(|_| {
            let (sem, barrier) = (sem.clone(), barrier.clone());
            tokio::spawn(async move {
                let mine = sem.acquire().await.unwrap().detach();
                barrier.wait().await;
                assert_eq!(sem.release_latest().await, Ok(mine));
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}
