//! The invariants of the contract, each seen from outside and without a model.
//!
//! The sixth, constant time, is left to the benchmarks: a test would have to look at a clock.

mod moves;

use std::collections::BTreeSet;

use moves::{Answer, Call, Played, Player};
use proptest::prelude::*;
use semafor_core::{
    Acquired, Cancelled, Claim, Effects, Gate, NotHeld, PermitId, Refusal, Request, Timestamp, Totals,
};

/// What the outside sees of a gate between two moves.
#[derive(Clone, PartialEq, Debug)]
struct Scene {
    capacity: u32,
    debt: u32,
    held: u32,
    holders: Vec<(PermitId, u32, u32)>,
    /// The line, first to last: weight and tag.
    line: Vec<(u32, u32)>,
    closed: bool,
    next_deadline: Timestamp,
    totals: Totals,
}

impl Scene {
    fn of(gate: &Gate<u32, u32>) -> Self {
        let stats = gate.stats(Timestamp::default());
        Self {
            capacity: gate.capacity(),
            debt: stats.debt(),
            held: gate.held(),
            holders: gate.holders().map(|held| (held.id, held.weight, *held.tag)).collect(),
            line: gate.waiters().map(|waiter| (waiter.weight, *waiter.tag)).collect(),
            closed: gate.is_closed(),
            next_deadline: gate.next_deadline(),
            totals: stats.totals,
        }
    }

    /// Holders that are not in the `other` scene, in the order of their grants.
    fn holders_not_in(&self, other: &Self) -> Vec<(PermitId, u32, u32)> {
        let mut holders = self.holders.clone();
        holders.retain(|(id, ..)| other.holders.iter().all(|(known, ..)| known != id));
        holders.sort_by_key(|(id, ..)| id.fencing_token());
        holders
    }
}

/// Plays `moves` and shows `look` every one of them, with the scene before and after.
fn watch(
    capacity: u32,
    moves: &[moves::Move],
    mut look: impl FnMut(&Scene, &Played, &Scene, &mut Player),
) -> Player {
    let mut player = Player::new(capacity);
    let mut before = Scene::of(&player.gate);
    for step in moves {
        let Some(played) = player.play(step) else { continue };
        let after = Scene::of(&player.gate);
        look(&before, &played, &after, &mut player);
        before = after;
    }
    player
}

fn was_resized(played: &Played) -> bool {
    matches!(played.answer, Answer::Resized(Ok(())))
}

