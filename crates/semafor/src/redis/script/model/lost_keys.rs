//! Random runs in which keys are lost: never more holders than slots, and nothing is left over.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestCaseResult;
use redis::Value;

use super::clock::{FOREVER, TICKS_PER_SECOND, seconds};
use super::random_runs::{run_random, with_steps};
use super::request::{AcquireRequest, Queue};
use super::scripts::{Operation, Scripts, id_of, number_of, texts};
use crate::redis::script::reply::text;

#[derive(Clone, Debug)]
enum Event {
    Acquire {
        weight: u32,
        ttl: Option<u64>,
    },
    Release(Index),
    Cancel(Index),
    Ping,
    Look(Index),
    Renew(Index),
    Sweep,
    /// A server that is short of memory evicts a key, or an operator deletes it.
    Lose(usize),
    /// What a client of the Python library may do to the expiry of a key.
    Shorten(usize),
}

fn events() -> impl Strategy<Value = (u32, Vec<Event>)> {
    let weight = prop_oneof![6 => Just(1), 2 => 2..=3u32, 1 => Just(70)];
    let ttl = prop_oneof![2 => Just(None), 1 => Just(Some(600 * TICKS_PER_SECOND))];
    let event = prop_oneof![
        8 => (weight, ttl).prop_map(|(weight, ttl)| Event::Acquire { weight, ttl }),
        4 => any::<Index>().prop_map(Event::Release),
        2 => any::<Index>().prop_map(Event::Cancel),
        3 => Just(Event::Ping),
        2 => any::<Index>().prop_map(Event::Look),
        1 => any::<Index>().prop_map(Event::Renew),
        2 => Just(Event::Sweep),
        6 => (0..10usize).prop_map(Event::Lose),
        2 => (0..5usize).prop_map(Event::Shorten),
    ];
    (prop_oneof![1..=4u32, Just(100)], vec(event, 1..50))
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum ClientView {
    Waits,
    Holds,
    Over,
}

/// One client process with some acquisitions, as it sees them.
struct Process<'a> {
    scripts: &'a mut Scripts,
    slots: u32,
    acquisitions: Vec<(AcquireRequest, ClientView, String)>,
    /// Slot and token of each, if it was granted them.
    got: Vec<(String, String)>,
}

