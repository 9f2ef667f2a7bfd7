//! The public types are `Send`, `Sync` and `Unpin`.

use semafor::{
    Acquire, AcquireError, BuildError, Builder, HolderInfo, HomeError, LostSignal, ManualClock, Permit,
    PermitId, Registry, ReleaseError, RenewError, ResizeError, RunError, Semaphore, Stats, StatsQuery,
    WaiterInfo,
};

fn assert_send_sync_unpin<T: Send + Sync + Unpin>() {}
fn error<T: std::error::Error + Send + Sync + 'static>() {}

#[test]
fn everything_public_is_send_sync_and_unpin() {
    assert_send_sync_unpin::<Semaphore>();
    assert_send_sync_unpin::<Permit<'_>>();
    assert_send_sync_unpin::<PermitId>();
    assert_send_sync_unpin::<Acquire<'_>>();
    assert_send_sync_unpin::<Registry>();
    assert_send_sync_unpin::<Builder>();
    assert_send_sync_unpin::<ManualClock>();
    assert_send_sync_unpin::<LostSignal>();
    assert_send_sync_unpin::<Stats>();
    assert_send_sync_unpin::<StatsQuery>();
    assert_send_sync_unpin::<HolderInfo>();
    assert_send_sync_unpin::<WaiterInfo>();
    error::<AcquireError>();
    error::<BuildError>();
    error::<HomeError>();
    error::<ReleaseError>();
    error::<RenewError>();
    error::<ResizeError>();
    error::<RunError>();
}

#[test]
fn futures_of_the_api_can_be_spawned() {
    fn spawnable<F: Future + Send>(_: F) {}
    let sem = Registry::new().named("spawned").slots(1).build().unwrap();
    spawnable(sem.acquire());
    spawnable(sem.run(async {}));
    spawnable(sem.stats());
    spawnable(sem.resize(2));
    let permit = sem.try_acquire().blocking().unwrap();
    spawnable(permit.lost());
    spawnable(permit.lost_signal().lost());
    spawnable(permit.release());
}