proptest! {
    #![proptest_config(moves::at_least(256))]

    #[test]
    fn invariant_1_the_weight_held_stays_within_capacity_but_for_a_debt_that_only_falls(
        capacity in moves::capacity(),
        moves in moves::moves(),
    ) {
        watch(capacity, &moves, |before, played, after, _| {
            let weights: u32 = after.holders.iter().map(|(_, weight, _)| weight).sum();
            assert_eq!(weights, after.held);
            assert_eq!(after.debt, weights.saturating_sub(after.capacity));
            if after.totals.granted > before.totals.granted {
                assert_eq!(after.debt, 0, "{played:?} granted what was not there");
            }
            if !was_resized(played) {
                assert_eq!(after.capacity, before.capacity);
                assert!(after.debt <= before.debt, "{played:?} raised the debt");
            }
        });
    }

    #[test]
    fn invariant_2_nobody_overtakes_the_line(capacity in moves::capacity(), moves in moves::moves()) {
        watch(capacity, &moves, |before, played, after, _| {
            assert!(after.line.is_sorted_by_key(|(_, tag)| *tag), "{:?}", after.line);
            let newcomers = after.holders_not_in(before);
            assert!(newcomers.is_sorted_by_key(|(.., tag)| *tag), "{newcomers:?} by {played:?}");
            if let (Some((.., last)), Some((_, first_in_line))) = (newcomers.last(), after.line.first()) {
                assert!(last < first_in_line, "{last} overtook {first_in_line} by {played:?}");
            }
        });
    }

    #[test]
    fn invariant_3_a_line_stands_only_while_its_head_does_not_fit(
        capacity in moves::capacity(),
        moves in moves::moves(),
    ) {
        watch(capacity, &moves, |_, played, after, _| {
            if let Some((weight, tag)) = after.line.first() {
                let free = after.capacity.saturating_sub(after.held);
                assert!(*weight > free, "{tag} waits for {weight} of {free} free after {played:?}");
            }
        });
    }

    #[test]
    fn invariant_4_every_grant_ends_exactly_once_and_a_drained_gate_is_as_good_as_new(
        capacity in moves::capacity(),
        moves in moves::moves(),
    ) {
        let mut live = BTreeSet::new();
        let mut ended = BTreeSet::new();
        let mut told = Vec::new();
        let mut player = watch(capacity, &moves, |_, played, after, _| {
            let Totals { granted, released, expired, evicted, handed_on, .. } = after.totals;
            let holders = after.holders.len();
            assert_eq!(granted, released + expired + evicted + handed_on + holders as u64, "{played:?}");
            let now_live: BTreeSet<_> = after.holders.iter().map(|(id, ..)| *id).collect();
            ended.extend(live.difference(&now_live).copied());
            assert!(ended.is_disjoint(&now_live), "{played:?} brought a grant back");
            assert_eq!(ended.len() as u64, granted - holders as u64, "{played:?}");
            live = now_live;
            if let Answer::Tried(Ok(id))
            | Answer::Acquired(Ok(Acquired::Granted(id)))
            | Answer::Claimed(Claim::Granted { id, .. }) = played.answer
            {
                told.push(id);
            }
        });
        let mut effects = Effects::default();
        for ticket in std::mem::take(&mut player.open_tickets) {
            let _ = player.gate.cancel(ticket, player.now, &mut effects);
        }
        for id in told {
            let _ = player.gate.release(id, player.now, &mut effects);
        }
        prop_assert!(player.gate.is_idle());
        prop_assert_eq!(player.gate.held(), 0);
        prop_assert_eq!(player.gate.next_deadline(), Timestamp::NEVER);
        let everything = Request { weight: player.gate.capacity(), ..Request::default() };
        let taken = player.gate.try_acquire(&everything, 0, player.now);
        prop_assert_eq!(taken.is_ok(), !player.gate.is_closed());
    }

    #[test]
    fn invariant_5_a_second_release_frees_nothing_and_says_how_the_grant_ended(
        capacity in moves::capacity(),
        moves in moves::moves(),
    ) {
        let mut endings = Vec::new();
        watch(capacity, &moves, |before, played, after, player| {
            if let (Call::Release(id), Answer::Released(Ok(_))) = (played.call, played.answer) {
                endings.push((id, NotHeld::Released));
            }
            endings.extend(played.lost.iter().map(|(id, loss, _)| (*id, NotHeld::Lost(*loss))));
            if let Answer::Released(Err(_)) | Answer::Evicted(Err(_)) = played.answer {
                assert_eq!(before, after);
            }
            let mut effects = Effects::default();
            for (id, why) in &endings {
                assert_eq!(player.gate.release(*id, played.now, &mut effects), Err(*why));
                assert_eq!(player.gate.evict(*id, played.now, &mut effects), Err(*why));
            }
            assert!(effects.wake.is_empty() && effects.lost.is_empty());
            assert_eq!(&Scene::of(&player.gate), after);
        });
    }

    #[test]
    fn invariant_7_an_impossible_request_fails_at_once_and_nobody_waits_in_vain(
        capacity in moves::capacity(),
        moves in moves::moves(),
    ) {
        watch(capacity, &moves, |before, played, after, _| {
            let possible = |(weight, _): &(u32, u32)| (1..=after.capacity).contains(weight);
            assert!(after.line.iter().all(possible), "{:?} of {}", after.line, after.capacity);
            assert!(!after.closed || after.line.is_empty());
            let (Call::Acquire { request, .. } | Call::TryAcquire { request, .. }) = played.call else {
                return;
            };
            let refusal = match played.answer {
                Answer::Acquired(answer) => answer.err(),
                Answer::Tried(answer) => answer.err(),
                _ => None,
            };
            let Request { weight, .. } = request;
            let capacity = before.capacity;
            if before.closed {
                assert_eq!(refusal, Some(Refusal::Closed));
            } else if weight == 0 {
                assert_eq!(refusal, Some(Refusal::ZeroWeight));
            } else if weight > capacity {
                assert_eq!(refusal, Some(Refusal::TooHeavy { weight, capacity }));
            } else {
                assert!(matches!(refusal, None | Some(Refusal::Busy | Refusal::LineFull { .. })));
            }
        });
    }

    #[test]
    fn invariant_8_slot_numbers_are_below_the_capacity_and_unique_among_live_holders(
        capacity in moves::capacity(),
        moves in moves::moves(),
    ) {
        watch(capacity, &moves, |before, played, after, _| {
            let slots: BTreeSet<_> = played.holders.iter().map(|(id, ..)| id.slot()).collect();
            assert_eq!(slots.len(), played.holders.len(), "{played:?}");
            let given_up = match played.answer {
                Answer::Released(Ok(_)) | Answer::Cancelled(Cancelled::HandedOn) => 1,
                _ => played.lost.len(),
            };
            let gone = before.holders_not_in(after);
            assert_eq!(gone.len(), given_up, "{played:?} put another holder on a slot of {gone:?}");
            for (id, ..) in after.holders_not_in(before) {
                assert!(id.slot() < after.capacity, "{id} of {} by {played:?}", after.capacity);
            }
        });
    }

    #[test]
    fn whoever_leaves_the_line_is_woken_once_unless_it_left_by_itself(
        capacity in moves::capacity(),
        moves in moves::moves(),
    ) {
        let mut woken = BTreeSet::new();
        watch(capacity, &moves, |before, played, after, _| {
            let left = before.line.iter().filter(|waiter| !after.line.contains(waiter)).count();
            let by_itself = matches!(played.answer, Answer::Cancelled(Cancelled::Left(_)));
            let turned = left - usize::from(by_itself);
            assert_eq!(played.woken.len(), turned, "{played:?}");
            for name in &played.woken {
                assert!(woken.insert(*name), "{name} was woken twice");
            }
        });
    }

    #[test]
    fn a_fencing_token_is_above_all_that_were_issued_before(
        capacity in moves::capacity(),
        moves in moves::moves(),
    ) {
        let mut newest = 0;
        watch(capacity, &moves, |before, played, after, _| {
            if let Call::ContinueAfter(token) = played.call {
                newest = newest.max(token);
            }
            for (id, ..) in after.holders_not_in(before) {
                assert!(id.fencing_token() > newest, "{id} after token {newest} by {played:?}");
                newest = id.fencing_token();
            }
        });
    }
}
