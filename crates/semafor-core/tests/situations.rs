//! Single situations, each with the outcome it must have.

use std::time::Duration;

use semafor_core::{
    Acquired, Cancelled, Claim, Effects, Evicted, Gate, Loss, NotHeld, OpenRefusal, Opened, Opening,
    PermitId, Refusal, Request, Ticket, Timestamp, ZeroSlots,
};

/// A gate whose clock counts seconds and whose waiters carry their names.
struct Scene {
    gate: Gate<&'static str, &'static str>,
    now: Timestamp,
    effects: Effects<&'static str, &'static str>,
}

impl Scene {
    fn with_slots(slots: u32) -> Self {
        Self::with_serial(1, slots)
    }

    fn with_serial(serial: u32, slots: u32) -> Self {
        let gate = Gate::new(serial, slots).expect("at least one slot");
        Self { gate, now: Timestamp::default(), effects: Effects::default() }
    }

    fn at(&mut self, seconds: u64) -> &mut Self {
        self.now = second(seconds);
        self
    }

    fn hold(&mut self, request: Request) -> PermitId {
        self.gate.try_acquire(&request, "holder", self.now).expect("a slot is free")
    }

    fn queue(&mut self, name: &'static str, request: Request) -> Ticket {
        match self.gate.acquire(&request, name, name, self.now, &mut self.effects) {
            Ok(Acquired::Queued(ticket)) => ticket,
            other => panic!("{name} should queue, not {other:?}"),
        }
    }

    fn release(&mut self, id: PermitId) -> Result<&'static str, NotHeld> {
        self.gate.release(id, self.now, &mut self.effects)
    }

    fn cancel(&mut self, ticket: Ticket) -> Cancelled<&'static str> {
        self.gate.cancel(ticket, self.now, &mut self.effects)
    }

    fn expire(&mut self) {
        self.gate.expire(self.now, &mut self.effects);
    }

    fn renew(&mut self, id: PermitId, ttl: Duration) -> Result<Timestamp, NotHeld> {
        self.gate.renew(id, Some(ttl), self.now, &mut self.effects)
    }

    fn evict(&mut self, id: PermitId, grace_seconds: u64) -> Result<Evicted, NotHeld> {
        self.gate.evict(id, Duration::from_secs(grace_seconds), self.now, &mut self.effects)
    }

    fn open(&mut self, slots: Option<u32>) -> Result<Opened, OpenRefusal> {
        let opening = Opening { slots, max_waiting: None };
        self.gate.open(opening, self.now, &mut self.effects)
    }

    fn resize(&mut self, slots: u32) {
        self.gate.resize(slots, self.now, &mut self.effects).expect("not to zero");
    }

    /// Who was woken since this was last asked.
    fn woken(&mut self) -> Vec<&'static str> {
        self.effects.wake.drain(..).collect()
    }

    fn holders(&self) -> Vec<&'static str> {
        self.gate.holders().map(|held| *held.tag).collect()
    }

    fn claim_granted(&mut self, ticket: Ticket) -> PermitId {
        match self.gate.claim(ticket) {
            Claim::Granted { id, .. } => id,
            other => panic!("expected a grant, got {other:?}"),
        }
    }
}

fn second(seconds: u64) -> Timestamp {
    Timestamp::default().after(Duration::from_secs(seconds))
}

fn one() -> Request {
    Request::default()
}

fn weighing(weight: u32) -> Request {
    Request { weight, ..one() }
}

fn for_seconds(seconds: u64) -> Request {
    Request { ttl: Some(Duration::from_secs(seconds)), ..one() }
}

fn until(seconds: u64) -> Request {
    Request { deadline: second(seconds), ..one() }
}

#[test]
fn slot_numbers_below_the_capacity_are_used_again_after_a_shrink_and_a_growth() {
    let mut scene = Scene::with_slots(4);
    let ids: Vec<_> = (0..4).map(|_| scene.hold(one())).collect();
    scene.resize(2);
    for id in &ids[..3] {
        scene.release(*id).unwrap();
    }
    let second_of_two = scene.hold(one());
    assert_eq!(second_of_two.slot(), 0);
    assert!(!scene.gate.would_admit(&one()));

    scene.resize(5);
    let [third, fourth, fifth] = [(); 3].map(|()| scene.hold(one()));
    let mut slots = [ids[3], second_of_two, third, fourth, fifth].map(PermitId::slot);
    slots.sort_unstable();
    assert_eq!(slots, [0, 1, 2, 3, 4]);
    assert_eq!(scene.gate.holders().count(), 5);
}

#[test]
fn a_grant_gets_the_lowest_number_that_is_free_however_many_there_are() {
    let mut scene = Scene::with_slots(5_000);
    let ids: Vec<_> = (0..5_000).map(|_| scene.hold(one())).collect();
    assert!(ids.iter().map(|id| id.slot()).eq(0..5_000));
    for slot in [4_999, 64, 4_096, 63, 70] {
        scene.release(ids[slot]).unwrap();
    }
    let again = [(); 5].map(|()| scene.hold(one()).slot());
    assert_eq!(again, [63, 64, 70, 4_096, 4_999]);
}

