//! The scripts beside semafor-core, through the same random moves; and what only Redis has, heartbeats, on their own.
//!
//! The clock is held by the test: a script's time is what the key `clock` says. So nothing sleeps, and a deadline is met
//! to the tick. A tick is 1/64 s, which is exact as a float, in six decimals and in nanoseconds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{FileFailurePersistence, RngAlgorithm, TestCaseResult, TestError, TestRunner};
use redis::{Connection, Value};
use semafor_core::{
    Acquired, Cancelled, Claim, Effects, Gate, Loss, NotHeld, PermitId, Refusal, Request, Ticket, Timestamp,
};
use semafor_testkit::redis::RedisServer;

use super::answer::{Words, text};
use super::inspect::Card;
use super::keys::{self, Keys};
use super::lua::with_clock;

const NAMESPACE: &str = "model";
const PROCESS: &str = "0000c0ffee00";
const CLOCK: &str = "local SECONDS, MICROS = string.match(redis.call('GET', 'clock'), '^(%d+)%.(%d+)$')";

const TICKS_PER_SECOND: u64 = 64;
const NANOS_PER_TICK: u64 = 1_000_000_000 / TICKS_PER_SECOND;
const START: u64 = 1_700_000_000 * TICKS_PER_SECOND;
/// For a waiter to show up after its grant: `GRACE` of the prelude.
const GRACE: u64 = 10 * TICKS_PER_SECOND;
/// A heartbeat that never comes due.
const FOREVER: u64 = 1_000_000 * TICKS_PER_SECOND;

/// Endings, as the prelude numbers them.
const RELEASED: i64 = 0;
const EXPIRED: i64 = 1;
const EVICTED: i64 = 2;
const VANISHED: i64 = 3;
const CLOSED: i64 = 4;
const TOO_HEAVY: i64 = 5;
const UNWANTED: i64 = 6;

macro_rules! operations {
    ($($operation:ident = $file:literal),* $(,)?) => {
        #[derive(Clone, Copy, Debug)]
        enum Operation { $($operation),* }

        const SOURCES: &[&str] = &[$(include_str!(concat!("../../lua/", $file))),*];
    };
}

operations! {
    Open = "open.lua",
    Queue = "queue.lua",
    Acquire = "acquire.lua",
    Release = "release.lua",
    Ping = "ping.lua",
    WakeUpNexts = "wake_up_nexts.lua",
    Renew = "renew.lua",
    Resize = "resize.lua",
    Close = "close.lua",
    Card = "card.lua",
    List = "list.lua",
}

/// A semaphore on a server, the clock, and an ear on the channel.
struct Desk {
    connection: Connection,
    ear: Connection,
    digests: Vec<String>,
    keys: Keys,
    now: u64,
}

/// What a script answered, whom it told what, and how it left the keys.
struct Seen {
    answer: Value,
    told: Vec<Vec<String>>,
    card: Value,
    /// Who holds: member, and when it is taken for dead.
    main: Vec<(String, f64)>,
    /// Ends of leases, by number.
    leases: BTreeMap<usize, u64>,
    line: Vec<(String, f64)>,
    beats: Vec<(String, f64)>,
    records: BTreeSet<usize>,
}

impl Desk {
    fn new(server: &RedisServer) -> Self {
        let mut connection = server.connection();
        let digests = SOURCES.iter().map(|source| {
            let script = with_clock(CLOCK, source);
            redis::cmd("SCRIPT").arg("LOAD").arg(&script.code).query(&mut connection).expect("it compiles")
        });
        let digests = digests.collect();
        let mut ear = server.connection();
        let subscribe = redis::cmd("SUBSCRIBE").arg(keys::channel(NAMESPACE, PROCESS)).get_packed_command();
        ear.send_packed_command(&subscribe).expect("a server");
        ear.recv_response().expect("a confirmation");
        Self { connection, ear, digests, keys: Keys::new(NAMESPACE, "name"), now: START }
    }

    /// Everything from the start.
    fn clear(&mut self) {
        redis::cmd("FLUSHALL").exec(&mut self.connection).expect("a server");
        self.now = START;
    }

    fn script(&self, operation: Operation, arguments: &[String]) -> redis::Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.digests[operation as usize]).arg(self.keys.all.len()).arg(&self.keys.all);
        command.arg(NAMESPACE).arg(arguments);
        command
    }

    /// Runs a script, and then looks at everything. One trip.
    fn run(&mut self, operation: Operation, arguments: &[String]) -> Seen {
        let clock = format!("{:.6}", self.now as f64 / TICKS_PER_SECOND as f64);
        let mut pipeline = redis::pipe();
        pipeline.cmd("SET").arg("clock").arg(clock).ignore();
        pipeline.add_command(self.script(operation, arguments));
        pipeline.cmd("PUBLISH").arg(keys::channel(NAMESPACE, PROCESS)).arg("end").ignore();
        pipeline.add_command(self.script(Operation::Card, &[]));
        pipeline.add_command(self.script(Operation::List, &[]));
        pipeline.cmd("HKEYS").arg(&self.keys.all[6]);
        let (answer, card, list, records): (Value, Value, Value, Vec<String>) =
            pipeline.query(&mut self.connection).unwrap_or_else(|error| panic!("{operation:?}: {error}"));

        let mut told = Vec::new();
        loop {
            let message = self.ear.recv_response().expect("a message");
            let [_, _, message]: [String; 3] = redis::from_redis_value(message).expect("kind, channel, text");
            if message == "end" {
                break;
            }
            told.push(message.split(' ').map(plain).collect());
        }
        let mut list = Words::of(list).expect("a list");
        list.next().expect("the time");
        let mut scores = || -> Vec<(String, f64)> {
            let pairs = Words::pairs(list.next().expect("a set")).expect("pairs");
            pairs.into_iter().map(|(member, score)| (member, score.parse().expect("a score"))).collect()
        };
        let (main, leases, line, beats) = (scores(), scores(), scores(), scores());
        Seen {
            answer,
            told,
            card,
            main,
            leases: leases.iter().map(|(id, end)| (number_of(id), ticks(*end))).collect(),
            line,
            beats,
            records: records.iter().filter(|id| !id.is_empty()).map(|id| number_of(id)).collect(),
        }
    }

    /// How many of these have a notification.
    fn notifications(&mut self, numbers: impl Iterator<Item = usize>) -> usize {
        let keys: Vec<_> = numbers.map(|number| keys::notification(NAMESPACE, &id_of(number))).collect();
        if keys.is_empty() {
            return 0;
        }
        redis::cmd("EXISTS").arg(keys).query(&mut self.connection).expect("a server")
    }
}

