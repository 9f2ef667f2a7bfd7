//! What a Redis server sends to a client that has acquisitions in several states: replies, errors and messages.
//!
//! Each line is one of these:
//!
//! | line | meaning |
//! |---|---|
//! | `@1500` | the clock moves 1500 ms |
//! | `>granted ID …` | a message to this process |
//! | `!(KEY …)` | invalidation of tracked keys |
//! | `?WORD …` | a push of another shape |
//! | `-ERR …` | an error as the reply to the next call |
//! | `^` | the connection is lost, and there is a new one |
//! | `=N` | the user cancels acquisition N, or drops its permit |
//! | `*N` | the user renews the permit of acquisition N |
//! | `+` | the user asks for slots once more |
//! | `WORD …` | the reply to the next call |
//!
//! A word is `:5` for an integer, `,1.5` for a double, `_` for nil, `#t` or `#f`, `""` for an empty text, a list or map in
//! `(` `)` or `{` `}`, or a text.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use redis::{PushInfo, PushKind, Value};
use semafor::__client::{
    AcquireRequest, Call, Client, Command, EndReason, Event, Failure, HeartbeatPart, Instant, Key, Leaver,
    LiveHolder, LiveWaiter, ServerPushes, Target, TaskKey, Wait,
};
use semafor::__redis::OfflineEngine;
use semafor::redis::Config;

const PASSWORD: &str = "hunter2hunter2";
const MOST_DEPTH: usize = 20;
const MOST_ACQUISITIONS: usize = 20;
/// More than that cannot be needed for so few acquisitions.
const MOST_PENDING: usize = 100;

pub(super) const WORDS: &[&str] = &[
    "granted ",
    "queued ",
    "busy ",
    "full ",
    "too_heavy ",
    "unseen ",
    "closed ",
    "closing ",
    "mismatch ",
    "unset ",
    "waiting ",
    "gone ",
    "renewed ",
    "ended ",
    "left ",
    "lost ",
    "watch ",
    "\n>granted 0535dd93000000000007000000000001 0 1 0 1000 1010",
    "\n>renewed 0535dd93000000000007000000000001 5 1000",
    "\n>lost 0535dd93000000000007000000000001 1",
    "\n>watch 0535dd93000000000007000000000002",
    "\n!( fuzz:acquisition_notification:0535dd93000000000007000000000002 )",
    "\n!( fuzz:semaphore_main:it )",
    "\n@10000\n",
    "\n^\n",
    "\n=1\n",
    "\n*1\n",
    "\n+\n",
    "\n-NOSCRIPT x\n",
    "\n-READONLY x\n",
    "\n-MOVED 1 a:1\n",
    "0535dd93000000000007ffffffffffff",
    " :4294967295 ",
    " :-1 ",
    " 1000 ",
    " 1e308 ",
    " nan ",
    " inf ",
    " -inf ",
    " -0.0 ",
    " 18446744073709551616 ",
    " 9007199254740993 ",
    " \"\" ",
    " _ ",
    " ( ) ",
    " { slots 2 } ",
];

pub(super) fn run(input: &[u8]) {
    let mut fixture = Fixture::new();
    for line in input.split(|byte| *byte == b'\n') {
        fixture.carry_out(line);
    }
    fixture.end();
}

struct Fixture {
    engine: OfflineEngine,
    client: Client,
    target: Arc<Target>,
    now: Instant,
    pending: Vec<(Call, Instant)>,
    acquisitions: usize,
}

impl Fixture {
    fn new() -> Self {
        let url = format!("redis://user:{PASSWORD}@simulated/?namespace=fuzz");
        let config: Config = url.parse().expect("a valid URL");
        let engine = OfflineEngine::new(config, 7);
        let client = Client::new(engine.settings());
        let target = engine.target("it", Some(2), Duration::from_secs(10));
        let now = Instant::at(Duration::from_secs(1_000));
        let mut fixture = Self { engine, client, target, now, pending: Vec::new(), acquisitions: 0 };
        fixture.client.connected(ServerPushes { messages: true, tracking: true }, now);
        fixture.acquire(None, Wait::Unlimited);
        fixture.acquire(Some(5), Wait::For(Duration::from_secs(3)));
        fixture.acquire(None, Wait::No);
        fixture.acquire(Some(60), Wait::Unlimited);
        fixture.advance(0);
        fixture
    }

