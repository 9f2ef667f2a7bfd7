//! The same random steps on `semafor-core` and on Redis: the scripts reply, publish and count as the core does.

mod checks;
mod steps;

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use semafor_core::{
    Acquired, Cancelled, Claim, Effects, Evicted, Gate, Loss, NotHeld, OpenRefusal, Opened, PermitId,
    Refusal, Request, Ticket, Timestamp,
};

use self::steps::{Action, Step, Which, steps};
use super::clock::{FOREVER, GRACE, NANOS_PER_TICK, START, seconds, span, ticks, time};
use super::random_runs::{run_random, with_steps};
use super::request::{AcquireRequest, EndReason, ONE_SLOT, Queue};
use super::scripts::{Operation, Scripts, Seen, id_of, number_of, texts};
use crate::redis::script::schema::ending::{CLOSED, EVICTED, EXPIRED, RELEASED, TOO_HEAVY, UNWANTED};

/// A request, as its client sees it.
struct Client {
    request: AcquireRequest,
    is_try: bool,
    /// How long it may hold from its grant or its last renewal.
    ttl: Option<u64>,
    state: State,
    /// If its request still arrives, it is refused: it was cancelled before it arrived, or its repetition has ended.
    is_unwanted: bool,
    /// Its request was repeated, so its first attempt may still arrive.
    is_repeated: bool,
    arrived: u64,
    /// Slot, token, and how long it waited.
    got: Option<(u32, u64, u64)>,
    /// The score of its place in line.
    place: String,
}

#[derive(Clone, Copy)]
enum State {
    NotYet,
    /// In line, or settled without the client knowing it.
    Waits(Ticket),
    /// Granted; the grant may have ended.
    Has(PermitId),
    Over(i64),
}

/// The same steps on the core and on Redis.
struct Comparison<'a> {
    scripts: &'a mut Scripts,
    gate: Gate<usize, usize>,
    effects: Effects<usize, usize>,
    clients: Vec<Client>,
    last_token: u64,
    /// Waiters that timed out. The core counts them as cancelled.
    timed_out: u64,
    /// Requests that arrived after their end, and were refused.
    late_requests: u64,
    /// Losses that the core does not report and the scripts do: holders whose slot another process released, and holders
    /// that were evicted and have their grace.
    reported_by_scripts_only: Vec<(usize, i64)>,
}

/// The expected reply to a step.
type Reply = Vec<String>;

