//! Runs one script on a server, and reads its reply, its messages and all keys after it.

use std::collections::{BTreeMap, BTreeSet};

use redis::{Connection, Value};
use semafor_testkit::redis::RedisServer;

use super::clock::{CLOCK, START, TICKS_PER_SECOND, ticks};
use crate::redis::keys::{self, Keys};
use crate::redis::script::lua::with_clock;
use crate::redis::script::reply::text;

pub(super) const NAMESPACE: &str = "model";
pub(super) const PROCESS: &str = "0000c0ffee00";

macro_rules! operations {
    ($($operation:ident = $file:literal),* $(,)?) => {
        #[derive(Clone, Copy, Debug)]
        pub(super) enum Operation { $($operation),* }

        const SOURCES: &[&str] = &[$(include_str!(concat!("../../../../lua/", $file))),*];
    };
}

operations! {
    Open = "open.lua",
    Queue = "queue.lua",
    Acquire = "acquire.lua",
    Release = "release.lua",
    Leave = "leave.lua",
    Ping = "ping.lua",
    WakeUpNexts = "wake_up_nexts.lua",
    Renew = "renew.lua",
    Resize = "resize.lua",
    Close = "close.lua",
    Snapshot = "snapshot.lua",
}

/// The scripts of one semaphore on a server, with the clock that they read and a subscription to the process's channel.
pub(super) struct Scripts {
    pub(super) connection: Connection,
    pub(super) subscription: Connection,
    pub(super) digests: Vec<String>,
    pub(super) keys: Keys,
    pub(super) now: u64,
}

/// What a script replied and published, and the keys after it.
pub(super) struct Seen {
    pub(super) answer: Value,
    pub(super) messages: Vec<Vec<String>>,
    pub(super) snapshot: Value,
    /// The holders: member, and when it counts as dead.
    pub(super) main: Vec<(String, f64)>,
    /// Ends of leases, by number.
    pub(super) leases: BTreeMap<usize, u64>,
    pub(super) line: Vec<(String, f64)>,
    pub(super) beats: Vec<(String, f64)>,
    pub(super) records: BTreeSet<usize>,
    /// When the lease of each ends or it counts as dead, by number. Only our scripts change this.
    pub(super) own: BTreeMap<usize, u64>,
}

impl Scripts {
    pub(super) fn new(server: &RedisServer) -> Self {
        let mut connection = server.connection();
        let digests = SOURCES.iter().map(|source| {
            let script = with_clock(CLOCK, source);
            redis::cmd("SCRIPT").arg("LOAD").arg(&script.code).query(&mut connection).expect("it compiles")
        });
        let digests = digests.collect();
        let mut subscription = server.connection();
        let subscribe = redis::cmd("SUBSCRIBE").arg(keys::channel(NAMESPACE, PROCESS)).get_packed_command();
        subscription.send_packed_command(&subscribe).expect("a server");
        subscription.recv_response().expect("a confirmation");
        Self { connection, subscription, digests, keys: Keys::new(NAMESPACE, "name"), now: START }
    }

    /// Deletes everything, and resets the clock.
    pub(super) fn clear(&mut self) {
        redis::cmd("FLUSHALL").exec(&mut self.connection).expect("a server");
        self.now = START;
    }

    pub(super) fn script(&self, operation: Operation, arguments: &[String]) -> redis::Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.digests[operation as usize]).arg(self.keys.all.len()).arg(&self.keys.all);
        command.arg(NAMESPACE).arg(arguments);
        command
    }

    /// Runs a script, and then reads all keys. One round trip.
    pub(super) fn run(&mut self, operation: Operation, arguments: &[String]) -> Seen {
        let clock = format!("{:.6}", self.now as f64 / TICKS_PER_SECOND as f64);
        let mut pipeline = redis::pipe();
        pipeline.cmd("SET").arg("clock").arg(clock).ignore();
        pipeline.add_command(self.script(operation, arguments));
        pipeline.cmd("PUBLISH").arg(keys::channel(NAMESPACE, PROCESS)).arg("end").ignore();
        pipeline.add_command(self.script(Operation::Snapshot, &[]));
        let [main, ttl, _, line, beats, ..] = &self.keys.all;
        for set in [main, ttl, line, beats] {
            pipeline.cmd("ZRANGE").arg(set).arg(0).arg(-1).arg("WITHSCORES");
        }
        pipeline.cmd("HKEYS").arg(&self.keys.all[6]);
        pipeline.cmd("ZRANGE").arg(&self.keys.all[9]).arg(0).arg(-1).arg("WITHSCORES");
        type Scores = Vec<(String, f64)>;
        let (answer, snapshot, main, leases, line, beats, records, own): (
            _,
            _,
            Scores,
            Scores,
            Scores,
            Scores,
            Vec<String>,
            Scores,
        ) = pipeline.query(&mut self.connection).unwrap_or_else(|error| panic!("{operation:?}: {error}"));

        let mut messages = Vec::new();
        loop {
            let message = self.subscription.recv_response().expect("a message");
            let [_, _, message]: [String; 3] = redis::from_redis_value(message).expect("kind, channel, text");
            if message == "end" {
                break;
            }
            messages.push(message.split(' ').map(plain).collect());
        }
        Seen {
            answer,
            messages,
            snapshot,
            main,
            leases: leases.iter().map(|(id, end)| (number_of(id), ticks(*end))).collect(),
            line,
            beats,
            records: records.iter().filter(|id| !id.is_empty()).map(|id| number_of(id)).collect(),
            own: own.iter().map(|(id, ends)| (number_of(id), ticks(*ends))).collect(),
        }
    }

    /// How many of these have a notification.
    pub(super) fn notifications(&mut self, numbers: impl Iterator<Item = usize>) -> usize {
        let keys: Vec<_> = numbers.map(|number| keys::notification(NAMESPACE, &id_of(number))).collect();
        if keys.is_empty() {
            return 0;
        }
        redis::cmd("EXISTS").arg(keys).query(&mut self.connection).expect("a server")
    }
}

impl Seen {
    pub(super) fn words(&self) -> Vec<String> {
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

    /// The weights held, by number.
    pub(super) fn holders(&self) -> BTreeMap<usize, u32> {
        weights(&self.main).into_iter().collect()
    }
}

pub(super) fn id_of(number: usize) -> String {
    format!("{:08x}{PROCESS}{number:012x}", 0x5eaf00d)
}

pub(super) fn number_of(member: &str) -> usize {
    usize::from_str_radix(&member[20..32], 16).expect("an id of ours")
}

/// The ids in a set with their number of members, in order. The parts of a weight have to stand together.
pub(super) fn weights(members: &[(String, f64)]) -> Vec<(usize, u32)> {
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
pub(super) fn dues(members: &[(String, f64)]) -> BTreeMap<usize, BTreeSet<u64>> {
    let mut dues = BTreeMap::<_, BTreeSet<_>>::new();
    for (member, due) in members {
        dues.entry(number_of(member)).or_default().insert(ticks(*due));
    }
    dues
}

/// Removes trailing zeros from times.
pub(super) fn plain(word: &str) -> String {
    match word.parse::<f64>() {
        Ok(number) if word.contains('.') => number.to_string(),
        _ => word.to_owned(),
    }
}

pub(super) fn texts<const N: usize>(words: [&dyn ToString; N]) -> Vec<String> {
    words.map(ToString::to_string).to_vec()
}
