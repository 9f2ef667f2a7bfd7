//! Random runs with heartbeats, which only Redis has: a client that sends none loses its slot or its place on time.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestCaseResult;
use redis::Value;

use super::clock::{GRACE, TICKS_PER_SECOND, seconds};
use super::random_runs::{run_random, with_steps};
use super::request::{AcquireRequest, EndReason, Queue};
use super::scripts::{Operation, Scripts, Seen, dues, id_of, number_of, plain, texts, weights};
use crate::redis::script::reply::text;
use crate::redis::script::schema::ending::{EVICTED, EXPIRED, RELEASED, VANISHED};

/// The slot numbers in use, from the messages. The scripts grant the lowest free number, so a leaked number is noticed.
#[derive(Default)]
struct SlotNumbers {
    taken: BTreeMap<usize, u32>,
    last_token: u64,
}

impl SlotNumbers {
    fn grant(
        &mut self,
        number: usize,
        slot: &str,
        token: &str,
        slots: u32,
    ) -> Result<(u32, u64), TestCaseError> {
        let (slot, token): (u32, u64) = (slot.parse().expect("a slot"), token.parse().expect("a token"));
        let is_free = |slot: &u32| !self.taken.values().any(|taken| taken == slot);
        prop_assert_eq!(Some(slot), (0..slots).find(is_free), "the lowest free slot");
        prop_assert!(token > self.last_token, "token {} after {}", token, self.last_token);
        self.last_token = token;
        self.taken.insert(number, slot);
        Ok((slot, token))
    }

    fn end(&mut self, number: usize) {
        self.taken.remove(&number);
    }
}

#[derive(Clone, Debug)]
struct Step {
    ticks: u64,
    action: Action,
}

#[derive(Clone, Debug)]
enum Action {
    Acquire {
        request: AcquireRequest,
        heartbeat: u64,
    },
    Ping(Vec<Index>),
    /// By its own process, or by another one that vouches for it for this time.
    Renew {
        which: Index,
        ttl: Option<u64>,
        vouched: u64,
    },
    Evict(Index),
    /// No sweep comes on time, and then all clients send a heartbeat.
    PingLate,
    Release(Index),
    Cancel(Index),
    /// A waiter that counted as dead returns to its place.
    Return(Index),
    Resize(u32),
    Nothing,
}

fn steps() -> impl Strategy<Value = (u32, Vec<Step>)> {
    let ttl = prop_oneof![3 => Just(None), 1 => (1..=20 * TICKS_PER_SECOND).prop_map(Some)];
    let heartbeat = prop_oneof![2 => 1..=5 * TICKS_PER_SECOND, 1 => GRACE - 64..=GRACE + 64];
    let grace = prop_oneof![1 => Just(None), 1 => (1..=20 * TICKS_PER_SECOND).prop_map(Some)];
    let ask = (1..=3u32, ttl.clone(), heartbeat, grace).prop_map(|(weight, ttl, heartbeat, grace)| {
        let request = AcquireRequest { weight, ttl, grace };
        Action::Acquire { request, heartbeat }
    });
    let vouched = prop_oneof![1 => Just(0), 1 => 1..=20 * TICKS_PER_SECOND];
    let renew = (any::<Index>(), ttl, vouched).prop_map(|(which, ttl, vouched)| Action::Renew {
        which,
        ttl,
        vouched,
    });
    let action = prop_oneof![
        10 => ask,
        8 => vec(any::<Index>(), 1..6).prop_map(Action::Ping),
        2 => Just(Action::PingLate),
        4 => renew,
        2 => any::<Index>().prop_map(Action::Evict),
        4 => any::<Index>().prop_map(Action::Release),
        1 => any::<Index>().prop_map(Action::Cancel),
        2 => any::<Index>().prop_map(Action::Return),
        1 => (1..=5u32).prop_map(Action::Resize),
        2 => Just(Action::Nothing),
    ];
    let ticks = prop_oneof![3 => 0..=32u64, 2 => 32..=4 * TICKS_PER_SECOND];
    let step = (ticks, action).prop_map(|(ticks, action)| Step { ticks, action });
    (1..=4u32, vec(step, 1..60))
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Waits { dead_at: u64 },
    Holds { dead_at: u64, ends_at: Option<u64> },
    Over { is_dead_waiter: bool },
}

#[derive(Clone, Debug)]
struct Acquisition {
    request: AcquireRequest,
    heartbeat: u64,
    /// It was evicted, and has its grace.
    is_leaving: bool,
    state: State,
    place: String,
    arrived: u64,
    /// It was granted its slot at the time of its request. On a real server, the clock moves in between.
    is_instant: bool,
}

