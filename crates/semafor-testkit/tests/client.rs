//! The client of the remote homes under a clock that stands still, with a server in the same thread: what it does about each
//! thing that can happen to a message.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use semafor::__client::{
    AcquireRequest, Call, Client, Command, Event, Failure, Grant, Instant, Key, LeaseEnd, Liveness,
    OperationError, Push, Reply, Retry, ServerClock, ServerPushes, Settings, Target, TaskKey, Wait,
    unreachable,
};
use semafor::{AcquireError, Loss, NotHeld};
use semafor_testkit::client::{HEARTBEAT, World, seconds};

const SECOND: Duration = Duration::from_secs(1);

/// A process that holds the only slot.
fn with_holder(processes: usize) -> (World, Key) {
    let mut world = World::new(processes, 1);
    let key = world.acquire(0, None, Wait::Unlimited);
    world.settle();
    assert!(matches!(world.poll(0, key), Poll::Ready(Ok(_))), "it is free");
    (world, key)
}

fn is_held(world: &World, process: usize, key: Key) -> bool {
    why_not_held(world, process, key).is_none()
}

fn why_not_held(world: &World, process: usize, key: Key) -> Option<NotHeld> {
    world.processes[process].client.why_not_held(key, world.now)
}

/// Nothing is left, neither at the clients nor at the server.
fn assert_nothing_left(world: &World) {
    for process in &world.processes {
        assert!(process.client.is_empty(), "{:#?}", process.client);
    }
    assert_eq!((world.server.held(), world.server.waiting()), (0, 0));
}

fn asks(world: &World, process: usize) -> Vec<&Command> {
    world.processes[process].requests.iter().map(|(call, _)| &call.command).collect()
}

#[test]
fn a_free_slot_takes_one_call_and_its_release_another() {
    let mut world = World::new(1, 1);
    let key = world.acquire(0, None, Wait::Unlimited);
    assert_eq!(world.processes[0].requests.len(), 1);
    world.settle();
    assert!(matches!(world.poll(0, key), Poll::Ready(Ok(_))));
    let release = world.with(0, |client, now| client.release(key, now));
    assert_eq!(world.processes[0].requests.len(), 1);
    world.settle();
    let noop = std::task::Waker::noop().clone();
    assert_eq!(world.with(0, |client, _| client.poll_operation(release, noop)), Poll::Ready(Ok(())));
    assert_nothing_left(&world);
}

#[test]
fn a_waiter_sends_nothing_and_is_told_of_its_grant() {
    let (mut world, held) = with_holder(2);
    let key = world.acquire(1, None, Wait::Unlimited);
    world.settle();
    assert!(world.poll(1, key).is_pending());
    assert_eq!(asks(&world, 1).len(), 0);
    world.with(0, |client, now| client.drop_lease(held, now));
    world.execute(0);
    assert!(world.hear(1), "the grant is pushed");
    assert!(matches!(world.poll(1, key), Poll::Ready(Ok(_))));
    assert_eq!(asks(&world, 1).len(), 0, "and needs no call");
}

#[test]
fn a_lost_reply_is_asked_for_again_and_gives_one_slot() {
    let mut world = World::new(1, 2);
    let key = world.acquire(0, None, Wait::Unlimited);
    world.execute(0);
    world.lose_next(0);
    assert!(world.poll(0, key).is_pending());
    world.advance(SECOND);
    let (call, _) = world.processes[0].requests.front().expect("it asks again");
    assert!(call.is_repeat);
    world.settle();
    let Poll::Ready(Ok(acquired)) = world.poll(0, key) else { panic!("it is granted") };
    assert_eq!((acquired.slot, world.server.held()), (0, 1));
    world.with(0, |client, now| client.drop_lease(key, now));
    world.settle();
    assert_nothing_left(&world);
}

#[test]
fn a_call_is_tried_as_often_as_said_and_then_fails() {
    let mut world = World::new(1, 1);
    let key = world.acquire(0, None, Wait::Unlimited);
    for attempt in 1..=3 {
        assert!(world.poll(0, key).is_pending(), "attempt {attempt}");
        world.lose_next(0);
        world.advance(Duration::from_millis(500));
    }
    let Poll::Ready(Err(AcquireError::Home(error))) = world.poll(0, key) else { panic!("it fails") };
    assert!(error.is_unreachable());
    world.settle();
    assert_nothing_left(&world);
}

