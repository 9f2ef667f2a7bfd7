//! What the client asks of a home, and what a home answers and tells, in no home's own words.
//!
//! An engine encodes a [`Call`] for its server, and decodes what comes back into a [`Reply`] or a [`Push`].

use std::sync::Arc;
use std::time::Duration;

use semafor_core::NotHeld;

use super::AcquireRequest;
use super::clock::{Instant, ServerClock};
use super::target::Target;
use crate::error::{AcquireError, HomeError};

/// One acquisition of this process. Also the number of the call that asks for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Key(pub u64);

/// Something to send to the server. Whoever sends it gives it back with the outcome.
#[derive(Debug)]
pub struct Call {
    /// Unique among the calls of this client, but for repetitions.
    pub number: u64,
    pub target: Arc<Target>,
    pub ask: Command,
    /// An earlier attempt may have been carried out.
    pub again: bool,
}

#[derive(Clone, Debug)]
pub enum Command {
    /// Takes slots, or a place in line. The key is the call's number.
    Acquire {
        request: Arc<AcquireRequest>,
        /// The place in line that the server once gave it; 0 if none.
        place: f64,
        /// How long it may still wait. Only used by servers that watch timeouts themselves.
        wait_left: Option<Duration>,
    },
    /// Asks what became of a waiter.
    Confirm {
        key: Key,
    },
    /// Makes the server tell when one of these waiters is granted its slots.
    Listen {
        waiters: Vec<(Key, u32)>,
    },
    /// Gives back a slot, and says whether it was held.
    Release {
        key: Key,
    },
    /// Gives back whatever these have: slots or places in line.
    End {
        those: Vec<(Key, How)>,
    },
    /// Ends a grant that may be another process's.
    EndById {
        id: Arc<str>,
        how: How,
    },
    Renew {
        id: Arc<str>,
        ttl: Option<Duration>,
    },
    /// Says that holders and waiters live, and asks what became of them.
    Heartbeat {
        holders: Vec<LiveHolder>,
        waiters: Vec<LiveWaiter>,
        part: RollPart,
    },
    /// Ends what is due, and serves the line.
    Sweep,
    /// Makes the server tell when slots come free without anybody being told.
    Watch,
    /// Makes a connection.
    Connect,
    /// Holds a slot by its id from now on. Not answered.
    Detach {
        key: Key,
    },
    /// Claims slots that a former server had granted. Not answered.
    Occupy {
        key: Key,
        id: Arc<str>,
        weight: u32,
        slot: u32,
        slots: Option<u32>,
    },
    /// Everything that is held has been claimed; so many repeated calls follow. Not answered.
    Back {
        calls: usize,
    },
}

/// Which part of a heartbeat it is; see `heartbeat.rs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RollPart {
    Holders,
    FirstWaiters,
    Crowd,
}

#[derive(Clone, Copy, Debug)]
pub struct LiveHolder {
    pub key: Key,
    pub weight: u32,
    pub heartbeat: Duration,
    pub slot: u32,
    pub token: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct LiveWaiter {
    pub key: Key,
    pub weight: u32,
    pub heartbeat: Duration,
}

/// How a holder or waiter ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    Released,
    Evicted,
    Cancelled,
    TimedOut,
}

