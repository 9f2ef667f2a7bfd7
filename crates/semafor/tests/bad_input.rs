//! Bad input gives an error that says what was wrong, with the value; nothing hangs, panics or is lost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Waker};

use semafor::{
    Acquire, AcquireError, BuildError, MAX_NAME_LEN, NotHeld, PermitId, Registry, ReleaseError, Semaphore,
    secs,
};
use semafor_testkit::stepwise::{answer, now, pend, poll, standing_still};

fn one_slot() -> Semaphore {
    Registry::new().named("one").slots(1).build().unwrap()
}

#[track_caller]
fn refused(builder: semafor::Builder, message: &str) {
    assert_eq!(builder.build().unwrap_err().to_string(), message);
}

#[test]
fn names_that_are_empty_or_too_long_are_refused() {
    let registry = Registry::new();
    refused(registry.named("").slots(1), "a semaphore needs a name: the given one is empty");
    let long = "ü".repeat(MAX_NAME_LEN);
    let error = registry.named(&long).slots(1).build().unwrap_err();
    assert!(matches!(error, BuildError::NameTooLong { len: 1024, max: 512, .. }));
    assert!(error.to_string().len() < 200, "the error does not repeat it all: {error}");
    registry.named("x".repeat(MAX_NAME_LEN)).slots(1).build().unwrap();
    assert_eq!(registry.len(), 1);
}

#[test]
fn zero_slots_are_refused_for_new_idle_and_live_names_and_by_resize() {
    let registry = Registry::new();
    let message = "slots must be at least 1, got 0";
    refused(registry.named("zero").slots(0), message);
    assert!(registry.is_empty());
    let sem = registry.named("zero").slots(1).build().unwrap();
    refused(registry.named("zero").slots(0), message);
    let permit = sem.try_acquire().blocking().unwrap();
    refused(registry.named("zero").slots(0), message);
    assert_eq!(now(sem.resize(0)).unwrap_err().to_string(), message);
    assert_eq!(now(sem.slots()).unwrap(), 1);
    drop(permit);
}

#[test]
fn a_new_name_needs_its_number_of_slots_and_a_live_one_does_not() {
    let registry = Registry::new();
    let message = "semaphore \"new\" does not exist yet: say how many slots it has with .slots(n)";
    refused(registry.named("new"), message);
    let _sem = registry.named("new").slots(7).build().unwrap();
    assert_eq!(now(registry.named("new").build().unwrap().slots()).unwrap(), 7);
}

#[test]
fn a_mismatch_of_slots_names_both_values_and_the_remedy() {
    let registry = Registry::new();
    let sem = registry.named("shared").slots(3).build().unwrap();
    let _held = sem.try_acquire().blocking().unwrap();
    let message = "semaphore \"shared\" is in use with 3 slots, not 5: \
                   ask for 3, or change it for all users with resize(5)";
    refused(registry.named("shared").slots(5), message);
}

#[test]
fn invalid_durations_are_refused_by_build_acquire_and_renew() {
    let registry = Registry::new();
    let open = || registry.named("durations").slots(1);
    refused(open().ttl(secs(0)), "ttl must be longer than zero seconds, got 0");
    refused(open().ttl(secs(-1.5)), "ttl must be longer than zero seconds, got -1.5");
    refused(open().ttl(secs(f64::NAN)), "ttl must be longer than zero seconds, got NaN");
    refused(open().timeout(secs(-1)), "timeout must be zero seconds or longer, got -1");
    assert!(registry.is_empty());

    let sem = open().build().unwrap();
    for acquire in [sem.acquire().ttl(secs(0)), sem.acquire().ttl(secs(f64::NEG_INFINITY))] {
        assert!(matches!(now(acquire), Err(AcquireError::InvalidDuration(_))));
    }
    let error = now(sem.acquire().timeout(secs(-2))).unwrap_err();
    assert_eq!(error.to_string(), "timeout must be zero seconds or longer, got -2");
    assert!(sem.acquire().timeout(secs(f64::NAN)).now().blocking().is_err());
    let permit = sem.try_acquire().blocking().unwrap();
    let error = now(permit.renew(secs(0))).unwrap_err();
    assert_eq!(error.to_string(), "ttl must be longer than zero seconds, got 0");
    assert_eq!(now(sem.stats()).unwrap().held, 1);
}

#[test]
fn a_weight_of_zero_is_refused() {
    let error = now(one_slot().acquire().weight(0)).unwrap_err();
    assert_eq!(error.to_string(), "weight must be at least 1, got 0");
}

#[test]
fn weight_made_impossible_by_a_shrink_is_refused_with_the_new_slots() {
    let sem = Registry::new().named("shrinks").slots(4).build().unwrap();
    let held = now(sem.acquire()).unwrap();
    let heavy = pend(sem.acquire().weight(4));
    let light = pend(sem.acquire().weight(2));
    now(sem.resize(3)).unwrap();
    assert_eq!(answer(heavy).unwrap_err(), AcquireError::TooHeavy { weight: 4, slots: 3 });
    drop(answer(light).unwrap());
    drop(held);
}

#[test]
fn second_release_fails_and_frees_nothing() {
    let sem = Registry::new().named("two").slots(2).build().unwrap();
    let id = now(sem.acquire()).unwrap().detach();
    let _other = now(sem.acquire()).unwrap();
    now(sem.release(&id)).unwrap();
    assert_eq!(now(sem.release(&id)), Err(ReleaseError::NotHeld(NotHeld::Released)));
    assert_eq!(now(sem.stats()).unwrap().held, 1);
}

