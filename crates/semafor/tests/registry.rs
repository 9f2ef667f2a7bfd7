//! Opening and dropping names.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use semafor::{ManualClock, NotHeld, Registry, ReleaseError, Semaphore, secs};
use semafor_testkit::stepwise::{now, seconds, standing_still};

#[test]
fn one_name_is_one_semaphore_in_one_registry_and_another_in_another() {
    let (here, there) = (Registry::new(), Registry::new());
    let a = here.named("shared").slots(1).build().unwrap();
    let b = here.named("shared").slots(1).build().unwrap();
    let elsewhere = there.named("shared").slots(1).build().unwrap();
    let _held = a.try_acquire().blocking().unwrap();
    assert!(b.try_acquire().blocking().is_err());
    assert!(elsewhere.try_acquire().blocking().is_ok());
}

#[test]
fn the_global_registry_serves_semaphore_memory() {
    let sem = Semaphore::memory("test: global").slots(2).build().unwrap();
    let _held = sem.try_acquire().blocking().unwrap();
    let same = Registry::global().named("test: global").build().unwrap();
    assert_eq!(now(same.stats()).unwrap().held, 1);
}

#[test]
fn idle_name_takes_the_new_number_of_slots_for_all_handles() {
    let (registry, _) = standing_still();
    let old = registry.named("grows").slots(1).build().unwrap();
    drop(old.try_acquire().blocking().unwrap());
    let new = registry.named("grows").slots(2).build().unwrap();
    assert_eq!(now(old.slots()).unwrap(), 2);
    let _both = (old.try_acquire().blocking().unwrap(), new.try_acquire().blocking().unwrap());
    assert!(old.try_acquire().blocking().is_err());
}

#[test]
fn unused_name_is_dropped_exactly_after_its_idle_time() {
    let (registry, clock) = standing_still();
    drop(registry.named("brief").slots(1).build().unwrap());
    clock.advance(seconds(59));
    assert_eq!((registry.cleanup(), registry.len()), (0, 1));
    clock.advance(seconds(1));
    assert_eq!(registry.len(), 0, "by itself, without a call");
}

#[test]
fn idle_time_of_unused_names_can_be_set() {
    let clock = ManualClock::new();
    let registry = Registry::builder().clock(&clock).empty_queue_max_ttl(seconds(5)).build();
    drop(registry.named("brief").slots(1).build().unwrap());
    clock.advance(seconds(5));
    assert!(registry.is_empty());
}

#[test]
fn name_used_again_gets_its_full_idle_time_again() {
    let (registry, clock) = standing_still();
    drop(registry.named("again").slots(1).build().unwrap());
    clock.advance(seconds(59));
    drop(registry.named("again").slots(1).build().unwrap());
    clock.advance(seconds(59));
    assert_eq!(registry.len(), 1);
    clock.advance(seconds(1));
    assert_eq!(registry.len(), 0);
}

#[test]
fn name_used_again_is_dropped_on_time_although_others_became_idle_later() {
    let (registry, clock) = standing_still();
    let use_it = |name: &str| drop(registry.named(name).slots(1).build().unwrap());
    use_it("again");
    clock.advance(seconds(1));
    use_it("again");
    for later in 2..=59 {
        clock.advance(seconds(1));
        use_it(&format!("idle since {later}"));
    }
    clock.advance(seconds(1));
    assert_eq!(registry.len(), 59, "idle since 1, it is looked at again at 61");
    clock.advance(seconds(1));
    assert_eq!(registry.len(), 58, "it has been idle for its 60 s");
    clock.advance(seconds(58));
    assert!(registry.is_empty());
}

#[test]
fn live_handle_never_points_at_a_dropped_name() {
    let (registry, clock) = standing_still();
    let old = registry.named("kept").slots(1).build().unwrap();
    clock.advance(seconds(10_000));
    registry.cleanup();
    let new = registry.named("kept").slots(1).build().unwrap();
    let _held = old.try_acquire().blocking().unwrap();
    assert!(new.try_acquire().blocking().is_err(), "both are the same semaphore");
}

