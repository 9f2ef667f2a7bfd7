//! The calls of the client to a home, and the home's replies and messages, independent of the home's protocol.
//!
//! An engine encodes a [`Call`] for its server, and decodes the server's messages into a [`Reply`] or a [`Push`].

use std::sync::Arc;
use std::time::Duration;

use semafor_core::NotHeld;

use super::AcquireRequest;
use super::clock::{Instant, ServerClock};
use super::target::Target;
use crate::error::{AcquireError, HomeError};

/// Identifies one acquisition of this process. Also the number of the call that asks for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Key(pub u64);

/// A call to the server. The driver that sends it returns it with its reply or failure.
#[derive(Debug)]
pub struct Call {
    /// Unique among the calls of this client; a repeated call keeps its number.
    pub number: u64,
    pub target: Arc<Target>,
    pub command: Command,
    /// An earlier attempt may have been carried out.
    pub is_repeat: bool,
}

#[derive(Clone, Debug)]
pub enum Command {
    /// Takes slots, or a place in line. The key is the call's number.
    Acquire {
        request: Arc<AcquireRequest>,
        /// The place in line that the server gave it before; 0 if none.
        place: f64,
        /// How long it may still wait. Only used by servers that watch timeouts themselves.
        wait_left: Option<Duration>,
    },
    /// Asks for the state of a waiter.
    CheckWaiter {
        key: Key,
    },
    /// Asks the server to send a message when one of these waiters is granted its slots.
    Subscribe {
        waiters: Vec<(Key, u32)>,
    },
    /// Releases a slot, and asks whether it was held.
    Release {
        key: Key,
    },
    /// Releases what these acquisitions have: slots or places in line.
    End {
        leavers: Vec<Leaver>,
    },
    /// Ends a grant, which may belong to another process.
    EndById {
        id: Arc<str>,
        reason: EndReason,
    },
    Renew {
        id: Arc<str>,
        ttl: Option<Duration>,
    },
    /// Says that holders and waiters are alive, and asks for their state.
    Heartbeat {
        holders: Vec<LiveHolder>,
        waiters: Vec<LiveWaiter>,
        part: HeartbeatPart,
    },
    /// Ends everything that is due, and serves the line.
    Sweep,
    /// Asks the server to report releases by clients of the Python library, which wake no waiter of ours.
    Watch,
    /// Opens a connection.
    Connect,
    /// From now on the slot is held by its id, without a guard. Has no reply.
    Detach {
        key: Key,
    },
    /// Claims slots that a former server had granted. The reply is ignored.
    Reclaim {
        key: Key,
        id: Arc<str>,
        weight: u32,
        slot: u32,
        slots: Option<u32>,
    },
    /// All slots that this process holds have been reclaimed; this many repeated calls follow. Has no reply.
    Reconnected {
        calls: usize,
    },
}

/// The part of a heartbeat that a call is; see `heartbeat.rs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeartbeatPart {
    Holders,
    FirstWaiters,
    MoreWaiters,
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

/// An acquisition whose slots, or place in line, are to be released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaver {
    pub key: Key,
    pub reason: EndReason,
    /// An attempt of its request failed after it was sent, and may still arrive.
    pub has_lost_attempt: bool,
}

/// Why a holder or waiter ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndReason {
    Released,
    Evicted,
    Cancelled,
    TimedOut,
}

/// The reply of a server.
#[derive(Debug)]
pub enum Reply {
    /// To `Acquire` and `CheckWaiter`.
    Granted(Grant),
    /// To `Acquire`.
    Queued {
        place: f64,
        state: NameState,
    },
    /// To `Acquire`, if the request does not wait.
    Busy {
        held: u32,
        slots: u32,
        waiting: usize,
    },
    /// To `Acquire`: the server refuses.
    Refused(AcquireError),
    /// To `CheckWaiter`: it is still in line.
    Waiting,
    /// To `CheckWaiter`: it is not in line any more.
    NotInLine(NotInLine),
    /// To `Subscribe`: these have been granted their slots already, or may have been.
    Subscribed {
        granted: Vec<Key>,
    },
    /// To `Release` and `EndById`: one entry. To `End`: one entry for each.
    Ended(Vec<Ended>),
    /// To `Renew`. The end is on the server's clock.
    Renewed {
        clock: ServerClock,
        ends: Option<f64>,
    },
    /// To `Renew` and `EndById`: the id holds nothing.
    NotHeld(NotHeld),
    Heartbeat {
        state: NameState,
        holders: Vec<HolderState>,
        waiters: Vec<WaiterState>,
    },
    /// To `Sweep`.
    Swept(NameState),
    Watched {
        is_watched: bool,
        state: Option<NameState>,
    },
    /// To all other calls.
    Done,
}

/// A message that the server sends without a call.
#[derive(Debug)]
pub enum Push {
    Granted {
        key: Key,
        grant: Grant,
    },
    /// It may have been granted its slots: the client has to ask the server.
    MayBeGranted {
        key: Key,
    },
    WaiterRemoved {
        key: Key,
        why: NotInLine,
    },
    /// A slot is lost. If `is_kept`, the server keeps it occupied until the holder releases it.
    Lost {
        key: Key,
        why: NotHeld,
        is_kept: bool,
    },
    /// Another process renewed the lease. `end` is `None` if the message does not say when the lease ends.
    Renewed {
        key: Key,
        end: Option<(ServerClock, Option<f64>)>,
    },
    /// Slots of that waiter's name may come free without a message.
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
    /// The number of slots of the semaphore, where it is known.
    pub slots: Option<u32>,
    /// From the reply or message that brought the grant.
    pub clock: ServerClock,
    pub ends: LeaseEnd,
    /// Until then no other client can get these slots, even if the connection fails.
    pub safe_until: Instant,
    /// `None` if the server did not say.
    pub python_clients: Option<PythonClients>,
}

/// When a lease ends on the server's clock.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum LeaseEnd {
    /// After the `ttl` of the request, counted from the grant's `clock`.
    AfterTtl,
    /// At this time, or never.
    At(Option<f64>),
}

/// Why a waiter is not in line any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotInLine {
    Closed,
    /// The semaphore shrank below its weight.
    TooHeavy,
    Evicted,
    /// The server has forgotten it: it asks again for its old place.
    Forgotten,
}

/// The result of ending a holder or waiter, and the state of the semaphore after it.
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
    /// Present, with a lease that ends at this time on the server's clock, or never.
    Leased {
        ends: Option<f64>,
    },
    Gone(NotHeld),
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum WaiterState {
    Present,
    Granted,
    Gone(NotInLine),
}

/// The state of a name.
#[derive(Clone, Copy, Debug)]
pub struct NameState {
    pub clock: ServerClock,
    /// When a lease or a heartbeat ends there next.
    pub deadline: Option<Instant>,
    pub python_clients: PythonClients,
}

/// Clients of the Python library under the same name.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum PythonClients {
    #[default]
    None,
    /// They hold slots now. Their releases wake none of our waiters.
    Holding,
    /// They were seen recently.
    Seen,
}

impl PythonClients {
    pub fn may_be_present(self) -> bool {
        self != Self::None
    }
}

/// A call without a reply.
#[derive(Clone, Debug)]
pub struct Failure {
    pub error: HomeError,
    /// Another attempt may succeed.
    pub is_transient: bool,
    /// The server may have carried out the call.
    pub was_sent: bool,
}
