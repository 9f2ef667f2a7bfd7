//! The invariants of a gate, each checked from outside and without a model.
//!
//! The benchmarks check the sixth, constant time: a test would have to read a clock.

mod moves;

use std::collections::BTreeSet;
use std::time::Duration;

use moves::{Answer, Call, Game, Holding, Played, Player, Snapshot};
use proptest::prelude::*;
use semafor_core::{
    Acquired, Cancelled, Claim, Effects, Gate, Loss, NotHeld, OpenRefusal, Opened, PermitId, Refusal,
    Request, Timestamp, Totals,
};

/// Plays the game and calls `look` after every move, with the snapshot before it.
fn watch(game: &Game, mut look: impl FnMut(&Snapshot, &Played, &mut Player)) -> Player {
    let mut player = Player::new(game.slots);
    let mut before = Snapshot::of(&player.gate);
    for step in &game.moves {
        if let Some(played) = player.play(step) {
            look(&before, &played, &mut player);
            before = played.after;
        }
    }
    player
}

/// The holders in `snapshot` that are not in `other`, in the order of the grants.
fn holders_only_in(snapshot: &Snapshot, other: &Snapshot) -> Vec<Holding> {
    let mut holders = snapshot.holders.clone();
    holders.retain(|holder| other.holders.iter().all(|known| known.id != holder.id));
    holders.sort_by_key(|holder| holder.id.fencing_token());
    holders
}

fn ends_what_is_due(call: Call) -> bool {
    matches!(call, Call::Acquire { .. } | Call::Renew(..) | Call::Evict(..) | Call::Open(_) | Call::Expire)
}