#[test]
fn a_grant_that_comes_after_a_cancel_is_given_back() {
    let mut world = World::new(1, 1);
    let key = world.acquire(0, None, Wait::Unlimited);
    world.execute(0);
    world.with(0, |client, now| client.cancel(key, now));
    world.settle();
    assert_nothing_left(&world);
}

/// The two overtake each other on their way.
#[test]
fn a_request_that_arrives_after_its_own_cancel_gets_nothing() {
    let mut world = World::new(1, 1);
    let key = world.acquire(0, None, Wait::Unlimited);
    let request = world.processes[0].requests.pop_front().expect("it asks");
    world.with(0, |client, now| client.cancel(key, now));
    world.settle();
    world.processes[0].requests.push_back(request);
    world.settle();
    assert_nothing_left(&world);
}

#[test]
fn a_request_that_was_never_sent_needs_no_cancel() {
    let mut world = World::new(1, 1);
    world.cut(0);
    let key = world.acquire(0, None, Wait::Unlimited);
    world.with(0, |client, now| client.cancel(key, now));
    assert!(world.processes[0].client.is_empty());
}

/// The connection came while its user was leaving.
#[test]
fn a_request_that_is_sent_after_its_user_has_left_is_given_back() {
    let mut world = World::new(1, 1);
    world.cut(0);
    let key = world.acquire(0, None, Wait::Unlimited);
    world.with(0, |client, now| client.cancel(key, now));
    world.connect(0);
    assert!(world.execute(0), "it was on its way");
    assert_eq!(world.server.held(), 1);
    world.settle();
    assert_nothing_left(&world);
}

#[test]
fn a_grant_may_be_told_before_the_place_in_line() {
    let (mut world, held) = with_holder(2);
    let key = world.acquire(1, None, Wait::Unlimited);
    // Only so can a message be dated.
    let earlier = world.acquire(1, None, Wait::No);
    world.execute(1);
    world.execute(1);
    let queued = world.processes[1].replies.pop_front().expect("it is queued");
    world.arrive(1);
    assert!(matches!(world.poll(1, earlier), Poll::Ready(Err(AcquireError::Busy))));
    world.with(0, |client, now| client.drop_lease(held, now));
    world.execute(0);
    world.hear(1);
    assert!(matches!(world.poll(1, key), Poll::Ready(Ok(_))));
    world.processes[1].replies.push_back(queued);
    world.settle();
    assert!(is_held(&world, 1, key), "the older answer changes nothing");
}

#[test]
fn a_grant_that_is_told_twice_is_one_grant() {
    let (mut world, held) = with_holder(2);
    let key = world.acquire(1, None, Wait::Unlimited);
    world.settle();
    world.with(0, |client, now| client.drop_lease(held, now));
    world.execute(0);
    world.hear(1);
    let Poll::Ready(Ok(acquired)) = world.poll(1, key) else { panic!("it is granted") };
    let clock = ServerClock::new(seconds(world.now), world.now, world.now);
    let grant = Grant {
        id: Arc::clone(&acquired.id),
        slot: acquired.slot,
        token: acquired.token,
        waited: acquired.waited,
        slots: None,
        clock,
        ends: LeaseEnd::AfterTtl,
        safe_until: world.now + HEARTBEAT,
        python_clients: None,
    };
    world.with(1, |client, now| client.handle_push(Push::Granted { key, grant }, now));
    assert!(world.poll(1, key).is_pending(), "it is taken already");
    world.with(1, |client, now| client.drop_lease(key, now));
    world.settle();
    assert_nothing_left(&world);
}

#[test]
fn a_lost_message_is_made_up_for_by_a_heartbeat() {
    let (mut world, held) = with_holder(2);
    let key = world.acquire(1, None, Wait::Unlimited);
    world.settle();
    world.with(0, |client, now| client.drop_lease(held, now));
    world.execute(0);
    world.processes[1].pushes.clear();
    world.advance(HEARTBEAT / 5);
    world.settle();
    assert!(matches!(world.poll(1, key), Poll::Ready(Ok(_))));
}