#[test]
fn a_name_in_use_keeps_its_number_of_slots_and_an_idle_one_takes_another() {
    let mut scene = Scene::with_slots(2);
    let held = scene.hold(for_seconds(5));
    assert_eq!(scene.open(Some(3)), Err(OpenRefusal::SlotsMismatch { live: 2, asked: 3 }));
    assert_eq!(scene.open(Some(2)), Ok(Opened::Joined));
    assert_eq!(scene.open(None), Ok(Opened::Joined));
    assert_eq!(scene.gate.slots(), 2);

    // The lease is over by then, but no call has expired it yet.
    assert_eq!(scene.at(5).open(Some(3)), Ok(Opened::Joined));
    assert_eq!(scene.gate.slots(), 3);
    assert_eq!(scene.effects.lost[0].id, held);
    assert_eq!(scene.open(Some(0)), Err(OpenRefusal::ZeroSlots));
}

#[test]
fn a_closed_name_opens_again_as_a_new_gate_once_nothing_is_held() {
    let mut scene = Scene::with_slots(2);
    let held = scene.hold(one());
    scene.gate.set_max_waiting(7);
    scene.gate.close(&mut scene.effects);
    assert_eq!(scene.open(None), Err(OpenRefusal::Closing { held: 1 }));
    scene.release(held).unwrap();

    let opening = Opening { slots: Some(2), max_waiting: Some(7) };
    let last_token = held.fencing_token();
    assert_eq!(scene.open(None), Ok(Opened::Succeeded { opening, last_token }));
    let mut successor: Gate<(), ()> = Gate::begin(8, opening, last_token).unwrap();
    let next = successor.try_acquire(&one(), (), scene.now).unwrap();
    assert!(next.fencing_token() > last_token);
    assert!(scene.gate.is_closed(), "handles of the old gate stay closed");
}

#[test]
fn a_new_name_needs_a_number_of_slots() {
    let begun =
        |slots| Gate::<(), ()>::begin(1, Opening { slots, max_waiting: None }, 0).map(|gate| gate.slots());
    assert_eq!(begun(None), Err(OpenRefusal::SlotsNotSet));
    assert_eq!(begun(Some(0)), Err(OpenRefusal::ZeroSlots));
    assert_eq!(begun(Some(3)), Ok(3));
}

#[test]
fn a_shrink_takes_nothing_away_and_grants_nothing_until_its_debt_is_worked_off() {
    let mut scene = Scene::with_slots(3);
    let ids: Vec<_> = (0..3).map(|_| scene.hold(one())).collect();
    let ticket = scene.queue("waiter", one());
    scene.resize(1);
    assert_eq!(scene.gate.stats(scene.now).debt(), 2);
    scene.release(ids[0]).unwrap();
    scene.release(ids[1]).unwrap();
    assert_eq!(scene.gate.claim(ticket), Claim::Waiting);
    assert_eq!(scene.gate.stats(scene.now).debt(), 0);
    scene.release(ids[2]).unwrap();
    assert_eq!(scene.claim_granted(ticket).slot(), 0);
}

#[test]
fn a_gate_cannot_be_made_or_resized_to_zero_slots() {
    assert_eq!(Gate::<(), ()>::new(1, 0).err(), Some(ZeroSlots));
    let mut scene = Scene::with_slots(2);
    let refused = scene.gate.resize(0, scene.now, &mut scene.effects);
    assert_eq!((refused, scene.gate.slots()), (Err(ZeroSlots), 2));
}

#[test]
fn a_late_expire_grants_to_the_waiter_whose_deadline_was_after_the_slot_came_free() {
    let mut scene = Scene::with_slots(1);
    scene.hold(for_seconds(10));
    let too_early = scene.queue("gives up at 9", until(9));
    let in_time = scene.queue("gives up at 11", until(11));
    let too_late = scene.queue("gives up at 12", until(12));
    scene.at(60).expire();
    assert_eq!(scene.gate.claim(too_early), Claim::TimedOut);
    assert!(matches!(scene.gate.claim(in_time), Claim::Granted { .. }));
    assert_eq!(scene.gate.claim(too_late), Claim::TimedOut);
    assert_eq!(scene.woken(), ["gives up at 9", "gives up at 11", "gives up at 12"]);
}

#[test]
fn a_slot_that_comes_free_at_the_very_deadline_of_a_waiter_is_still_granted() {
    let mut scene = Scene::with_slots(1);
    scene.hold(for_seconds(10));
    let ticket = scene.queue("gives up at 10", until(10));
    scene.at(10).expire();
    assert!(matches!(scene.gate.claim(ticket), Claim::Granted { .. }));
}