proptest! {
    #![proptest_config(moves::at_least(256))]

    #[test]
    fn invariant_1_the_weight_held_stays_within_the_slots_or_is_a_debt_that_only_falls(game in moves::game()) {
        watch(&game, |before, played, _| {
            let after = &played.after;
            let weights: u32 = after.holders.iter().map(|holder| holder.weight).sum();
            assert_eq!(weights, after.held);
            assert_eq!(after.debt, weights.saturating_sub(after.slots));
            let is_reserved = matches!(played.answer, Answer::Reserved(Some(_)));
            if after.totals.granted > before.totals.granted && !is_reserved {
                assert_eq!(after.debt, 0, "{played:?} granted what was not there");
            }
            if !matches!(played.answer, Answer::Resized(Ok(())) | Answer::Opened(Ok(_))) {
                assert_eq!(after.slots, before.slots);
                assert!(is_reserved || after.debt <= before.debt, "{played:?} raised the debt");
            }
        });
    }

    #[test]
    fn invariant_2_no_request_overtakes_the_line(game in moves::game()) {
        watch(&game, |before, played, _| {
            if let Call::Reserve { .. } = played.call {
                return; // It takes no free slot: it counts a slot that has been in use all the time.
            }
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
    fn invariant_3_waiters_wait_only_while_the_first_does_not_fit(game in moves::game()) {
        watch(&game, |_, played, _| {
            let after = &played.after;
            if let Some(head) = after.line.first() {
                let free = after.slots.saturating_sub(after.held);
                assert!(head.weight > free, "{head:?} waits, with {free} free after {played:?}");
            }
        });
    }

    #[test]
    fn invariant_4_every_grant_ends_exactly_once_and_a_drained_gate_has_all_slots_free(game in moves::game()) {
        let mut live = BTreeSet::new();
        let mut ended = BTreeSet::new();
        let mut granted_ids = Vec::new();
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
            | Answer::Reserved(Some(id))
            | Answer::Acquired(Ok(Acquired::Granted(id)))
            | Answer::Claimed(Claim::Granted { id, .. }) = played.answer
            {
                granted_ids.push(id);
            }
        });
        let mut effects = Effects::default();
        for ticket in std::mem::take(&mut player.open_tickets) {
            let _ = player.gate.cancel(ticket, player.now, &mut effects);
        }
        for id in granted_ids {
            let _ = player.gate.release(id, player.now, &mut effects);
        }
        prop_assert!(player.gate.is_idle());
        prop_assert_eq!(player.gate.held(), 0);
        prop_assert_eq!(player.gate.next_deadline(), Timestamp::NEVER);
        let everything = Request { weight: player.gate.slots(), ..Request::default() };
        let taken = player.gate.try_acquire(&everything, 0, player.now);
        prop_assert_eq!(taken.is_ok(), !player.gate.is_closed());
    }

    #[test]
    fn invariant_5_a_second_release_frees_nothing_and_reports_how_the_grant_ended(game in moves::game()) {
        let mut endings = Vec::new();
        watch(&game, |before, played, player| {
            if let (Call::Release(id), Answer::Released(Ok(_))) = (played.call, played.answer) {
                endings.push((id, NotHeld::Released));
            }
            endings.extend(played.lost.iter().map(|(id, loss, _)| (*id, NotHeld::Lost(*loss))));
            if let Answer::Released(Err(_)) = played.answer {
                assert_eq!(before, &played.after);
            }
            let mut effects = Effects::default();
            // Nothing is due then.
            let early = Timestamp::from_nanos(0);
            for (id, why) in &endings {
                assert_eq!(player.gate.release(*id, played.now, &mut effects), Err(*why));
                assert_eq!(player.gate.evict(*id, Duration::ZERO, early, &mut effects), Err(*why));
            }
            assert!(effects.is_empty());
            assert_eq!(Snapshot::of(&player.gate), played.after);
        });
    }

    #[test]
    fn invariant_7_an_impossible_request_fails_at_once_and_never_waits(game in moves::game()) {
        watch(&game, |before, played, _| {
            let after = &played.after;
            let mut weights = after.line.iter().map(|waiter| waiter.weight);
            assert!(weights.all(|weight| (1..=after.slots).contains(&weight)), "{played:?}");
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
            let slots = before.slots;
            if before.closed {
                assert_eq!(refusal, Some(Refusal::Closed));
            } else if weight == 0 {
                assert_eq!(refusal, Some(Refusal::ZeroWeight));
            } else if weight > slots {
                assert_eq!(refusal, Some(Refusal::TooHeavy { weight, slots }));
            } else {
                assert!(matches!(refusal, None | Some(Refusal::Busy | Refusal::LineFull { .. })));
            }
        });
    }

    #[test]
    fn invariant_8_slot_numbers_are_unique_and_each_grant_gets_the_lowest(game in moves::game()) {
        watch(&game, |before, played, _| {
            let after = &played.after;
            let slots: BTreeSet<_> = after.holders.iter().map(|holder| holder.id.slot()).collect();
            assert_eq!(slots.len(), after.holders.len(), "{played:?}");
            let ended = match played.answer {
                Answer::Released(Ok(_)) | Answer::Cancelled(Cancelled::HandedOn) => 1,
                _ => played.lost.len(),
            };
            let gone = holders_only_in(before, after);
            assert_eq!(gone.len(), ended, "{played:?} put another holder on a slot of {gone:?}");
            if let Call::Reserve { .. } = played.call {
                return;
            }
            let held_before: BTreeSet<_> = before.holders.iter().map(|holder| holder.id.slot()).collect();
            for Holding { id, .. } in holders_only_in(&played.after, before) {
                assert!(id.slot() < after.slots, "{id} of {} by {played:?}", after.slots);
                let was_taken = |slot: u32| slots.contains(&slot) || held_before.contains(&slot);
                assert!((0..id.slot()).all(was_taken), "a number below {id} is free after {played:?}");
            }
        });
    }

    #[test]
    fn name_in_use_keeps_its_slots_and_an_idle_name_takes_the_number_asked_for(game in moves::game()) {
        watch(&game, |before, played, _| {
            let (Call::Open(opening), Answer::Opened(answer)) = (played.call, played.answer) else { return };
            let after = &played.after;
            let asked = opening.slots.unwrap_or(before.slots);
            match answer {
                Ok(Opened::Joined) => {
                    assert_eq!(after.slots, asked);
                    assert!(!after.closed);
                    assert!(asked == before.slots || after.holders.is_empty() && after.line.is_empty());
                }
                Ok(Opened::Succeeded { opening, last_token }) => {
                    assert!(after.closed && after.held == 0);
                    assert_eq!((opening.slots, last_token), (Some(asked), after.last_token));
                }
                Err(OpenRefusal::SlotsMismatch { live, .. }) => {
                    assert_eq!(live, after.slots);
                    assert!(asked != live && after.holders.len() + after.line.len() > 0);
                }
                Err(OpenRefusal::Closing { held }) => assert!(after.closed && held == after.held && held > 0),
                Err(OpenRefusal::ZeroSlots) => assert_eq!(asked, 0),
                Err(OpenRefusal::SlotsNotSet) => panic!("the name exists"),
            }
        });
    }

    #[test]
    fn eviction_with_grace_is_final_and_never_outlasts_the_lease(game in moves::game()) {
        watch(&game, |before, played, player| {
            for leaving in before.holders.iter().filter(|holder| holder.is_leaving) {
                match played.after.holders.iter().find(|holder| holder.id == leaving.id) {
                    Some(still) => {
                        assert!(still.is_leaving, "{played:?} took the eviction back");
                        assert_eq!(still.expires, leaving.expires, "{played:?} gave it more time");
                        assert!(still.expires > played.now || !ends_what_is_due(played.call), "{played:?}");
                    }
                    None => {
                        let loss = played.lost.iter().find(|(id, ..)| *id == leaving.id);
                        let was_released = matches!(
                            played.answer,
                            Answer::Released(Ok(_)) | Answer::Cancelled(Cancelled::HandedOn)
                        );
                        assert_eq!(loss.map(|(_, loss, _)| *loss), (!was_released).then_some(Loss::Evicted));
                    }
                }
            }
            if let (Call::Evict(id, grace), Answer::Evicted(Ok(_))) = (played.call, played.answer)
                && let Some(before) = before.holders.iter().find(|holder| holder.id == id)
                && let Some(after) = played.after.holders.iter().find(|holder| holder.id == id)
            {
                assert_eq!(after.expires, before.expires.min(played.now.after(grace)));
                assert_eq!(player.gate.is_leaving(id), Ok(true));
            }
        });
    }

    #[test]
    fn waiter_that_leaves_the_line_is_woken_once_unless_it_cancelled(game in moves::game()) {
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
    fn fencing_tokens_only_grow(game in moves::game()) {
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
    fn stats_agree_with_the_gate(game in moves::game()) {
        watch(&game, |_, played, player| {
            let Snapshot { slots, held, holders, line, .. } = &played.after;
            let stats = player.gate.stats(played.now);
            assert_eq!((stats.slots, stats.held), (*slots, *held));
            assert_eq!((stats.holders, stats.waiting), (holders.len(), line.len()));
            assert_eq!(player.gate.waiting(), line.len());
            let longest_wait = line.first().map_or(Duration::ZERO, |first| played.now.since(first.since));
            assert_eq!(stats.longest_wait, longest_wait);
        });
    }
}

/// An operation on a gate that follows a gate of an earlier process.
#[derive(Clone, Copy, Debug)]
enum Succession {
    /// A grant of the earlier gate is reported: its slot number and its weight.
    Reserve(u32, u32),
    Take(u32),
    Release(usize),
    Resize(u32),
}

fn successions() -> impl Strategy<Value = Vec<Succession>> {
    let step = prop_oneof![
        3 => (0..7u32, 1..3u32).prop_map(|(slot, weight)| Succession::Reserve(slot, weight)),
        3 => (1..3u32).prop_map(Succession::Take),
        4 => (0..16usize).prop_map(Succession::Release),
        1 => (1..6u32).prop_map(Succession::Resize),
    ];
    proptest::collection::vec(step, 0..40)
}

proptest! {
    #![proptest_config(moves::at_least(8192))]

    #[test]
    fn slot_numbers_are_unique_and_below_the_slots_even_beside_reserved_slots(
        slots in 1..5u32,
        steps in successions(),
    ) {
        let mut gate = Gate::<(), ()>::new(1, slots).expect("not zero");
        let (mut effects, now) = (Effects::default(), Timestamp::default());
        let mut held: Vec<(PermitId, u32)> = Vec::new();
        for step in steps {
            match step {
                Succession::Reserve(slot, weight) => {
                    let is_free = held.iter().all(|(id, _)| id.slot() != slot);
                    let id = gate.reserve(slot, weight, (), now).expect("it can be counted");
                    prop_assert!(!is_free || id.slot() == slot, "{} for {slot}, which is free", id.slot());
                    held.push((id, weight));
                }
                Succession::Take(weight) => {
                    let request = Request { weight, ..Request::default() };
                    let fits = gate.held() + weight <= gate.slots();
                    let taken = gate.try_acquire(&request, (), now);
                    prop_assert_eq!(taken.is_ok(), fits);
                    if let Ok(id) = taken {
                        prop_assert!(id.slot() < gate.slots(), "slot {} of {}", id.slot(), gate.slots());
                        held.push((id, weight));
                    }
                }
                Succession::Release(which) if !held.is_empty() => {
                    let (id, _) = held.swap_remove(which % held.len());
                    prop_assert_eq!(gate.release(id, now, &mut effects), Ok(()));
                }
                Succession::Release(_) => {}
                Succession::Resize(slots) => gate.resize(slots, now, &mut effects).expect("not zero"),
            }
            let slots: BTreeSet<u32> = held.iter().map(|(id, _)| id.slot()).collect();
            prop_assert_eq!(slots.len(), held.len(), "two holders have the same slot");
            prop_assert_eq!(gate.held(), held.iter().map(|(_, weight)| weight).sum::<u32>());
        }
    }
}
