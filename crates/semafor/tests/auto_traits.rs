//! What may cross threads, pinned.

use semafor::{
    Acquire, AcquireError, BuildError, Builder, HolderInfo, HomeError, LostSignal, ManualClock, Permit,
    PermitId, Registry, ReleaseError, RenewError, ResizeError, RunError, Semaphore, Stats, StatsQuery,
    WaiterInfo,
};

fn everywhere<T: Send + Sync + Unpin>() {}
fn error<T: std::error::Error + Send + Sync + 'static>() {}

#[test]
fn everything_public_is_send_sync_and_unpin() {
    everywhere::<Semaphore>();
    everywhere::<Permit<'_>>();
    everywhere::<PermitId>();
    everywhere::<Acquire<'_>>();
    everywhere::<Registry>();
    everywhere::<Builder>();
    everywhere::<ManualClock>();
    everywhere::<LostSignal>();
    everywhere::<Stats>();
    everywhere::<StatsQuery>();
    everywhere::<HolderInfo>();
    everywhere::<WaiterInfo>();
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