impl Seen {
    fn words(&self) -> Vec<String> {
        fn flat(value: &Value, into: &mut Vec<String>) {
            match value {
                Value::Array(values) => values.iter().for_each(|value| flat(value, into)),
                value => into.push(plain(&text(value.clone()).expect("a word"))),
            }
        }
        let mut words = Vec::new();
        flat(&self.answer, &mut words);
        words
    }

    /// Who holds how much, by number.
    fn holders(&self) -> BTreeMap<usize, u32> {
        weights(&self.main).into_iter().collect()
    }
}

fn id_of(number: usize) -> String {
    format!("{:08x}{PROCESS}{number:012x}", 0x5eaf00d)
}

fn number_of(member: &str) -> usize {
    usize::from_str_radix(&member[20..32], 16).expect("an id of ours")
}

/// Who is in a set and how often, in its order. The parts of a weight have to stand together.
fn weights(members: &[(String, f64)]) -> Vec<(usize, u32)> {
    let mut found: Vec<(usize, u32)> = Vec::new();
    for (member, _) in members {
        match found.last_mut() {
            Some((number, weight)) if *number == number_of(member) => *weight += 1,
            _ => found.push((number_of(member), 1)),
        }
    }
    found
}

/// When each is due; all parts of a weight at once.
fn dues(members: &[(String, f64)]) -> BTreeMap<usize, BTreeSet<u64>> {
    let mut dues = BTreeMap::<_, BTreeSet<_>>::new();
    for (member, due) in members {
        dues.entry(number_of(member)).or_default().insert(ticks(*due));
    }
    dues
}

fn seconds(ticks: u64) -> String {
    (ticks as f64 / TICKS_PER_SECOND as f64).to_string()
}

/// Times are written with more or less zeros. Here they have none.
fn plain(word: &str) -> String {
    match word.parse::<f64>() {
        Ok(number) if word.contains('.') => number.to_string(),
        _ => word.to_owned(),
    }
}

fn ticks(seconds: f64) -> u64 {
    let ticks = seconds * TICKS_PER_SECOND as f64;
    assert_eq!(ticks.fract(), 0.0, "{seconds} s is on no tick");
    ticks as u64
}

fn time(ticks: u64) -> Timestamp {
    Timestamp::from_nanos(ticks * NANOS_PER_TICK)
}

fn span(ticks: u64) -> Duration {
    Duration::from_nanos(ticks * NANOS_PER_TICK)
}

fn texts<const N: usize>(words: [&dyn ToString; N]) -> Vec<String> {
    words.map(ToString::to_string).to_vec()
}

/// Who has which slot number, from what was told. The scripts give away the lowest, so a number that leaks shows.
#[derive(Default)]
struct Numbers {
    taken: BTreeMap<usize, u32>,
    last_token: u64,
}

impl Numbers {
    fn grant(
        &mut self,
        number: usize,
        slot: &str,
        token: &str,
        limit: u32,
    ) -> Result<(u32, u64), TestCaseError> {
        let (slot, token): (u32, u64) = (slot.parse().expect("a slot"), token.parse().expect("a token"));
        let is_free = |slot: &u32| !self.taken.values().any(|taken| taken == slot);
        prop_assert_eq!(Some(slot), (0..limit).find(is_free), "the lowest free slot");
        prop_assert!(token > self.last_token, "token {} after {}", token, self.last_token);
        self.last_token = token;
        self.taken.insert(number, slot);
        Ok((slot, token))
    }

    fn end(&mut self, number: usize) {
        self.taken.remove(&number);
    }
}

/// What went wrong, and the moves up to there.
fn blame<M: Debug>(capacity: u32, moves: &[M], error: TestCaseError) -> TestCaseError {
    let moves: String = moves.iter().map(|step| format!("\n  {step:?}")).collect();
    TestCaseError::fail(format!("{error}\nwith {capacity} slots, after{moves}"))
}

/// Plays so many games on one server.
fn play<G: Debug>(
    cases: u32,
    games: impl Strategy<Value = G>,
    game: impl Fn(&mut Desk, G) -> TestCaseResult,
) {
    let server = RedisServer::start();
    let desk = std::cell::RefCell::new(Desk::new(&server));
    let default = ProptestConfig::with_source_file(file!());
    let config = ProptestConfig {
        cases: if default.cases == 256 { cases } else { default.cases },
        rng_algorithm: RngAlgorithm::XorShift,
        max_shrink_iters: default.max_shrink_iters.min(2_000),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..default
    };
    let outcome = TestRunner::new(config).run(&games, |moves| {
        let mut desk = desk.borrow_mut();
        desk.clear();
        game(&mut desk, moves)
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, _) | TestError::Abort(why)) => panic!("{why}"),
    }
}

// Beside the core

#[derive(Clone, Debug)]
struct Step {
    ticks: u64,
    action: Action,
    /// The answer is lost, and the same is asked again.
    again: bool,
}

#[derive(Clone, Debug)]
enum Action {
    Ask {
        wish: Wish,
        is_try: bool,
    },
    /// Asks once more, long after the answer was lost.
    AskAgain(Which),
    /// Cancels what has not arrived yet.
    CancelEarly(Wish),
    /// And then it arrives.
    ArriveLate(Index),
    End {
        which: Which,
        how: How,
        by_another: bool,
    },
    Renew(Which, Option<u64>),
    Look(Which),
    Ping(Vec<Index>),
    Resize(u32),
    Bound(usize),
    Close,
    Sweep,
}

#[derive(Clone, Copy, Debug)]
struct Wish {
    weight: u32,
    ttl: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Which {
    Live(Index),
    Seen(Index),
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum How {
    Released,
    Evicted,
    Cancelled,
    TimedOut,
}

impl How {
    fn word(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Evicted => "evicted",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed_out",
        }
    }
}

#[derive(Clone, Debug)]
struct Game {
    capacity: u32,
    steps: Vec<Step>,
}

fn game() -> impl Strategy<Value = Game> {
    let ticks = prop_oneof![8 => 0..=2u64, 1 => 3..=30u64];
    let step = (ticks, action(), prop::bool::weighted(0.25));
    let step = step.prop_map(|(ticks, action, again)| Step { ticks, action, again });
    (1..=6u32, vec(step, 1..80)).prop_map(|(capacity, steps)| Game { capacity, steps })
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        45 => (wish(), prop::bool::weighted(0.2)).prop_map(|(wish, is_try)| Action::Ask { wish, is_try }),
        5 => which().prop_map(Action::AskAgain),
        2 => wish().prop_map(Action::CancelEarly),
        3 => any::<Index>().prop_map(Action::ArriveLate),
        40 => (which(), how(), any::<bool>())
            .prop_map(|(which, how, by_another)| Action::End { which, how, by_another }),
        10 => (which(), ttl()).prop_map(|(which, ttl)| Action::Renew(which, ttl)),
        8 => which().prop_map(Action::Look),
        6 => vec(any::<Index>(), 1..5).prop_map(Action::Ping),
        12 => (1..=8u32).prop_map(Action::Resize),
        5 => prop_oneof![0..=5usize, Just(1_000)].prop_map(Action::Bound),
        1 => Just(Action::Close),
        12 => Just(Action::Sweep),
    ]
}

