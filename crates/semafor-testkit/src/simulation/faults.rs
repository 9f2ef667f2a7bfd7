//! What goes wrong, drawn from the seed.

use super::{SECOND, Settings, Time};
use crate::random::Random;

/// One thing that goes wrong. Numbers that name a process or a key are taken modulo how many there are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields say it")]
pub enum Fault {
    // Network
    /// The connection of a process breaks; both sides notice.
    Cut {
        process: usize,
    },
    /// The connection of a process breaks after its next request. Its client notices at once; the server gets the request
    /// so much later, and only then learns of the end.
    LateRequest {
        process: usize,
        delay: Time,
    },
    /// Messages of a connection vanish; neither side notices until a reply is missing.
    HalfOpen {
        process: usize,
    },
    /// A reply is lost after its command was carried out, and the connection breaks.
    LostReply {
        process: usize,
    },
    /// Messages of a connection take so many times as long.
    SlowLink {
        process: usize,
        times: u64,
        length: Time,
    },
    // Processes
    /// Stops and goes on later, as with SIGSTOP or a suspended machine.
    Pause {
        process: usize,
        length: Time,
    },
    /// Dies, as with SIGKILL. Another process starts in its place later.
    Kill {
        process: usize,
        length: Time,
    },
    // The server
    /// Answers nothing for a while.
    ServerPause {
        length: Time,
    },
    /// Goes down, and comes back with its data.
    Restart {
        length: Time,
    },
    /// Comes back with data of so long ago.
    RestartOld {
        length: Time,
        age: Time,
    },
    /// Comes back without data.
    RestartEmpty {
        length: Time,
    },
    /// A replica takes over that lacks the last so many microseconds, and whose clock differs.
    Failover {
        length: Time,
        lag: Time,
        clock: i64,
    },
    FlushScripts,
    FlushAll,
    /// The server's clock is set.
    ClockStep {
        by: i64,
    },
    /// One key is deleted to make room.
    Evict {
        key: u64,
    },
    OutOfMemory {
        length: Time,
    },
    /// A client of the Python library takes a free slot, shortens the expiry of the shared keys, and goes.
    PythonClient {
        name: usize,
        length: Time,
    },
    // Users
    Resize {
        process: usize,
        name: usize,
        slots: u32,
    },
    EvictHolder {
        process: usize,
        number: u64,
    },
    /// All users of a process drop what they hold and wait for at once, as when a server of requests shuts down.
    DropAll {
        process: usize,
    },
    /// That many users of a process want a slot, all for as long.
    Crowd {
        process: usize,
        name: usize,
        waiters: u64,
        limit: Time,
    },
    /// A user passes the id of its slot to a user of this process, which renews it. The first process may die then.
    HandOver {
        process: usize,
        number: u64,
        ttl: Time,
        kill_after: Option<Time>,
    },
}

impl Fault {
    /// The process that it is about.
    pub fn process(&self) -> Option<usize> {
        match self {
            Self::Cut { process }
            | Self::LateRequest { process, .. }
            | Self::HalfOpen { process }
            | Self::LostReply { process }
            | Self::SlowLink { process, .. }
            | Self::Pause { process, .. }
            | Self::Kill { process, .. }
            | Self::Resize { process, .. }
            | Self::EvictHolder { process, .. }
            | Self::DropAll { process }
            | Self::Crowd { process, .. }
            | Self::HandOver { process, .. } => Some(*process),
            _ => None,
        }
    }

    /// Whether old holders and new ones may overlap for a while: the server has forgotten grants, or ends them early.
    pub(super) fn loses_grants(&self) -> bool {
        matches!(
            self,
            Self::RestartOld { .. }
                | Self::RestartEmpty { .. }
                | Self::Failover { .. }
                | Self::FlushAll
                | Self::Evict { .. }
                | Self::ClockStep { .. }
        )
    }

    /// How long it lasts. `None` if it disturbs no client that is alive.
    pub(super) fn length(&self) -> Option<Time> {
        match self {
            Self::FlushScripts
            | Self::Kill { .. }
            | Self::PythonClient { .. }
            | Self::Resize { .. }
            | Self::EvictHolder { .. }
            | Self::DropAll { .. }
            | Self::Crowd { .. }
            | Self::HandOver { .. } => None,
            Self::LateRequest { delay: length, .. }
            | Self::SlowLink { length, .. }
            | Self::Pause { length, .. }
            | Self::ServerPause { length }
            | Self::Restart { length }
            | Self::RestartOld { length, .. }
            | Self::RestartEmpty { length }
            | Self::Failover { length, .. }
            | Self::OutOfMemory { length } => Some(*length),
            _ => Some(0),
        }
    }

    fn draw(settings: &Settings, random: &mut Random) -> Self {
        let process = random.next() as usize % settings.processes.max(1);
        let name = random.next() as usize % settings.slots.len().max(1);
        let short = random.between(SECOND / 20, 2 * SECOND);
        let long = random.between(SECOND, 25 * SECOND);
        match random.below(100) {
            0..7 => Self::Cut { process },
            7..14 => Self::LateRequest { process, delay: short },
            14..22 => Self::HalfOpen { process },
            22..32 => Self::LostReply { process },
            32..38 => Self::SlowLink { process, times: random.between(20, 2_000), length: long },
            38..48 => Self::Pause { process, length: long },
            48..56 => Self::Kill { process, length: short },
            56..60 => Self::ServerPause { length: random.between(SECOND / 10, 3 * SECOND) },
            60..66 => Self::Restart { length: short },
            66..68 => Self::RestartOld { length: short, age: random.between(SECOND / 10, 20 * SECOND) },
            68..69 => Self::RestartEmpty { length: short },
            69..72 => {
                let (lag, clock) =
                    (random.below(SECOND), random.between(0, SECOND) as i64 - SECOND as i64 / 2);
                Self::Failover { length: short, lag, clock }
            }
            72..75 => Self::FlushScripts,
            75..76 => Self::FlushAll,
            76..78 => Self::ClockStep { by: random.between(0, 20 * SECOND) as i64 - 5 * SECOND as i64 },
            78..80 => Self::Evict { key: random.next() },
            80..82 => Self::OutOfMemory { length: short },
            82..88 => Self::PythonClient { name, length: random.between(SECOND / 10, 4 * SECOND) },
            88..92 => {
                let slots = settings.slots.get(name).copied().unwrap_or(1);
                Self::Resize { process, name, slots: random.between(1, u64::from(slots) + 1) as u32 }
            }
            92..94 => Self::EvictHolder { process, number: random.next() },
            94..97 if random.percent(4) => {
                let (waiters, limit) = (random.between(500, 1_500), random.between(SECOND, 5 * SECOND));
                Self::Crowd { process, name, waiters, limit }
            }
            94..97 => Self::DropAll { process },
            _ => {
                let ttl = random.between(SECOND, 20 * SECOND);
                let kill_after = random.percent(50).then(|| random.between(0, 4 * SECOND));
                Self::HandOver { process, number: random.next(), ttl, kill_after }
            }
        }
    }
}

/// The faults of a run, in order of time. None in its last part, so that everything can settle.
pub(super) fn schedule(settings: &Settings) -> Vec<(Time, Fault)> {
    let mut random = Random::stream(settings.seed, 1);
    let mut faults = Vec::new();
    let mut at = 0;
    loop {
        at += random.exponential(settings.time_between_faults);
        if at >= settings.length {
            return faults;
        }
        let fault = Fault::draw(settings, &mut random);
        if settings.may_lose_grants || !fault.loses_grants() {
            faults.push((at, fault));
        }
    }
}