impl Acquisition {
    fn lease(&self) -> u64 {
        self.request.ttl.map_or(self.heartbeat, |ttl| ttl.min(self.heartbeat))
    }

    fn is_live(&self) -> bool {
        !matches!(self.state, State::Over { .. })
    }
}

/// The expected holders and waiters, from requests and messages. Which waiter gets a slot is up to the scripts.
struct Expected<'a> {
    scripts: &'a mut Scripts,
    slots: u32,
    held: u32,
    numbers: SlotNumbers,
    acquisitions: Vec<Acquisition>,
    /// In the order of arrival.
    line: Vec<usize>,
}

impl Expected<'_> {
    fn live(&self) -> Vec<usize> {
        (0..self.acquisitions.len()).filter(|number| self.acquisitions[*number].is_live()).collect()
    }

    fn next_deadline(&self) -> Option<u64> {
        let dues = self.acquisitions.iter().filter_map(|acquisition| match acquisition.state {
            State::Waits { dead_at } => Some(dead_at),
            State::Holds { dead_at, ends_at } => {
                Some(ends_at.map_or(dead_at, |ends_at| ends_at.min(dead_at)))
            }
            State::Over { .. } => None,
        });
        dues.min()
    }

    /// Lets time pass, with a sweep at every deadline.
    fn pass(&mut self, ticks: u64) -> TestCaseResult {
        let then = self.scripts.now + ticks;
        while let Some(due) = self.next_deadline().filter(|due| *due <= then) {
            // Nothing ends early.
            for now in [due - 1, due] {
                self.scripts.now = self.scripts.now.max(now);
                let seen = self.scripts.run(Operation::WakeUpNexts, &[]);
                self.note(&seen)?;
                self.end_dead_waiters();
                self.check(&seen)?;
                let next = self.next_deadline().map_or(String::new(), seconds);
                prop_assert_eq!(&seen.words()[1], &next, "next deadline");
            }
        }
        self.scripts.now = then;
        Ok(())
    }

    /// A waiter that is due is dead; nothing is published about it.
    fn end_dead_waiters(&mut self) {
        for acquisition in &mut self.acquisitions {
            if matches!(acquisition.state, State::Waits { dead_at } if dead_at <= self.scripts.now) {
                acquisition.state = State::Over { is_dead_waiter: true };
            }
        }
        self.line.retain(|number| self.acquisitions[*number].is_live());
    }

    /// Applies the messages.
    fn note(&mut self, seen: &Seen) -> TestCaseResult {
        let now = self.scripts.now;
        for words in &seen.messages {
            let number = number_of(&words[1]);
            let acquisition = &self.acquisitions[number];
            match (&*words[0], acquisition.state) {
                ("granted", State::Waits { dead_at }) => {
                    prop_assert!(dead_at > now, "{} is dead, and was granted a slot", number);
                    let place = self.line.iter().position(|other| *other == number).expect("it waits");
                    let are_dead = self.line.drain(..=place).all(|ahead| {
                        let state = self.acquisitions[ahead].state;
                        ahead == number || matches!(state, State::Waits { dead_at } if dead_at <= now)
                    });
                    prop_assert!(are_dead, "{} has overtaken", number);
                    self.numbers.grant(number, &words[2], &words[3], self.slots)?;
                    let lease = acquisition.lease().min(GRACE);
                    let ends_at = acquisition.request.ttl.map(|ttl| now + ttl);
                    self.acquisitions[number].state = State::Holds { dead_at: now + lease, ends_at };
                    self.acquisitions[number].is_instant = self.acquisitions[number].arrived == now;
                }
                ("lost", State::Holds { dead_at, ends_at }) => {
                    let has_ended = ends_at.is_some_and(|ends_at| ends_at <= now);
                    prop_assert!(has_ended || dead_at <= now, "{} lost early", number);
                    let code = match has_ended {
                        true if acquisition.is_leaving => EVICTED,
                        true => EXPIRED,
                        false => VANISHED,
                    };
                    prop_assert_eq!(&words[2], &code.to_string(), "how {} ended", number);
                    self.numbers.end(number);
                    self.acquisitions[number].state = State::Over { is_dead_waiter: false };
                }
                ("too_heavy", State::Waits { .. }) => {
                    self.acquisitions[number].state = State::Over { is_dead_waiter: false };
                    self.line.retain(|other| *other != number);
                }
                message => prop_assert!(false, "unexpected message for {}: {:?}", number, message),
            }
        }
        Ok(())
    }

    /// The keys contain exactly the live holders and waiters, with the right times.
    fn check(&mut self, seen: &Seen) -> TestCaseResult {
        self.end_dead_waiters();
        let mut main = BTreeMap::new();
        let mut leases = BTreeMap::new();
        let mut beats = BTreeMap::new();
        for (number, acquisition) in self.acquisitions.iter().enumerate() {
            match acquisition.state {
                State::Waits { dead_at } => drop(beats.insert(number, BTreeSet::from([dead_at]))),
                State::Holds { dead_at, ends_at } => {
                    main.insert(number, BTreeSet::from([dead_at]));
                    leases.extend(ends_at.map(|ends_at| (number, ends_at)));
                }
                State::Over { .. } => {}
            }
        }
        prop_assert_eq!(dues(&seen.main), main.clone(), "holders and their times");
        prop_assert_eq!(&seen.leases, &leases, "leases");
        prop_assert_eq!(dues(&seen.beats), beats.clone(), "waiters and their times");
        let weigh = |number: &usize| (*number, self.acquisitions[*number].request.weight);
        prop_assert_eq!(seen.holders(), main.keys().map(weigh).collect(), "weights held");
        prop_assert_eq!(weights(&seen.line), self.line.iter().map(weigh).collect::<Vec<_>>(), "the line");
        prop_assert_eq!(seen.beats.len(), seen.line.len(), "weights waited for");
        prop_assert_eq!(&seen.records, &self.live().into_iter().collect(), "records");
        let ends = self.acquisitions.iter().enumerate().filter_map(|(number, acquisition)| match acquisition
            .state
        {
            State::Waits { dead_at } => Some((number, dead_at)),
            State::Holds { dead_at, ends_at } => {
                Some((number, ends_at.map_or(dead_at, |end| end.min(dead_at))))
            }
            State::Over { .. } => None,
        });
        prop_assert_eq!(&seen.own, &ends.collect(), "own");

        let held = main.keys().map(|number| self.acquisitions[*number].request.weight).sum();
        prop_assert!(held <= self.slots.max(self.held), "{} of {}, after {}", held, self.slots, self.held);
        self.held = held;
        if let Some(first) = self.line.first() {
            let weight = self.acquisitions[*first].request.weight;
            prop_assert!(held + weight > self.slots, "{} could have a slot", first);
        }
        let over =
            |number: &usize| !self.acquisitions[*number].is_live() && !self.acquisitions[*number].is_instant;
        let over: Vec<_> = (0..self.acquisitions.len()).filter(over).collect();
        prop_assert_eq!(self.scripts.notifications(over.into_iter()), 0, "notifications of ended ids");
        Ok(())
    }

    fn ask(&mut self, number: usize) -> TestCaseResult {
        let now = self.scripts.now;
        let Acquisition { request, heartbeat, place, .. } = self.acquisitions[number].clone();
        let again = !place.is_empty();
        let arguments = Queue { heartbeat, again, place: &place, ..Queue::new(number, request) }.arguments();
        let seen = self.scripts.run(Operation::Queue, &arguments);
        let words = seen.words();
        match &*words[0] {
            "granted" => {
                let ends_at = request.ttl.map(|ttl| now + ttl);
                if !seen.messages.is_empty() {
                    // It returned to the line, and was granted its slot at once.
                    self.take_place(number, now + heartbeat);
                    self.note(&seen)?;
                } else {
                    prop_assert!(self.line.is_empty(), "{} did not wait", number);
                    self.numbers.grant(number, &words[3], &words[4], self.slots)?;
                    let dead_at = now + self.acquisitions[number].lease();
                    self.acquisitions[number].state = State::Holds { dead_at, ends_at };
                }
            }
            "queued" => {
                self.acquisitions[number].place.clone_from(&words[3]);
                self.take_place(number, now + heartbeat);
                self.note(&seen)?;
            }
            answer => prop_assert_eq!(answer, "too_heavy"),
        }
        self.check(&seen)
    }

    /// Takes its place in line, by its arrival.
    fn take_place(&mut self, number: usize, dead_at: u64) {
        self.acquisitions[number].state = State::Waits { dead_at };
        let arrival = |number: usize| self.acquisitions[number].place.parse::<f64>().expect("seconds");
        let (line, mine) = (&self.line, arrival(number));
        let place = line.iter().position(|other| arrival(*other) > mine).unwrap_or(line.len());
        self.line.insert(place, number);
    }

    fn ping(&mut self, numbers: &BTreeSet<usize>) -> TestCaseResult {
        let now = self.scripts.now;
        let is_holder = |number: &usize| matches!(self.acquisitions[*number].state, State::Holds { .. });
        let (holders, waiters): (Vec<_>, Vec<_>) = numbers.iter().copied().partition(is_holder);
        let mut arguments = texts([&holders.len(), &0]);
        for number in holders.iter().chain(&waiters) {
            let acquisition = &self.acquisitions[*number];
            arguments.extend(texts([
                &id_of(*number),
                &acquisition.request.weight,
                &seconds(acquisition.heartbeat),
            ]));
            if is_holder(number) {
                // Slot and token, which only count if the record is lost.
                arguments.extend(texts([&0, &0]));
            }
        }
        // A heartbeat does not extend a lease. A slot that comes free goes to a waiter that is alive at that time.
        let is_ended = |acquisition: &Acquisition| matches!(acquisition.state, State::Holds { ends_at: Some(end), .. } if end <= now);
        let has_free = self.acquisitions.iter().any(is_ended);
        let seen = self.scripts.run(Operation::Ping, &arguments);
        let in_line: BTreeSet<_> = seen.line.iter().map(|(member, _)| number_of(member)).collect();
        for number in numbers {
            let acquisition = &mut self.acquisitions[*number];
            let (lease, heartbeat, is_leaving) =
                (acquisition.lease(), acquisition.heartbeat, acquisition.is_leaving);
            match &mut acquisition.state {
                State::Holds { .. } if is_leaving => {}
                State::Holds { dead_at, ends_at } if ends_at.is_none_or(|ends_at| ends_at > now) => {
                    *dead_at = (now + lease).max(*dead_at);
                }
                State::Waits { dead_at } if *dead_at > now || !has_free || in_line.contains(number) => {
                    *dead_at = now + heartbeat;
                }
                _ => {}
            }
        }
        self.note(&seen)?;
        self.end_dead_waiters();
        // Granted by the ping itself, before or after its heartbeat counted.
        let granted = |words: &&Vec<String>| words[0] == "granted";
        for number in seen.messages.iter().filter(granted).map(|words| number_of(&words[1])) {
            let due = dues(&seen.main).get(&number).and_then(|dues| dues.first().copied());
            let acquisition = &mut self.acquisitions[number];
            let (grace, lease) = (now + acquisition.lease().min(GRACE), now + acquisition.lease());
            prop_assert!(due == Some(grace) || numbers.contains(&number) && due == Some(lease));
            if let State::Holds { dead_at, .. } = &mut acquisition.state {
                *dead_at = due.expect("it holds");
            }
        }
        let mut states = Vec::new();
        for number in holders.iter().chain(&waiters) {
            states.push(match self.acquisitions[*number].state {
                State::Holds { .. } if waiters.contains(number) => "granted".to_owned(),
                State::Holds { .. } if self.acquisitions[*number].is_leaving => "gone".to_owned(),
                State::Holds { ends_at, .. } => ends_at.map_or(String::new(), seconds),
                State::Over { .. } => "gone".to_owned(),
                State::Waits { .. } => "1".to_owned(),
            });
        }
        let Value::Array(answer) = &seen.answer else { panic!("no list: {:?}", seen.answer) };
        let replied = answer[3..].iter().map(|state| match state {
            Value::Array(words) => text(words[0].clone()).expect("a word"),
            state => plain(&text(state.clone()).expect("a time or a number")),
        });
        prop_assert_eq!(replied.collect::<Vec<_>>(), states, "states");
        self.check(&seen)
    }

    fn end(&mut self, number: usize, reason: EndReason) -> TestCaseResult {
        let is_holder = matches!(self.acquisitions[number].state, State::Holds { .. });
        self.acquisitions[number].state = State::Over { is_dead_waiter: false };
        self.numbers.end(number);
        self.line.retain(|other| *other != number);
        let seen = self.scripts.run(Operation::Release, &texts([&id_of(number), &reason.word(), &0]));
        prop_assert_eq!(&seen.words()[0], if is_holder { "ended" } else { "left" });
        self.note(&seen)?;
        self.check(&seen)
    }

    fn renew(&mut self, number: usize, ttl: Option<u64>, vouched: u64) -> TestCaseResult {
        let now = self.scripts.now;
        let arguments = texts([&id_of(number), &seconds(ttl.unwrap_or(0)), &seconds(vouched)]);
        let mut seen = self.scripts.run(Operation::Renew, &arguments);
        let acquisition = &mut self.acquisitions[number];
        let expected = match acquisition.state {
            State::Holds { .. } if acquisition.is_leaving => texts([&"gone", &EVICTED]),
            State::Holds { .. } => {
                acquisition.request.ttl = ttl;
                let dead_at = now + acquisition.lease().max(vouched);
                acquisition.state = State::Holds { dead_at, ends_at: ttl.map(|ttl| now + ttl) };
                if vouched > 0 {
                    let message = texts([
                        &"renewed",
                        &id_of(number),
                        &plain(&seconds(ttl.unwrap_or(0))),
                        &seconds(now),
                    ]);
                    prop_assert_eq!(seen.messages.pop(), Some(message), "its process gets a message");
                }
                texts([&"renewed", &seconds(now)])
            }
            _ => texts([&"gone", &RELEASED]),
        };
        prop_assert_eq!(seen.words(), expected);
        self.note(&seen)?;
        self.check(&seen)
    }

    fn evict(&mut self, number: usize) -> TestCaseResult {
        let now = self.scripts.now;
        let mut seen = self.scripts.run(Operation::Release, &texts([&id_of(number), &"evicted", &1]));
        prop_assert_eq!(&seen.words()[0], "ended");
        let message = seen.messages.remove(0);
        prop_assert_eq!(&message, &texts([&"lost", &id_of(number), &EVICTED]));
        let acquisition = &mut self.acquisitions[number];
        match (acquisition.request.grace, &mut acquisition.state) {
            (Some(grace), State::Holds { dead_at, ends_at }) if !acquisition.is_leaving => {
                let end = (now + grace).min(ends_at.unwrap_or(u64::MAX));
                (*dead_at, *ends_at) = (end, Some(end));
                acquisition.is_leaving = true;
            }
            _ => {
                acquisition.state = State::Over { is_dead_waiter: false };
                self.numbers.end(number);
            }
        }
        self.note(&seen)?;
        self.check(&seen)
    }

    fn make(&mut self, step: &Step) -> TestCaseResult {
        if !matches!(step.action, Action::PingLate) {
            self.pass(step.ticks)?;
        }
        let live = self.live();
        let pick = |index: &Index| (!live.is_empty()).then(|| *index.get(&live));
        match &step.action {
            Action::Acquire { request, heartbeat } => {
                self.acquisitions.push(Acquisition {
                    request: *request,
                    heartbeat: *heartbeat,
                    is_leaving: false,
                    state: State::Over { is_dead_waiter: false },
                    place: String::new(),
                    arrived: self.scripts.now,
                    is_instant: false,
                });
                self.ask(self.acquisitions.len() - 1)?;
            }
            Action::Ping(indices) => self.ping(&indices.iter().filter_map(pick).collect())?,
            Action::PingLate => {
                self.scripts.now += step.ticks;
                self.ping(&live.into_iter().collect())?;
            }
            Action::Renew { which, ttl, vouched } => {
                if let Some(number) = pick(which) {
                    self.renew(number, *ttl, *vouched)?;
                }
            }
            Action::Release(index) | Action::Evict(index) => {
                let holds = |number: &usize| matches!(self.acquisitions[*number].state, State::Holds { .. });
                if let Some(number) = pick(index).filter(holds) {
                    match step.action {
                        Action::Evict(_) => self.evict(number)?,
                        _ => self.end(number, EndReason::Released)?,
                    }
                }
            }
            Action::Cancel(index) => {
                if let Some(number) = pick(index) {
                    self.end(number, EndReason::Cancelled)?;
                }
            }
            Action::Return(index) => {
                let is_dead =
                    |number: &usize| self.acquisitions[*number].state == State::Over { is_dead_waiter: true };
                let dead: Vec<_> = (0..self.acquisitions.len()).filter(is_dead).collect();
                if !dead.is_empty() {
                    self.ask(*index.get(&dead))?;
                }
            }
            Action::Resize(slots) => {
                self.slots = *slots;
                let seen = self.scripts.run(Operation::Resize, &texts([slots]));
                self.note(&seen)?;
                self.check(&seen)?;
            }
            Action::Nothing => {}
        }
        Ok(())
    }
}

#[test]
fn client_without_heartbeats_is_removed_on_time_and_leaves_nothing() {
    run_random(100, steps(), |scripts, (slots, steps)| {
        scripts.run(Operation::Open, &texts([&slots, &-1]));
        let mut expected = Expected {
            scripts,
            slots,
            held: 0,
            numbers: SlotNumbers::default(),
            acquisitions: Vec::new(),
            line: Vec::new(),
        };
        for (n, step) in steps.iter().enumerate() {
            expected.make(step).map_err(|error| with_steps(slots, &steps[..=n], error))?;
        }
        // No more heartbeats.
        while let Some(due) = expected.next_deadline() {
            let rest = due.saturating_sub(expected.scripts.now);
            expected.pass(rest).map_err(|error| with_steps(slots, &steps, error))?;
        }
        prop_assert_eq!(expected.held, 0);
        Ok(())
    });
}