    fn acquire(&mut self, ttl: Option<u64>, wait: Wait) {
        if self.acquisitions < MOST_ACQUISITIONS {
            self.acquisitions += 1;
            let request = AcquireRequest::new(1, ttl.map(Duration::from_secs), wait);
            self.client.acquire(&self.target, request, self.now);
        }
    }

    fn carry_out(&mut self, line: &[u8]) {
        let now = self.now;
        let Some((kind, rest)) = line.split_first() else { return };
        let number = || String::from_utf8_lossy(rest).trim().parse::<u64>().unwrap_or(1);
        match kind {
            b'@' => return self.advance(number()),
            b'>' => {
                let data = vec![Value::BulkString(b"channel".to_vec()), Value::BulkString(rest.to_vec())];
                self.push(PushInfo { kind: PushKind::Message, data });
            }
            b'!' => self.push(PushInfo { kind: PushKind::Invalidate, data: values(rest) }),
            b'?' => {
                self.push(PushInfo { kind: PushKind::Message, data: values(rest) });
                self.push(PushInfo { kind: PushKind::Other("strange".into()), data: values(rest) });
            }
            b'^' => {
                let unanswered = self.pending.drain(..).map(|(call, _)| call).collect();
                self.client.disconnected(unanswered, now);
                self.client.connected(ServerPushes { messages: true, tracking: rest.is_empty() }, now);
            }
            b'=' => {
                let key = Key(number());
                let is_held = self.client.expires_at(key).is_some() || self.client.safe_until(key).is_some();
                if is_held { self.client.drop_lease(key, now) } else { self.client.cancel(key, now) }
            }
            b'*' => {
                let id = self.id(number());
                self.client.renew(&Arc::clone(&self.target), &id, Some(Duration::from_secs(7)), now);
            }
            b'+' => self.acquire(None, Wait::Unlimited),
            b'-' => self.fail(rest),
            _ => self.reply(&Value::Array(values(line))),
        }
        self.advance(1);
    }

    fn id(&self, key: u64) -> String {
        let lists = self.engine.notifications(&self.target, Key(key), 1);
        lists[0].rsplit(':').next().unwrap_or_default().to_owned()
    }

    fn push(&mut self, push: PushInfo) {
        for push in self.engine.read_push(push, self.now) {
            self.client.handle_push(push, self.now);
        }
    }

