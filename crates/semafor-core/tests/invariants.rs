//! The invariants of the contract, each seen from outside and without a model.
//!
//! The sixth, constant time, is left to the benchmarks: a test would have to look at a clock.

mod moves;

use std::collections::BTreeSet;
use std::time::Duration;

use moves::{Answer, Call, Game, Holding, Played, Player, Scene};
use proptest::prelude::*;
use semafor_core::{Acquired, Cancelled, Claim, Effects, NotHeld, Refusal, Request, Timestamp, Totals};

/// Plays the game and shows `look` every move, with the scene before it.
fn watch(game: &Game, mut look: impl FnMut(&Scene, &Played, &mut Player)) -> Player {
    let mut player = Player::new(game.capacity);
    let mut before = Scene::of(&player.gate);
    for step in &game.moves {
        if let Some(played) = player.play(step) {
            look(&before, &played, &mut player);
            before = played.after;
        }
    }
    player
}

/// Who holds in `scene` and not in the `other`, in the order of the grants.
fn holders_only_in(scene: &Scene, other: &Scene) -> Vec<Holding> {
    let mut holders = scene.holders.clone();
    holders.retain(|holder| other.holders.iter().all(|known| known.id != holder.id));
    holders.sort_by_key(|holder| holder.id.fencing_token());
    holders
}