#[test]
fn leases_that_end_at_the_same_time_end_before_the_line_is_served() {
    for light_first in [true, false] {
        let mut scene = Scene::with_slots(6);
        let weights = if light_first { [1, 3] } else { [3, 1] };
        for weight in weights {
            scene.hold(Request { weight, ..for_seconds(10) });
        }
        let heavy = scene.queue("heavy", Request { weight: 3, ..one() });
        let light = scene.queue("light", one());
        scene.at(10).expire();
        assert_eq!(scene.claim_granted(heavy).slot(), 0, "{weights:?}");
        assert_eq!(scene.claim_granted(light).slot(), 1, "{weights:?}");
    }
}

#[test]
fn a_deadline_has_passed_when_its_time_has_come_and_not_before() {
    let mut scene = Scene::with_slots(1);
    let id = scene.hold(for_seconds(10));
    assert_eq!(scene.gate.next_deadline(), second(10));
    scene.now = Timestamp::from_nanos(second(10).as_nanos() - 1);
    scene.expire();
    assert_eq!(scene.gate.expiry(id), Ok(second(10)));
    scene.at(10).expire();
    assert_eq!(scene.gate.expiry(id), Err(NotHeld::Lost(Loss::Expired)));
}

#[test]
fn waiters_with_one_deadline_give_up_in_the_order_they_came() {
    let mut scene = Scene::with_slots(1);
    scene.hold(one());
    for name in ["first", "second", "third"] {
        scene.queue(name, until(5));
    }
    scene.at(5).expire();
    assert_eq!(scene.woken(), ["first", "second", "third"]);
}

#[test]
fn equal_deadlines_of_waiters_fall_due_in_the_order_of_the_line_whatever_places_they_took_over() {
    for reversed in [false, true] {
        let mut scene = Scene::with_slots(2);
        scene.hold(one());
        let far = scene.queue("far", Request { weight: 2, ..until(100) });
        let mut leavers = ["x", "y"].map(|name| scene.queue(name, one()));
        if reversed {
            leavers.reverse();
        }
        for leaver in leavers {
            scene.cancel(leaver);
        }
        let heavy = scene.queue("heavy", Request { weight: 2, ..until(50) });
        let light = scene.queue("light", until(50));
        assert_eq!(scene.cancel(far), Cancelled::Left("far"));
        assert_eq!(scene.woken(), [""; 0]);
        scene.at(50).expire();
        assert_eq!(scene.woken(), ["heavy", "light"]);
        assert_eq!(scene.gate.claim(heavy), Claim::TimedOut);
        scene.claim_granted(light);
    }
}

#[test]
fn equal_leases_run_out_in_the_order_in_which_they_were_granted_or_renewed() {
    let mut scene = Scene::with_slots(4);
    scene.hold(for_seconds(100));
    let [first, second, third] = [(); 3].map(|()| scene.hold(for_seconds(10)));
    scene.renew(first, Duration::from_secs(10)).unwrap();
    scene.at(10).expire();
    let lost: Vec<_> = scene.effects.lost.iter().map(|lost| lost.id).collect();
    assert_eq!(lost, [second, third, first]);
}

#[test]
fn a_lease_of_no_time_is_granted_and_renewed_for_the_shortest_time_there_is() {
    let mut scene = Scene::with_slots(1);
    let id = scene.at(5).hold(for_seconds(0));
    let shortest = second(5).after(Duration::from_nanos(1));
    assert_eq!(scene.gate.expiry(id), Ok(shortest));
    assert_eq!(scene.renew(id, Duration::ZERO), Ok(shortest));
    scene.expire();
    assert_eq!(scene.holders(), ["holder"]);
    scene.now = shortest;
    scene.expire();
    assert_eq!(scene.release(id), Err(NotHeld::Lost(Loss::Expired)));
}

#[test]
fn a_lease_starts_with_the_grant_and_not_with_the_wait() {
    let mut scene = Scene::with_slots(1);
    let first = scene.hold(one());
    let ticket = scene.queue("waiter", for_seconds(10));
    scene.at(8).release(first).unwrap();
    let id = scene.claim_granted(ticket);
    assert_eq!(scene.gate.expiry(id), Ok(second(18)));
}

#[test]
fn a_renewed_lease_starts_again_from_now() {
    let mut scene = Scene::with_slots(1);
    let id = scene.hold(for_seconds(10));
    scene.at(9);
    assert_eq!(scene.renew(id, Duration::from_secs(10)), Ok(second(19)));
    scene.at(18).expire();
    assert_eq!(scene.holders(), ["holder"]);
    scene.at(19).expire();
    assert_eq!(scene.holders(), [""; 0]);
}

#[test]
fn a_renewal_that_comes_too_late_finds_the_slot_with_the_next_in_line() {
    let mut scene = Scene::with_slots(1);
    let id = scene.hold(for_seconds(10));
    scene.queue("next", one());
    let renewed = scene.at(10).renew(id, Duration::from_secs(10));
    assert_eq!(renewed, Err(NotHeld::Lost(Loss::Expired)));
    assert_eq!(scene.holders(), ["next"]);
    assert_eq!(scene.woken(), ["next"]);
}