fn wish() -> impl Strategy<Value = Wish> {
    let weight = prop_oneof![3 => Just(1), 2 => 1..=5u32];
    (weight, ttl()).prop_map(|(weight, ttl)| Wish { weight, ttl })
}

fn ttl() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![8 => Just(None), 8 => (1..=20u64).prop_map(Some), 1 => (600..=700u64).prop_map(Some)]
}

fn which() -> impl Strategy<Value = Which> {
    prop_oneof![5 => any::<Index>().prop_map(Which::Live), 2 => any::<Index>().prop_map(Which::Seen)]
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![
        6 => Just(How::Released),
        1 => Just(How::Evicted),
        3 => Just(How::Cancelled),
        2 => Just(How::TimedOut)
    ]
}

/// Whoever asked, as its client sees it.
struct Client {
    wish: Wish,
    is_try: bool,
    /// How long it may hold from its grant or its last renewal.
    ttl: Option<u64>,
    stand: Stand,
    /// It was cancelled when there was nothing to cancel: should it still arrive, it is refused.
    is_unwanted: bool,
    arrived: u64,
    /// Slot, token, and how long it waited.
    got: Option<(u32, u64, u64)>,
    /// The score of its place in line.
    place: String,
}

#[derive(Clone, Copy)]
enum Stand {
    NotYet,
    /// In line; or it was settled, and nobody has looked.
    Waits(Ticket),
    /// Granted; that may have ended.
    Has(PermitId),
    Over(i64),
}

struct Table<'a> {
    desk: &'a mut Desk,
    gate: Gate<usize, usize>,
    effects: Effects<usize, usize>,
    clients: Vec<Client>,
    numbers: Numbers,
    /// Of those who left the line. To the core a client that runs out of patience has cancelled.
    timed_out: u64,
    /// Requests that came after their end, and were refused.
    came_late: u64,
    /// Losses the core does not tell, because whoever released it knows.
    released_by_another: Vec<usize>,
}

/// What a move expects to be answered.
type Reply = Vec<String>;

