//! A process: the production client and engine, and users that acquire, hold and release at random.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use semafor::__client::{Call, Client, Instant, Key, Target};
use semafor::__redis::{OfflineEngine, ScriptCall};
use tokio_util::sync::CancellationToken;

use super::redis::ConnectionId;
use super::{Settings, Time};
use crate::random::Random;

pub(super) struct Process {
    /// Grows each time another process starts in its place.
    pub(super) life: u64,
    pub(super) is_alive: bool,
    pub(super) is_paused: bool,
    pub(super) engine: OfflineEngine,
    pub(super) client: Client,
    pub(super) targets: Vec<Arc<Target>>,
    pub(super) connection: Option<ConnectionId>,
    /// The last one that was in use.
    pub(super) newest_connection: ConnectionId,
    pub(super) dialling: Option<Dialling>,
    pub(super) pending: BTreeMap<u64, Pending>,
    pub(super) users: Vec<User>,
    /// The largest token that it has seen.
    pub(super) newest_token: u64,
    pub(super) timer: Option<Time>,
    /// When it last lost a detached grant.
    pub(super) gave_up_at: Option<Time>,
    /// Until then its client may know less than the server: it pauses before it repeats a request, or got an old reply.
    pub(super) retries_until: Time,
    /// Waiters that time out together, and when.
    pub(super) crowd: Vec<(Key, Time)>,
    /// On which it listens for messages.
    pub(super) channel: String,
    clock: Clock,
}

/// A connection that is being made, and the calls that wait for it.
pub(super) struct Dialling {
    pub(super) connection: ConnectionId,
    pub(super) calls: Vec<Call>,
}

/// A request that was sent and not answered yet.
pub(super) struct Pending {
    pub(super) connection: ConnectionId,
    pub(super) sent: Instant,
    pub(super) work: Work,
}

pub(super) enum Work {
    Script {
        call: Call,
        script: Rc<ScriptCall>,
    },
    /// To be told of grants to these waiters; one for each key.
    Subscribe {
        call: Call,
        owners: Vec<Key>,
    },
    /// Tracks the holders, then sweeps.
    Watch {
        call: Call,
    },
    WatchSweep {
        call: Call,
    },
    Resize {
        name: usize,
        slots: u32,
        script: Rc<ScriptCall>,
    },
}

impl Work {
    /// The name that it gives another number of slots.
    pub(super) fn resizes(&self) -> Option<(usize, u32)> {
        match self {
            Self::Resize { name, slots, .. } => Some((*name, *slots)),
            _ => None,
        }
    }
}

/// A clock that is a little too fast or too slow.
#[derive(Clone, Copy)]
struct Clock {
    origin: u64,
    /// In millionths.
    drift: i64,
}

pub(super) struct User {
    pub(super) doing: Doing,
    pub(super) random: Random,
    pub(super) flag: Arc<Flag>,
    /// Counts the steps that were planned, to leave out those that are not wanted any more.
    pub(super) plan: u64,
    /// When its acquire times out.
    pub(super) deadline: Option<Time>,
}

pub(super) enum Doing {
    Nothing,
    Acquiring {
        key: Key,
        name: usize,
        weight: u32,
        has_grace: bool,
        floor: u64,
        /// The earliest end of the lease that the user asks for.
        ends: Option<Time>,
    },
    Holding {
        key: Key,
        name: usize,
        grant: usize,
        id: Arc<str>,
        lost: CancellationToken,
    },
    /// Holds by id, without a guard.
    Detached {
        name: usize,
        grant: usize,
        id: Arc<str>,
        lost: CancellationToken,
    },
    /// Was evicted, and uses its grace to come to an end.
    Finishing {
        key: Key,
        grant: usize,
    },
    /// Relies on the slot of another process, which it has renewed by its id, until that renewal is over.
    Adopted {
        name: usize,
        grant: usize,
        id: Arc<str>,
        until: Time,
    },
    /// Waits for the outcome of a release or a renewal.
    Operating {
        number: u64,
        then: Box<Doing>,
    },
}