#[test]
fn a_holder_that_stays_beyond_its_grace_is_evicted_and_has_not_expired() {
    let mut scene = Scene::with_slots(1);
    let id = scene.hold(for_seconds(100));
    let next = scene.queue("next", one());
    assert_eq!(scene.at(1).evict(id, 9), Ok(Evicted::Leaving { until: second(10) }));
    assert_eq!(scene.gate.is_leaving(id), Ok(true));
    assert_eq!(scene.renew(id, Duration::from_secs(50)), Err(NotHeld::Lost(Loss::Evicted)));
    scene.at(9).expire();
    assert_eq!(scene.gate.claim(next), Claim::Waiting, "until then it keeps its slot");
    scene.at(10).expire();
    scene.claim_granted(next);
    assert_eq!(scene.gate.expiry(id), Err(NotHeld::Lost(Loss::Evicted)));
    assert_eq!(scene.gate.is_leaving(id), Err(NotHeld::Lost(Loss::Evicted)));
    let totals = scene.gate.stats(scene.now).totals;
    assert_eq!((totals.evicted, totals.expired), (1, 0));
    assert_eq!(scene.effects.lost[0].loss, Loss::Evicted);
}

#[test]
fn a_lease_that_ends_within_the_grace_of_an_eviction_is_not_extended_and_ends_as_evicted() {
    let mut scene = Scene::with_slots(1);
    let id = scene.hold(for_seconds(5));
    assert_eq!(scene.evict(id, 9), Ok(Evicted::Leaving { until: second(5) }));
    scene.at(5).expire();
    assert_eq!(scene.release(id), Err(NotHeld::Lost(Loss::Evicted)));
}

#[test]
fn a_lease_that_is_over_is_not_evicted_any_more() {
    let mut scene = Scene::with_slots(1);
    let id = scene.hold(for_seconds(5));
    assert_eq!(scene.at(5).evict(id, 9), Err(NotHeld::Lost(Loss::Expired)));
}

#[test]
fn a_slot_that_is_given_back_within_the_grace_counts_as_released_and_its_next_holder_may_stay() {
    let mut scene = Scene::with_slots(1);
    let id = scene.hold(one());
    scene.evict(id, 9).unwrap();
    scene.at(1).release(id).unwrap();
    assert_eq!(scene.release(id), Err(NotHeld::Released));
    let next = scene.hold(one());
    assert_eq!(scene.gate.is_leaving(next), Ok(false));
    scene.at(20).expire();
    assert_eq!(scene.gate.expiry(next), Ok(Timestamp::NEVER));
}

#[test]
fn a_second_eviction_and_one_without_grace_take_the_slot_at_once() {
    let mut scene = Scene::with_slots(2);
    let (twice, at_once) = (scene.hold(one()), scene.hold(one()));
    assert_eq!(scene.evict(twice, 9), Ok(Evicted::Leaving { until: second(9) }));
    assert_eq!(scene.evict(twice, 9), Ok(Evicted::Gone));
    assert_eq!(scene.evict(at_once, 0), Ok(Evicted::Gone));
    assert_eq!((scene.gate.held(), scene.gate.next_deadline()), (0, Timestamp::NEVER));
}

/// Its entry is not in the list of free ones then, and comes back another way.
#[test]
fn the_slot_of_an_evicted_holder_is_as_good_as_new_after_a_shrink_and_a_growth() {
    let mut scene = Scene::with_slots(2);
    let (_low, high) = (scene.hold(one()), scene.hold(one()));
    scene.evict(high, 9).unwrap();
    scene.resize(1);
    scene.at(9).expire();
    scene.resize(2);
    let next = scene.hold(one());
    assert_eq!((next.slot(), scene.gate.is_leaving(next)), (high.slot(), Ok(false)));
    scene.at(1_000).expire();
    assert_eq!(scene.gate.expiry(next), Ok(Timestamp::NEVER));
}

#[test]
fn a_granted_ticket_that_is_cancelled_before_it_was_claimed_hands_the_slot_to_the_next() {
    let mut scene = Scene::with_slots(1);
    let first = scene.hold(one());
    let absent = scene.queue("absent", one());
    let next = scene.queue("next", one());
    scene.release(first).unwrap();
    assert_eq!(scene.cancel(absent), Cancelled::HandedOn);
    assert_eq!(scene.woken(), ["absent", "next"]);
    let id = scene.claim_granted(next);
    assert_eq!(scene.gate.stats(scene.now).totals.handed_on, 1);
    assert_eq!(scene.release(id), Ok("next"));
    assert!(scene.gate.is_idle());
}

#[test]
fn an_unclaimed_grant_that_ends_is_reported_as_gone_to_the_claimer() {
    let mut scene = Scene::with_slots(1);
    let first = scene.hold(one());
    let [expiring, evicted] = ["expiring", "evicted"].map(|name| scene.queue(name, for_seconds(5)));
    scene.release(first).unwrap();
    scene.at(5).expire();
    assert_eq!(scene.gate.claim(expiring), Claim::Gone(NotHeld::Lost(Loss::Expired)));

    let unclaimed = scene.gate.holders().next().unwrap().id;
    scene.evict(unclaimed, 0).unwrap();
    assert_eq!(scene.gate.claim(evicted), Claim::Gone(NotHeld::Lost(Loss::Evicted)));
    assert!(scene.gate.is_idle());
}