#[test]
fn a_waiter_that_the_server_forgot_returns_to_its_old_place() {
    let (mut world, held) = with_holder(3);
    let first = world.acquire(1, None, Wait::Unlimited);
    world.settle();
    world.advance(Duration::from_millis(10));
    let second = world.acquire(2, None, Wait::Unlimited);
    world.settle();
    world.server.forget_line();
    // The second one is the first to notice.
    world.advance(HEARTBEAT / 5);
    while world.execute(2) || world.arrive(2) {}
    world.settle();
    assert_eq!(world.server.line(), [(1, first), (2, second)]);
    world.with(0, |client, now| client.drop_lease(held, now));
    world.settle();
    assert!(matches!(world.poll(1, first), Poll::Ready(Ok(_))));
    assert!(world.poll(2, second).is_pending());
}

#[test]
fn a_holder_gives_up_before_the_server_takes_its_slot_back() {
    let (mut world, key) = with_holder(2);
    let next = world.acquire(1, None, Wait::Unlimited);
    world.settle();
    world.cut(0);
    let mut told_at = None;
    for _ in 0..150 {
        world.advance(Duration::from_millis(100));
        while world.lose_next(0) {}
        while world.execute(1) || world.arrive(1) || world.hear(1) {}
        let other_has_it = matches!(world.poll(1, next), Poll::Ready(Ok(_)));
        if told_at.is_none() && !is_held(&world, 0, key) {
            told_at = Some(world.now);
            assert_eq!(why_not_held(&world, 0, key), Some(NotHeld::Lost(Loss::OutOfTouch)));
        }
        if other_has_it {
            let told_at = told_at.expect("it was told first");
            assert!(told_at < world.now);
            assert_eq!(world.processes[0].losses.len(), 1);
            return;
        }
    }
    panic!("the next one never got it");
}

#[test]
fn a_heartbeat_that_is_answered_late_counts_from_when_it_was_sent() {
    let (mut world, key) = with_holder(1);
    world.advance(HEARTBEAT / 5);
    assert!(world.execute(0), "a heartbeat");
    let sent = world.now;
    world.processes[0].requests.clear();
    // Its answer is on its way for longer than the slot is safe without it.
    let answer = world.processes[0].replies.pop_front().expect("it is answered");
    world.advance(HEARTBEAT - SECOND * 3);
    world.processes[0].requests.clear();
    assert!(is_held(&world, 0, key));
    world.processes[0].replies.push_back(answer);
    world.arrive(0);
    let safe_until = world.processes[0].client.safe_until(key).expect("it is held");
    assert_eq!(safe_until, sent + HEARTBEAT);
}

#[test]
fn a_loss_is_not_undone_by_a_late_answer() {
    let (mut world, key) = with_holder(1);
    world.advance(HEARTBEAT / 5);
    world.execute(0);
    let answer = world.processes[0].replies.pop_front().expect("it is answered");
    world.advance(HEARTBEAT);
    world.processes[0].requests.clear();
    assert_eq!(why_not_held(&world, 0, key), Some(NotHeld::Lost(Loss::OutOfTouch)));
    world.processes[0].replies.push_back(answer);
    world.arrive(0);
    assert!(!is_held(&world, 0, key));
}

#[test]
fn a_lease_ends_here_while_there_is_no_connection() {
    let mut world = World::new(1, 1);
    let key = world.acquire(0, Some(SECOND), Wait::Unlimited);
    world.settle();
    assert!(matches!(world.poll(0, key), Poll::Ready(Ok(_))));
    world.cut(0);
    world.advance(SECOND);
    assert_eq!(why_not_held(&world, 0, key), Some(NotHeld::Lost(Loss::Expired)));
    assert_eq!(world.processes[0].losses.len(), 1, "its holder was told");
    world.with(0, |client, now| client.drop_lease(key, now));
    while world.lose_next(0) {}
    world.connect(0);
    world.advance(SECOND * 5);
    world.settle();
    world.advance(SECOND * 5);
    world.settle();
    assert_nothing_left(&world);
}