/// What a server answers.
#[derive(Debug)]
pub enum Reply {
    /// To `Acquire` and `Confirm`.
    Granted(Grant),
    /// To `Acquire`.
    Queued {
        place: f64,
        next: Next,
    },
    /// To `Acquire`, from a request that does not wait.
    Busy {
        held: u32,
        slots: u32,
        waiting: usize,
    },
    /// To `Acquire`: the server has nothing for it.
    Refused(AcquireError),
    /// To `Confirm`: it is still in line.
    Waiting,
    /// To `Confirm`: it is not in line any more.
    Gone(Gone),
    /// To `Listen`: these have been granted their slots already, or may have been.
    Listening {
        granted: Vec<Key>,
    },
    /// To `Release` and `EndById` one, to `End` one each.
    Ended(Vec<Ended>),
    /// To `Renew`. The end is on the server's clock.
    Renewed {
        clock: ServerClock,
        ends: Option<f64>,
    },
    /// To `Renew` and `EndById`: the id holds nothing.
    NotHeld(NotHeld),
    Heartbeat {
        next: Next,
        holders: Vec<HolderState>,
        waiters: Vec<WaiterState>,
    },
    /// To `Sweep`.
    Swept(Next),
    Watched {
        is_watched: bool,
        next: Option<Next>,
    },
    /// To whatever has no other answer.
    Done,
}

/// What a server tells without being asked.
#[derive(Debug)]
pub enum Push {
    Granted {
        key: Key,
        grant: Grant,
    },
    /// It may have been granted its slots: the server has to be asked.
    MayBeGranted {
        key: Key,
    },
    WaiterGone {
        key: Key,
        how: Gone,
    },
    /// A slot is lost. If it is kept, the server waits for the holder to let go of it.
    Lost {
        key: Key,
        why: NotHeld,
        is_kept: bool,
    },
    /// Another process renewed the lease. `None` if it can't be told from the message until when.
    Renewed {
        key: Key,
        end: Option<(ServerClock, Option<f64>)>,
    },
    /// Slots of that waiter's name may come free without anybody being told.
    WatchNeeded {
        key: Key,
    },
    /// The holders of a watched name have changed.
    HoldersChanged {
        name: Arc<str>,
    },
    /// The server has forgotten everything.
    AllForgotten,
}

/// Slots that the server has granted.
#[derive(Clone, Debug)]
pub struct Grant {
    pub id: Arc<str>,
    pub slot: u32,
    pub token: u64,
    pub waited: Duration,
    /// How many slots there are, where that is known.
    pub slots: Option<u32>,
    /// Of the answer that says so.
    pub clock: ServerClock,
    pub ends: LeaseEnd,
    /// Until then no other client can have them, whatever becomes of the connection.
    pub safe_until: Instant,
    /// Where the server has told.
    pub neighbours: Option<Neighbours>,
}

/// When a lease ends on the server's clock.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum LeaseEnd {
    /// After the time to live that was asked for, counted from the grant's `clock`.
    AfterTtl,
    /// Then, or never.
    At(Option<f64>),
}

/// Why a waiter is not in line any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gone {
    Closed,
    /// The semaphore shrank below its weight.
    TooHeavy,
    Evicted,
    /// The server does not know it any more: it returns to its place.
    Forgotten,
}

/// What came of ending a holder or waiter, and how the semaphore stands after it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ended {
    pub outcome: Result<(), NotHeld>,
    pub held: u32,
    pub slots: u32,
    pub waiting: usize,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum HolderState {
    Present,
    /// Present, with a lease that ends then on the server's clock, or never.
    Leased {
        ends: Option<f64>,
    },
    Gone(NotHeld),
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum WaiterState {
    Present,
    Granted,
    Gone(Gone),
}

/// How things stand under a name.
#[derive(Clone, Copy, Debug)]
pub struct Next {
    pub clock: ServerClock,
    /// When something is due there next.
    pub deadline: Option<Instant>,
    pub neighbours: Neighbours,
}

/// Clients of another library under the same name.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Neighbours {
    #[default]
    None,
    /// They hold slots now. Their releases wake none of our waiters.
    Holding,
    /// They were seen not long ago.
    Seen,
}

impl Neighbours {
    pub fn are_near(self) -> bool {
        self != Self::None
    }
}

/// A call that brought no answer.
#[derive(Clone, Debug)]
pub struct Failure {
    pub error: HomeError,
    /// Another attempt may succeed.
    pub is_passing: bool,
    /// The server may have carried it out.
    pub was_sent: bool,
}
