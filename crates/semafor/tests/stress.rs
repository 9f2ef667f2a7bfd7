//! All operations at once, in eight threads, on the real clock. At the end every grant must have ended.
//!
//! Two seconds by default. `cargo xtask stress` runs it for ten minutes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use semafor::{Registry, Semaphore, secs};
use semafor_testkit::heap::{Counting, live_bytes};
use semafor_testkit::stepwise::{now, poll};

#[global_allocator]
static HEAP: Counting = Counting;

const THREADS: u64 = 8;
const NAMES: u64 = 6;

/// A small random generator per thread, so that a seed repeats the actions of a thread.
struct Random(u64);

impl Random {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// Opens the name with its present slots, or as a new name. `None` while a closed name still has holders, or if another
/// thread was faster.
fn open(registry: &Registry, name: u64) -> Option<Semaphore> {
    let named = || registry.named(format!("stressed {name}"));
    named().build().or_else(|_| named().slots(1 + (name % 4) as u32).build()).ok()
}

fn act(registry: &Registry, random: &mut Random) {
    let Some(sem) = open(registry, random.below(NAMES)) else { return };
    let acquire = sem.acquire().weight(1 + random.below(2) as u32);
    match random.below(100) {
        0..25 => drop(acquire.now().blocking()),
        25..45 => drop(acquire.timeout(secs(0.002)).blocking()),
        45..60 => {
            let mut waiting = Box::pin(acquire.timeout(secs(0.001)));
            drop(poll(&mut waiting));
        }
        60..75 => {
            if let Ok(permit) = acquire.ttl(Duration::from_micros(100 + random.below(2_000))).now().blocking()
            {
                let id = permit.detach();
                if random.below(2) == 0 {
                    let _ = now(sem.release(&id));
                }
            }
        }
        75..82 => {
            if let Ok(permit) = acquire.ttl(secs(0.001)).now().blocking() {
                let _ = now(permit.renew(secs(0.003)));
                let id = permit.id();
                drop(permit);
                assert!(now(sem.release(&id)).is_err(), "released or expired, but not held");
            }
        }
        82..90 => {
            let _ = now(sem.resize(1 + random.below(4) as u32));
        }
        90..93 => {
            let holders = now(sem.holders()).unwrap();
            if let Some(holder) = holders.first() {
                let _ = now(sem.evict(&holder.id));
            }
        }
        93..96 => {
            let mut work = Box::pin(async { sem.run(std::future::pending::<()>()).await });
            let _ = poll(&mut work);
        }
        96..99 => {
            let stats = registry.stats(&Default::default());
            assert!(stats.iter().all(|stats| stats.debt() <= 8));
        }
        _ if random.below(10) == 0 => now(sem.close()).unwrap(),
        _ => {}
    }
}

#[test]
fn everything_at_once_leaves_every_slot_accounted_for() {
    let seconds =
        std::env::var("SEMAFOR_STRESS_SECONDS").map_or(2.0, |s| s.parse().expect("seconds, a number"));
    let registry = Registry::builder().empty_queue_max_ttl(Duration::from_millis(50)).build();
    let (stop, actions) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut heap = vec![live_bytes()];
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (registry, stop, actions) = (&registry, &stop, &actions);
            scope.spawn(move || {
                let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (thread + 1));
                while !stop.load(Ordering::Relaxed) {
                    (0..64).for_each(|_| act(registry, &mut random));
                    actions.fetch_add(64, Ordering::Relaxed);
                }
            });
        }
        let (start, step) = (Instant::now(), Duration::from_secs_f64(seconds / 10.0));
        while start.elapsed().as_secs_f64() < seconds {
            std::thread::sleep(step);
            heap.push(live_bytes());
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!("{} actions in {seconds} s; heap bytes: {heap:?}", actions.load(Ordering::Relaxed));

    for stats in registry.stats(&Default::default()) {
        let sem = registry.named(&*stats.name).build();
        let Ok(sem) = sem else { continue };
        let all = now(sem.slots()).unwrap();
        let waited = sem.acquire().weight(all).timeout(secs(30)).blocking();
        drop(waited.expect("the last leases ran out and every slot came back"));
        let totals = now(sem.stats()).unwrap().totals;
        let ended = totals.released + totals.expired + totals.evicted + totals.handed_on;
        assert_eq!(totals.granted, ended, "every grant of {:?} ended once", stats.name);
        assert_eq!(now(sem.stats()).unwrap().waiting, 0);
    }
    drop(registry);
    let left = || live_bytes() - heap[0];
    let deadline = Instant::now() + Duration::from_secs(30);
    // The driver thread may be the last to drop it.
    while left() > 64 * 1024 && Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert!(left() < 64 * 1024, "{} bytes were left behind", left());
    assert!(heap.iter().all(|bytes| *bytes < 1024 * 1024), "a few semaphores and threads need no megabyte");
}