#[test]
fn the_cancel_of_an_unclaimed_grant_that_has_ended_frees_no_second_slot() {
    let mut scene = Scene::with_slots(1);
    let first = scene.hold(one());
    let expiring = scene.queue("expiring", for_seconds(5));
    scene.release(first).unwrap();
    scene.at(5).expire();
    scene.hold(one());
    assert_eq!(scene.cancel(expiring), Cancelled::Settled);
    assert_eq!(scene.gate.held(), 1);
}

#[test]
fn a_ticket_is_used_up_by_one_claim_or_cancel() {
    let mut scene = Scene::with_slots(1);
    let first = scene.hold(one());
    let [claimed, cancelled] = ["claimed", "cancelled"].map(|name| scene.queue(name, one()));
    assert_eq!(scene.cancel(cancelled), Cancelled::Left("cancelled"));
    scene.release(first).unwrap();
    scene.claim_granted(claimed);
    for ticket in [claimed, cancelled] {
        assert_eq!(scene.gate.claim(ticket), Claim::Unknown);
        assert_eq!(scene.cancel(ticket), Cancelled::Unknown);
        assert_eq!(scene.gate.payload_mut(ticket), None);
    }
    assert_eq!(scene.holders(), ["claimed"]);
}

#[test]
fn a_ticket_of_another_gate_is_unknown_and_changes_nothing() {
    let [mut ours, mut theirs] = [1, 2].map(|serial| Scene::with_serial(serial, 1));
    let [our_id, their_id] = [ours.hold(one()), theirs.hold(one())];
    let [our_ticket, their_ticket] = [ours.queue("ours", one()), theirs.queue("theirs", one())];
    let assert_is_unknown = |ours: &mut Scene| {
        assert_eq!(ours.gate.claim(their_ticket), Claim::Unknown);
        assert_eq!(ours.cancel(their_ticket), Cancelled::Unknown);
        assert_eq!(ours.gate.payload_mut(their_ticket), None);
    };
    assert_is_unknown(&mut ours);
    assert_eq!(ours.gate.claim(our_ticket), Claim::Waiting);
    ours.release(our_id).unwrap();
    theirs.release(their_id).unwrap();
    assert_is_unknown(&mut ours);
    ours.claim_granted(our_ticket);
    theirs.claim_granted(their_ticket);
}

#[test]
fn a_heavy_head_blocks_the_light_ones_behind_it_until_it_is_cancelled() {
    let mut scene = Scene::with_slots(3);
    scene.hold(one());
    let heavy = scene.queue("heavy", weighing(3));
    scene.queue("light", one());
    scene.queue("light too", one());
    assert!(!scene.gate.would_admit(&one()));
    assert_eq!(scene.gate.try_acquire(&one(), "barger", scene.now), Err(Refusal::Busy));
    assert_eq!(scene.woken(), [""; 0]);
    assert_eq!(scene.cancel(heavy), Cancelled::Left("heavy"));
    assert_eq!(scene.woken(), ["light", "light too"]);
}

#[test]
fn a_heavy_head_blocks_the_light_ones_behind_it_until_it_times_out() {
    let mut scene = Scene::with_slots(3);
    scene.hold(one());
    let heavy = scene.queue("heavy", Request { weight: 3, ..until(5) });
    scene.queue("light", one());
    scene.at(4).expire();
    assert_eq!(scene.woken(), [""; 0]);
    scene.at(5).expire();
    assert_eq!(scene.gate.claim(heavy), Claim::TimedOut);
    assert_eq!(scene.woken(), ["heavy", "light"]);
}

#[test]
fn a_heavy_head_gets_its_slots_once_enough_of_them_came_free() {
    let mut scene = Scene::with_slots(3);
    let ids = [scene.hold(one()), scene.hold(one())];
    scene.queue("heavy", weighing(3));
    scene.queue("light", one());
    scene.release(ids[0]).unwrap();
    assert_eq!(scene.woken(), [""; 0]);
    scene.release(ids[1]).unwrap();
    assert_eq!(scene.woken(), ["heavy"]);
}

#[test]
fn a_waiter_made_impossible_by_a_shrink_is_turned_away_and_the_line_moves_on() {
    let mut scene = Scene::with_slots(4);
    scene.hold(one());
    let heavy = scene.queue("heavy", weighing(4));
    scene.queue("light", one());
    let heavy_too = scene.queue("heavy too", weighing(3));
    scene.resize(2);
    assert_eq!(scene.gate.claim(heavy), Claim::TooHeavy { weight: 4, slots: 2 });
    assert_eq!(scene.gate.claim(heavy_too), Claim::TooHeavy { weight: 3, slots: 2 });
    assert_eq!(scene.woken(), ["heavy", "heavy too", "light"]);
    assert_eq!(scene.holders(), ["holder", "light"]);
    assert_eq!(scene.gate.stats(scene.now).totals.refused, 2);
}

