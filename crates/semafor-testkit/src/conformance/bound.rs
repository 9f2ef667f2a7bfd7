//! Never more holders than slots, in any order of acquires and releases.

use std::task::Poll;
use std::time::Duration;

use semafor::{AcquireError, Permit, Semaphore};
use tokio::task::{JoinSet, yield_now};

use super::semaphore;
use crate::Home;
use crate::by_hand::{ByHand, stats, until};
use crate::history::{Contestant, Grant, Recorder};

const CONTESTANTS: u64 = 12;
const ROUNDS: u32 = 100;

/// Checked in the history of many tasks that ask, hold, release and leave in all possible ways.
pub async fn never_more_than_the_slots_are_held_by_many_tasks(home: &impl Home) {
    let sem = semaphore(home, 5).await;
    let recorder = Recorder::new();
    let mut tasks = contest(&sem, &recorder, 3);
    while let Some(task) = tasks.join_next().await {
        task.expect("a contestant does not panic");
    }
    until(&sem, |stats| stats.held == 0 && stats.waiting == 0).await;

    let history = recorder.history();
    assert!(history.grants() as u64 > CONTESTANTS * u64::from(ROUNDS) / 4, "{} grants", history.grants());
    history.check(5).unwrap_or_else(|contradiction| panic!("{contradiction}"));
}

/// The same, while the number of slots goes up and down.
pub async fn never_more_than_the_slots_are_held_while_they_are_resized(home: &impl Home) {
    let sem = semaphore(home, 5).await;
    let recorder = Recorder::new();
    let mut tasks = contest(&sem, &recorder, 2);
    let mut resizer = recorder.contestant();
    for round in 0.. {
        if tasks.is_empty() {
            break;
        }
        let slots = 2 + round * 3 % 7;
        let grows = slots > sem.slots().await.expect("the home answers");
        if grows {
            resizer.resizes(slots);
        }
        sem.resize(slots).await.expect("not to zero");
        if !grows {
            resizer.resizes(slots);
        }
        yield_now().await;
        while let Some(task) = tasks.try_join_next() {
            task.expect("a contestant does not panic");
        }
    }
    drop(resizer);
    until(&sem, |stats| stats.held == 0 && stats.waiting == 0).await;
    recorder.history().check(5).unwrap_or_else(|contradiction| panic!("{contradiction}"));
}

fn contest(sem: &Semaphore, recorder: &Recorder, heaviest: u32) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for number in 0..CONTESTANTS {
        let (sem, me) = (sem.clone(), recorder.contestant());
        tasks.spawn(compete(sem, me, Random(number), heaviest));
    }
    tasks
}

async fn compete(sem: Semaphore, mut me: Contestant, mut random: Random, heaviest: u32) {
    for _ in 0..ROUNDS {
        let weight = 1 + random.below(heaviest);
        me.asks();
        match ask(&sem, weight, &mut random).await {
            Some(Ok(permit)) => {
                me.got(Grant::of(&permit, weight));
                for _ in 0..random.below(4) {
                    yield_now().await;
                }
                me.ends(permit.id());
                end(&sem, permit, &mut random).await;
            }
            Some(Err(_)) | None => me.gave_up(),
        }
    }
}

/// `None` if it left before the answer.
async fn ask<'a>(
    sem: &'a Semaphore,
    weight: u32,
    random: &mut Random,
) -> Option<Result<Permit<'a>, AcquireError>> {
    let acquire = sem.acquire().weight(weight);
    match random.below(6) {
        0 => Some(acquire.now().await),
        1 => Some(acquire.timeout(Duration::ZERO).await),
        2 => {
            let mut acquire = ByHand::new(acquire);
            if let Poll::Ready(outcome) = acquire.poll() {
                return Some(outcome);
            }
            // Sometimes long enough to be granted a slot that it never sees: a home that has answered this query has
            // also handled the earlier request.
            for _ in 0..random.below(12) {
                stats(sem).await;
                yield_now().await;
            }
            None
        }
        _ => Some(acquire.await),
    }
}

async fn end(sem: &Semaphore, permit: Permit<'_>, random: &mut Random) {
    match random.below(4) {
        0 => drop(permit),
        1 => sem.release(&permit.detach()).await.expect("it is held"),
        2 => sem.evict(&permit.id()).await.expect("it is held"),
        _ => permit.release().await.expect("it is held"),
    }
}

/// The same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32 % limit
    }
}