    fn fail(&mut self, text: &[u8]) {
        let Ok(error) = redis::parse_redis_value(&[b"-", text, b"\r\n"].concat()) else { return };
        let Some(error) = self.engine.explain(error) else { return };
        let mut shown = format!("{error} {error:?}");
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            shown += &format!(" {cause} {cause:?}");
            source = cause.source();
        }
        assert!(!shown.contains(PASSWORD), "the password is shown: {shown}");
        if let Some((call, _)) = self.next_call() {
            let failure = Failure { error, is_transient: text.len().is_multiple_of(2), was_sent: true };
            self.client.handle_failure(call, &failure, self.now);
        }
    }

    fn next_call(&mut self) -> Option<(Call, Instant)> {
        (!self.pending.is_empty()).then(|| self.pending.remove(0))
    }

    fn reply(&mut self, value: &Value) {
        let now = self.now;
        for command in self.commands() {
            let call = Call { number: 1, target: Arc::clone(&self.target), command, is_repeat: false };
            let _ = self.engine.decode(&call, value.clone(), now, now);
        }
        if let (Ok(stats), _) = self.engine.read_answers(value) {
            let _ =
                (stats.waits.mean(), stats.holds.quantile(0.99), stats.waits.count(), format!("{stats:?}"));
        }
        let Some((call, sent)) = self.next_call() else { return };
        match self.engine.decode(&call, value.clone(), sent, now) {
            Ok(reply) => self.client.handle_reply(call, reply, now),
            Err(error) => {
                let failure = Failure { error, is_transient: false, was_sent: true };
                self.client.handle_failure(call, &failure, now);
            }
        }
    }

    /// Every kind of call, whether the client sent it or not.
    fn commands(&self) -> Vec<Command> {
        let (key, id): (_, Arc<str>) = (Key(1), self.id(1).into());
        let request = Arc::new(AcquireRequest::new(1, None, Wait::Unlimited));
        let heartbeat = Duration::from_secs(10);
        let holder = LiveHolder { key, weight: 1, heartbeat, slot: 0, token: 1 };
        let waiter = LiveWaiter { key: Key(2), weight: 1, heartbeat };
        vec![
            Command::Acquire { request, place: 0.0, wait_left: None },
            Command::CheckWaiter { key },
            Command::Release { key },
            Command::End {
                leavers: [(key, EndReason::Cancelled), (Key(2), EndReason::TimedOut)]
                    .map(|(key, reason)| Leaver { key, reason, has_lost_attempt: false })
                    .to_vec(),
            },
            Command::EndById { id: Arc::clone(&id), reason: EndReason::Evicted },
            Command::Renew { id, ttl: Some(Duration::from_secs(1)) },
            Command::Heartbeat { holders: vec![holder], waiters: vec![waiter], part: HeartbeatPart::Holders },
            Command::Sweep,
        ]
    }

    /// Moves the clock, polls everything, and takes what the client sends.
    fn advance(&mut self, millis: u64) {
        self.now = self.now + Duration::from_millis(millis);
        let now = self.now;
        self.client.handle_timeout(now);
        for key in (1..).map(Key).take(MOST_ACQUISITIONS) {
            let _ = self.client.poll_acquire(key, Waker::noop().clone());
            let _ = (
                self.client.why_not_held(key, now),
                self.client.expires_at(key),
                self.client.safe_until(key),
            );
        }
        while let Some(call) = self.client.poll_transmit(now) {
            let _ = self.engine.script_of(&call);
            self.pending.push((call, now));
        }
        while let Some(event) = self.client.poll_event() {
            if let Event::Wake(waker) = event {
                waker.wake();
            }
        }
        self.client.handle_timeout(now);
        let next = self.client.poll_timeout();
        assert!(next.is_none_or(|next| next > now), "a timeout that is over stays: {next:?} at {now:?}");
        assert!(self.pending.len() < MOST_PENDING, "{} calls are pending", self.pending.len());
    }

    fn end(mut self) {
        let now = self.now;
        self.client.detach(Key(1), TaskKey::Scope(1), None, now);
        self.client.drop_lease(Key(2), now);
        let _ = self.client.latest_detached(TaskKey::Scope(1), "it", now);
        self.advance(u64::MAX);
    }
}

/// The words of a line.
fn values(line: &[u8]) -> Vec<Value> {
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    list(&mut words, 0)
}

/// The values up to the end of the list.
fn list(words: &mut dyn Iterator<Item = &[u8]>, depth: usize) -> Vec<Value> {
    let mut values = Vec::new();
    while let Some(word) = words.next() {
        values.push(match word {
            b")" | b"}" if depth > 0 => break,
            b"(" if depth < MOST_DEPTH => Value::Array(list(words, depth + 1)),
            b"{" if depth < MOST_DEPTH => {
                let mut flat = list(words, depth + 1).into_iter();
                let pairs = std::iter::from_fn(|| Some((flat.next()?, flat.next()?)));
                Value::Map(pairs.collect())
            }
            b"_" => Value::Nil,
            b"#t" => Value::Boolean(true),
            b"#f" => Value::Boolean(false),
            b"\"\"" => Value::BulkString(Vec::new()),
            [b':', number @ ..] => {
                parsed(number).map_or_else(|| Value::BulkString(word.to_vec()), Value::Int)
            }
            [b',', number @ ..] => {
                parsed(number).map_or_else(|| Value::BulkString(word.to_vec()), Value::Double)
            }
            text => Value::BulkString(text.to_vec()),
        });
    }
    values
}

fn parsed<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
