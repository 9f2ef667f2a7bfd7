//! The random steps of the comparison with the core.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use semafor_core::Opening;

use crate::redis::script::model::request::{AcquireRequest, EndReason};

#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) ticks: u64,
    pub(super) action: Action,
    /// The reply is lost, and the request is repeated.
    pub(super) again: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Action {
    Acquire {
        request: AcquireRequest,
        is_try: bool,
    },
    /// Repeats a request, long after its reply was lost.
    AskAgain(Which),
    /// Cancels a request that has not arrived yet.
    CancelEarly(AcquireRequest),
    /// Such a request arrives.
    ArriveLate(Index),
    End {
        which: Which,
        reason: EndReason,
        by_another: bool,
    },
    Renew(Which, Option<u64>),
    Look(Which),
    Ping(Vec<Index>),
    Resize(u32),
    Open(Opening),
    Close,
    Sweep,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Which {
    Live(Index),
    Seen(Index),
}

#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) slots: u32,
    pub(super) steps: Vec<Step>,
}

pub(super) fn steps() -> impl Strategy<Value = Run> {
    let ticks = prop_oneof![8 => 0..=2u64, 1 => 3..=30u64];
    let step = (ticks, action(), prop::bool::weighted(0.25));
    let step = step.prop_map(|(ticks, action, again)| Step { ticks, action, again });
    // Large weights have fewer members than slots.
    let scale = prop_oneof![2 => Just(1), 1 => Just(40)];
    (1..=6u32, scale, vec(step, 1..80)).prop_map(|(slots, scale, steps)| {
        let steps =
            steps.into_iter().map(|step| Step { action: step.action.scaled(scale), ..step }).collect();
        Run { slots: slots * scale, steps }
    })
}

impl Action {
    fn scaled(self, scale: u32) -> Self {
        let heavier = |request: AcquireRequest| AcquireRequest { weight: request.weight * scale, ..request };
        match self {
            Self::Acquire { request, is_try } => Self::Acquire { request: heavier(request), is_try },
            Self::CancelEarly(request) => Self::CancelEarly(heavier(request)),
            Self::Resize(slots) => Self::Resize(slots * scale),
            Self::Open(opening) => {
                Self::Open(Opening { slots: opening.slots.map(|slots| slots * scale), ..opening })
            }
            action => action,
        }
    }
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        45 => (request(), prop::bool::weighted(0.2)).prop_map(|(request, is_try)| Action::Acquire { request, is_try }),
        5 => which().prop_map(Action::AskAgain),
        2 => request().prop_map(Action::CancelEarly),
        3 => any::<Index>().prop_map(Action::ArriveLate),
        40 => (which(), reason(), any::<bool>())
            .prop_map(|(which, reason, by_another)| Action::End { which, reason, by_another }),
        10 => (which(), ttl()).prop_map(|(which, ttl)| Action::Renew(which, ttl)),
        8 => which().prop_map(Action::Look),
        6 => vec(any::<Index>(), 1..5).prop_map(Action::Ping),
        12 => (1..=8u32).prop_map(Action::Resize),
        8 => opening().prop_map(Action::Open),
        1 => Just(Action::Close),
        12 => Just(Action::Sweep),
    ]
}

fn opening() -> impl Strategy<Value = Opening> {
    let slots = prop_oneof![1 => Just(None), 1 => (1..=8u32).prop_map(Some)];
    let bound = prop_oneof![1 => Just(None), 2 => prop_oneof![0..=5usize, Just(1_000)].prop_map(Some)];
    (slots, bound).prop_map(|(slots, max_waiting)| Opening { slots, max_waiting })
}

fn request() -> impl Strategy<Value = AcquireRequest> {
    let weight = prop_oneof![3 => Just(1), 2 => 1..=5u32];
    // No grace, one that ends during the run, and one that may outlast it.
    let grace =
        prop_oneof![4 => Just(None), 4 => (1..=6u64).prop_map(Some), 2 => (30..=700u64).prop_map(Some)];
    (weight, ttl(), grace).prop_map(|(weight, ttl, grace)| AcquireRequest { weight, ttl, grace })
}

fn ttl() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![8 => Just(None), 8 => (1..=20u64).prop_map(Some), 1 => (600..=700u64).prop_map(Some)]
}

fn which() -> impl Strategy<Value = Which> {
    prop_oneof![5 => any::<Index>().prop_map(Which::Live), 2 => any::<Index>().prop_map(Which::Seen)]
}

fn reason() -> impl Strategy<Value = EndReason> {
    prop_oneof![
        6 => Just(EndReason::Released),
        4 => Just(EndReason::Evicted),
        3 => Just(EndReason::Cancelled),
        2 => Just(EndReason::TimedOut)
    ]
}
