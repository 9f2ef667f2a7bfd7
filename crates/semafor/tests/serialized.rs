//! The JSON of the feature `serde`.

use semafor::secs;
use semafor_testkit::stepwise::{now, pend, seconds, standing_still};
use serde_json::{json, to_value};

#[test]
fn a_permit_id_is_its_text() {
    let (registry, _) = standing_still();
    let sem = registry.named("one").slots(1).build().unwrap();
    let permit = now(sem.acquire()).unwrap();
    assert_eq!(to_value(permit.id()).unwrap(), json!(permit.id().to_string()));
}

#[test]
fn statistics_have_their_fields_with_durations_in_seconds() {
    let (registry, clock) = standing_still();
    let sem = registry.named("images").slots(2).build().unwrap();
    let short = now(sem.acquire()).unwrap();
    let _held = now(sem.acquire()).unwrap();
    clock.advance(seconds(8));
    drop(short);
    let _other = now(sem.acquire()).unwrap();
    let waiting = pend(sem.acquire());
    clock.advance(seconds(2));

    let mut stats = to_value(now(sem.stats()).unwrap()).unwrap();
    let buckets = stats["holds"]["buckets"].take();
    let [bucket] = &buckets.as_array().unwrap()[..] else { panic!("one was held: {buckets}") };
    assert_eq!(bucket["count"], 1);
    assert!(bucket["below_seconds"].as_f64().is_some_and(|bound| bound > 8.0 && bound <= 10.0), "{bucket}");
    assert_eq!(
        stats,
        json!({
            "name": "images", "error": null, "capacity": 2, "held": 2, "holders": 2, "waiting": 1,
            "longest_wait_seconds": 2.0,
            "totals": {
                "granted": 3, "released": 1, "queued": 1, "expired": 0, "evicted": 0, "handed_on": 0,
                "timed_out": 0, "cancelled": 0, "refused": 0
            },
            "waits": {
                "count": 0, "total_seconds": 0.0, "mean_seconds": 0.0, "p50_seconds": 0.0, "p99_seconds": 0.0,
                "max_seconds": 0.0, "buckets": []
            },
            "holds": {
                "count": 1, "total_seconds": 8.0, "mean_seconds": 8.0, "p50_seconds": 8.0, "p99_seconds": 8.0,
                "max_seconds": 8.0, "buckets": null
            }
        })
    );
    drop(waiting);
}

#[test]
fn holders_and_waiters_have_their_fields_with_durations_in_seconds() {
    let (registry, clock) = standing_still();
    let sem = registry.named("images").slots(2).command("convert").build().unwrap();
    let held = now(sem.acquire().weight(2).ttl(secs(30)).label("resize")).unwrap();
    let waiting = pend(sem.acquire());
    clock.advance(seconds(5));

    let expected = json!([{
        "id": held.id().to_string(), "slot": 0, "fencing_token": held.fencing_token(), "weight": 2,
        "label": "resize", "command": "convert", "host": null, "pid": null,
        "held_for_seconds": 5.0, "expires_in_seconds": 25.0
    }]);
    assert_eq!(to_value(now(sem.holders()).unwrap()).unwrap(), expected);
    let expected = json!([{
        "ahead": 0, "weight": 1, "label": null, "command": "convert", "host": null, "pid": null,
        "waited_for_seconds": 5.0
    }]);
    assert_eq!(to_value(now(sem.waiters()).unwrap()).unwrap(), expected);
    drop(waiting);
}