proptest! {
    #![proptest_config(moves::at_least(256))]

    #[test]
    fn invariant_1_the_weight_held_stays_within_capacity_but_for_a_debt_that_only_falls(game in moves::game()) {
        watch(&game, |before, played, _| {
            let after = &played.after;
            let weights: u32 = after.holders.iter().map(|holder| holder.weight).sum();
            assert_eq!(weights, after.held);
            assert_eq!(after.debt, weights.saturating_sub(after.capacity));
            if after.totals.granted > before.totals.granted {
                assert_eq!(after.debt, 0, "{played:?} granted what was not there");
            }
            if !matches!(played.answer, Answer::Resized(Ok(()))) {
                assert_eq!(after.capacity, before.capacity);
                assert!(after.debt <= before.debt, "{played:?} raised the debt");
            }
        });
    }

    #[test]
    fn invariant_2_nobody_overtakes_the_line(game in moves::game()) {
        watch(&game, |before, played, _| {
            let line = &played.after.line;
            assert!(line.is_sorted_by_key(|waiter| waiter.tag), "{line:?}");
            let newcomers = holders_only_in(&played.after, before);
            assert!(newcomers.is_sorted_by_key(|holder| holder.tag), "{newcomers:?} by {played:?}");
            if let (Some(last), Some(first_in_line)) = (newcomers.last(), line.first()) {
                assert!(last.tag < first_in_line.tag, "{last:?} overtook {first_in_line:?} by {played:?}");
            }
        });
    }

    #[test]
    fn invariant_3_a_line_stands_only_while_its_head_does_not_fit(game in moves::game()) {
        watch(&game, |_, played, _| {
            let after = &played.after;
            if let Some(head) = after.line.first() {
                let free = after.capacity.saturating_sub(after.held);
                assert!(head.weight > free, "{head:?} waits, with {free} free after {played:?}");
            }
        });
    }

    #[test]
    fn invariant_4_every_grant_ends_exactly_once_and_a_drained_gate_is_as_good_as_new(game in moves::game()) {
        let mut live = BTreeSet::new();
        let mut ended = BTreeSet::new();
        let mut told = Vec::new();
        let mut player = watch(&game, |_, played, _| {
            let Totals { granted, released, expired, evicted, handed_on, .. } = played.after.totals;
            let now_live: BTreeSet<_> = played.after.holders.iter().map(|holder| holder.id).collect();
            let holders = now_live.len() as u64;
            assert_eq!(granted, released + expired + evicted + handed_on + holders, "{played:?}");
            ended.extend(live.difference(&now_live).copied());
            assert!(ended.is_disjoint(&now_live), "{played:?} brought a grant back");
            assert_eq!(ended.len() as u64, granted - holders, "{played:?}");
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
    fn invariant_5_a_second_release_frees_nothing_and_says_how_the_grant_ended(game in moves::game()) {
        let mut endings = Vec::new();
        watch(&game, |before, played, player| {
            if let (Call::Release(id), Answer::Released(Ok(_))) = (played.call, played.answer) {
                endings.push((id, NotHeld::Released));
            }
            endings.extend(played.lost.iter().map(|(id, loss, _)| (*id, NotHeld::Lost(*loss))));
            if let Answer::Released(Err(_)) | Answer::Evicted(Err(_)) = played.answer {
                assert_eq!(before, &played.after);
            }
            let mut effects = Effects::default();
            for (id, why) in &endings {
                assert_eq!(player.gate.release(*id, played.now, &mut effects), Err(*why));
                assert_eq!(player.gate.evict(*id, played.now, &mut effects), Err(*why));
            }
            assert!(effects.is_empty());
            assert_eq!(Scene::of(&player.gate), played.after);
        });
    }

    #[test]
    fn invariant_7_an_impossible_request_fails_at_once_and_nobody_waits_in_vain(game in moves::game()) {
        watch(&game, |before, played, _| {
            let after = &played.after;
            let mut weights = after.line.iter().map(|waiter| waiter.weight);
            assert!(weights.all(|weight| (1..=after.capacity).contains(&weight)), "{played:?}");
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
    fn invariant_8_slot_numbers_are_below_the_capacity_and_unique_among_live_holders(game in moves::game()) {
        watch(&game, |before, played, _| {
            let after = &played.after;
            let slots: BTreeSet<_> = after.holders.iter().map(|holder| holder.id.slot()).collect();
            assert_eq!(slots.len(), after.holders.len(), "{played:?}");
            let given_up = match played.answer {
                Answer::Released(Ok(_)) | Answer::Cancelled(Cancelled::HandedOn) => 1,
                _ => played.lost.len(),
            };
            let gone = holders_only_in(before, after);
            assert_eq!(gone.len(), given_up, "{played:?} put another holder on a slot of {gone:?}");
            for Holding { id, .. } in holders_only_in(&played.after, before) {
                assert!(id.slot() < after.capacity, "{id} of {} by {played:?}", after.capacity);
            }
        });
    }

    #[test]
    fn whoever_leaves_the_line_is_woken_once_unless_it_left_by_itself(game in moves::game()) {
        let mut woken = BTreeSet::new();
        watch(&game, |before, played, _| {
            let after = &played.after;
            let left = before.line.iter().filter(|waiter| !after.line.contains(waiter)).count();
            let by_itself = matches!(played.answer, Answer::Cancelled(Cancelled::Left(_)));
            assert_eq!(played.woken.len(), left - usize::from(by_itself), "{played:?}");
            for name in &played.woken {
                assert!(woken.insert(*name), "{name} was woken twice");
            }
        });
    }

    #[test]
    fn a_fencing_token_is_above_all_that_were_issued_before(game in moves::game()) {
        let mut newest = 0;
        watch(&game, |before, played, _| {
            if let Call::ContinueAfter(token) = played.call {
                newest = newest.max(token);
            }
            for Holding { id, .. } in holders_only_in(&played.after, before) {
                assert!(id.fencing_token() > newest, "{id} after token {newest} by {played:?}");
                newest = id.fencing_token();
            }
        });
    }

    #[test]
    fn the_stats_of_a_gate_agree_with_what_it_shows(game in moves::game()) {
        watch(&game, |_, played, player| {
            let Scene { capacity, held, holders, line, .. } = &played.after;
            let stats = player.gate.stats(played.now);
            assert_eq!((stats.capacity, stats.held), (*capacity, *held));
            assert_eq!((stats.holders, stats.waiting), (holders.len(), line.len()));
            assert_eq!(player.gate.waiting(), line.len());
            let longest_wait = line.first().map_or(Duration::ZERO, |first| played.now.since(first.since));
            assert_eq!(stats.longest_wait, longest_wait);
        });
    }
}