#[test]
fn a_renewal_whose_answer_is_lost_may_have_shortened_the_lease() {
    let mut world = World::new(1, 1);
    let key = world.acquire(0, Some(HEARTBEAT), Wait::Unlimited);
    world.settle();
    let Poll::Ready(Ok(acquired)) = world.poll(0, key) else { panic!("it is free") };
    let target = Arc::clone(&world.processes[0].target);
    world.with(0, |client, now| client.renew(&target, &acquired.id, Some(SECOND * 2), now));
    let asked = world.now;
    world.execute(0);
    world.lose_next(0);
    let ends = world.processes[0].client.expires_at(key).expect("it has an end");
    // A little earlier, because the server's clock may run faster.
    assert!(ends <= asked + SECOND * 2 && ends > asked + SECOND * 19 / 10, "{ends:?}");
}

#[test]
fn a_renewal_by_another_process_is_heard_of_before_the_lease_ends() {
    let mut world = World::new(2, 1);
    let key = world.acquire(0, Some(SECOND * 4), Wait::Unlimited);
    world.settle();
    let Poll::Ready(Ok(acquired)) = world.poll(0, key) else { panic!("it is free") };
    let target = Arc::clone(&world.processes[1].target);
    world.with(1, |client, now| client.renew(&target, &acquired.id, Some(SECOND * 8), now));
    world.settle();
    world.processes[0].pushes.clear();
    for _ in 0..40 {
        world.advance(Duration::from_millis(100));
        world.settle();
    }
    assert!(is_held(&world, 0, key), "it has asked");
    world.advance(SECOND * 5);
    assert_eq!(why_not_held(&world, 0, key), Some(NotHeld::Lost(Loss::Expired)));
}

#[test]
fn a_waiter_that_times_out_leaves_the_line_and_says_how_it_stands() {
    let (mut world, _held) = with_holder(2);
    let key = world.acquire(1, None, Wait::For(SECOND));
    world.settle();
    world.advance(SECOND);
    assert!(world.poll(1, key).is_pending(), "the server has to hear of it first");
    world.settle();
    let Poll::Ready(Err(AcquireError::TimedOut { held, slots, waiting, .. })) = world.poll(1, key) else {
        panic!("it timed out");
    };
    assert_eq!((held, slots, waiting), (1, 1, 0));
    assert!(world.processes[1].client.is_empty());
}

#[test]
fn a_waiter_that_times_out_at_a_silent_server_is_told_in_time() {
    let (mut world, _held) = with_holder(2);
    let key = world.acquire(1, None, Wait::For(SECOND * 3));
    world.settle();
    world.advance(SECOND * 5);
    let Poll::Ready(Err(AcquireError::Home(error))) = world.poll(1, key) else { panic!("it is told") };
    assert!(error.to_string().contains("silent"));
    // What it has there is given back as soon as the server answers.
    world.settle();
    assert_eq!(world.server.waiting(), 0);
    assert!(world.processes[1].client.is_empty());
}

/// Not after all attempts, each with its own time limit.
#[test]
fn a_try_at_a_silent_server_fails_in_time() {
    let (mut world, _held) = with_holder(2);
    let key = world.acquire(1, None, Wait::No);
    world.settle();
    let other = world.acquire(1, None, Wait::No);
    assert!(matches!(world.poll(1, key), Poll::Ready(Err(AcquireError::Busy))));
    world.advance(SECOND * 2);
    let Poll::Ready(Err(AcquireError::Home(error))) = world.poll(1, other) else { panic!("it is told") };
    assert!(error.to_string().contains("silent"));
    world.settle();
    assert!(world.processes[1].client.is_empty());
}

#[test]
fn many_that_leave_together_share_their_calls() {
    let (mut world, _held) = with_holder(2);
    for _ in 0..1_200 {
        world.acquire(1, None, Wait::For(SECOND));
    }
    world.settle();
    assert_eq!(world.server.waiting(), 1_200);
    world.advance(SECOND);
    let mut calls = 0;
    while world.execute(1) {
        calls += 1;
        world.arrive(1);
    }
    // The first goes alone. The others wait for its answer, and then for those of a batch each.
    assert_eq!((calls, world.server.waiting()), (4, 0));
}