#[test]
fn a_stale_id_does_not_affect_the_new_holder() {
    let sem = one_slot();
    let stale = now(sem.acquire()).unwrap().detach();
    now(sem.release(&stale)).unwrap();
    let permit = now(sem.acquire()).unwrap();
    assert_eq!(permit.slot(), 0, "the same slot");
    assert!(now(sem.release(&stale)).is_err());
    assert!(now(sem.evict(&stale)).is_err());
    assert!(now(sem.renew(&stale, secs(1))).is_err());
    assert!(!permit.is_lost());
}

#[test]
fn id_of_another_semaphore_or_of_none_is_unknown() {
    let registry = Registry::new();
    let ours = registry.named("ours").slots(1).build().unwrap();
    let theirs = registry.named("theirs").slots(1).build().unwrap();
    let permit = ours.try_acquire().blocking().unwrap();
    let foreign = theirs.try_acquire().blocking().unwrap().detach();
    let unknown = Err(ReleaseError::NotHeld(NotHeld::Unknown));
    assert_eq!(now(ours.release(&foreign)), unknown);
    assert_eq!(now(ours.release(&"0-0-0".parse().unwrap())), unknown);
    assert_eq!(now(ours.release(&"OfAnotherHome1".parse().unwrap())), unknown);
    assert_eq!(now(ours.release(&"ffffffff-ffffffff-ffffffffffffffff".parse().unwrap())), unknown);
    assert!(!permit.is_lost());
    assert_eq!(now(theirs.stats()).unwrap().held, 1);
}

#[test]
fn text_that_is_not_an_id_is_refused_with_an_example() {
    let error = "no such id!".parse::<PermitId>().unwrap_err();
    assert_eq!(error.to_string(), "not a permit id: expected three hexadecimal numbers, like 7-0-2a");
}

#[test]
fn closed_semaphore_refuses_and_can_be_opened_anew_once_its_slots_are_released() {
    let registry = Registry::new();
    let sem = registry.named("closing").slots(1).build().unwrap();
    let permit = now(sem.acquire()).unwrap();
    let old_token = permit.fencing_token();
    let waiting = pend(sem.acquire());
    now(sem.close()).unwrap();
    assert!(answer(waiting).unwrap_err().is_closed());
    assert!(now(sem.acquire()).unwrap_err().is_closed());
    assert!(sem.try_acquire().blocking().unwrap_err().is_closed());
    assert!(now(sem.locked()).unwrap() && now(sem.is_closed()).unwrap());
    refused(
        registry.named("closing").slots(1),
        "semaphore \"closing\" was closed, and 1 of its slots are still held",
    );
    now(permit.release()).unwrap();
    let anew = registry.named("closing").slots(2).build().unwrap();
    assert!(now(anew.acquire()).unwrap().fencing_token() > old_token);
    assert!(now(sem.acquire()).unwrap_err().is_closed(), "the old handle stays closed");
}

#[test]
fn a_full_line_refuses_at_once() {
    let (registry, _) = standing_still();
    let sem = registry.named("bounded").slots(1).max_waiting(2).build().unwrap();
    let held = now(sem.acquire()).unwrap();
    let line = (pend(sem.acquire()), pend(sem.acquire()));
    let error = now(sem.acquire()).unwrap_err();
    assert_eq!(error, AcquireError::LineFull { limit: 2 });
    assert_eq!(error.to_string(), "the line is full: 2 are waiting already");
    drop(held);
    drop(line);
    drop(now(sem.acquire()).unwrap());
}

#[test]
#[should_panic(expected = "polled after it returned Ready")]
fn polling_a_finished_acquire_again_panics_as_futures_do() {
    let sem = one_slot();
    let mut acquire = Box::pin(sem.acquire());
    drop(poll(&mut acquire));
    drop(poll(&mut acquire));
}

type Setter = fn(Acquire<'_>) -> Acquire<'_>;

/// Polls an acquire by hand, sets an option with `set`, and returns the message of the panic.
fn set_after_poll<'a>(mut acquire: Acquire<'a>, set: impl FnOnce(Acquire<'a>) -> Acquire<'a>) -> String {
    let _ = Pin::new(&mut acquire).poll(&mut Context::from_waker(Waker::noop()));
    let panic = catch_unwind(AssertUnwindSafe(|| drop(set(acquire)))).expect_err("it was polled");
    *panic.downcast::<String>().expect("a message")
}

#[test]
fn setting_an_option_after_the_first_poll_panics_and_leaves_the_line() {
    let sem = one_slot();
    let held = sem.try_acquire().blocking().unwrap();
    let late: [(&str, Setter); 5] = [
        ("weight", |acquire| acquire.weight(2)),
        ("ttl", |acquire| acquire.ttl(secs(1))),
        ("timeout", |acquire| acquire.timeout(secs(1))),
        ("label", |acquire| acquire.label("late")),
        ("now", |acquire| acquire.now()),
    ];
    for (option, set) in late {
        let message = set_after_poll(sem.acquire(), set);
        assert!(
            message.starts_with(&format!("Acquire::{option}() was called after the first poll")),
            "{message}"
        );
        let message = set_after_poll(sem.acquire().label("with overrides"), set);
        assert!(message.contains("set options before awaiting"), "{message}");
    }
    assert_eq!(now(sem.stats()).unwrap().waiting, 0);
    drop(held);
    let message = set_after_poll(sem.try_acquire(), |acquire| acquire.weight(1));
    assert!(message.contains("weight()"), "also after the answer: {message}");
}

#[test]
fn options_can_be_set_in_any_order_before_the_first_poll() {
    let sem = Registry::new().named("two").slots(2).build().unwrap();
    let permit = now(sem.acquire().now().label("x").ttl(secs(9)).timeout(secs(1)).weight(2)).unwrap();
    assert_eq!(now(sem.holders()).unwrap()[0].weight, 2);
    assert!(permit.expires_at().is_some());
}
