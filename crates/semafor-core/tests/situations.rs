//! Single situations, each with its required outcome.

use std::time::Duration;

use semafor_core::{
    Acquired, Cancelled, Claim, Effects, Evicted, Gate, Loss, NotHeld, OpenRefusal, Opened, Opening,
    PermitId, Refusal, Request, Ticket, Timestamp, ZeroSlots,
};

/// A gate whose clock counts seconds and whose waiters have names as payload and tag.
struct TestGate {
    gate: Gate<&'static str, &'static str>,
    now: Timestamp,
    effects: Effects<&'static str, &'static str>,
}

impl TestGate {
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
            other => panic!("expected {name} to queue, got {other:?}"),
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

    /// The waiters woken since the last call.
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
fn slot_numbers_are_used_again_after_a_shrink_and_a_growth() {
    let mut test = TestGate::with_slots(4);
    let ids: Vec<_> = (0..4).map(|_| test.hold(one())).collect();
    test.resize(2);
    for id in &ids[..3] {
        test.release(*id).unwrap();
    }
    let second_of_two = test.hold(one());
    assert_eq!(second_of_two.slot(), 0);
    assert!(!test.gate.would_admit(&one()));

    test.resize(5);
    let [third, fourth, fifth] = [(); 3].map(|()| test.hold(one()));
    let mut slots = [ids[3], second_of_two, third, fourth, fifth].map(PermitId::slot);
    slots.sort_unstable();
    assert_eq!(slots, [0, 1, 2, 3, 4]);
    assert_eq!(test.gate.holders().count(), 5);
}

#[test]
fn grant_gets_the_lowest_free_slot_number() {
    let mut test = TestGate::with_slots(5_000);
    let ids: Vec<_> = (0..5_000).map(|_| test.hold(one())).collect();
    assert!(ids.iter().map(|id| id.slot()).eq(0..5_000));
    for slot in [4_999, 64, 4_096, 63, 70] {
        test.release(ids[slot]).unwrap();
    }
    let again = [(); 5].map(|()| test.hold(one()).slot());
    assert_eq!(again, [63, 64, 70, 4_096, 4_999]);
}

#[test]
fn name_in_use_keeps_its_slots_and_an_idle_name_takes_the_new_number() {
    let mut test = TestGate::with_slots(2);
    let held = test.hold(for_seconds(5));
    assert_eq!(test.open(Some(3)), Err(OpenRefusal::SlotsMismatch { live: 2, asked: 3 }));
    assert_eq!(test.open(Some(2)), Ok(Opened::Joined));
    assert_eq!(test.open(None), Ok(Opened::Joined));
    assert_eq!(test.gate.slots(), 2);

    // The lease has ended by then, but no call has expired it yet.
    assert_eq!(test.at(5).open(Some(3)), Ok(Opened::Joined));
    assert_eq!(test.gate.slots(), 3);
    assert_eq!(test.effects.lost[0].id, held);
    assert_eq!(test.open(Some(0)), Err(OpenRefusal::ZeroSlots));
}

#[test]
fn closed_name_opens_again_as_a_new_gate_once_nothing_is_held() {
    let mut test = TestGate::with_slots(2);
    let held = test.hold(one());
    test.gate.set_max_waiting(7);
    test.gate.close(&mut test.effects);
    assert_eq!(test.open(None), Err(OpenRefusal::Closing { held: 1 }));
    test.release(held).unwrap();

    let opening = Opening { slots: Some(2), max_waiting: Some(7) };
    let last_token = held.fencing_token();
    assert_eq!(test.open(None), Ok(Opened::Succeeded { opening, last_token }));
    let mut successor: Gate<(), ()> = Gate::begin(8, opening, last_token).unwrap();
    let next = successor.try_acquire(&one(), (), test.now).unwrap();
    assert!(next.fencing_token() > last_token);
    assert!(test.gate.is_closed(), "handles of the old gate stay closed");
}

#[test]
fn new_name_needs_a_number_of_slots() {
    let begun =
        |slots| Gate::<(), ()>::begin(1, Opening { slots, max_waiting: None }, 0).map(|gate| gate.slots());
    assert_eq!(begun(None), Err(OpenRefusal::SlotsNotSet));
    assert_eq!(begun(Some(0)), Err(OpenRefusal::ZeroSlots));
    assert_eq!(begun(Some(3)), Ok(3));
}

#[test]
fn after_a_shrink_holders_keep_their_slots_and_new_grants_wait() {
    let mut test = TestGate::with_slots(3);
    let ids: Vec<_> = (0..3).map(|_| test.hold(one())).collect();
    let ticket = test.queue("waiter", one());
    test.resize(1);
    assert_eq!(test.gate.stats(test.now).debt(), 2);
    test.release(ids[0]).unwrap();
    test.release(ids[1]).unwrap();
    assert_eq!(test.gate.claim(ticket), Claim::Waiting);
    assert_eq!(test.gate.stats(test.now).debt(), 0);
    test.release(ids[2]).unwrap();
    assert_eq!(test.claim_granted(ticket).slot(), 0);
}

#[test]
fn gate_cannot_be_created_with_or_resized_to_zero_slots() {
    assert_eq!(Gate::<(), ()>::new(1, 0).err(), Some(ZeroSlots));
    let mut test = TestGate::with_slots(2);
    let refused = test.gate.resize(0, test.now, &mut test.effects);
    assert_eq!((refused, test.gate.slots()), (Err(ZeroSlots), 2));
}

#[test]
fn late_expire_grants_to_the_waiter_whose_deadline_was_after_the_slot_came_free() {
    let mut test = TestGate::with_slots(1);
    test.hold(for_seconds(10));
    let too_early = test.queue("gives up at 9", until(9));
    let in_time = test.queue("gives up at 11", until(11));
    let too_late = test.queue("gives up at 12", until(12));
    test.at(60).expire();
    assert_eq!(test.gate.claim(too_early), Claim::TimedOut);
    assert!(matches!(test.gate.claim(in_time), Claim::Granted { .. }));
    assert_eq!(test.gate.claim(too_late), Claim::TimedOut);
    assert_eq!(test.woken(), ["gives up at 9", "gives up at 11", "gives up at 12"]);
}

#[test]
fn slot_that_comes_free_exactly_at_a_waiters_deadline_is_granted() {
    let mut test = TestGate::with_slots(1);
    test.hold(for_seconds(10));
    let ticket = test.queue("gives up at 10", until(10));
    test.at(10).expire();
    assert!(matches!(test.gate.claim(ticket), Claim::Granted { .. }));
}

#[test]
fn leases_that_end_at_the_same_time_end_before_the_line_is_served() {
    for light_first in [true, false] {
        let mut test = TestGate::with_slots(6);
        let weights = if light_first { [1, 3] } else { [3, 1] };
        for weight in weights {
            test.hold(Request { weight, ..for_seconds(10) });
        }
        let heavy = test.queue("heavy", Request { weight: 3, ..one() });
        let light = test.queue("light", one());
        test.at(10).expire();
        assert_eq!(test.claim_granted(heavy).slot(), 0, "{weights:?}");
        assert_eq!(test.claim_granted(light).slot(), 1, "{weights:?}");
    }
}

#[test]
fn lease_ends_exactly_at_its_deadline() {
    let mut test = TestGate::with_slots(1);
    let id = test.hold(for_seconds(10));
    assert_eq!(test.gate.next_deadline(), second(10));
    test.now = Timestamp::from_nanos(second(10).as_nanos() - 1);
    test.expire();
    assert_eq!(test.gate.expiry(id), Ok(second(10)));
    test.at(10).expire();
    assert_eq!(test.gate.expiry(id), Err(NotHeld::Lost(Loss::Expired)));
}

#[test]
fn waiters_with_equal_deadlines_time_out_in_the_order_of_arrival() {
    let mut test = TestGate::with_slots(1);
    test.hold(one());
    for name in ["first", "second", "third"] {
        test.queue(name, until(5));
    }
    test.at(5).expire();
    assert_eq!(test.woken(), ["first", "second", "third"]);
}

#[test]
fn equal_deadlines_fall_due_in_the_order_of_the_line_even_in_reused_entries() {
    for reversed in [false, true] {
        let mut test = TestGate::with_slots(2);
        test.hold(one());
        let far = test.queue("far", Request { weight: 2, ..until(100) });
        let mut leavers = ["x", "y"].map(|name| test.queue(name, one()));
        if reversed {
            leavers.reverse();
        }
        for leaver in leavers {
            test.cancel(leaver);
        }
        let heavy = test.queue("heavy", Request { weight: 2, ..until(50) });
        let light = test.queue("light", until(50));
        assert_eq!(test.cancel(far), Cancelled::Left("far"));
        assert_eq!(test.woken(), [""; 0]);
        test.at(50).expire();
        assert_eq!(test.woken(), ["heavy", "light"]);
        assert_eq!(test.gate.claim(heavy), Claim::TimedOut);
        test.claim_granted(light);
    }
}

#[test]
fn equal_leases_run_out_in_the_order_in_which_they_were_granted_or_renewed() {
    let mut test = TestGate::with_slots(4);
    test.hold(for_seconds(100));
    let [first, second, third] = [(); 3].map(|()| test.hold(for_seconds(10)));
    test.renew(first, Duration::from_secs(10)).unwrap();
    test.at(10).expire();
    let lost: Vec<_> = test.effects.lost.iter().map(|lost| lost.id).collect();
    assert_eq!(lost, [second, third, first]);
}

#[test]
fn lease_of_zero_lasts_one_nanosecond() {
    let mut test = TestGate::with_slots(1);
    let id = test.at(5).hold(for_seconds(0));
    let shortest = second(5).after(Duration::from_nanos(1));
    assert_eq!(test.gate.expiry(id), Ok(shortest));
    assert_eq!(test.renew(id, Duration::ZERO), Ok(shortest));
    test.expire();
    assert_eq!(test.holders(), ["holder"]);
    test.now = shortest;
    test.expire();
    assert_eq!(test.release(id), Err(NotHeld::Lost(Loss::Expired)));
}

#[test]
fn lease_starts_with_the_grant_and_not_with_the_wait() {
    let mut test = TestGate::with_slots(1);
    let first = test.hold(one());
    let ticket = test.queue("waiter", for_seconds(10));
    test.at(8).release(first).unwrap();
    let id = test.claim_granted(ticket);
    assert_eq!(test.gate.expiry(id), Ok(second(18)));
}

#[test]
fn renewed_lease_starts_again_from_now() {
    let mut test = TestGate::with_slots(1);
    let id = test.hold(for_seconds(10));
    test.at(9);
    assert_eq!(test.renew(id, Duration::from_secs(10)), Ok(second(19)));
    test.at(18).expire();
    assert_eq!(test.holders(), ["holder"]);
    test.at(19).expire();
    assert_eq!(test.holders(), [""; 0]);
}

#[test]
fn late_renewal_fails_and_the_next_waiter_has_the_slot() {
    let mut test = TestGate::with_slots(1);
    let id = test.hold(for_seconds(10));
    test.queue("next", one());
    let renewed = test.at(10).renew(id, Duration::from_secs(10));
    assert_eq!(renewed, Err(NotHeld::Lost(Loss::Expired)));
    assert_eq!(test.holders(), ["next"]);
    assert_eq!(test.woken(), ["next"]);
}

#[test]
fn holder_that_outstays_its_grace_ends_as_evicted_not_expired() {
    let mut test = TestGate::with_slots(1);
    let id = test.hold(for_seconds(100));
    let next = test.queue("next", one());
    assert_eq!(test.at(1).evict(id, 9), Ok(Evicted::Leaving { until: second(10) }));
    assert_eq!(test.gate.is_leaving(id), Ok(true));
    assert_eq!(test.renew(id, Duration::from_secs(50)), Err(NotHeld::Lost(Loss::Evicted)));
    test.at(9).expire();
    assert_eq!(test.gate.claim(next), Claim::Waiting, "until then it keeps its slot");
    test.at(10).expire();
    test.claim_granted(next);
    assert_eq!(test.gate.expiry(id), Err(NotHeld::Lost(Loss::Evicted)));
    assert_eq!(test.gate.is_leaving(id), Err(NotHeld::Lost(Loss::Evicted)));
    let totals = test.gate.stats(test.now).totals;
    assert_eq!((totals.evicted, totals.expired), (1, 0));
    assert_eq!(test.effects.lost[0].loss, Loss::Evicted);
}

#[test]
fn lease_that_ends_within_the_grace_of_an_eviction_is_not_extended_and_ends_as_evicted() {
    let mut test = TestGate::with_slots(1);
    let id = test.hold(for_seconds(5));
    assert_eq!(test.evict(id, 9), Ok(Evicted::Leaving { until: second(5) }));
    test.at(5).expire();
    assert_eq!(test.release(id), Err(NotHeld::Lost(Loss::Evicted)));
}

#[test]
fn ended_lease_cannot_be_evicted() {
    let mut test = TestGate::with_slots(1);
    let id = test.hold(for_seconds(5));
    assert_eq!(test.at(5).evict(id, 9), Err(NotHeld::Lost(Loss::Expired)));
}

#[test]
fn release_within_the_grace_counts_as_released_and_the_next_holder_may_stay() {
    let mut test = TestGate::with_slots(1);
    let id = test.hold(one());
    test.evict(id, 9).unwrap();
    test.at(1).release(id).unwrap();
    assert_eq!(test.release(id), Err(NotHeld::Released));
    let next = test.hold(one());
    assert_eq!(test.gate.is_leaving(next), Ok(false));
    test.at(20).expire();
    assert_eq!(test.gate.expiry(next), Ok(Timestamp::NEVER));
}

#[test]
fn second_eviction_and_one_without_grace_take_the_slot_at_once() {
    let mut test = TestGate::with_slots(2);
    let (twice, at_once) = (test.hold(one()), test.hold(one()));
    assert_eq!(test.evict(twice, 9), Ok(Evicted::Leaving { until: second(9) }));
    assert_eq!(test.evict(twice, 9), Ok(Evicted::Gone));
    assert_eq!(test.evict(at_once, 0), Ok(Evicted::Gone));
    assert_eq!((test.gate.held(), test.gate.next_deadline()), (0, Timestamp::NEVER));
}

/// After the shrink its entry is not in the list of free entries, and is reused in another way.
#[test]
fn slot_of_an_evicted_holder_is_clean_after_a_shrink_and_a_growth() {
    let mut test = TestGate::with_slots(2);
    let (_low, high) = (test.hold(one()), test.hold(one()));
    test.evict(high, 9).unwrap();
    test.resize(1);
    test.at(9).expire();
    test.resize(2);
    let next = test.hold(one());
    assert_eq!((next.slot(), test.gate.is_leaving(next)), (high.slot(), Ok(false)));
    test.at(1_000).expire();
    assert_eq!(test.gate.expiry(next), Ok(Timestamp::NEVER));
}

#[test]
fn cancel_of_a_granted_unclaimed_ticket_hands_the_slot_to_the_next_waiter() {
    let mut test = TestGate::with_slots(1);
    let first = test.hold(one());
    let absent = test.queue("absent", one());
    let next = test.queue("next", one());
    test.release(first).unwrap();
    assert_eq!(test.cancel(absent), Cancelled::HandedOn);
    assert_eq!(test.woken(), ["absent", "next"]);
    let id = test.claim_granted(next);
    assert_eq!(test.gate.stats(test.now).totals.handed_on, 1);
    assert_eq!(test.release(id), Ok("next"));
    assert!(test.gate.is_idle());
}

#[test]
fn claim_of_an_ended_grant_reports_the_loss() {
    let mut test = TestGate::with_slots(1);
    let first = test.hold(one());
    let [expiring, evicted] = ["expiring", "evicted"].map(|name| test.queue(name, for_seconds(5)));
    test.release(first).unwrap();
    test.at(5).expire();
    assert_eq!(test.gate.claim(expiring), Claim::Gone(NotHeld::Lost(Loss::Expired)));

    let unclaimed = test.gate.holders().next().unwrap().id;
    test.evict(unclaimed, 0).unwrap();
    assert_eq!(test.gate.claim(evicted), Claim::Gone(NotHeld::Lost(Loss::Evicted)));
    assert!(test.gate.is_idle());
}

#[test]
fn cancel_of_an_ended_unclaimed_grant_frees_no_second_slot() {
    let mut test = TestGate::with_slots(1);
    let first = test.hold(one());
    let expiring = test.queue("expiring", for_seconds(5));
    test.release(first).unwrap();
    test.at(5).expire();
    test.hold(one());
    assert_eq!(test.cancel(expiring), Cancelled::Settled);
    assert_eq!(test.gate.held(), 1);
}

#[test]
fn ticket_is_used_up_by_one_claim_or_cancel() {
    let mut test = TestGate::with_slots(1);
    let first = test.hold(one());
    let [claimed, cancelled] = ["claimed", "cancelled"].map(|name| test.queue(name, one()));
    assert_eq!(test.cancel(cancelled), Cancelled::Left("cancelled"));
    test.release(first).unwrap();
    test.claim_granted(claimed);
    for ticket in [claimed, cancelled] {
        assert_eq!(test.gate.claim(ticket), Claim::Unknown);
        assert_eq!(test.cancel(ticket), Cancelled::Unknown);
        assert_eq!(test.gate.payload_mut(ticket), None);
    }
    assert_eq!(test.holders(), ["claimed"]);
}

#[test]
fn ticket_of_another_gate_is_unknown_and_changes_nothing() {
    let [mut ours, mut theirs] = [1, 2].map(|serial| TestGate::with_serial(serial, 1));
    let [our_id, their_id] = [ours.hold(one()), theirs.hold(one())];
    let [our_ticket, their_ticket] = [ours.queue("ours", one()), theirs.queue("theirs", one())];
    let assert_is_unknown = |ours: &mut TestGate| {
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
fn heavy_first_waiter_blocks_the_light_waiters_behind_it_until_it_is_cancelled() {
    let mut test = TestGate::with_slots(3);
    test.hold(one());
    let heavy = test.queue("heavy", weighing(3));
    test.queue("light", one());
    test.queue("light too", one());
    assert!(!test.gate.would_admit(&one()));
    assert_eq!(test.gate.try_acquire(&one(), "barger", test.now), Err(Refusal::Busy));
    assert_eq!(test.woken(), [""; 0]);
    assert_eq!(test.cancel(heavy), Cancelled::Left("heavy"));
    assert_eq!(test.woken(), ["light", "light too"]);
}

#[test]
fn heavy_first_waiter_blocks_the_light_waiters_behind_it_until_it_times_out() {
    let mut test = TestGate::with_slots(3);
    test.hold(one());
    let heavy = test.queue("heavy", Request { weight: 3, ..until(5) });
    test.queue("light", one());
    test.at(4).expire();
    assert_eq!(test.woken(), [""; 0]);
    test.at(5).expire();
    assert_eq!(test.gate.claim(heavy), Claim::TimedOut);
    assert_eq!(test.woken(), ["heavy", "light"]);
}

#[test]
fn heavy_first_waiter_gets_its_slots_once_enough_are_free() {
    let mut test = TestGate::with_slots(3);
    let ids = [test.hold(one()), test.hold(one())];
    test.queue("heavy", weighing(3));
    test.queue("light", one());
    test.release(ids[0]).unwrap();
    assert_eq!(test.woken(), [""; 0]);
    test.release(ids[1]).unwrap();
    assert_eq!(test.woken(), ["heavy"]);
}

#[test]
fn waiter_made_impossible_by_a_shrink_is_turned_away_and_the_line_moves_on() {
    let mut test = TestGate::with_slots(4);
    test.hold(one());
    let heavy = test.queue("heavy", weighing(4));
    test.queue("light", one());
    let heavy_too = test.queue("heavy too", weighing(3));
    test.resize(2);
    assert_eq!(test.gate.claim(heavy), Claim::TooHeavy { weight: 4, slots: 2 });
    assert_eq!(test.gate.claim(heavy_too), Claim::TooHeavy { weight: 3, slots: 2 });
    assert_eq!(test.woken(), ["heavy", "heavy too", "light"]);
    assert_eq!(test.holders(), ["holder", "light"]);
    assert_eq!(test.gate.stats(test.now).totals.refused, 2);
}

#[test]
fn waiter_turned_away_by_a_shrink_sees_the_slots_of_that_shrink_after_a_growth() {
    let mut test = TestGate::with_slots(4);
    test.hold(one());
    let heavy = test.queue("heavy", weighing(4));
    test.resize(2);
    test.resize(8);
    assert_eq!(test.gate.claim(heavy), Claim::TooHeavy { weight: 4, slots: 2 });
    assert_eq!(test.holders(), ["holder"]);
}

#[test]
fn close_turns_the_waiters_away_and_holders_keep_their_slots() {
    let mut test = TestGate::with_slots(1);
    let id = test.hold(for_seconds(10));
    let tickets = ["first", "second"].map(|name| test.queue(name, one()));
    test.gate.close(&mut test.effects);
    assert_eq!(test.woken(), ["first", "second"]);
    assert_eq!(tickets.map(|ticket| test.gate.claim(ticket)), [Claim::Closed; 2]);
    assert_eq!(test.gate.stats(test.now).totals.refused, 2);
    assert_eq!(test.gate.try_acquire(&one(), "late", test.now), Err(Refusal::Closed));

    assert_eq!(test.renew(id, Duration::from_secs(20)), Ok(second(20)));
    assert_eq!(test.release(id), Ok("holder"));
    assert!(test.gate.is_idle());
}

#[test]
fn granted_ticket_survives_a_close() {
    let mut test = TestGate::with_slots(1);
    let first = test.hold(one());
    let ticket = test.queue("waiter", one());
    test.release(first).unwrap();
    test.gate.close(&mut test.effects);
    test.claim_granted(ticket);
    assert_eq!(test.holders(), ["waiter"]);
}

#[test]
fn line_takes_exactly_as_many_as_its_bound_allows() {
    let mut test = TestGate::with_slots(1);
    test.hold(one());
    test.gate.set_max_waiting(2);
    test.queue("first", one());
    test.queue("second", one());
    let refused = test.gate.acquire(&one(), "third", "third", test.now, &mut test.effects);
    assert_eq!(refused, Err(Refusal::LineFull { limit: 2 }));
}

#[test]
fn id_with_another_slot_gate_or_token_frees_nothing() {
    let mut test = TestGate::with_slots(3);
    test.hold(one());
    assert_eq!(test.gate.holders().next().unwrap().id.to_string(), "1-0-1");
    for forged in ["1-1-1", "2-0-1", "1-0-2", "1-0-0", "1-ffffffff-1"] {
        assert!(test.release(forged.parse().unwrap()).is_err(), "{forged}");
    }
    assert_eq!(test.holders(), ["holder"]);
}

#[test]
fn id_of_an_earlier_gate_is_unknown_to_its_successor() {
    let mut before = TestGate::with_slots(2);
    let [released, held] = [before.hold(one()), before.hold(one())];
    before.release(released).unwrap();

    let mut test = TestGate::with_slots(2);
    test.gate.continue_after(1);
    test.gate.continue_after(before.gate.last_token());
    let first = test.hold(one());
    assert_eq!(first.fencing_token(), held.fencing_token() + 1);
    for earlier in [released, held] {
        assert_eq!(test.release(earlier), Err(NotHeld::Unknown));
    }
    assert_eq!(test.release(first), Ok("holder"));
    assert_eq!(test.release(first), Err(NotHeld::Released));
}

#[test]
fn gate_still_knows_its_ids_after_its_tokens_moved_ahead() {
    let mut test = TestGate::with_slots(1);
    let id = test.hold(one());
    test.gate.continue_after(100);
    assert_eq!(test.release(id), Ok("holder"));
    assert_eq!(test.release(id), Err(NotHeld::Released));
    assert_eq!(test.hold(one()).fencing_token(), 101);
}

#[test]
fn wait_is_zero_when_time_runs_backwards() {
    let mut test = TestGate::with_slots(1);
    let first = test.at(10).hold(one());
    let ticket = test.queue("waiter", one());
    test.at(9);
    assert_eq!(test.gate.stats(test.now).longest_wait, Duration::ZERO);
    test.release(first).unwrap();
    assert!(matches!(test.gate.claim(ticket), Claim::Granted { waited: Duration::ZERO, .. }));
}

const BURST: u32 = 3_000;

#[test]
fn stale_ids_are_recognised_after_thousands_of_holders() {
    let mut test = TestGate::with_slots(BURST);
    let mut burst: Vec<_> = (0..BURST).map(|_| test.hold(for_seconds(60))).collect();
    let evicted = burst.pop().unwrap();
    test.evict(evicted, 0).unwrap();
    for id in &burst {
        test.release(*id).unwrap();
    }
    assert!(test.gate.is_idle());
    assert_eq!(test.gate.next_deadline(), Timestamp::NEVER);

    let again = test.hold(for_seconds(60));
    assert!(again.fencing_token() > evicted.fencing_token());
    for id in &burst {
        assert_eq!(test.release(*id), Err(NotHeld::Released));
    }
    assert_eq!(test.release(evicted), Err(NotHeld::Lost(Loss::Evicted)));
    assert_eq!(test.gate.held(), 1);
    assert_eq!(test.gate.next_deadline(), second(60));
    let rest: Vec<_> = (1..BURST).map(|_| test.hold(one()).slot()).collect();
    assert!(rest.iter().all(|slot| *slot < BURST && *slot != again.slot()));
}

#[test]
fn loss_is_never_reported_as_a_release_after_many_losses() {
    let mut test = TestGate::with_slots(BURST);
    let ids: Vec<_> = (0..BURST).map(|_| test.hold(for_seconds(10))).collect();
    test.at(10).expire();
    assert_eq!(test.effects.lost.len(), BURST as usize);
    assert_eq!(test.gate.held(), 0);
    for id in &ids {
        let why = test.release(*id).unwrap_err();
        assert!(why.is_expired() || why == NotHeld::Unknown, "{why:?}");
    }
    let [first, .., last] = ids[..] else { panic!("a burst") };
    assert_eq!(test.release(first), Err(NotHeld::Unknown));
    assert_eq!(test.release(last), Err(NotHeld::Lost(Loss::Expired)));
}

#[test]
fn stale_tickets_are_recognised_after_thousands_of_waiters() {
    let mut test = TestGate::with_slots(1);
    let first = test.hold(one());
    let burst: Vec<_> = (0..BURST).map(|_| test.queue("burst", until(60))).collect();
    let (cancelled, granted) = burst.split_at(burst.len() / 2);
    for ticket in cancelled {
        assert_eq!(test.cancel(*ticket), Cancelled::Left("burst"));
    }
    test.release(first).unwrap();
    for ticket in granted {
        let id = test.claim_granted(*ticket);
        test.release(id).unwrap();
    }
    assert!(test.gate.is_idle());
    assert_eq!(test.gate.next_deadline(), Timestamp::NEVER);

    test.hold(one());
    let waiting = test.queue("afterwards", until(70));
    for ticket in &burst {
        assert_eq!(test.gate.claim(*ticket), Claim::Unknown);
        assert_eq!(test.cancel(*ticket), Cancelled::Unknown);
        assert_eq!(test.gate.payload_mut(*ticket), None);
    }
    assert_eq!(test.gate.claim(waiting), Claim::Waiting);
    assert_eq!(test.gate.next_deadline(), second(70));
    test.at(70).expire();
    assert_eq!(test.gate.claim(waiting), Claim::TimedOut);
}

#[test]
fn unclaimed_grant_can_be_claimed_after_the_rest_of_a_burst_left() {
    let mut test = TestGate::with_slots(1);
    let first = test.hold(one());
    let burst: Vec<_> = (0..BURST).map(|_| test.queue("burst", until(60))).collect();
    let [absent, cancelled @ ..] = &burst[..] else { panic!("a burst") };
    test.release(first).unwrap();
    for ticket in cancelled {
        assert_eq!(test.cancel(*ticket), Cancelled::Left("burst"));
    }
    assert!(!test.gate.is_idle());
    let id = test.claim_granted(*absent);
    test.release(id).unwrap();
    assert!(test.gate.is_idle());
}

#[test]
fn payload_of_a_request_that_did_not_queue_is_returned() {
    let mut test = TestGate::with_slots(1);
    let granted = test.gate.acquire(&Request::default(), "granted", "", test.now, &mut test.effects);
    assert!(matches!(granted, Ok(Acquired::Granted(_))));
    assert_eq!(test.effects.unused.take(), Some("granted"));

    let heavy = Request { weight: 2, ..Request::default() };
    assert!(test.gate.acquire(&heavy, "refused", "", test.now, &mut test.effects).is_err());
    assert_eq!(test.effects.unused.take(), Some("refused"));

    test.queue("queued", Request::default());
    assert_eq!(test.effects.unused, None);
}

#[test]
fn take_if_free_does_not_overtake_the_line_and_counts_no_refusal() {
    let mut test = TestGate::with_slots(2);
    let take = |test: &mut TestGate, weight| {
        test.gate.take_if_free(&Request { weight, ..Request::default() }, "taker", test.now)
    };
    assert!(take(&mut test, 1).is_some());
    assert!(take(&mut test, 2).is_none(), "only one is left");
    test.queue("heavy", Request { weight: 2, ..Request::default() });
    assert!(take(&mut test, 1).is_none(), "a waiter is in line");
    assert!(take(&mut test, 0).is_none() && take(&mut test, 3).is_none());
    test.gate.close(&mut test.effects);
    assert!(take(&mut test, 1).is_none());
    let totals = test.gate.stats(test.now).totals;
    assert_eq!((totals.granted, totals.refused), (1, 1), "the waiter that the close turned away");
}

#[test]
fn reserved_slot_keeps_its_number_and_is_not_granted_again() {
    let mut test = TestGate::with_slots(4);
    let reserved = test.gate.reserve(2, 1, "before", test.now).expect("it can be counted");
    assert_eq!(reserved.slot(), 2);
    let others: Vec<u32> = (0..3).map(|_| test.hold(one()).slot()).collect();
    assert_eq!(others, [0, 1, 3]);
    assert_eq!(test.gate.try_acquire(&one(), "late", test.now), Err(Refusal::Busy));
    assert_eq!(test.release(reserved), Ok("before"));
    assert_eq!(test.hold(one()).slot(), 2);
}

#[test]
fn free_number_can_be_reserved() {
    let mut test = TestGate::with_slots(4);
    let held: Vec<PermitId> = (0..4).map(|_| test.hold(one())).collect();
    for id in held {
        test.release(id).expect("it is held");
    }
    for slot in [1, 3, 0, 2] {
        assert_eq!(test.gate.reserve(slot, 1, "before", test.now).map(PermitId::slot), Some(slot));
    }
    assert_eq!(test.gate.held(), 4);
}

#[test]
fn reservations_beyond_the_slots_are_debt() {
    let mut test = TestGate::with_slots(2);
    let reserved: Vec<PermitId> =
        [5, 0, 1].map(|slot| test.gate.reserve(slot, 1, "before", test.now).expect("it is counted")).into();
    assert_eq!(reserved.iter().map(|id| id.slot()).collect::<Vec<_>>(), [5, 0, 1]);
    assert_eq!((test.gate.held(), test.gate.slots()), (3, 2));
    let waiter = test.queue("waiter", one());
    test.release(reserved[1]).expect("it is held");
    assert_eq!(test.gate.claim(waiter), Claim::Waiting, "two of two are still held");
    test.release(reserved[0]).expect("it is held");
    assert!(matches!(test.gate.claim(waiter), Claim::Granted { id, .. } if id.slot() == 0));
    test.release(reserved[2]).expect("it is held");
    assert_eq!(test.hold(one()).slot(), 1, "never a number above the slots");
}

#[test]
fn held_number_is_not_reserved_twice() {
    let mut test = TestGate::with_slots(2);
    let held = test.hold(one());
    let reserved = test.gate.reserve(held.slot(), 1, "before", test.now).expect("it is counted");
    assert_ne!(reserved.slot(), held.slot());
    assert_eq!(test.gate.held(), 2);
}

#[test]
fn uncountable_weight_is_not_reserved() {
    let mut test = TestGate::with_slots(2);
    assert_eq!(test.gate.reserve(0, 0, "nothing", test.now), None);
    let all = test.gate.reserve(u32::MAX, u32::MAX, "all", test.now).expect("it can be counted");
    assert_eq!(all.slot(), 0, "so high a number is not reserved");
    assert_eq!(test.gate.reserve(0, 1, "too much", test.now), None);
    test.release(all).expect("it is held");
    assert_eq!(test.gate.held(), 0);
}

#[test]
fn reserved_number_above_the_slots_is_not_granted_later() {
    let mut test = TestGate::with_slots(2);
    let reserved: Vec<PermitId> =
        (0..4).map(|_| test.gate.reserve(0, 1, "before", test.now).expect("it is counted")).collect();
    assert_eq!(reserved.iter().map(|id| id.slot()).collect::<Vec<_>>(), [0, 1, 2, 3]);
    for id in reserved.into_iter().rev() {
        test.release(id).expect("it is held");
    }
    let mut slots = [test.hold(one()).slot(), test.hold(one()).slot()];
    slots.sort_unstable();
    assert_eq!(slots, [0, 1]);
}

/// The fresh numbers end before a reserved number: the next number is beyond the slots.
#[test]
fn number_beyond_a_reserved_one_is_not_granted_once_the_debt_is_gone() {
    let mut test = TestGate::with_slots(2);
    let high = test.gate.reserve(1, 1, "before", test.now).expect("it is counted");
    let low = test.hold(one());
    let debt = test.gate.reserve(0, 1, "before", test.now).expect("it is counted");
    assert_eq!([high, low, debt].map(PermitId::slot), [1, 0, 2]);
    for id in [low, high, debt] {
        test.release(id).expect("it is held");
    }
    let mut slots = [test.hold(one()).slot(), test.hold(one()).slot()];
    slots.sort_unstable();
    assert_eq!(slots, [0, 1]);
}