/// Set by a waker.
#[derive(Default)]
pub(super) struct Flag(AtomicBool);

impl Flag {
    pub(super) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }

    pub(super) fn waker(self: &Arc<Self>) -> Waker {
        Arc::clone(self).into()
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Process {
    pub(super) fn new(settings: &Settings, number: usize, life: u64) -> Self {
        let mut random = Random::stream(settings.seed, 1_000 + number as u64 * 1_000_000 + life);
        let config = settings.config.clone();
        let engine = OfflineEngine::new(config, random.next());
        let client = Client::new(engine.settings());
        let targets = settings.slots.iter().enumerate();
        // Processes of one fleet may differ in this.
        let heartbeat = settings.heartbeat / [1, 1, 2, 3, 8][random.below(5) as usize];
        let heartbeat = heartbeat.max(Duration::from_secs(1));
        let targets =
            targets.map(|(name, slots)| engine.target(&format!("n{name}"), Some(*slots), heartbeat));
        let targets = targets.collect();
        let drift = random.between(0, 2 * settings.drift) as i64 - settings.drift as i64;
        let clock = Clock { origin: random.between(1, 1_000_000) * 1_000_000_000, drift };
        let user = |_| User {
            doing: Doing::Nothing,
            random: Random::new(random.next()),
            flag: Arc::default(),
            plan: 0,
            deadline: None,
        };
        let users = (0..settings.users).map(user).collect();
        Self {
            life,
            is_alive: true,
            is_paused: false,
            client,
            targets,
            connection: None,
            newest_connection: 0,
            dialling: None,
            pending: BTreeMap::new(),
            users,
            newest_token: 0,
            timer: None,
            gave_up_at: None,
            retries_until: 0,
            crowd: Vec::new(),
            channel: engine.channel(),
            engine,
            clock,
        }
    }

    pub(super) fn runs(&self) -> bool {
        self.is_alive && !self.is_paused
    }

    /// True if the id is of this process, which it names.
    pub(super) fn is_own(&self, id: &str) -> bool {
        id.get(8..20).is_some_and(|process| self.channel.ends_with(process))
    }

    /// Its own clock.
    pub(super) fn local(&self, now: Time) -> Instant {
        let Clock { origin, drift } = self.clock;
        // Years of microseconds fit.
        let passed = now as i64 * (1_000_000 + drift) / 1_000;
        Instant::at(Duration::from_nanos(origin + passed as u64))
    }

    /// When its clock will show that time, or later.
    pub(super) fn when(&self, then: Instant) -> Time {
        let Clock { origin, drift } = self.clock;
        let passed = then.since_origin().as_nanos().saturating_sub(u128::from(origin));
        let passed = i128::try_from(passed).unwrap_or(i128::MAX / 4);
        let time = passed.saturating_mul(1_000) / (1_000_000 + i128::from(drift)) + 1;
        Time::try_from(time).unwrap_or(Time::MAX / 2)
    }

    /// True if one of its users relies on the grant by a renewal that is over.
    pub(super) fn has_outlived(&self, grant: usize, now: Time) -> bool {
        self.users.iter().any(|user| {
            matches!(user.doing, Doing::Adopted { grant: own, until, .. } if own == grant && until <= now)
        })
    }

    /// The grants that its users believe in, or would if it were not standing still.
    pub(super) fn grants(&self) -> Vec<usize> {
        fn grant(doing: &Doing) -> Option<usize> {
            match doing {
                Doing::Holding { grant, .. }
                | Doing::Detached { grant, .. }
                | Doing::Finishing { grant, .. }
                | Doing::Adopted { grant, .. } => Some(*grant),
                // It is not renewed yet, or released already.
                Doing::Operating { then, .. } if matches!(**then, Doing::Adopted { .. }) => None,
                Doing::Operating { then, .. } => grant(then),
                Doing::Nothing | Doing::Acquiring { .. } => None,
            }
        }
        self.users.iter().filter_map(|user| grant(&user.doing)).collect()
    }
}