impl Comparison<'_> {
    fn now(&self) -> Timestamp {
        time(self.scripts.now)
    }

    fn expire(&mut self) {
        self.gate.expire(time(self.scripts.now), &mut self.effects);
    }

    fn is_waiting(&self, number: usize) -> bool {
        self.gate.waiters().any(|waiter| *waiter.tag == number)
    }

    fn holds(&self, number: usize) -> bool {
        self.gate.holders().any(|holder| *holder.tag == number)
    }

    /// It was evicted, and keeps its slot until its grace ends.
    fn is_leaving(&self, number: usize) -> bool {
        self.gate.holders().any(|holder| *holder.tag == number && holder.is_leaving)
    }

    fn new_client(&mut self, request: AcquireRequest, is_try: bool) -> usize {
        self.clients.push(Client {
            request,
            is_try,
            ttl: request.ttl,
            state: State::NotYet,
            is_unwanted: false,
            is_repeated: false,
            arrived: self.scripts.now,
            got: None,
            place: String::new(),
        });
        self.clients.len() - 1
    }

    fn pick(&self, which: Which) -> Option<usize> {
        let seen: Vec<_> = match which {
            Which::Live(_) => {
                let line = self.gate.waiters().map(|waiter| *waiter.tag);
                self.gate.holders().map(|holder| *holder.tag).chain(line).collect()
            }
            Which::Seen(_) => (0..self.clients.len()).collect(),
        };
        let (Which::Live(index) | Which::Seen(index)) = which;
        (!seen.is_empty()).then(|| *index.get(&seen))
    }

    /// Claims the outcome of a client's place in line.
    fn settle(&mut self, number: usize) {
        let State::Waits(ticket) = self.clients[number].state else { return };
        self.clients[number].state = match self.gate.claim(ticket) {
            Claim::Waiting => return,
            Claim::Granted { id, .. } => State::Has(id),
            Claim::Gone(why) => State::Over(code(why)),
            Claim::Closed => State::Over(CLOSED),
            Claim::TooHeavy { .. } => State::Over(TOO_HEAVY),
            claim => panic!("{claim:?}"),
        };
    }

    /// How a client ended that does not wait, and holds nothing or is evicted.
    fn ending(&mut self, number: usize) -> i64 {
        self.settle(number);
        match self.clients[number].state {
            _ if self.clients[number].is_unwanted => UNWANTED,
            _ if self.is_leaving(number) => EVICTED,
            State::Over(code) => code,
            State::Has(id) => self.gate.expiry(id).map_or_else(code, |_| panic!("it holds something")),
            State::NotYet | State::Waits(_) => RELEASED,
        }
    }

    /// A script's reply for a new grant.
    fn granted(&self, number: usize) -> Option<Reply> {
        let (slot, token, waited) = self.clients[number].got?;
        let (slots, now) = (self.gate.slots(), seconds(self.scripts.now));
        Some(texts([&"granted", &slots, &0, &slot, &token, &seconds(waited), &now, &0]))
    }

    /// A script's reply for an earlier grant: with the end of the lease.
    fn confirmed(&self, number: usize) -> Option<Reply> {
        let mut reply = self.granted(number)?;
        reply.push(self.lease_end(number));
        Some(reply)
    }

    /// When the lease of a holder ends. Empty if never.
    fn lease_end(&self, number: usize) -> String {
        let holder = self.gate.holders().find(|holder| *holder.tag == number);
        let expires = holder.map_or(Timestamp::NEVER, |holder| holder.expires);
        if expires == Timestamp::NEVER { String::new() } else { seconds(expires.as_nanos() / NANOS_PER_TICK) }
    }

    /// A client has received its grant. `check_keys` compares its slot with the core's.
    fn note_grant(&mut self, number: usize, slot: &str, token: &str) -> TestCaseResult {
        let (slot, token) = (slot.parse().expect("a slot"), token.parse().expect("a token"));
        prop_assert!(token > self.last_token, "token {} after {}", token, self.last_token);
        self.last_token = token;
        let client = &mut self.clients[number];
        client.got = Some((slot, token, self.scripts.now - client.arrived));
        Ok(())
    }

    /// Runs a script, and applies its messages.
    fn run(&mut self, operation: Operation, arguments: &[String]) -> Result<Seen, TestCaseError> {
        let seen = self.scripts.run(operation, arguments);
        for words in &seen.messages {
            let number = number_of(&words[1]);
            if words[0] == "granted" {
                self.note_grant(number, &words[2], &words[3])?;
                let Client { arrived, request, .. } = self.clients[number];
                let now = self.scripts.now;
                let until = now + request.ttl.map_or(GRACE, |ttl| ttl.min(GRACE));
                prop_assert_eq!(&words[4..], [now - arrived, now, until].map(seconds), "{:?}", words);
            }
        }
        Ok(seen)
    }

    fn next_deadline_is(&self, reported: &str) -> TestCaseResult {
        let core = self.gate.next_deadline();
        let is_empty = self.gate.held() == 0 && self.gate.waiting() == 0;
        prop_assert_eq!(reported.is_empty(), is_empty, "next deadline {:?}", reported);
        if !is_empty {
            // The core knows no reservation that ends; the run is over before one does.
            let reported = ticks(reported.parse().expect("seconds"));
            let due = if core == Timestamp::NEVER { u64::MAX } else { core.as_nanos() / NANOS_PER_TICK };
            prop_assert_eq!(reported.min(START + GRACE), due.min(START + GRACE), "next deadline");
        }
        Ok(())
    }

    fn ask(&mut self, number: usize, again: bool) -> Result<Seen, TestCaseError> {
        let Client { request, is_try, .. } = self.clients[number];
        let arguments = Queue { is_try, again, ..Queue::new(number, request) }.arguments();
        if again && !self.clients[number].is_unwanted {
            self.clients[number].is_repeated = true;
        }
        self.run(Operation::Queue, &arguments)
    }

    /// The core's refusal, as a script's reply.
    fn core_acquire(&mut self, number: usize) -> Option<Reply> {
        let Client { request, is_try, .. } = self.clients[number];
        let now = self.now();
        let request =
            Request { weight: request.weight, ttl: request.ttl.map(span), deadline: Timestamp::NEVER };
        let acquired = if is_try {
            self.expire();
            self.gate.try_acquire(&request, number, now).map(Acquired::Granted)
        } else {
            self.gate.acquire(&request, number, number, now, &mut self.effects)
        };
        self.effects.unused = None;
        let (slots, held, waiting) = (self.gate.slots(), self.gate.held(), self.gate.waiting());
        self.clients[number].state = match acquired {
            Ok(Acquired::Granted(id)) => State::Has(id),
            Ok(Acquired::Queued(ticket)) => State::Waits(ticket),
            Err(_) => State::Over(RELEASED),
        };
        Some(match acquired.err()? {
            Refusal::Busy => texts([&"busy", &slots, &0, &held, &waiting]),
            Refusal::LineFull { limit } => texts([&"full", &limit]),
            Refusal::TooHeavy { slots, .. } => texts([&"too_heavy", &slots]),
            Refusal::Closed => texts([&"closed"]),
            refusal => panic!("{refusal:?}"),
        })
    }

    /// Makes the step on both sides. False if the run ends with it.
    fn make(&mut self, step: &Step) -> Result<bool, TestCaseError> {
        // Every waiter that is granted a slot claims it before the reservation ends.
        self.scripts.now = (self.scripts.now + step.ticks).min(START + GRACE - 1);
        match &step.action {
            Action::Acquire { request, is_try } => {
                let number = self.new_client(*request, *is_try);
                let refusal = self.core_acquire(number);
                let seen = self.ask(number, false)?;
                self.check_asked(number, refusal, &seen)?;
                self.check(&seen)?;
                if step.again {
                    let expected = match self.clients[number].state {
                        State::Over(_) => self.core_acquire(number),
                        State::Has(_) => self.confirmed(number),
                        _ => Some(seen.words()),
                    };
                    let seen = self.ask(number, true)?;
                    prop_assert_eq!(Some(seen.words()), expected, "asked again");
                    self.check(&seen)?;
                }
            }
            Action::AskAgain(which) => {
                let Some(number) = self.pick(*which) else { return Ok(true) };
                self.expire();
                self.settle(number);
                if !self.holds(number) && !self.is_waiting(number) {
                    return self.sweep();
                }
                // Or the first attempt arrives after its repetition.
                let seen = self.ask(number, !self.clients[number].is_repeated || !step.again)?;
                let words = seen.words();
                if self.holds(number) {
                    prop_assert_eq!(Some(words), self.confirmed(number), "asked again, late");
                } else {
                    prop_assert_eq!(&words[0], "queued");
                    prop_assert_eq!(&words[3], &self.clients[number].place, "its place");
                }
                self.check(&seen)?;
            }
            Action::CancelEarly(request) => {
                let number = self.new_client(*request, false);
                self.end(number, EndReason::Cancelled, false, step.again)?;
            }
            Action::ArriveLate(index) => {
                let late = |client: &Client| client.is_unwanted || client.is_repeated;
                let late: Vec<_> = (0..self.clients.len()).filter(|n| late(&self.clients[*n])).collect();
                if late.is_empty() {
                    return Ok(true);
                }
                let number = *index.get(&late);
                self.expire();
                self.settle(number);
                if self.holds(number) || self.is_waiting(number) {
                    return self.sweep();
                }
                // A repetition may have been refused, and then asks again.
                for again in [false, true].into_iter().take(1 + usize::from(self.clients[number].is_unwanted))
                {
                    self.expire();
                    self.late_requests += 1;
                    let seen = self.ask(number, again)?;
                    prop_assert_eq!(seen.words(), ["closed"], "it arrives after its end");
                    self.check(&seen)?;
                }
            }
            Action::End { which, reason, by_another } => {
                let Some(number) = self.pick(*which) else { return Ok(true) };
                let is_known = matches!(self.clients[number].state, State::Has(_)) && self.holds(number);
                if is_known && matches!(reason, EndReason::Cancelled | EndReason::TimedOut) {
                    // A client does not cancel a slot that it knows it holds.
                    return Ok(true);
                }
                self.end(number, *reason, *by_another, step.again)?;
            }
            Action::Renew(which, ttl) => {
                let Some(number) = self.pick(*which) else { return Ok(true) };
                for _ in 0..=u8::from(step.again) {
                    self.expire();
                    self.settle(number);
                    let now = self.now();
                    let is_renewed = match self.clients[number].state {
                        State::Has(id) => self.gate.renew(id, ttl.map(span), now, &mut self.effects).is_ok(),
                        _ => false,
                    };
                    if is_renewed {
                        self.clients[number].ttl = *ttl;
                    }
                    let expected = match is_renewed {
                        true => texts([&"renewed", &seconds(self.scripts.now)]),
                        false => texts([&"gone", &self.ending(number)]),
                    };
                    let arguments = texts([&id_of(number), &seconds(ttl.unwrap_or(0)), &0]);
                    let seen = self.run(Operation::Renew, &arguments)?;
                    prop_assert_eq!(seen.words(), expected);
                    self.check(&seen)?;
                }
            }
            Action::Look(which) => {
                let Some(number) = self.pick(*which) else { return Ok(true) };
                for _ in 0..=u8::from(step.again) {
                    self.expire();
                    self.settle(number);
                    let seen = self.run(Operation::Acquire, &texts([&id_of(number), &0]))?;
                    let expected = if self.holds(number) {
                        self.confirmed(number).expect("it has received its grant")
                    } else if self.is_waiting(number) {
                        texts([&"waiting", &seconds(self.scripts.now)])
                    } else {
                        texts([&"gone", &self.ending(number)])
                    };
                    prop_assert_eq!(seen.words(), expected);
                    self.check(&seen)?;
                }
            }
            Action::Ping(indices) => {
                if self.clients.is_empty() {
                    return Ok(true);
                }
                for _ in 0..=u8::from(step.again) {
                    let numbers: BTreeSet<_> =
                        indices.iter().map(|index| index.index(self.clients.len())).collect();
                    self.ping(&numbers)?;
                }
            }
            Action::Resize(slots) => {
                for _ in 0..=u8::from(step.again) {
                    let (before, now) = (self.gate.slots(), self.now());
                    self.gate.resize(*slots, now, &mut self.effects).expect("at least one slot");
                    let seen = self.run(Operation::Resize, &texts([slots]))?;
                    prop_assert_eq!(seen.words(), texts([&before]), "slots before");
                    self.check(&seen)?;
                }
            }
            Action::Open(opening) => {
                let now = self.now();
                let opened = self.gate.open(*opening, now, &mut self.effects);
                let expected = match opened {
                    Ok(Opened::Joined) => texts([&"open", &self.gate.slots(), &0]),
                    Ok(Opened::Succeeded { opening, .. }) => {
                        texts([&"open", &opening.slots.expect("it has a number of slots"), &1])
                    }
                    Err(OpenRefusal::SlotsMismatch { live, .. }) => texts([&"mismatch", &live]),
                    Err(OpenRefusal::Closing { held }) => texts([&"closing", &held]),
                    Err(refusal) => panic!("{refusal:?}"),
                };
                let bound = opening.max_waiting.map_or(-1, |limit| limit as i64);
                let seen = self.run(Operation::Open, &texts([&opening.slots.unwrap_or(0), &bound]))?;
                prop_assert_eq!(seen.words(), expected);
                if let Ok(Opened::Succeeded { .. }) = opened {
                    let number = self.new_client(ONE_SLOT, false);
                    prop_assert_eq!(self.ask(number, false)?.words(), ["closed"], "a handle from before");
                    return Ok(false);
                }
                self.check(&seen)?;
            }
            Action::Close => {
                for _ in 0..=u8::from(step.again) {
                    let waiting = self.gate.waiting();
                    self.gate.close(&mut self.effects);
                    let seen = self.run(Operation::Close, &texts([&0]))?;
                    prop_assert_eq!(
                        seen.words(),
                        texts([&waiting, &-1]),
                        "all waiters are turned away in one call"
                    );
                    self.check(&seen)?;
                }
            }
            Action::Sweep => {
                for _ in 0..=u8::from(step.again) {
                    self.sweep()?;
                }
            }
        }
        Ok(true)
    }

    fn sweep(&mut self) -> Result<bool, TestCaseError> {
        self.expire();
        let seen = self.run(Operation::WakeUpNexts, &[])?;
        let words = seen.words();
        prop_assert_eq!(&words[0], &seconds(self.scripts.now));
        self.next_deadline_is(&words[1])?;
        prop_assert_eq!(&words[2], "0", "Python clients");
        self.check(&seen)?;
        Ok(true)
    }

    fn check_asked(&mut self, number: usize, refusal: Option<Reply>, seen: &Seen) -> TestCaseResult {
        let words = seen.words();
        match self.clients[number].state {
            State::Has(_) => {
                prop_assert_eq!(&words[0], "granted", "{:?}", words);
                self.note_grant(number, &words[3], &words[4])?;
                prop_assert_eq!(Some(words), self.granted(number));
            }
            State::Waits(_) => {
                let (slots, now) = (self.gate.slots().to_string(), seconds(self.scripts.now));
                prop_assert_eq!(words.len(), 7, "{:?}", words);
                prop_assert_eq!(&words[..3], ["queued", &slots, "0"]);
                prop_assert_eq!((&words[4], &*words[6]), (&now, "0"), "now, Python clients");
                self.next_deadline_is(&words[5])?;
                self.clients[number].place.clone_from(&words[3]);
            }
            _ => prop_assert_eq!(Some(words), refusal),
        }
        Ok(())
    }

    fn end(&mut self, number: usize, reason: EndReason, by_another: bool, again: bool) -> TestCaseResult {
        let now = self.now();
        let is_unwanted = matches!(reason, EndReason::Cancelled | EndReason::TimedOut);
        if reason == EndReason::Evicted && self.is_waiting(number) {
            // It may get a slot just now, and then loses that slot.
            self.sweep()?;
        } else if reason == EndReason::Evicted {
            self.expire();
        }
        // Only the client itself cancels its request.
        let by_another = by_another && !is_unwanted;
        if !is_unwanted || !self.is_waiting(number) && !self.holds(number) {
            self.settle(number);
        }
        let outcome = match self.clients[number].state {
            State::Waits(ticket) => {
                let cancelled = self.gate.cancel(ticket, now, &mut self.effects);
                self.clients[number].state = State::Over(RELEASED);
                match cancelled {
                    Cancelled::Left(_) => {
                        self.timed_out += u64::from(reason == EndReason::TimedOut);
                        "left"
                    }
                    Cancelled::HandedOn => "ended",
                    other => panic!("{other:?}"),
                }
            }
            State::Has(id) => {
                let ended = match reason {
                    EndReason::Evicted => self.core_evict(number, id),
                    _ => self.gate.release(id, now, &mut self.effects).map(drop),
                };
                if ended.is_ok() && reason == EndReason::Released && by_another {
                    self.reported_by_scripts_only.push((number, RELEASED));
                }
                if ended.is_ok() { "ended" } else { "gone" }
            }
            State::NotYet | State::Over(_) => "gone",
        };
        for is_again in [false, true].into_iter().take(1 + usize::from(again)) {
            let outcome = match is_again {
                false => outcome,
                // The same eviction once more does not shorten the grace.
                true if reason == EndReason::Evicted && self.is_leaving(number) => {
                    self.reported_by_scripts_only.push((number, EVICTED));
                    "ended"
                }
                true => "gone",
            };
            let code = if outcome == "gone" { self.ending(number) } else { RELEASED };
            let is_over = matches!(self.clients[number].state, State::Over(_)) || !self.holds(number);
            let is_noted = reason == EndReason::Evicted && self.ending(number) == EVICTED;
            if outcome != "gone" && is_over && !is_noted && !by_another {
                self.clients[number].is_unwanted |= self.clients[number].is_repeated;
            }
            let (held, slots) = (self.gate.held(), self.gate.slots());
            let waiting = self.gate.waiting();
            if is_unwanted {
                // A client batches cancellations; here each batch has one.
                let seen = self.run(Operation::Leave, &texts([&id_of(number), &reason.word(), &0]))?;
                let expected = texts([&held, &slots, &waiting, &outcome, &code]);
                prop_assert_eq!(seen.words(), expected, "held, slots, waiting, outcome, ending");
                self.clients[number].is_unwanted |= outcome == "gone";
                self.check(&seen)?;
                continue;
            }
            let arguments =
                texts([&id_of(number), &reason.word(), &u8::from(by_another), &u8::from(is_again)]);
            let seen = self.run(Operation::Release, &arguments)?;
            prop_assert_eq!(&seen.words()[..2], texts([&outcome, &code]), "outcome, ending");
            self.check(&seen)?;
        }
        Ok(())
    }

    fn core_evict(&mut self, number: usize, id: PermitId) -> Result<(), NotHeld> {
        let grace = span(self.clients[number].request.grace.unwrap_or(0));
        let now = self.now();
        if let Evicted::Leaving { .. } = self.gate.evict(id, grace, now, &mut self.effects)? {
            self.reported_by_scripts_only.push((number, EVICTED));
        }
        Ok(())
    }

    fn ping(&mut self, numbers: &BTreeSet<usize>) -> TestCaseResult {
        let knows = |number: &usize| matches!(self.clients[*number].state, State::Has(_));
        let (holders, waiters): (Vec<_>, Vec<_>) = numbers.iter().copied().partition(knows);
        let mut arguments = texts([&holders.len(), &0]);
        for number in holders.iter().chain(&waiters) {
            let weight = self.clients[*number].request.weight;
            arguments.extend(texts([&id_of(*number), &weight, &seconds(FOREVER)]));
            if knows(number) {
                let (slot, token, _) = self.clients[*number].got.expect("it has received its grant");
                arguments.extend(texts([&slot, &token]));
            }
        }
        self.expire();
        let seen = self.run(Operation::Ping, &arguments)?;
        let mut expected = Vec::new();
        for number in holders.iter().chain(&waiters).copied() {
            self.settle(number);
            let is_news = waiters.contains(&number);
            if self.holds(number) && is_news {
                let (slot, token, waited) = self.clients[number].got.expect("it has received its grant");
                expected.extend(texts([&"granted", &slot, &token, &seconds(waited)]));
            } else if self.is_leaving(number) {
                expected.extend(texts([&"gone", &EVICTED]));
            } else if self.holds(number) {
                expected.push(self.lease_end(number));
            } else if self.is_waiting(number) {
                expected.extend(texts([&1]));
            } else {
                expected.extend(texts([&"gone", &self.ending(number)]));
            }
        }
        let words = seen.words();
        prop_assert_eq!(&words[3..], &expected[..], "states");
        prop_assert_eq!((&words[0], &*words[2]), (&seconds(self.scripts.now), "0"), "now, Python clients");
        self.next_deadline_is(&words[1])?;
        self.check(&seen)
    }
}

fn code(why: NotHeld) -> i64 {
    match why {
        NotHeld::Released => RELEASED,
        NotHeld::Lost(Loss::Expired) => EXPIRED,
        NotHeld::Lost(Loss::Evicted) => EVICTED,
        why => panic!("{why:?}"),
    }
}

#[test]
fn scripts_reply_publish_and_count_as_the_core_does() {
    run_random(150, steps(), |scripts, run| {
        let seen = scripts.run(Operation::Open, &texts([&run.slots, &-1]));
        prop_assert_eq!(seen.words(), texts([&"open", &run.slots, &0]));
        let mut comparison = Comparison {
            scripts,
            gate: Gate::new(1, run.slots).expect("at least one slot"),
            effects: Effects::default(),
            clients: Vec::new(),
            last_token: 0,
            timed_out: 0,
            late_requests: 0,
            reported_by_scripts_only: Vec::new(),
        };
        for (n, step) in run.steps.iter().enumerate() {
            match comparison.make(step) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return Err(with_steps(run.slots, &run.steps[..=n], error)),
            }
        }
        Ok(())
    });
}
