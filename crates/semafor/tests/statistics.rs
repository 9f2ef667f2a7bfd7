//! Holders, waiters, and totals so far.

use std::time::Duration;

use semafor::{StatsQuery, secs};
use semafor_testkit::stepwise::{answer, now, pend, seconds, standing_still};

#[test]
fn a_snapshot_shows_slots_line_and_totals() {
    let (registry, clock) = standing_still();
    let sem = registry.named("busy").slots(4).build().unwrap();
    let two = now(sem.acquire().weight(2)).unwrap();
    let one = now(sem.acquire().ttl(secs(100))).unwrap();
    let waiting = pend(sem.acquire().weight(2).timeout(secs(30)));
    let leaves = pend(sem.acquire());
    clock.advance(seconds(10));

    let stats = now(sem.stats()).unwrap();
    assert_eq!((&*stats.name, stats.held, stats.slots, stats.holders), ("busy", 3, 4, 2));
    assert_eq!((stats.waiting, stats.longest_wait, stats.percent()), (2, seconds(10), 75.0));

    drop(leaves);
    clock.advance(seconds(20));
    assert!(answer(waiting).unwrap_err().is_timeout());
    assert!(sem.acquire().weight(3).now().blocking().is_err());
    clock.advance(seconds(70));
    assert!(one.is_lost());
    drop(two);
    let totals = now(sem.stats()).unwrap().totals;
    assert_eq!((totals.granted, totals.released, totals.expired), (2, 1, 1));
    assert_eq!((totals.queued, totals.timed_out, totals.cancelled, totals.refused), (2, 1, 1, 1));
}

#[test]
fn histograms_record_wait_and_hold_times() {
    let (registry, clock) = standing_still();
    let sem = registry.named("timed").slots(1).build().unwrap();
    let held = now(sem.acquire()).unwrap();
    let waiting = pend(sem.acquire());
    clock.advance(seconds(8));
    drop(held);
    let next = answer(waiting).unwrap();
    assert_eq!(next.waited(), seconds(8));
    clock.advance(seconds(2));
    drop(next);

    let stats = now(sem.stats()).unwrap();
    assert_eq!((stats.waits.count(), stats.waits.max()), (1, seconds(8)));
    assert_eq!((stats.holds.count(), stats.holds.max(), stats.holds.mean()), (2, seconds(8), seconds(5)));
    assert!(
        stats.holds.quantile(0.5) >= seconds(2) && stats.holds.quantile(0.5) <= Duration::from_millis(2_500)
    );
}

#[test]
fn holders_and_waiters_are_listed_with_labels_weights_and_times() {
    let (registry, clock) = standing_still();
    let sem = registry.named("listed").slots(2).label("default").build().unwrap();
    let first = now(sem.acquire()).unwrap();
    clock.advance(seconds(1));
    let second = now(sem.acquire().label("second").ttl(secs(60))).unwrap();
    let line = (pend(sem.acquire().label("third").weight(2)), pend(sem.acquire()));
    clock.advance(seconds(2));

    let holders = now(sem.holders()).unwrap();
    assert_eq!([&holders[0].id, &holders[1].id], [&first.id(), &second.id()]);
    assert_eq!([holders[0].label.as_deref(), holders[1].label.as_deref()], [Some("default"), Some("second")]);
    assert_eq!([holders[0].held_for, holders[1].held_for], [seconds(3), seconds(2)]);
    assert_eq!([holders[0].expires_in, holders[1].expires_in], [None, Some(seconds(58))]);

    let waiters = now(sem.waiters()).unwrap();
    let seen: Vec<_> =
        waiters.iter().map(|w| (w.ahead, w.weight, w.label.as_deref(), w.waited_for)).collect();
    assert_eq!(seen, [(0, 2, Some("third"), seconds(2)), (1, 1, Some("default"), seconds(2))]);
    drop(line);
}

#[test]
fn busiest_names_come_first_and_the_query_narrows_the_list() {
    let (registry, _) = standing_still();
    let open = |name: &str, slots, held| {
        let sem = registry.named(name).slots(slots).build().unwrap();
        for _ in 0..held {
            sem.try_acquire().blocking().unwrap().detach();
        }
        sem
    };
    let _all = [open("idle", 2, 0), open("half", 4, 2), open("full", 1, 1), open("also half", 2, 1)];
    let names = |query: StatsQuery| -> Vec<String> {
        registry.stats(&query).iter().map(|stats| stats.name.to_string()).collect()
    };
    assert_eq!(names(StatsQuery::default()), ["full", "also half", "half", "idle"]);
    assert_eq!(names(StatsQuery::default().limit(2)), ["full", "also half"]);
    assert_eq!(names(StatsQuery::default().names(["idle", "half", "no such", "half"])), ["half", "idle"]);
    assert_eq!(names(StatsQuery::default().names(["idle", "half"]).limit(1)), ["half"]);
}

#[test]
fn locked_is_true_if_an_acquire_would_have_to_wait() {
    let (registry, clock) = standing_still();
    let sem = registry.named("locked").slots(2).ttl(secs(5)).build().unwrap();
    assert!(!now(sem.locked()).unwrap());
    let _one = now(sem.acquire()).unwrap();
    assert!(!now(sem.locked()).unwrap());
    let _two = now(sem.acquire()).unwrap();
    assert!(now(sem.locked()).unwrap());
    clock.advance(seconds(5));
    assert!(!now(sem.locked()).unwrap());
}