#[test]
fn a_waiter_turned_away_by_a_shrink_learns_of_that_capacity_though_the_gate_has_grown_since() {
    let mut scene = Scene::with_slots(4);
    scene.hold(one());
    let heavy = scene.queue("heavy", weighing(4));
    scene.resize(2);
    scene.resize(8);
    assert_eq!(scene.gate.claim(heavy), Claim::TooHeavy { weight: 4, slots: 2 });
    assert_eq!(scene.holders(), ["holder"]);
}

#[test]
fn a_close_turns_the_line_away_and_leaves_holders_alone() {
    let mut scene = Scene::with_slots(1);
    let id = scene.hold(for_seconds(10));
    let tickets = ["first", "second"].map(|name| scene.queue(name, one()));
    scene.gate.close(&mut scene.effects);
    assert_eq!(scene.woken(), ["first", "second"]);
    assert_eq!(tickets.map(|ticket| scene.gate.claim(ticket)), [Claim::Closed; 2]);
    assert_eq!(scene.gate.stats(scene.now).totals.refused, 2);
    assert_eq!(scene.gate.try_acquire(&one(), "late", scene.now), Err(Refusal::Closed));

    assert_eq!(scene.renew(id, Duration::from_secs(20)), Ok(second(20)));
    assert_eq!(scene.release(id), Ok("holder"));
    assert!(scene.gate.is_idle());
}

#[test]
fn a_granted_ticket_survives_a_close() {
    let mut scene = Scene::with_slots(1);
    let first = scene.hold(one());
    let ticket = scene.queue("waiter", one());
    scene.release(first).unwrap();
    scene.gate.close(&mut scene.effects);
    scene.claim_granted(ticket);
    assert_eq!(scene.holders(), ["waiter"]);
}

#[test]
fn a_line_takes_exactly_as_many_as_its_bound_allows() {
    let mut scene = Scene::with_slots(1);
    scene.hold(one());
    scene.gate.set_max_waiting(2);
    scene.queue("first", one());
    scene.queue("second", one());
    let refused = scene.gate.acquire(&one(), "third", "third", scene.now, &mut scene.effects);
    assert_eq!(refused, Err(Refusal::LineFull { limit: 2 }));
}

#[test]
fn an_id_with_another_slot_gate_or_token_frees_nothing() {
    let mut scene = Scene::with_slots(3);
    scene.hold(one());
    assert_eq!(scene.gate.holders().next().unwrap().id.to_string(), "1-0-1");
    for forged in ["1-1-1", "2-0-1", "1-0-2", "1-0-0", "1-ffffffff-1"] {
        assert!(scene.release(forged.parse().unwrap()).is_err(), "{forged}");
    }
    assert_eq!(scene.holders(), ["holder"]);
}

#[test]
fn an_id_of_the_gate_before_is_unknown_to_the_one_that_continues_after_it() {
    let mut before = Scene::with_slots(2);
    let [released, held] = [before.hold(one()), before.hold(one())];
    before.release(released).unwrap();

    let mut scene = Scene::with_slots(2);
    scene.gate.continue_after(1);
    scene.gate.continue_after(before.gate.last_token());
    let first = scene.hold(one());
    assert_eq!(first.fencing_token(), held.fencing_token() + 1);
    for earlier in [released, held] {
        assert_eq!(scene.release(earlier), Err(NotHeld::Unknown));
    }
    assert_eq!(scene.release(first), Ok("holder"));
    assert_eq!(scene.release(first), Err(NotHeld::Released));
}

#[test]
fn a_gate_that_has_issued_ids_still_knows_them_after_its_tokens_were_moved_ahead() {
    let mut scene = Scene::with_slots(1);
    let id = scene.hold(one());
    scene.gate.continue_after(100);
    assert_eq!(scene.release(id), Ok("holder"));
    assert_eq!(scene.release(id), Err(NotHeld::Released));
    assert_eq!(scene.hold(one()).fencing_token(), 101);
}

#[test]
fn a_time_that_runs_backwards_makes_a_wait_of_zero() {
    let mut scene = Scene::with_slots(1);
    let first = scene.at(10).hold(one());
    let ticket = scene.queue("waiter", one());
    scene.at(9);
    assert_eq!(scene.gate.stats(scene.now).longest_wait, Duration::ZERO);
    scene.release(first).unwrap();
    assert!(matches!(scene.gate.claim(ticket), Claim::Granted { waited: Duration::ZERO, .. }));
}

const BURST: u32 = 3_000;

