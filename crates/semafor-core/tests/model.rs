//! A gate and a naive model of it, side by side through the same random moves.

mod moves;
#[path = "model/naive.rs"]
mod naive;

use std::time::Duration;

use naive::Naive;
use proptest::prelude::*;
use semafor_core::{Gate, Timestamp};

proptest! {
    #![proptest_config(moves::at_least(768))]

    #[test]
    fn a_gate_answers_wakes_and_looks_like_the_model_after_every_move(
        capacity in moves::capacity(),
        moves in moves::moves(),
    ) {
        let mut player = moves::Player::new(capacity);
        let mut model = Naive::new(capacity);
        for step in &moves {
            let Some(played) = player.play(step) else { continue };
            let answer = model.answer(&played);
            prop_assert_eq!(played.answer, answer, "the answer to {:?}", played.call);
            prop_assert_eq!(&played.woken, &model.take_woken(), "woken by {:?}", played.call);
            prop_assert_eq!(&played.lost, &model.take_lost(), "lost by {:?}", played.call);
            assert_looks_the_same(&player.gate, &model, played.now);
        }
    }
}

fn assert_looks_the_same(gate: &Gate<u32, u32>, model: &Naive, now: Timestamp) {
    assert_eq!(gate.capacity(), model.capacity);
    assert_eq!(gate.held(), model.held());
    assert_eq!(gate.waiting(), model.line.len());
    assert_eq!(gate.is_closed(), model.closed);
    assert_eq!(gate.last_token(), model.last_token);
    assert_eq!(gate.next_deadline(), model.next_deadline());
    assert_eq!(gate.may_start_lease(), model.line.iter().any(|waiter| waiter.ttl.is_some()));
    let nobody_here = model.holders.is_empty() && model.line.is_empty() && model.words.is_empty();
    assert_eq!(gate.is_idle(), nobody_here);

    let mut expected: Vec<_> = model.holders.iter().collect();
    expected.sort_by_key(|holder| holder.id.slot());
    let expected: Vec<_> = expected.iter().map(|h| (h.id, h.weight, h.since, h.expires, h.tag)).collect();
    let holders: Vec<_> = gate.holders().map(|h| (h.id, h.weight, h.since, h.expires, *h.tag)).collect();
    assert_eq!(holders, expected, "holders by slot number");

    let expected: Vec<_> = model.line.iter().map(|w| (w.weight, w.since, w.tag)).collect();
    let waiters: Vec<_> = gate.waiters().map(|w| (w.weight, w.since, *w.tag)).collect();
    assert_eq!(waiters, expected, "the line");

    let stats = gate.stats(now);
    assert_eq!(stats.capacity, model.capacity);
    assert_eq!(stats.held, model.held());
    assert_eq!(stats.holders, model.holders.len());
    assert_eq!(stats.waiting, model.line.len());
    assert_eq!(stats.longest_wait, model.line.first().map_or(Duration::ZERO, |head| now.since(head.since)));
    assert_eq!(stats.totals, model.totals);
    assert_eq!(stats.waits, model.waits);
    assert_eq!(stats.holds, model.holds);
    assert_eq!(stats.debt(), model.held().saturating_sub(model.capacity));
}
