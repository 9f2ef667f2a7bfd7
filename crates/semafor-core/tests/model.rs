//! A gate and a naive model of it, side by side through the same random moves.

mod moves;
#[path = "model/naive.rs"]
mod naive;

use moves::Player;
use naive::Naive;
use proptest::prelude::*;

proptest! {
    #![proptest_config(moves::at_least(768))]

    #[test]
    fn a_gate_answers_wakes_and_looks_like_the_model_after_every_move(game in moves::game()) {
        let mut player = Player::new(game.slots);
        let mut model = Naive::new(game.slots);
        for step in &game.moves {
            let Some(played) = player.play(step) else { continue };
            let answer = model.answer(&played);
            prop_assert_eq!(played.answer, answer, "the answer to {:?}", played.call);
            prop_assert_eq!(&played.woken, &model.take_woken(), "woken by {:?}", played.call);
            prop_assert_eq!(&played.lost, &model.take_lost(), "lost by {:?}", played.call);
            prop_assert_eq!(&played.after, &model.snapshot(), "after {:?}", played.call);
        }
    }
}