#[test]
fn a_detached_permit_keeps_its_name_until_it_ends() {
    let (registry, clock) = standing_still();
    let sem = registry.named("detached").slots(1).build().unwrap();
    let id = sem.acquire().ttl(secs(1_000)).now().blocking().unwrap().detach();
    drop(sem);
    clock.advance(seconds(500));
    let again = registry.named("detached").build().unwrap();
    assert!(again.try_acquire().blocking().is_err());
    drop(again);
    clock.advance(seconds(500 + 59));
    assert_eq!(registry.len(), 1);
    clock.advance(seconds(1));
    assert_eq!(registry.len(), 0, "expired at 1,000, dropped at 1,060");
    let new = registry.named("detached").slots(1).build().unwrap();
    assert_eq!(now(new.release(&id)), Err(ReleaseError::NotHeld(NotHeld::Unknown)));
}

#[test]
fn fencing_tokens_of_a_name_grow_even_after_it_was_dropped_and_opened_again() {
    let (registry, clock) = standing_still();
    let mut last = 0;
    for _ in 0..3 {
        let sem = registry.named("fenced").slots(1).build().unwrap();
        for _ in 0..5 {
            let token = sem.try_acquire().blocking().unwrap().fencing_token();
            assert!(token > last);
            last = token;
        }
        drop(sem);
        clock.advance(seconds(60));
        assert!(registry.is_empty());
    }
}

#[test]
fn a_million_names_come_and_go_without_growth() {
    let (registry, clock) = standing_still();
    let mut most = 0;
    for n in 0..1_000_000u32 {
        let sem = registry.named(format!("user:{n}")).slots(1).ttl(secs(3_600)).build().unwrap();
        drop(sem.try_acquire().blocking().unwrap());
        drop(sem);
        if n % 1_000 == 0 {
            clock.advance(seconds(10));
            most = most.max(registry.len());
        }
    }
    assert!(most <= 7_000, "six or seven thousand are waiting for their 60 s to pass, not {most}");
    clock.advance(seconds(60));
    assert!(registry.is_empty());
}

#[test]
fn one_name_opened_and_dropped_many_times_is_listed_once() {
    let (registry, clock) = standing_still();
    for _ in 0..100_000 {
        drop(registry.named("flapping").slots(1).build().unwrap());
    }
    assert_eq!(registry.len(), 1);
    clock.advance(seconds(60));
    assert!(registry.is_empty());
}

#[test]
fn the_driver_drops_unused_names_in_real_time_too() {
    let registry = Registry::builder().empty_queue_max_ttl(Duration::from_millis(20)).build();
    drop(registry.named("brief").slots(1).build().unwrap());
    let bell = Registry::new().named("bell").slots(1).build().unwrap();
    let _rung = bell.try_acquire().blocking().unwrap();
    while !registry.is_empty() {
        let waited = bell.acquire().timeout(secs(0.005)).blocking();
        assert!(waited.is_err());
    }
}

#[test]
fn threads_that_open_and_drop_one_name_never_get_two_semaphores() {
    let registry = Registry::builder().empty_queue_max_ttl(Duration::ZERO).build();
    let inside: Vec<_> = (0..4).map(|_| AtomicUsize::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (registry, inside) = (&registry, &inside);
            scope.spawn(move || {
                for round in 0..2_000 {
                    let which = (thread + round) % inside.len();
                    let sem = registry.named(format!("name {which}")).slots(1).build().unwrap();
                    let permit = sem.acquire().blocking().unwrap();
                    let before = inside[which].fetch_add(1, Ordering::SeqCst);
                    assert_eq!(before, 0, "two semaphores under one name");
                    inside[which].fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                }
            });
        }
    });
}