/// In each state, with every call in flight lost: everything goes on where it was, and nothing is left in the end.
#[test]
fn a_connection_may_end_in_every_state() {
    let (mut world, held) = with_holder(2);
    let waiting = world.acquire(1, None, Wait::Unlimited);
    world.settle();
    let asking = world.acquire(1, None, Wait::Unlimited);
    let leaving = world.acquire(1, None, Wait::Unlimited);
    world.execute(1);
    world.execute(1);
    world.with(1, |client, now| client.cancel(leaving, now));
    world.cut(1);
    world.cut(0);
    assert!(is_held(&world, 0, held), "a holder keeps its slot as long as it is safe");
    world.connect(0);
    world.connect(1);
    for _ in 0..20 {
        world.settle();
        world.advance(Duration::from_millis(100));
    }
    world.settle();
    assert_eq!(world.server.line(), [(1, waiting), (1, asking)], "they wait in their old order");
    world.with(0, |client, now| client.drop_lease(held, now));
    world.settle();
    assert!(matches!(world.poll(1, waiting), Poll::Ready(Ok(_))));
    world.with(1, |client, now| client.drop_lease(waiting, now));
    world.settle();
    assert!(matches!(world.poll(1, asking), Poll::Ready(Ok(_))));
    world.with(1, |client, now| client.drop_lease(asking, now));
    world.settle();
    assert_nothing_left(&world);
}

#[test]
fn a_client_that_has_something_to_lose_connects_again_and_again() {
    let (mut world, _held) = with_holder(1);
    world.cut(0);
    let mut attempts = 0;
    for _ in 0..40 {
        world.advance(Duration::from_millis(100));
        attempts += asks(&world, 0).iter().filter(|command| matches!(command, Command::Connect)).count();
        while world.lose_next(0) {}
    }
    assert!((4..=12).contains(&attempts), "with growing pauses: {attempts}");
}

#[test]
fn an_evicted_holder_is_told() {
    let (mut world, key) = with_holder(1);
    let now = seconds(world.now);
    world.server.evict(0, now);
    // Any call makes the server speak.
    let other = world.acquire(0, None, Wait::No);
    world.settle();
    assert_eq!(why_not_held(&world, 0, key), Some(NotHeld::Lost(Loss::Evicted)));
    assert!(matches!(world.poll(0, other), Poll::Ready(Ok(_))));
}

#[test]
fn a_detached_permit_is_kept_alive_until_it_is_released_by_its_id() {
    let (mut world, key) = with_holder(1);
    let id = world.processes[0].client.latest_detached(TaskKey::current(), "it", world.now);
    assert_eq!(id, None);
    world.with(0, |client, now| client.detach(key, TaskKey::current(), Some(Box::new("kept")), now));
    for _ in 0..30 {
        world.advance(SECOND);
        world.settle();
    }
    assert_eq!(world.server.held(), 1);
    let id =
        world.processes[0].client.latest_detached(TaskKey::current(), "it", world.now).expect("it is held");
    let target = Arc::clone(&world.processes[0].target);
    let released = world
        .with(0, |client, now| client.end_by_id(&target, &id, semafor::__client::EndReason::Released, now));
    world.settle();
    let noop = std::task::Waker::noop().clone();
    assert_eq!(world.with(0, |client, _| client.poll_operation(released, noop)), Poll::Ready(Ok(())));
    world.advance(SECOND);
    world.settle();
    assert_nothing_left(&world);
}

/// The answer of a call that a bug, or a server of another version, has mixed up.
#[test]
fn an_answer_to_another_question_fails_the_acquire_and_leaves_nothing() {
    let mut world = World::new(1, 1);
    let key = world.acquire(0, None, Wait::Unlimited);
    let (call, _): (Call, _) = world.processes[0].requests.pop_front().expect("it asks");
    world.with(0, |client, now| client.handle_reply(call, Reply::Done, now));
    assert!(matches!(world.poll(0, key), Poll::Ready(Err(AcquireError::Home(_)))));
    world.settle();
    assert_nothing_left(&world);
}

/// The future is dropped between its wake-up and the next poll.
#[test]
fn a_failure_that_its_user_never_looks_at_leaves_nothing() {
    let mut world = World::new(1, 1);
    let key = world.acquire(0, None, Wait::Unlimited);
    for _ in 1..=3 {
        world.lose_next(0);
        world.advance(Duration::from_millis(500));
    }
    world.with(0, |client, now| client.cancel(key, now));
    world.settle();
    let noop = std::task::Waker::noop().clone();
    assert!(world.with(0, |client, _| client.poll_gone(key, noop)).is_ready(), "`leave` ends");
    assert_nothing_left(&world);
}