#[test]
fn stale_ids_are_recognised_after_thousands_of_holders_came_and_went() {
    let mut scene = Scene::with_slots(BURST);
    let mut burst: Vec<_> = (0..BURST).map(|_| scene.hold(for_seconds(60))).collect();
    let evicted = burst.pop().unwrap();
    scene.evict(evicted, 0).unwrap();
    for id in &burst {
        scene.release(*id).unwrap();
    }
    assert!(scene.gate.is_idle());
    assert_eq!(scene.gate.next_deadline(), Timestamp::NEVER);

    let again = scene.hold(for_seconds(60));
    assert!(again.fencing_token() > evicted.fencing_token());
    for id in &burst {
        assert_eq!(scene.release(*id), Err(NotHeld::Released));
    }
    assert_eq!(scene.release(evicted), Err(NotHeld::Lost(Loss::Evicted)));
    assert_eq!(scene.gate.held(), 1);
    assert_eq!(scene.gate.next_deadline(), second(60));
    let rest: Vec<_> = (1..BURST).map(|_| scene.hold(one()).slot()).collect();
    assert!(rest.iter().all(|slot| *slot < BURST && *slot != again.slot()));
}

#[test]
fn a_loss_is_never_called_a_release_however_many_there_were() {
    let mut scene = Scene::with_slots(BURST);
    let ids: Vec<_> = (0..BURST).map(|_| scene.hold(for_seconds(10))).collect();
    scene.at(10).expire();
    assert_eq!(scene.effects.lost.len(), BURST as usize);
    assert_eq!(scene.gate.held(), 0);
    for id in &ids {
        let why = scene.release(*id).unwrap_err();
        assert!(why.is_expired() || why == NotHeld::Unknown, "{why:?}");
    }
    let [first, .., last] = ids[..] else { panic!("a burst") };
    assert_eq!(scene.release(first), Err(NotHeld::Unknown));
    assert_eq!(scene.release(last), Err(NotHeld::Lost(Loss::Expired)));
}

#[test]
fn stale_tickets_are_recognised_after_thousands_of_waiters_came_and_went() {
    let mut scene = Scene::with_slots(1);
    let first = scene.hold(one());
    let burst: Vec<_> = (0..BURST).map(|_| scene.queue("burst", until(60))).collect();
    let (cancelled, granted) = burst.split_at(burst.len() / 2);
    for ticket in cancelled {
        assert_eq!(scene.cancel(*ticket), Cancelled::Left("burst"));
    }
    scene.release(first).unwrap();
    for ticket in granted {
        let id = scene.claim_granted(*ticket);
        scene.release(id).unwrap();
    }
    assert!(scene.gate.is_idle());
    assert_eq!(scene.gate.next_deadline(), Timestamp::NEVER);

    scene.hold(one());
    let waiting = scene.queue("afterwards", until(70));
    for ticket in &burst {
        assert_eq!(scene.gate.claim(*ticket), Claim::Unknown);
        assert_eq!(scene.cancel(*ticket), Cancelled::Unknown);
        assert_eq!(scene.gate.payload_mut(*ticket), None);
    }
    assert_eq!(scene.gate.claim(waiting), Claim::Waiting);
    assert_eq!(scene.gate.next_deadline(), second(70));
    scene.at(70).expire();
    assert_eq!(scene.gate.claim(waiting), Claim::TimedOut);
}

#[test]
fn an_unclaimed_grant_is_still_there_to_claim_after_the_rest_of_a_burst_has_gone() {
    let mut scene = Scene::with_slots(1);
    let first = scene.hold(one());
    let burst: Vec<_> = (0..BURST).map(|_| scene.queue("burst", until(60))).collect();
    let [absent, gone_at_once @ ..] = &burst[..] else { panic!("a burst") };
    scene.release(first).unwrap();
    for ticket in gone_at_once {
        assert_eq!(scene.cancel(*ticket), Cancelled::Left("burst"));
    }
    assert!(!scene.gate.is_idle());
    let id = scene.claim_granted(*absent);
    scene.release(id).unwrap();
    assert!(scene.gate.is_idle());
}

#[test]
fn what_a_request_carried_comes_back_if_it_did_not_queue() {
    let mut scene = Scene::with_slots(1);
    let granted = scene.gate.acquire(&Request::default(), "granted", "", scene.now, &mut scene.effects);
    assert!(matches!(granted, Ok(Acquired::Granted(_))));
    assert_eq!(scene.effects.unused.take(), Some("granted"));

    let heavy = Request { weight: 2, ..Request::default() };
    assert!(scene.gate.acquire(&heavy, "refused", "", scene.now, &mut scene.effects).is_err());
    assert_eq!(scene.effects.unused.take(), Some("refused"));

    scene.queue("queued", Request::default());
    assert_eq!(scene.effects.unused, None);
}

#[test]
fn taking_what_is_free_keeps_to_the_line_and_counts_no_refusal() {
    let mut scene = Scene::with_slots(2);
    let take = |scene: &mut Scene, weight| {
        scene.gate.take_if_free(&Request { weight, ..Request::default() }, "taker", scene.now)
    };
    assert!(take(&mut scene, 1).is_some());
    assert!(take(&mut scene, 2).is_none(), "only one is left");
    scene.queue("heavy", Request { weight: 2, ..Request::default() });
    assert!(take(&mut scene, 1).is_none(), "somebody is waiting");
    assert!(take(&mut scene, 0).is_none() && take(&mut scene, 3).is_none());
    scene.gate.close(&mut scene.effects);
    assert!(take(&mut scene, 1).is_none());
    let totals = scene.gate.stats(scene.now).totals;
    assert_eq!((totals.granted, totals.refused), (1, 1), "the one that was turned away by the close");
}