impl Process<'_> {
    fn run(&mut self, operation: Operation, arguments: &[String]) -> Result<Vec<String>, TestCaseError> {
        let seen = self.scripts.run(operation, arguments);
        for words in &seen.messages {
            let number = number_of(&words[1]);
            match (&*words[0], self.acquisitions[number].1) {
                ("granted", ClientView::Waits) => self.hold(number, &words[2..4])?,
                ("lost", ClientView::Holds) => self.acquisitions[number].1 = ClientView::Over,
                _ => {}
            }
        }
        let held: u32 = self
            .in_state(ClientView::Holds)
            .into_iter()
            .map(|number| self.acquisitions[number].0.weight)
            .sum();
        prop_assert!(
            held <= self.slots,
            "{} of {} held after {:?}: {:?}",
            held,
            self.slots,
            operation,
            seen.words()
        );
        for key in &self.scripts.keys.all {
            let expiry: i64 =
                redis::cmd("PTTL").arg(key).query(&mut self.scripts.connection).expect("a server");
            prop_assert!(expiry != -1, "{} is kept for ever after {:?}", key, operation);
        }
        Ok(seen.words())
    }

    /// A grant of a slot and a token has arrived.
    fn hold(&mut self, number: usize, got: &[String]) -> TestCaseResult {
        let (slot, token) = (&got[0], &got[1]);
        let mut others = self.in_state(ClientView::Holds).into_iter().filter(|other| *other != number);
        prop_assert!(others.all(|other| self.got[other].0 != *slot), "two have slot {}", slot);
        prop_assert!(slot.parse::<u32>().is_ok_and(|slot| slot < self.slots), "slot {}", slot);
        self.acquisitions[number].1 = ClientView::Holds;
        self.got[number] = (slot.clone(), token.clone());
        Ok(())
    }

    fn in_state(&self, state: ClientView) -> Vec<usize> {
        let found = self.acquisitions.iter().enumerate().filter(move |(_, it)| it.1 == state);
        found.map(|(number, _)| number).collect()
    }

    fn pick(&self, state: ClientView, index: &Index) -> Option<usize> {
        let found = self.in_state(state);
        (!found.is_empty()).then(|| *index.get(&found))
    }

    fn ask(&mut self, number: usize) -> TestCaseResult {
        let (request, _, place) = self.acquisitions[number].clone();
        let (slots, again) = (self.slots, !place.is_empty());
        let arguments = Queue { slots, again, place: &place, ..Queue::new(number, request) }.arguments();
        // Before the bound is checked: the reply counts together with the script's messages.
        let before = self.acquisitions[number].1;
        self.acquisitions[number].1 = ClientView::Over;
        let words = self.run(Operation::Queue, &arguments)?;
        prop_assert!(before != ClientView::Holds);
        match &*words[0] {
            "granted" => self.hold(number, &words[3..5])?,
            "queued" => {
                prop_assert_eq!(&words[1], &self.slots.to_string(), "slots");
                self.acquisitions[number].1 = ClientView::Waits;
                self.acquisitions[number].2.clone_from(&words[3]);
            }
            _ => {}
        }
        self.bound_holds()
    }

    fn bound_holds(&self) -> TestCaseResult {
        let held: u32 = self
            .in_state(ClientView::Holds)
            .into_iter()
            .map(|number| self.acquisitions[number].0.weight)
            .sum();
        prop_assert!(held <= self.slots, "{} of {} held", held, self.slots);
        Ok(())
    }

    fn ping(&mut self) -> TestCaseResult {
        let holders = self.in_state(ClientView::Holds);
        let waiters = self.in_state(ClientView::Waits);
        let mut arguments = texts([&holders.len(), &0]);
        for number in holders.iter().chain(&waiters) {
            arguments.extend(texts([
                &id_of(*number),
                &self.acquisitions[*number].0.weight,
                &seconds(FOREVER),
            ]));
            if self.acquisitions[*number].1 == ClientView::Holds {
                let (slot, token) = self.got[*number].clone();
                arguments.extend([slot, token]);
            }
        }
        let seen = self.scripts.run(Operation::Ping, &arguments);
        let Value::Array(answer) = &seen.answer else { panic!("no list: {:?}", seen.answer) };
        let states = answer[3..].to_vec();
        let word = |state: &Value| match state {
            Value::Array(words) => text(words[0].clone()).expect("a word"),
            state => text(state.clone()).expect("a word"),
        };
        for words in &seen.messages {
            let belief = &mut self.acquisitions[number_of(&words[1])].1;
            if words[0] == "lost" && *belief == ClientView::Holds {
                *belief = ClientView::Over;
            }
        }
        for (number, state) in holders.iter().zip(&states) {
            if word(state) == "gone" {
                self.acquisitions[*number].1 = ClientView::Over;
            }
        }
        for (number, state) in waiters.iter().zip(&states[holders.len()..]) {
            match &*word(state) {
                "granted" => self.look(*number)?,
                "gone" => self.ask(*number)?,
                _ => {}
            }
        }
        self.bound_holds()
    }

    fn look(&mut self, number: usize) -> TestCaseResult {
        let words = self.run(Operation::Acquire, &texts([&id_of(number), &0]))?;
        match (&*words[0], self.acquisitions[number].1) {
            ("granted", ClientView::Waits) => self.hold(number, &words[3..5]),
            ("gone", ClientView::Waits) => self.ask(number),
            _ => Ok(()),
        }
    }

    fn make(&mut self, event: &Event) -> TestCaseResult {
        match event {
            Event::Acquire { weight, ttl } => {
                let request = AcquireRequest { weight: *weight, ttl: *ttl, grace: None };
                self.acquisitions.push((request, ClientView::Over, String::new()));
                self.got.push(Default::default());
                self.ask(self.acquisitions.len() - 1)?;
            }
            Event::Release(index) => {
                if let Some(number) = self.pick(ClientView::Holds, index) {
                    self.acquisitions[number].1 = ClientView::Over;
                    self.run(Operation::Release, &texts([&id_of(number), &"released", &0, &0]))?;
                }
            }
            Event::Cancel(index) => {
                if let Some(number) = self.pick(ClientView::Waits, index) {
                    self.acquisitions[number].1 = ClientView::Over;
                    self.run(Operation::Leave, &texts([&id_of(number), &"cancelled", &0]))?;
                }
            }
            Event::Ping => self.ping()?,
            Event::Look(index) => {
                if let Some(number) = self.pick(ClientView::Waits, index) {
                    self.look(number)?;
                }
            }
            Event::Renew(index) => {
                if let Some(number) = self.pick(ClientView::Holds, index) {
                    let words = self.run(Operation::Renew, &texts([&id_of(number), &1000, &0]))?;
                    if words[0] == "gone" {
                        self.acquisitions[number].1 = ClientView::Over;
                    }
                }
            }
            Event::Sweep => drop(self.run(Operation::WakeUpNexts, &[])?),
            Event::Lose(key) => {
                redis::cmd("DEL")
                    .arg(&self.scripts.keys.all[*key])
                    .exec(&mut self.scripts.connection)
                    .expect("a server");
                // One at a time: a heartbeat comes before the next key is lost. In it, holders send what their records had.
                self.ping()?;
            }
            Event::Shorten(key) => {
                let mut command = redis::cmd("EXPIRE");
                command
                    .arg(&self.scripts.keys.all[*key])
                    .arg(13)
                    .exec(&mut self.scripts.connection)
                    .expect("a server");
            }
        }
        self.bound_holds()
    }

    /// All clients release what they have. Slots that no client knows any more end with their lease.
    fn end(&mut self) -> TestCaseResult {
        for number in [self.in_state(ClientView::Holds), self.in_state(ClientView::Waits)].concat() {
            self.acquisitions[number].1 = ClientView::Over;
            self.run(Operation::Release, &texts([&id_of(number), &"released", &0, &0]))?;
        }
        self.scripts.now += FOREVER + 1000 * TICKS_PER_SECOND;
        let seen = self.scripts.run(Operation::WakeUpNexts, &[]);
        prop_assert_eq!((seen.main.len(), seen.line.len(), seen.beats.len()), (0, 0, 0), "all have ended");
        prop_assert!(seen.own.is_empty() && seen.records.is_empty(), "{:?} {:?}", seen.own, seen.records);
        Ok(())
    }
}

#[test]
fn bound_holds_and_nothing_is_left_whatever_key_is_lost() {
    run_random(150, events(), |scripts, (slots, events)| {
        scripts.run(Operation::Open, &texts([&slots, &-1]));
        let mut process = Process { scripts, slots, acquisitions: Vec::new(), got: Vec::new() };
        for (n, event) in events.iter().enumerate() {
            process.make(event).map_err(|error| with_steps(slots, &events[..=n], error))?;
        }
        process.end().map_err(|error| with_steps(slots, &events, error))
    });
}