/// While the client asks the server to end a lease that has ended here, the server is emptied.
#[test]
fn an_answer_without_a_deadline_does_not_stop_the_sweeps_for_an_ended_lease() {
    let mut world = World::new(1, 2);
    let leased = world.acquire(0, Some(SECOND), Wait::Unlimited);
    let held = world.acquire(0, None, Wait::Unlimited);
    // The server counts the time to live from a little later.
    world.advance(Duration::from_millis(100));
    world.settle();
    assert!(matches!(world.poll(0, leased), Poll::Ready(Ok(_))));
    assert!(matches!(world.poll(0, held), Poll::Ready(Ok(_))));
    world.advance(Duration::from_millis(910));
    world.settle();
    assert_eq!(why_not_held(&world, 0, leased), Some(NotHeld::Lost(Loss::Expired)));
    let now = seconds(world.now);
    world.server.evict(0, now);
    world.server.evict(1, now);
    world.with(0, |client, now| client.handle_push(Push::AllForgotten, now));
    world.settle();
    world.with(0, |client, now| client.drop_lease(leased, now));
    world.with(0, |client, now| client.drop_lease(held, now));
    for _ in 0..20 {
        world.settle();
        world.advance(SECOND);
    }
    world.settle();
    assert_nothing_left(&world);
}

/// The message is read at once, the answer by a task that has to be woken first.
#[test]
fn an_eviction_that_is_heard_before_the_grant_is_not_forgotten() {
    let mut world = World::new(2, 1);
    let key = world.acquire(0, None, Wait::Unlimited);
    world.execute(0);
    let now = seconds(world.now);
    world.server.evict(0, now);
    let other = world.acquire(1, None, Wait::Unlimited);
    world.execute(1);
    assert!(world.hear(0), "the eviction is pushed");
    world.arrive(0);
    world.arrive(1);
    assert!(matches!(world.poll(1, other), Poll::Ready(Ok(_))));
    let polled = world.poll(0, key);
    assert!(
        !matches!(polled, Poll::Ready(Ok(_))) || !is_held(&world, 0, key),
        "another holds it: {polled:?}"
    );
}

/// The same for a waiter: its semaphore is closed right after it took its place.
#[test]
fn a_close_that_is_heard_before_the_place_in_line_is_not_forgotten() {
    let (mut world, _held) = with_holder(2);
    let key = world.acquire(1, None, Wait::Unlimited);
    world.execute(1);
    let closed = Push::WaiterRemoved { key, why: semafor::__client::NotInLine::Closed };
    world.with(1, |client, now| client.handle_push(closed, now));
    world.arrive(1);
    assert!(
        asks(&world, 1).iter().any(|command| matches!(command, Command::CheckWaiter { .. })),
        "{:?}",
        asks(&world, 1)
    );
}

/// It is no news to the process that has just released it, and nothing to be warned of.
#[test]
fn a_detached_permit_that_is_released_by_its_id_is_not_a_loss() {
    let (mut world, key) = with_holder(1);
    world.with(0, |client, now| client.detach(key, TaskKey::current(), None, now));
    let id =
        world.processes[0].client.latest_detached(TaskKey::current(), "it", world.now).expect("it is held");
    let target = Arc::clone(&world.processes[0].target);
    world.with(0, |client, now| client.end_by_id(&target, &id, semafor::__client::EndReason::Released, now));
    world.settle();
    assert!(world.processes[0].losses.is_empty(), "{:?}", world.processes[0].losses);
}

/// A client that holds a slot of an agent.
fn with_agent(now: Instant) -> (Client, Key) {
    with_slot(Liveness::Connection { reply_timeout: 12 * SECOND }, None, now)
}