#[test]
fn a_reserved_slot_has_its_old_number_and_is_given_to_nobody_else() {
    let mut scene = Scene::with_slots(4);
    let reserved = scene.gate.reserve(2, 1, "before", scene.now).expect("it can be counted");
    assert_eq!(reserved.slot(), 2);
    let others: Vec<u32> = (0..3).map(|_| scene.hold(one()).slot()).collect();
    assert_eq!(others, [0, 1, 3]);
    assert_eq!(scene.gate.try_acquire(&one(), "late", scene.now), Err(Refusal::Busy));
    assert_eq!(scene.release(reserved), Ok("before"));
    assert_eq!(scene.hold(one()).slot(), 2);
}

#[test]
fn a_number_that_was_free_before_can_be_reserved() {
    let mut scene = Scene::with_slots(4);
    let held: Vec<PermitId> = (0..4).map(|_| scene.hold(one())).collect();
    for id in held {
        scene.release(id).expect("it is held");
    }
    for slot in [1, 3, 0, 2] {
        assert_eq!(scene.gate.reserve(slot, 1, "before", scene.now).map(PermitId::slot), Some(slot));
    }
    assert_eq!(scene.gate.held(), 4);
}

#[test]
fn what_is_reserved_beyond_the_capacity_is_debt() {
    let mut scene = Scene::with_slots(2);
    let reserved: Vec<PermitId> =
        [5, 0, 1].map(|slot| scene.gate.reserve(slot, 1, "before", scene.now).expect("it is counted")).into();
    assert_eq!(reserved.iter().map(|id| id.slot()).collect::<Vec<_>>(), [5, 0, 1]);
    assert_eq!((scene.gate.held(), scene.gate.slots()), (3, 2));
    let waiter = scene.queue("waiter", one());
    scene.release(reserved[1]).expect("it is held");
    assert_eq!(scene.gate.claim(waiter), Claim::Waiting, "two of two are still held");
    scene.release(reserved[0]).expect("it is held");
    assert!(matches!(scene.gate.claim(waiter), Claim::Granted { id, .. } if id.slot() == 0));
    scene.release(reserved[2]).expect("it is held");
    assert_eq!(scene.hold(one()).slot(), 1, "never a number above the capacity");
}

#[test]
fn a_number_that_is_held_is_not_reserved_twice() {
    let mut scene = Scene::with_slots(2);
    let held = scene.hold(one());
    let reserved = scene.gate.reserve(held.slot(), 1, "before", scene.now).expect("it is counted");
    assert_ne!(reserved.slot(), held.slot());
    assert_eq!(scene.gate.held(), 2);
}

#[test]
fn what_cannot_be_counted_is_not_reserved() {
    let mut scene = Scene::with_slots(2);
    assert_eq!(scene.gate.reserve(0, 0, "nothing", scene.now), None);
    let all = scene.gate.reserve(u32::MAX, u32::MAX, "all", scene.now).expect("it can be counted");
    assert_eq!(all.slot(), 0, "no number that far out");
    assert_eq!(scene.gate.reserve(0, 1, "too much", scene.now), None);
    scene.release(all).expect("it is held");
    assert_eq!(scene.gate.held(), 0);
}

#[test]
fn a_reserved_number_above_the_capacity_is_not_granted_later() {
    let mut scene = Scene::with_slots(2);
    let reserved: Vec<PermitId> =
        (0..4).map(|_| scene.gate.reserve(0, 1, "before", scene.now).expect("it is counted")).collect();
    assert_eq!(reserved.iter().map(|id| id.slot()).collect::<Vec<_>>(), [0, 1, 2, 3]);
    for id in reserved.into_iter().rev() {
        scene.release(id).expect("it is held");
    }
    let mut slots = [scene.hold(one()).slot(), scene.hold(one()).slot()];
    slots.sort_unstable();
    assert_eq!(slots, [0, 1]);
}

/// The fresh numbers end before a number that is reserved: the next one has to be found beyond the slots.
#[test]
fn a_number_beyond_a_reserved_one_is_not_granted_once_the_debt_is_gone() {
    let mut scene = Scene::with_slots(2);
    let high = scene.gate.reserve(1, 1, "before", scene.now).expect("it is counted");
    let low = scene.hold(one());
    let debt = scene.gate.reserve(0, 1, "before", scene.now).expect("it is counted");
    assert_eq!([high, low, debt].map(PermitId::slot), [1, 0, 2]);
    for id in [low, high, debt] {
        scene.release(id).expect("it is held");
    }
    let mut slots = [scene.hold(one()).slot(), scene.hold(one()).slot()];
    slots.sort_unstable();
    assert_eq!(slots, [0, 1]);
}
