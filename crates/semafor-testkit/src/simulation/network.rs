//! Connections between processes and the server: every message takes its time, and messages of one connection stay in order.

use std::rc::Rc;

use redis::{PushInfo, Value};
use semafor::__redis::ScriptCall;

use super::{SECOND, Time};
use crate::random::Random;

/// A message takes 1.5 times as long at most. The server refuses late requests only for the time of `LATE` in `prelude.lua`.
const LONGEST_DELAY: Time = 20 * SECOND;

/// What a client sends.
#[derive(Debug)]
pub(super) enum Request {
    /// All that a new connection begins with.
    Hello,
    Script {
        number: u64,
        call: Rc<ScriptCall>,
        has_code: bool,
        /// The name that it gives another number of slots.
        resizes: Option<(usize, u32)>,
    },
    Track {
        number: u64,
        keys: Vec<String>,
    },
    /// The client has closed the connection.
    Close,
}

/// What a server sends.
#[derive(Debug)]
pub(super) enum Answer {
    Welcome,
    /// There is no server, or it has closed the connection.
    Closed,
    Reply {
        number: u64,
        reply: Result<Value, String>,
    },
    Tracked {
        number: u64,
        exist: Vec<bool>,
    },
    Push(PushInfo),
}

/// One connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) process: usize,
    /// Which life of the process it belongs to.
    pub(super) life: u64,
    /// Microseconds for a message, most of the time.
    pub(super) latency: Time,
    /// Messages vanish, and neither side learns of it.
    pub(super) is_half_open: bool,
    /// The next reply vanishes, and the connection breaks.
    pub(super) loses_reply: bool,
    /// The next request arrives so much later, and the connection breaks.
    pub(super) delays_request: Option<Time>,
    last_to_server: Time,
    last_to_client: Time,
    /// What `latency` is if nothing goes wrong.
    usual_latency: Time,
}

impl Link {
    /// Messages vanish or take long.
    pub(super) fn is_disturbed(&self, now: Time) -> bool {
        // A slow message delays those after it.
        let is_held_up = self.last_to_server.max(self.last_to_client) > now + self.usual_latency * 400;
        is_held_up
            || self.is_half_open
            || self.loses_reply
            || self.delays_request.is_some()
            || self.latency > self.usual_latency
    }

    pub(super) fn new(process: usize, life: u64, random: &mut Random) -> Self {
        let latency = random.between(40, 400);
        Self {
            process,
            life,
            latency,
            is_half_open: false,
            loses_reply: false,
            delays_request: None,
            last_to_server: 0,
            last_to_client: 0,
            usual_latency: latency,
        }
    }

    /// When a message that is sent now arrives.
    fn arrival(&self, now: Time, last: Time, random: &mut Random) -> Time {
        let delay = if random.percent(1) { self.latency * 200 } else { self.latency }.min(LONGEST_DELAY);
        (now + delay / 2 + random.below(delay)).max(last + 1)
    }

    pub(super) fn at_server(&mut self, now: Time, random: &mut Random) -> Time {
        self.last_to_server = self.arrival(now, self.last_to_server, random);
        self.last_to_server
    }

    pub(super) fn at_client(&mut self, now: Time, random: &mut Random) -> Time {
        self.last_to_client = self.arrival(now, self.last_to_client, random);
        self.last_to_client
    }
}