fn with_slot(liveness: Liveness, ttl: Option<Duration>, now: Instant) -> (Client, Key) {
    let mut client = Client::new(Settings {
        liveness,
        retry: Retry { attempts: 1, multiplier: 1.0, shortest: SECOND, longest: SECOND },
        reply_timeout: 10 * SECOND,
        no_reply_error: unreachable("the agent is silent"),
    });
    client.connected(ServerPushes::default(), now);
    let target = Arc::new(Target::new("it", Some(1), None, 100 * SECOND, []));
    let key = client.acquire(&target, AcquireRequest::new(1, ttl, Wait::Unlimited), now);
    let call = client.poll_transmit(now).expect("it asks");
    let (clock, ends) = (ServerClock::new(0.0, now, now), LeaseEnd::AfterTtl);
    let (id, waited, slots) = ("an id".into(), Duration::ZERO, Some(1));
    let grant = Grant {
        id,
        slot: 0,
        token: 1,
        waited,
        slots,
        clock,
        ends,
        safe_until: now + SECOND,
        python_clients: None,
    };
    client.handle_reply(call, Reply::Granted(grant), now);
    assert!(client.poll_acquire(key, std::task::Waker::noop().clone()).is_ready());
    (client, key)
}

/// The server's reply and its message of the loss come in any order.
#[test]
fn a_renewal_that_finds_the_slot_lost_tells_its_holder() {
    let now = Instant::at(1_000 * SECOND);
    let (mut client, key) = with_agent(now);
    let target = Arc::new(Target::new("it", Some(1), None, Duration::ZERO, []));
    let expired = NotHeld::Lost(Loss::Expired);
    let renewal = client.renew(&target, "an id", Some(SECOND), now);
    let call = client.poll_transmit(now).expect("it asks");
    client.handle_reply(call, Reply::NotHeld(expired), now);
    let outcome = client.poll_operation(renewal, std::task::Waker::noop().clone());
    assert_eq!(outcome, Poll::Ready(Err(OperationError::NotHeld(expired))));
    assert_eq!(client.why_not_held(key, now), Some(expired));
    let mut events = std::iter::from_fn(|| client.poll_event());
    assert!(events.any(|event| matches!(event, Event::Lost { why, .. } if why == expired)));
}

/// The agent keeps it without this client. The next agent must not be asked to keep its slot occupied.
#[test]
fn a_renewal_that_finds_a_detached_lease_ended_leaves_nothing() {
    let now = Instant::at(1_000 * SECOND);
    let (mut client, key) = with_slot(Liveness::Connection { reply_timeout: 12 * SECOND }, Some(SECOND), now);
    client.detach(key, TaskKey::current(), None, now);
    while client.poll_transmit(now).is_some() {}
    let target = Arc::new(Target::new("it", Some(1), None, Duration::ZERO, []));
    let later = now + 5 * SECOND;
    let expired = NotHeld::Lost(Loss::Expired);
    let renewal = client.renew(&target, "an id", Some(SECOND), later);
    let call = client.poll_transmit(later).expect("it asks");
    client.handle_reply(call, Reply::NotHeld(expired), later);
    let outcome = client.poll_operation(renewal, std::task::Waker::noop().clone());
    assert_eq!(outcome, Poll::Ready(Err(OperationError::NotHeld(expired))));
    assert!(client.is_idle(), "no connection is needed for it");
    client.disconnected(Vec::new(), later);
    client.connected(ServerPushes::default(), later);
    let calls: Vec<_> = std::iter::from_fn(|| client.poll_transmit(later)).collect();
    assert!(!calls.iter().any(|call| matches!(call.command, Command::Reclaim { .. })), "{calls:?}");
    assert!(client.is_empty());
}

/// As after a heartbeat: a message would have come if another process had released it.
#[test]
fn a_renewal_at_a_server_that_forgot_the_slot_says_that_it_vanished() {
    let now = Instant::at(1_000 * SECOND);
    let (mut client, key) = with_slot(Liveness::Heartbeats, None, now);
    let target = Arc::new(Target::new("it", Some(1), None, 100 * SECOND, []));
    client.renew(&target, "an id", Some(SECOND), now);
    let call = std::iter::from_fn(|| client.poll_transmit(now))
        .find(|call| matches!(call.command, Command::Renew { .. }))
        .expect("it asks");
    client.handle_reply(call, Reply::NotHeld(NotHeld::Released), now);
    assert_eq!(client.why_not_held(key, now), Some(NotHeld::Lost(Loss::Vanished)));
}