impl Table<'_> {
    fn now(&self) -> Timestamp {
        time(self.desk.now)
    }

    fn expire(&mut self) {
        self.gate.expire(time(self.desk.now), &mut self.effects);
    }

    fn is_waiting(&self, number: usize) -> bool {
        self.gate.waiters().any(|waiter| *waiter.tag == number)
    }

    fn holds(&self, number: usize) -> bool {
        self.gate.holders().any(|holder| *holder.tag == number)
    }

    fn new_client(&mut self, wish: Wish, is_try: bool) -> usize {
        self.clients.push(Client {
            wish,
            is_try,
            ttl: wish.ttl,
            stand: Stand::NotYet,
            is_unwanted: false,
            arrived: self.desk.now,
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

    /// Lets a client know what became of its place.
    fn settle(&mut self, number: usize) {
        let Stand::Waits(ticket) = self.clients[number].stand else { return };
        self.clients[number].stand = match self.gate.claim(ticket) {
            Claim::Waiting => return,
            Claim::Granted { id, .. } => Stand::Has(id),
            Claim::Gone(why) => Stand::Over(code(why)),
            Claim::Closed => Stand::Over(CLOSED),
            Claim::TooHeavy { .. } => Stand::Over(TOO_HEAVY),
            claim => panic!("{claim:?}"),
        };
    }

    /// How somebody ended, who holds nothing and waits for nothing.
    fn ending(&mut self, number: usize) -> i64 {
        self.settle(number);
        match self.clients[number].stand {
            _ if self.clients[number].is_unwanted => UNWANTED,
            Stand::Over(code) => code,
            Stand::Has(id) => self.gate.expiry(id).map_or_else(code, |_| panic!("it holds something")),
            Stand::NotYet | Stand::Waits(_) => RELEASED,
        }
    }

    /// What a script says of a grant. Slot numbers may differ from the core's.
    fn granted(&self, number: usize) -> Option<Reply> {
        let (slot, token, waited) = self.clients[number].got?;
        let (limit, now) = (self.gate.capacity(), seconds(self.desk.now));
        Some(texts([&"granted", &limit, &0, &slot, &token, &seconds(waited), &now]))
    }

    /// Somebody was told of its grant.
    fn note_grant(&mut self, number: usize, slot: &str, token: &str) -> TestCaseResult {
        let (slot, token) = self.numbers.grant(number, slot, token, self.gate.capacity())?;
        let client = &mut self.clients[number];
        client.got = Some((slot, token, self.desk.now - client.arrived));
        Ok(())
    }

    /// Runs a script, and takes in what it told.
    fn run(&mut self, operation: Operation, arguments: &[String]) -> Result<Seen, TestCaseError> {
        let seen = self.desk.run(operation, arguments);
        for words in &seen.told {
            let number = number_of(&words[1]);
            match &*words[0] {
                "lost" => self.numbers.end(number),
                "granted" => {
                    self.note_grant(number, &words[2], &words[3])?;
                    let Client { arrived, wish, .. } = self.clients[number];
                    let now = self.desk.now;
                    let until = now + wish.ttl.map_or(GRACE, |ttl| ttl.min(GRACE));
                    prop_assert_eq!(&words[4..], [now - arrived, now, until].map(seconds), "{:?}", words);
                }
                _ => {}
            }
        }
        Ok(seen)
    }

    fn next_deadline_is(&self, told: &str) -> TestCaseResult {
        let core = self.gate.next_deadline();
        let is_empty = self.gate.held() == 0 && self.gate.waiting() == 0;
        prop_assert_eq!(told.is_empty(), is_empty, "next deadline {:?}", told);
        if !is_empty {
            // A grace that runs out is none of the core's business; the game is over before.
            let told = ticks(told.parse().expect("seconds"));
            let due = if core == Timestamp::NEVER { u64::MAX } else { core.as_nanos() / NANOS_PER_TICK };
            prop_assert_eq!(told.min(START + GRACE), due.min(START + GRACE), "next deadline");
        }
        Ok(())
    }

    fn ask(&mut self, number: usize, again: bool) -> Result<Seen, TestCaseError> {
        let Client { wish, is_try, .. } = self.clients[number];
        let mode = if is_try { "try" } else { "wait" };
        let ttl = seconds(wish.ttl.unwrap_or(0));
        let (id, heartbeat, again) = (id_of(number), seconds(FOREVER), u8::from(again));
        let arguments =
            texts([&id, &wish.weight, &ttl, &heartbeat, &"{}", &mode, &1, &1, &0, &-1, &again, &0]);
        self.run(Operation::Queue, &arguments)
    }

    /// The core's answer, in the scripts' words as far as they are the same.
    fn core_acquire(&mut self, number: usize) -> Option<Reply> {
        let Client { wish, is_try, .. } = self.clients[number];
        let now = self.now();
        let request = Request { weight: wish.weight, ttl: wish.ttl.map(span), deadline: Timestamp::NEVER };
        let acquired = if is_try {
            self.expire();
            self.gate.try_acquire(&request, number, now).map(Acquired::Granted)
        } else {
            self.gate.acquire(&request, number, number, now, &mut self.effects)
        };
        self.effects.unused = None;
        let (limit, held, waiting) = (self.gate.capacity(), self.gate.held(), self.gate.waiting());
        self.clients[number].stand = match acquired {
            Ok(Acquired::Granted(id)) => Stand::Has(id),
            Ok(Acquired::Queued(ticket)) => Stand::Waits(ticket),
            Err(_) => Stand::Over(RELEASED),
        };
        Some(match acquired.err()? {
            Refusal::Busy => texts([&"busy", &limit, &0, &held, &waiting]),
            Refusal::LineFull { limit } => texts([&"full", &limit]),
            Refusal::TooHeavy { capacity, .. } => texts([&"too_heavy", &capacity]),
            Refusal::Closed => texts([&"closed"]),
            refusal => panic!("{refusal:?}"),
        })
    }

    /// Makes the move on both sides. False if the game ends with it.
    fn make(&mut self, step: &Step) -> Result<bool, TestCaseError> {
        // Whoever was granted a slot from the line has shown up before the grace is over.
        self.desk.now = (self.desk.now + step.ticks).min(START + GRACE - 1);
        match &step.action {
            Action::Ask { wish, is_try } => {
                let number = self.new_client(*wish, *is_try);
                let refusal = self.core_acquire(number);
                let seen = self.ask(number, false)?;
                self.check_asked(number, refusal, &seen)?;
                self.check(&seen)?;
                if step.again {
                    let is_refused = matches!(self.clients[number].stand, Stand::Over(_));
                    let expected = if is_refused { self.core_acquire(number) } else { Some(seen.words()) };
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
                let seen = self.ask(number, true)?;
                let words = seen.words();
                if self.holds(number) {
                    prop_assert_eq!(Some(words), self.granted(number), "asked again, late");
                } else {
                    prop_assert_eq!(&words[0], "queued");
                    prop_assert_eq!(&words[3], &self.clients[number].place, "its place");
                }
                self.check(&seen)?;
            }
            Action::CancelEarly(wish) => {
                let number = self.new_client(*wish, false);
                self.end(number, How::Cancelled, false, step.again)?;
            }
            Action::ArriveLate(index) => {
                let late = |client: &Client| client.is_unwanted;
                let late: Vec<_> = (0..self.clients.len()).filter(|n| late(&self.clients[*n])).collect();
                if late.is_empty() {
                    return Ok(true);
                }
                let number = *index.get(&late);
                for again in [false, true] {
                    self.expire();
                    self.came_late += 1;
                    let seen = self.ask(number, again)?;
                    prop_assert_eq!(seen.words(), ["closed"], "it arrives after its end");
                    self.check(&seen)?;
                }
            }
            Action::End { which, how, by_another } => {
                let Some(number) = self.pick(*which) else { return Ok(true) };
                let is_known = matches!(self.clients[number].stand, Stand::Has(_)) && self.holds(number);
                if is_known && matches!(how, How::Cancelled | How::TimedOut) {
                    // Nobody cancels what it knows to hold.
                    return Ok(true);
                }
                self.end(number, *how, *by_another, step.again)?;
            }
            Action::Renew(which, ttl) => {
                let Some(number) = self.pick(*which) else { return Ok(true) };
                for _ in 0..=u8::from(step.again) {
                    self.expire();
                    self.settle(number);
                    let now = self.now();
                    let is_renewed = match self.clients[number].stand {
                        Stand::Has(id) => self.gate.renew(id, ttl.map(span), now, &mut self.effects).is_ok(),
                        _ => false,
                    };
                    if is_renewed {
                        self.clients[number].ttl = *ttl;
                    }
                    let expected = match is_renewed {
                        true => texts([&"renewed", &seconds(self.desk.now)]),
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
                    let seen = self.run(Operation::Acquire, &[id_of(number)])?;
                    let expected = if self.holds(number) {
                        self.granted(number).expect("it was told of its grant")
                    } else if self.is_waiting(number) {
                        texts([&"waiting", &seconds(self.desk.now)])
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
                    let (before, now) = (self.gate.capacity(), self.now());
                    self.gate.resize(*slots, now, &mut self.effects).expect("at least one slot");
                    let seen = self.run(Operation::Resize, &texts([slots]))?;
                    prop_assert_eq!(seen.words(), texts([&before]), "slots before");
                    self.check(&seen)?;
                }
            }
            Action::Bound(limit) => {
                self.expire();
                let is_over = self.gate.is_closed();
                let expected = if !is_over {
                    self.gate.set_max_waiting(*limit);
                    texts([&"open", &self.gate.capacity(), &0])
                } else if self.gate.held() > 0 {
                    texts([&"closing", &self.gate.held()])
                } else {
                    // It opens anew. To the core that is another gate.
                    texts([&"open", &self.gate.capacity(), &1])
                };
                let seen = self.run(Operation::Open, &texts([&0, limit]))?;
                prop_assert_eq!(seen.words(), expected);
                if is_over && self.gate.held() == 0 {
                    let number = self.new_client(Wish { weight: 1, ttl: None }, false);
                    prop_assert_eq!(self.ask(number, false)?.words(), ["closed"], "a handle from before");
                    return Ok(false);
                }
                self.check(&seen)?;
            }
            Action::Close => {
                for _ in 0..=u8::from(step.again) {
                    let waiting = self.gate.waiting();
                    self.gate.close(&mut self.effects);
                    let seen = self.run(Operation::Close, &[])?;
                    prop_assert_eq!(seen.words(), texts([&waiting]), "turned away");
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
        prop_assert_eq!(&words[0], &seconds(self.desk.now));
        self.next_deadline_is(&words[1])?;
        prop_assert_eq!(&words[2], "0", "foreign holders");
        self.check(&seen)?;
        Ok(true)
    }

    fn check_asked(&mut self, number: usize, refusal: Option<Reply>, seen: &Seen) -> TestCaseResult {
        let words = seen.words();
        match self.clients[number].stand {
            Stand::Has(_) => {
                prop_assert_eq!(&words[0], "granted", "{:?}", words);
                self.note_grant(number, &words[3], &words[4])?;
                prop_assert_eq!(Some(words), self.granted(number));
            }
            Stand::Waits(_) => {
                let (limit, now) = (self.gate.capacity().to_string(), seconds(self.desk.now));
                prop_assert_eq!(words.len(), 7, "{:?}", words);
                prop_assert_eq!(&words[..3], ["queued", &limit, "0"]);
                prop_assert_eq!((&words[4], &*words[6]), (&now, "0"), "now, foreign holders");
                self.next_deadline_is(&words[5])?;
                self.clients[number].place.clone_from(&words[3]);
            }
            _ => prop_assert_eq!(Some(words), refusal),
        }
        Ok(())
    }

    fn end(&mut self, number: usize, how: How, by_another: bool, again: bool) -> TestCaseResult {
        let now = self.now();
        let is_unwanted = matches!(how, How::Cancelled | How::TimedOut);
        // Whoever gives up does that itself.
        let by_another = by_another && !is_unwanted;
        if !is_unwanted || !self.is_waiting(number) && !self.holds(number) {
            self.settle(number);
        }
        let outcome = match self.clients[number].stand {
            Stand::Waits(ticket) => {
                let cancelled = self.gate.cancel(ticket, now, &mut self.effects);
                self.clients[number].stand = Stand::Over(RELEASED);
                match cancelled {
                    Cancelled::Left(_) => {
                        self.timed_out += u64::from(how == How::TimedOut);
                        "left"
                    }
                    Cancelled::HandedOn => "ended",
                    other => panic!("{other:?}"),
                }
            }
            Stand::Has(id) => {
                let ended = match how {
                    How::Evicted => self.gate.evict(id, now, &mut self.effects),
                    _ => self.gate.release(id, now, &mut self.effects).map(drop),
                };
                if ended.is_ok() && how == How::Released && by_another {
                    self.released_by_another.push(number);
                }
                if ended.is_ok() { "ended" } else { "gone" }
            }
            Stand::NotYet | Stand::Over(_) => "gone",
        };
        if outcome == "ended" {
            self.numbers.end(number);
        }
        let mut code = if outcome == "gone" { self.ending(number) } else { 0 };
        for outcome in [outcome, "gone"].into_iter().take(1 + usize::from(again)) {
            let (held, limit) = (self.gate.held(), self.gate.capacity());
            let waiting = self.gate.waiting();
            let arguments = texts([&id_of(number), &how.word(), &u8::from(by_another)]);
            let seen = self.run(Operation::Release, &arguments)?;
            let words = seen.words();
            prop_assert_eq!(&words[..2], texts([&outcome, &code]), "outcome, ending");
            if how == How::TimedOut {
                // Only then somebody wants to know how it stands.
                prop_assert_eq!(&words[2..], texts([&held, &limit, &waiting]), "held, slots, waiting");
            }
            self.clients[number].is_unwanted |= is_unwanted && outcome == "gone";
            self.check(&seen)?;
            code = self.ending(number);
        }
        Ok(())
    }

    fn ping(&mut self, numbers: &BTreeSet<usize>) -> TestCaseResult {
        let knows = |number: &usize| matches!(self.clients[*number].stand, Stand::Has(_));
        let (holders, waiters): (Vec<_>, Vec<_>) = numbers.iter().copied().partition(knows);
        let mut arguments = texts([&holders.len()]);
        for number in holders.iter().chain(&waiters) {
            let Client { ttl, wish: Wish { weight, .. }, .. } = self.clients[*number];
            let lease = ttl.filter(|_| holders.contains(number)).unwrap_or(FOREVER);
            arguments.extend(texts([&id_of(*number), &weight, &seconds(lease)]));
        }
        self.expire();
        let seen = self.run(Operation::Ping, &arguments)?;
        let mut expected = Vec::new();
        for number in holders.iter().chain(&waiters).copied() {
            self.settle(number);
            let is_news = waiters.contains(&number);
            if self.holds(number) && is_news {
                let (slot, token, waited) = self.clients[number].got.expect("it was told of its grant");
                expected.extend(texts([&"granted", &slot, &token, &seconds(waited)]));
            } else if self.holds(number) || self.is_waiting(number) {
                expected.extend(texts([&1]));
            } else {
                expected.extend(texts([&"gone", &self.ending(number)]));
            }
        }
        let words = seen.words();
        prop_assert_eq!(&words[3..], &expected[..], "states");
        prop_assert_eq!((&words[0], &*words[2]), (&seconds(self.desk.now), "0"), "now, foreign holders");
        self.next_deadline_is(&words[1])?;
        self.check(&seen)
    }

    /// What was told, and how it stands.
    fn check(&mut self, seen: &Seen) -> TestCaseResult {
        let effects = std::mem::take(&mut self.effects);
        let (mut settled, mut lost) = (Vec::new(), Vec::new());
        for words in &seen.told {
            let number = number_of(&words[1]);
            match &*words[0] {
                "lost" => lost.push((number, words[2].parse().expect("a code"))),
                "too_heavy" => {
                    let (weight, limit) = (self.clients[number].wish.weight, self.gate.capacity());
                    prop_assert_eq!(&words[2..], texts([&weight, &limit]));
                    settled.push((number, "turned away"));
                }
                "closed" => settled.push((number, "turned away")),
                _ => settled.push((number, "granted")),
            }
        }
        let woken = effects
            .wake
            .iter()
            .map(|number| (*number, if self.holds(*number) { "granted" } else { "turned away" }));
        prop_assert_eq!(settled, woken.collect::<Vec<_>>(), "who was woken");
        let by_another = self.released_by_another.drain(..).map(|number| (number, RELEASED));
        let core_lost = effects.lost.iter().map(|lost| (lost.tag, code(NotHeld::Lost(lost.loss))));
        let mut expected: Vec<_> = by_another.chain(core_lost).collect();
        // Leases that end at the same time end in any order.
        expected.sort_unstable();
        lost.sort_unstable();
        prop_assert_eq!(lost, expected, "who lost");
        self.check_keys(seen)?;
        self.check_card(seen)
    }

    fn check_keys(&self, seen: &Seen) -> TestCaseResult {
        let holders: BTreeMap<_, _> =
            self.gate.holders().map(|holder| (*holder.tag, holder.weight)).collect();
        prop_assert_eq!(&seen.holders(), &holders, "who holds");
        let leases = self.gate.holders().filter(|holder| holder.expires != Timestamp::NEVER);
        let leases = leases.map(|holder| (*holder.tag, holder.expires.as_nanos() / NANOS_PER_TICK));
        prop_assert_eq!(&seen.leases, &leases.collect(), "leases");
        let line: Vec<_> = self.gate.waiters().map(|waiter| (*waiter.tag, waiter.weight)).collect();
        prop_assert_eq!(&weights(&seen.line), &line, "the line");
        let beats: BTreeSet<_> = seen.beats.iter().map(|(member, _)| member).collect();
        prop_assert_eq!(beats, seen.line.iter().map(|(member, _)| member).collect(), "who waits");
        let live = holders.into_keys().chain(line.into_iter().map(|(number, _)| number));
        prop_assert_eq!(&seen.records, &live.collect(), "records");
        Ok(())
    }

    fn check_card(&self, seen: &Seen) -> TestCaseResult {
        let core = self.gate.stats(self.now());
        let card = Card::read(seen.card.clone()).expect("a card");
        prop_assert_eq!(card.is_closed(), self.gate.is_closed());
        let stats = card.into_stats("name".into(), 0);
        // What is due counts as ended.
        let due = self.gate.holders().filter(|holder| holder.expires <= self.now());
        let (due, weight) = due.fold((0, 0), |(count, weight), holder| (count + 1, weight + holder.weight));
        prop_assert_eq!(
            (stats.capacity, stats.held, stats.holders, stats.waiting),
            (core.capacity, core.held - weight, core.holders - due, core.waiting),
            "capacity, held, holders, waiting"
        );
        let longest_waits = [stats.longest_wait, core.longest_wait];
        let [less, more] = [longest_waits.iter().min(), longest_waits.iter().max()].map(Option::unwrap);
        prop_assert!(*more - *less < Duration::from_millis(1), "longest wait: {:?}", longest_waits);
        let mut totals = core.totals;
        totals.timed_out += self.timed_out;
        totals.cancelled -= self.timed_out;
        totals.refused += self.came_late;
        prop_assert_eq!(stats.totals, totals);
        prop_assert_eq!(&stats.waits, &core.waits, "waits");
        prop_assert_eq!(&stats.holds, &core.holds, "holds");
        Ok(())
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
fn the_scripts_answer_tell_and_count_as_the_core_does() {
    play(150, game(), |desk, game| {
        let seen = desk.run(Operation::Open, &texts([&game.capacity, &-1]));
        prop_assert_eq!(seen.words(), texts([&"open", &game.capacity, &0]));
        let mut table = Table {
            desk,
            gate: Gate::new(1, game.capacity).expect("at least one slot"),
            effects: Effects::default(),
            clients: Vec::new(),
            numbers: Numbers::default(),
            timed_out: 0,
            came_late: 0,
            released_by_another: Vec::new(),
        };
        for (n, step) in game.steps.iter().enumerate() {
            match table.make(step) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return Err(blame(game.capacity, &game.steps[..=n], error)),
            }
        }
        Ok(())
    });
}

// Heartbeats

#[derive(Clone, Debug)]
struct Beat {
    ticks: u64,
    action: Doing,
}

#[derive(Clone, Debug)]
enum Doing {
    Ask {
        wish: Wish,
        heartbeat: u64,
    },
    Ping(Vec<Index>),
    /// Nobody sweeps on time, and then all give a sign of life.
    PingLate,
    Release(Index),
    Cancel(Index),
    /// Somebody who waited died, and comes back to where it stood.
    Return(Index),
    Resize(u32),
    Nothing,
}

fn beats() -> impl Strategy<Value = (u32, Vec<Beat>)> {
    let ttl = prop_oneof![3 => Just(None), 1 => (1..=20 * TICKS_PER_SECOND).prop_map(Some)];
    let heartbeat = prop_oneof![2 => 1..=5 * TICKS_PER_SECOND, 1 => GRACE - 64..=GRACE + 64];
    let ask = (1..=3u32, ttl, heartbeat).prop_map(|(weight, ttl, heartbeat)| {
        let wish = Wish { weight, ttl };
        Doing::Ask { wish, heartbeat }
    });
    let action = prop_oneof![
        10 => ask,
        8 => vec(any::<Index>(), 1..6).prop_map(Doing::Ping),
        2 => Just(Doing::PingLate),
        4 => any::<Index>().prop_map(Doing::Release),
        1 => any::<Index>().prop_map(Doing::Cancel),
        2 => any::<Index>().prop_map(Doing::Return),
        1 => (1..=5u32).prop_map(Doing::Resize),
        2 => Just(Doing::Nothing),
    ];
    let ticks = prop_oneof![3 => 0..=32u64, 2 => 32..=4 * TICKS_PER_SECOND];
    let beat = (ticks, action).prop_map(|(ticks, action)| Beat { ticks, action });
    (1..=4u32, vec(beat, 1..60))
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Life {
    Waits { dead_at: u64 },
    Holds { dead_at: u64, ends_at: Option<u64> },
    Over { is_dead_waiter: bool },
}

#[derive(Clone, Debug)]
struct Being {
    wish: Wish,
    heartbeat: u64,
    life: Life,
    place: String,
    arrived: u64,
    /// It was granted its slot in the very moment in which it asked: no clock of a server is that coarse.
    is_instant: bool,
}

impl Being {
    fn lease(&self) -> u64 {
        self.wish.ttl.map_or(self.heartbeat, |ttl| ttl.min(self.heartbeat))
    }

    fn is_live(&self) -> bool {
        !matches!(self.life, Life::Over { .. })
    }
}

/// Who should be alive, from what was asked and told. Who gets a slot is left to the scripts.
struct Ward<'a> {
    desk: &'a mut Desk,
    limit: u32,
    held: u32,
    numbers: Numbers,
    beings: Vec<Being>,
    /// In the order of arrival.
    line: Vec<usize>,
}

impl Ward<'_> {
    fn live(&self) -> Vec<usize> {
        (0..self.beings.len()).filter(|number| self.beings[*number].is_live()).collect()
    }

    fn next_deadline(&self) -> Option<u64> {
        let dues = self.beings.iter().filter_map(|being| match being.life {
            Life::Waits { dead_at } => Some(dead_at),
            Life::Holds { dead_at, ends_at } => Some(ends_at.map_or(dead_at, |ends_at| ends_at.min(dead_at))),
            Life::Over { .. } => None,
        });
        dues.min()
    }

    /// Lets time pass, with a sweep at every deadline.
    fn pass(&mut self, ticks: u64) -> TestCaseResult {
        let then = self.desk.now + ticks;
        while let Some(due) = self.next_deadline().filter(|due| *due <= then) {
            // Nobody goes early.
            for now in [due - 1, due] {
                self.desk.now = self.desk.now.max(now);
                let seen = self.desk.run(Operation::WakeUpNexts, &[]);
                self.note(&seen)?;
                self.die();
                self.check(&seen)?;
                let next = self.next_deadline().map_or(String::new(), seconds);
                prop_assert_eq!(&seen.words()[1], &next, "next deadline");
            }
        }
        self.desk.now = then;
        Ok(())
    }

    /// Whoever is due and waits is dead; that is told nobody.
    fn die(&mut self) {
        for being in &mut self.beings {
            if matches!(being.life, Life::Waits { dead_at } if dead_at <= self.desk.now) {
                being.life = Life::Over { is_dead_waiter: true };
            }
        }
        self.line.retain(|number| self.beings[*number].is_live());
    }

    /// Takes in what was told.
    fn note(&mut self, seen: &Seen) -> TestCaseResult {
        let now = self.desk.now;
        for words in &seen.told {
            let number = number_of(&words[1]);
            let being = &self.beings[number];
            match (&*words[0], being.life) {
                ("granted", Life::Waits { dead_at }) => {
                    prop_assert!(dead_at > now, "{} is dead, and was granted a slot", number);
                    let place = self.line.iter().position(|other| *other == number).expect("it waits");
                    let are_dead = self.line.drain(..=place).all(|ahead| {
                        let life = self.beings[ahead].life;
                        ahead == number || matches!(life, Life::Waits { dead_at } if dead_at <= now)
                    });
                    prop_assert!(are_dead, "{} has overtaken", number);
                    self.numbers.grant(number, &words[2], &words[3], self.limit)?;
                    let lease = being.lease().min(GRACE);
                    let ends_at = being.wish.ttl.map(|ttl| now + ttl);
                    self.beings[number].life = Life::Holds { dead_at: now + lease, ends_at };
                    self.beings[number].is_instant = self.beings[number].arrived == now;
                }
                ("lost", Life::Holds { dead_at, ends_at }) => {
                    let has_ended = ends_at.is_some_and(|ends_at| ends_at <= now);
                    prop_assert!(has_ended || dead_at <= now, "{} lost early", number);
                    let code = if has_ended { EXPIRED } else { VANISHED };
                    prop_assert_eq!(&words[2], &code.to_string(), "how {} ended", number);
                    self.numbers.end(number);
                    self.beings[number].life = Life::Over { is_dead_waiter: false };
                }
                ("too_heavy", Life::Waits { .. }) => {
                    self.beings[number].life = Life::Over { is_dead_waiter: false };
                    self.line.retain(|other| *other != number);
                }
                told => prop_assert!(false, "{} was told {:?}", number, told),
            }
        }
        Ok(())
    }

    /// The keys have who lives, until when it should, and nothing else.
    fn check(&mut self, seen: &Seen) -> TestCaseResult {
        self.die();
        let mut main = BTreeMap::new();
        let mut leases = BTreeMap::new();
        let mut beats = BTreeMap::new();
        for (number, being) in self.beings.iter().enumerate() {
            match being.life {
                Life::Waits { dead_at } => drop(beats.insert(number, BTreeSet::from([dead_at]))),
                Life::Holds { dead_at, ends_at } => {
                    main.insert(number, BTreeSet::from([dead_at]));
                    leases.extend(ends_at.map(|ends_at| (number, ends_at)));
                }
                Life::Over { .. } => {}
            }
        }
        prop_assert_eq!(dues(&seen.main), main.clone(), "who holds, until when");
        prop_assert_eq!(&seen.leases, &leases, "leases");
        prop_assert_eq!(dues(&seen.beats), beats.clone(), "who waits, until when");
        let weigh = |number: &usize| (*number, self.beings[*number].wish.weight);
        prop_assert_eq!(seen.holders(), main.keys().map(weigh).collect(), "weights held");
        prop_assert_eq!(weights(&seen.line), self.line.iter().map(weigh).collect::<Vec<_>>(), "the line");
        prop_assert_eq!(seen.beats.len(), seen.line.len(), "weights waited for");
        prop_assert_eq!(&seen.records, &self.live().into_iter().collect(), "records");

        let held = main.keys().map(|number| self.beings[*number].wish.weight).sum();
        prop_assert!(held <= self.limit.max(self.held), "{} of {}, after {}", held, self.limit, self.held);
        self.held = held;
        if let Some(first) = self.line.first() {
            let weight = self.beings[*first].wish.weight;
            prop_assert!(held + weight > self.limit, "{} could have a slot", first);
        }
        let over = |number: &usize| !self.beings[*number].is_live() && !self.beings[*number].is_instant;
        let over: Vec<_> = (0..self.beings.len()).filter(over).collect();
        prop_assert_eq!(self.desk.notifications(over.into_iter()), 0, "notifications of who is gone");
        Ok(())
    }

    fn ask(&mut self, number: usize) -> TestCaseResult {
        let now = self.desk.now;
        let Being { wish, heartbeat, place, .. } = self.beings[number].clone();
        let (id, ttl) = (id_of(number), seconds(wish.ttl.unwrap_or(0)));
        let (again, arrival) = if place.is_empty() { ("0", "0") } else { ("1", &*place) };
        let arguments = texts([
            &id,
            &wish.weight,
            &ttl,
            &seconds(heartbeat),
            &"{}",
            &"wait",
            &1,
            &1,
            &0,
            &-1,
            &again,
            &arrival,
        ]);
        let seen = self.desk.run(Operation::Queue, &arguments);
        let words = seen.words();
        match &*words[0] {
            "granted" => {
                let ends_at = wish.ttl.map(|ttl| now + ttl);
                if !seen.told.is_empty() {
                    // Back in line, and out of it at once.
                    self.stand(number, now + heartbeat);
                    self.note(&seen)?;
                } else {
                    prop_assert!(self.line.is_empty(), "{} did not wait", number);
                    self.numbers.grant(number, &words[3], &words[4], self.limit)?;
                    let dead_at = now + self.beings[number].lease();
                    self.beings[number].life = Life::Holds { dead_at, ends_at };
                }
            }
            "queued" => {
                self.beings[number].place.clone_from(&words[3]);
                self.stand(number, now + heartbeat);
                self.note(&seen)?;
            }
            answer => prop_assert_eq!(answer, "too_heavy"),
        }
        self.check(&seen)
    }

    /// Takes its place in line, by its arrival.
    fn stand(&mut self, number: usize, dead_at: u64) {
        self.beings[number].life = Life::Waits { dead_at };
        let arrival = |number: usize| self.beings[number].place.parse::<f64>().expect("seconds");
        let (line, mine) = (&self.line, arrival(number));
        let place = line.iter().position(|other| arrival(*other) > mine).unwrap_or(line.len());
        self.line.insert(place, number);
    }

    fn ping(&mut self, numbers: &BTreeSet<usize>) -> TestCaseResult {
        let now = self.desk.now;
        let is_holder = |number: &usize| matches!(self.beings[*number].life, Life::Holds { .. });
        let (holders, waiters): (Vec<_>, Vec<_>) = numbers.iter().copied().partition(is_holder);
        let mut arguments = texts([&holders.len()]);
        for number in holders.iter().chain(&waiters) {
            let being = &mut self.beings[*number];
            let beat = match being.life {
                Life::Holds { .. } => being.lease(),
                _ => being.heartbeat,
            };
            arguments.extend(texts([&id_of(*number), &being.wish.weight, &seconds(beat)]));
        }
        // A lease is a lease, whatever the heart does. A slot that comes free goes to who is known to live at that time.
        let is_ended =
            |being: &Being| matches!(being.life, Life::Holds { ends_at: Some(end), .. } if end <= now);
        let has_free = self.beings.iter().any(is_ended);
        let seen = self.desk.run(Operation::Ping, &arguments);
        let in_line: BTreeSet<_> = seen.line.iter().map(|(member, _)| number_of(member)).collect();
        for number in numbers {
            let being = &mut self.beings[*number];
            let (lease, heartbeat) = (being.lease(), being.heartbeat);
            match &mut being.life {
                Life::Holds { dead_at, ends_at } if ends_at.is_none_or(|ends_at| ends_at > now) => {
                    *dead_at = now + lease;
                }
                Life::Waits { dead_at } if *dead_at > now || !has_free || in_line.contains(number) => {
                    *dead_at = now + heartbeat;
                }
                _ => {}
            }
        }
        self.note(&seen)?;
        self.die();
        // Granted by the ping itself, before or after its heartbeat was taken in.
        let granted = |words: &&Vec<String>| words[0] == "granted";
        for number in seen.told.iter().filter(granted).map(|words| number_of(&words[1])) {
            let due = dues(&seen.main).get(&number).and_then(|dues| dues.first().copied());
            let being = &mut self.beings[number];
            let (grace, heartbeat) = (now + being.lease().min(GRACE), now + being.heartbeat);
            prop_assert!(due == Some(grace) || numbers.contains(&number) && due == Some(heartbeat));
            if let Life::Holds { dead_at, .. } = &mut being.life {
                *dead_at = due.expect("it holds");
            }
        }
        let mut states = Vec::new();
        for number in holders.iter().chain(&waiters) {
            states.push(match self.beings[*number].life {
                Life::Holds { .. } if waiters.contains(number) => "granted",
                Life::Over { .. } => "gone",
                _ => "1",
            });
        }
        let Value::Array(answer) = &seen.answer else { panic!("no list: {:?}", seen.answer) };
        let told = answer[3..].iter().map(|state| match state {
            Value::Array(words) => text(words[0].clone()).expect("a word"),
            state => text(state.clone()).expect("a number"),
        });
        prop_assert_eq!(told.collect::<Vec<_>>(), states, "states");
        self.check(&seen)
    }

    fn end(&mut self, number: usize, how: How) -> TestCaseResult {
        let is_holder = matches!(self.beings[number].life, Life::Holds { .. });
        self.beings[number].life = Life::Over { is_dead_waiter: false };
        self.numbers.end(number);
        self.line.retain(|other| *other != number);
        let seen = self.desk.run(Operation::Release, &texts([&id_of(number), &how.word(), &0]));
        prop_assert_eq!(&seen.words()[0], if is_holder { "ended" } else { "left" });
        self.note(&seen)?;
        self.check(&seen)
    }

    fn live_through(&mut self, beat: &Beat) -> TestCaseResult {
        if !matches!(beat.action, Doing::PingLate) {
            self.pass(beat.ticks)?;
        }
        let live = self.live();
        let pick = |index: &Index| (!live.is_empty()).then(|| *index.get(&live));
        match &beat.action {
            Doing::Ask { wish, heartbeat } => {
                self.beings.push(Being {
                    wish: *wish,
                    heartbeat: *heartbeat,
                    life: Life::Over { is_dead_waiter: false },
                    place: String::new(),
                    arrived: self.desk.now,
                    is_instant: false,
                });
                self.ask(self.beings.len() - 1)?;
            }
            Doing::Ping(indices) => self.ping(&indices.iter().filter_map(pick).collect())?,
            Doing::PingLate => {
                self.desk.now += beat.ticks;
                self.ping(&live.into_iter().collect())?;
            }
            Doing::Release(index) => {
                let holds = |number: &usize| matches!(self.beings[*number].life, Life::Holds { .. });
                if let Some(number) = pick(index).filter(holds) {
                    self.end(number, How::Released)?;
                }
            }
            Doing::Cancel(index) => {
                if let Some(number) = pick(index) {
                    self.end(number, How::Cancelled)?;
                }
            }
            Doing::Return(index) => {
                let is_dead =
                    |number: &usize| self.beings[*number].life == Life::Over { is_dead_waiter: true };
                let dead: Vec<_> = (0..self.beings.len()).filter(is_dead).collect();
                if !dead.is_empty() {
                    self.ask(*index.get(&dead))?;
                }
            }
            Doing::Resize(limit) => {
                self.limit = *limit;
                let seen = self.desk.run(Operation::Resize, &texts([limit]));
                self.note(&seen)?;
                self.check(&seen)?;
            }
            Doing::Nothing => {}
        }
        Ok(())
    }
}

#[test]
fn who_gives_no_sign_of_life_is_gone_on_time_and_leaves_nothing() {
    play(100, beats(), |desk, (limit, beats)| {
        desk.run(Operation::Open, &texts([&limit, &-1]));
        let mut ward =
            Ward { desk, limit, held: 0, numbers: Numbers::default(), beings: Vec::new(), line: Vec::new() };
        for (n, beat) in beats.iter().enumerate() {
            ward.live_through(beat).map_err(|error| blame(limit, &beats[..=n], error))?;
        }
        // All hearts stop.
        while let Some(due) = ward.next_deadline() {
            let rest = due.saturating_sub(ward.desk.now);
            ward.pass(rest).map_err(|error| blame(limit, &beats, error))?;
        }
        prop_assert_eq!(ward.held, 0);
        Ok(())
    });
}