/// The server forgets late attempts, too: otherwise the release of every such grant would slow it down.
#[test]
fn a_release_mentions_a_lost_attempt_only_while_it_may_arrive() {
    for (later, is_mentioned) in [(59 * SECOND, true), (61 * SECOND, false)] {
        let now = Instant::at(1_000 * SECOND);
        let mut client = Client::new(Settings {
            liveness: Liveness::Heartbeats,
            retry: Retry { attempts: 2, multiplier: 1.0, shortest: SECOND, longest: SECOND },
            reply_timeout: 10 * SECOND,
            no_reply_error: unreachable("the server is silent"),
        });
        client.connected(ServerPushes::default(), now);
        let target = Arc::new(Target::new("it", Some(1), None, 1_000 * SECOND, []));
        let key = client.acquire(&target, AcquireRequest::new(1, None, Wait::Unlimited), now);
        let call = client.poll_transmit(now).expect("it asks");
        let error = unreachable("the connection ended");
        client.handle_failure(call, &Failure { error, is_transient: true, was_sent: true }, now);
        let then = now + later;
        client.cancel(key, then);
        let mut calls = std::iter::from_fn(|| client.poll_transmit(then));
        let leavers = calls.find_map(|call| match call.command {
            Command::End { leavers } => Some(leavers),
            _ => None,
        });
        let mentioned = leavers.expect("it leaves").iter().any(|leaver| leaver.has_lost_attempt);
        assert_eq!(mentioned, is_mentioned, "{later:?} later");
    }
}

/// One that is stopped, say: it is alive, and its connection stays.
#[test]
fn a_release_fails_if_the_agent_does_not_answer() {
    let now = Instant::at(1_000 * SECOND);
    let (mut client, key) = with_agent(now);
    let noop = || std::task::Waker::noop().clone();
    let release = client.release(key, now);
    assert!(matches!(client.poll_transmit(now), Some(Call { command: Command::Release { .. }, .. })));
    client.handle_timeout(now + 9 * SECOND);
    assert!(client.poll_operation(release, noop()).is_pending());
    let later = now + 10 * SECOND;
    assert_eq!(client.poll_timeout(), Some(later));
    client.handle_timeout(later);
    let outcome = client.poll_operation(release, noop());
    assert_eq!(outcome, Poll::Ready(Err(OperationError::Home(unreachable("the agent is silent")))));
    // This gets no answer.
    while let Some(call) = client.poll_transmit(later) {
        client.handle_reply(call, Reply::Done, later);
    }
    assert!(client.is_empty(), "{client:#?}");
}

/// The user's runtime ends while it carries the call, say, and there is no further attempt.
#[test]
fn a_release_that_failed_on_its_way_is_made_up_for_in_the_background() {
    let (mut world, key) = with_holder(1);
    let other = world.acquire(0, None, Wait::Unlimited);
    let (call, _) = world.processes[0].requests.pop_front().expect("it asks");
    world.with(0, |client, now| client.handle_reply(call, Reply::Done, now));
    let Poll::Ready(Err(AcquireError::Home(error))) = world.poll(0, other) else { panic!("it fails") };
    assert!(!error.is_unreachable());
    world.settle();
    let release = world.with(0, |client, now| client.release(key, now));
    for _ in 1..=3 {
        let (call, _) = world.processes[0].requests.pop_front().expect("it asks");
        let failure = Failure { error: error.clone(), is_transient: true, was_sent: true };
        world.with(0, |client, now| client.handle_failure(call, &failure, now));
        world.advance(Duration::from_millis(500));
    }
    let noop = std::task::Waker::noop().clone();
    let outcome = world.with(0, |client, _| client.poll_operation(release, noop));
    assert_eq!(outcome, Poll::Ready(Err(OperationError::Home(error))));
    world.settle();
    assert_nothing_left(&world);
}

/// The messages can't be read, because the server's clock was set forward.
#[test]
fn renewals_of_many_by_another_process_cost_one_question_each() {
    let mut world = World::new(1, 200);
    let keys: Vec<Key> = (0..200).map(|_| world.acquire(0, None, Wait::Unlimited)).collect();
    world.settle();
    for key in keys {
        assert!(matches!(world.poll(0, key), Poll::Ready(Ok(_))));
        world.with(0, |client, now| client.handle_push(Push::Renewed { key, end: None }, now));
    }
    let asked = asks(&world, 0).into_iter().map(|command| match command {
        Command::Heartbeat { holders, .. } => holders.len(),
        _ => 0,
    });
    assert_eq!(asked.sum::<usize>(), 200);
}
