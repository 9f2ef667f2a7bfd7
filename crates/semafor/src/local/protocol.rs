//! The messages between clients and the agent.
//!
//! A message is its length in four bytes, little endian, and then that many bytes of JSON. A client may send several
//! requests before it reads a reply. A reply carries the number of its request, and replies come in any order. Unknown
//! fields are ignored, and the reply to an unknown request is [`Response::NotUnderstood`]: so each side can be newer than
//! the other.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use semafor_core::{Histogram, Loss, NotHeld, Totals, ZeroSlots};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{AcquireError, BuildError, HomeError, HomeErrorKind};
use crate::stats::Who;
use crate::{HolderInfo, PermitId, Stats, WaiterInfo};

/// The version of the protocol. Grows when messages of an older side can't be understood any more.
pub(super) const PROTOCOL: u32 = 1;
/// The longest message. Longer lists are sent in several messages.
pub(super) const MAX_MESSAGE: usize = 1024 * 1024;
/// Entries of a list in one message.
pub(super) const PAGE: usize = 50;
/// The longest label or command, in bytes. Longer ones are shortened.
const MAX_TEXT: usize = 1024;

/// Client to agent.
#[derive(Serialize, Deserialize, Debug)]
pub(super) struct Call {
    #[serde(rename = "n")]
    pub(super) number: u64,
    #[serde(rename = "ask")]
    pub(super) request: Request,
}

#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// The first request of a connection.
    Hello {
        protocol: u32,
        version: String,
        /// The byte of the agent's file that the client has locked; see [`lifeline`](super::lifeline).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lifeline: Option<u32>,
        /// The client understands [`Response::Renewed`].
        #[serde(default)]
        hears_renewals: bool,
    },
    Open(Target),
    Acquire {
        of: Target,
        #[serde(rename = "wish")]
        request: AcquireRequest,
    },
    /// Occupies slots that were granted on a former connection, perhaps by a former agent, until they are released. They
    /// count even if they do not fit. The client ignores the reply.
    #[serde(rename = "occupy")]
    Reclaim {
        of: Target,
        weight: u32,
        /// Its slot number, which the holder may use as an index.
        slot: Option<u32>,
        /// The id by which the client knows the grant.
        #[serde(default)]
        id: Option<Arc<str>>,
        /// The number of slots when it was granted.
        #[serde(default)]
        slots: Option<u32>,
    },
    /// The client has reclaimed everything that it holds. This many of the requests that follow were sent before, on a
    /// former connection. Has no reply.
    #[serde(rename = "back")]
    Reconnected {
        calls: usize,
    },
    /// Leaves the line, or releases what was granted meanwhile. Has no reply.
    Cancel {
        call: u64,
    },
    /// Releases what that call acquired.
    Release {
        lease: u64,
    },
    /// Holds it by its id from now on, and with a time to live beyond the end of this connection. Has no reply.
    Detach {
        lease: u64,
    },
    ReleaseId {
        of: Target,
        id: String,
    },
    Renew {
        of: Target,
        id: String,
        ttl: Option<Duration>,
    },
    Evict {
        of: Target,
        id: String,
    },
    Locked(Target),
    Resize {
        of: Target,
        slots: u32,
    },
    Close(Target),
    IsClosed(Target),
    Stats(Target),
    Holders(Target),
    Waiters(Target),
    /// No handle needs it any more. Has no reply.
    Forget {
        handle: u64,
    },
    #[serde(rename = "survey")]
    AllStats {
        names: Option<Vec<String>>,
    },
    Status,
    Stop {
        force: bool,
    },
}

/// A semaphore, by the client's number for its handle; and how to open it, if the agent does not know the handle yet.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(super) struct Target {
    pub(super) handle: u64,
    pub(super) name: Arc<str>,
    pub(super) slots: Option<u32>,
    pub(super) max_waiting: Option<usize>,
    /// An agent has agreed to the number of slots before. A different number then means a resize, not a mistake.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_agreed: bool,
}

#[derive(Clone, Serialize, Deserialize, Debug)]
pub(super) struct AcquireRequest {
    pub(super) weight: u32,
    pub(super) ttl: Option<Duration>,
    /// `None` to wait without a limit.
    pub(super) timeout: Option<Duration>,
    /// False if the request fails instead of waiting in line.
    pub(super) waits: bool,
    pub(super) label: Option<Arc<str>>,
    pub(super) command: Option<Arc<str>>,
    #[serde(default)]
    pub(super) grace: Option<Duration>,
}

/// Agent to client.
#[derive(Serialize, Deserialize, Debug)]
pub(super) struct Reply {
    /// The number of the call that it replies to, or that acquired the lease it is about.
    #[serde(rename = "n")]
    pub(super) number: u64,
    /// More pages of the list follow.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) more: bool,
    #[serde(rename = "say")]
    pub(super) response: Response,
}

#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub(super) enum Response {
    Welcome {
        protocol: u32,
        version: String,
        pid: u32,
    },
    Done,
    Granted {
        id: String,
        slot: u32,
        token: u64,
        waited: Duration,
        /// The number of slots of the semaphore.
        #[serde(default)]
        slots: Option<u32>,
    },
    /// A lease is lost. If `is_kept`, the agent keeps the slot occupied until the holder releases it.
    Lost {
        why: Ending,
        is_kept: bool,
    },
    /// Another client has renewed a lease: it ends after `ttl`, counted from this message.
    Renewed {
        ttl: Option<Duration>,
    },
    #[serde(rename = "no")]
    Refused(Refusal),
    #[serde(rename = "truth")]
    Bool(bool),
    Stats(Vec<StatsData>),
    Holders(Vec<Holder>),
    Waiters(Vec<Waiter>),
    Status(AgentStatus),
    /// The agent does not stop, because it has holders or waiters.
    InUse {
        held: usize,
        waiting: usize,
    },
    #[serde(rename = "misunderstood")]
    NotUnderstood(String),
}

/// The state of the agent.
#[derive(Serialize, Deserialize, Debug)]
pub(super) struct AgentStatus {
    pub(super) uptime: Duration,
    pub(super) clients: usize,
    pub(super) names: usize,
    pub(super) held: usize,
    pub(super) waiting: usize,
}

#[derive(Clone, Copy, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ending {
    Released,
    Expired,
    Evicted,
    Vanished,
    OutOfTouch,
    Unknown,
}

impl From<NotHeld> for Ending {
    fn from(why: NotHeld) -> Self {
        match why {
            NotHeld::Released => Self::Released,
            NotHeld::Lost(Loss::Expired) => Self::Expired,
            NotHeld::Lost(Loss::Evicted) => Self::Evicted,
            NotHeld::Lost(Loss::OutOfTouch) => Self::OutOfTouch,
            NotHeld::Lost(Loss::Vanished) => Self::Vanished,
            NotHeld::Unknown => Self::Unknown,
        }
    }
}

impl From<Ending> for NotHeld {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Released => Self::Released,
            Ending::Expired => Self::Lost(Loss::Expired),
            Ending::Evicted => Self::Lost(Loss::Evicted),
            Ending::Vanished => Self::Lost(Loss::Vanished),
            Ending::OutOfTouch => Self::Lost(Loss::OutOfTouch),
            Ending::Unknown => Self::Unknown,
        }
    }
}

/// Why the agent refuses a request.
#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub(super) enum Refusal {
    SlotsNotSet,
    SlotsMismatch { live: u32, asked: u32 },
    Closing { held: u32 },
    ZeroSlots,
    Busy,
    TimedOut { waited: Duration, held: u32, slots: u32, waiting: usize },
    LineFull { limit: usize },
    TooHeavy { weight: u32, slots: u32 },
    ZeroWeight,
    Closed,
    LostBefore(Ending),
    NotHeld(Ending),
    Other(String),
}

impl From<BuildError> for Refusal {
    fn from(error: BuildError) -> Self {
        match error {
            BuildError::SlotsNotSet { .. } => Self::SlotsNotSet,
            BuildError::SlotsMismatch { live, asked, .. } => Self::SlotsMismatch { live, asked },
            BuildError::Closed { held, .. } => Self::Closing { held },
            BuildError::ZeroSlots(_) => Self::ZeroSlots,
            error => Self::Other(error.to_string()),
        }
    }
}

impl From<AcquireError> for Refusal {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::Busy => Self::Busy,
            AcquireError::TimedOut { waited, held, slots, waiting } => {
                Self::TimedOut { waited, held, slots, waiting }
            }
            AcquireError::LineFull { limit } => Self::LineFull { limit },
            AcquireError::TooHeavy { weight, slots } => Self::TooHeavy { weight, slots },
            AcquireError::ZeroWeight => Self::ZeroWeight,
            AcquireError::Closed => Self::Closed,
            AcquireError::Lost(why) => Self::LostBefore(why.into()),
            error => Self::Other(error.to_string()),
        }
    }
}

impl Refusal {
    pub(super) fn into_build_error(self, name: &str) -> BuildError {
        let name = name.to_owned();
        match self {
            Self::SlotsNotSet => BuildError::SlotsNotSet { name },
            Self::SlotsMismatch { live, asked } => BuildError::SlotsMismatch { name, live, asked },
            Self::Closing { held } => BuildError::Closed { name, held },
            Self::ZeroSlots => BuildError::ZeroSlots(ZeroSlots),
            other => BuildError::Home(other.into_home_error()),
        }
    }

    pub(super) fn into_acquire_error(self, name: &str) -> AcquireError {
        match self {
            Self::Busy => AcquireError::Busy,
            Self::TimedOut { waited, held, slots, waiting } => {
                AcquireError::TimedOut { waited, held, slots, waiting }
            }
            Self::LineFull { limit } => AcquireError::LineFull { limit },
            Self::TooHeavy { weight, slots } => AcquireError::TooHeavy { weight, slots },
            Self::ZeroWeight => AcquireError::ZeroWeight,
            Self::Closed => AcquireError::Closed,
            Self::LostBefore(why) => AcquireError::Lost(why.into()),
            Self::Other(_) | Self::NotHeld(_) => AcquireError::Home(self.into_home_error()),
            other => AcquireError::Open(Box::new(other.into_build_error(name))),
        }
    }

    pub(super) fn into_home_error(self) -> HomeError {
        let message = match self {
            Self::Other(message) => message,
            other => format!("the agent replied {other:?}, which does not fit the request"),
        };
        HomeError::new(HomeErrorKind::Other, message)
    }
}

#[derive(Serialize, Deserialize, Debug)]
pub(super) struct StatsData {
    name: Arc<str>,
    slots: u32,
    held: u32,
    holders: usize,
    waiting: usize,
    longest_wait: Duration,
    granted: u64,
    released: u64,
    queued: u64,
    expired: u64,
    evicted: u64,
    handed_on: u64,
    timed_out: u64,
    cancelled: u64,
    refused: u64,
    waits: HistogramData,
    holds: HistogramData,
}

#[derive(Serialize, Deserialize, Debug)]
struct HistogramData {
    buckets: Vec<(usize, u64)>,
    total: Duration,
    max: Duration,
}

impl From<&Histogram> for HistogramData {
    fn from(histogram: &Histogram) -> Self {
        Self { buckets: histogram.counts().collect(), total: histogram.total(), max: histogram.max() }
    }
}

impl From<HistogramData> for Histogram {
    fn from(data: HistogramData) -> Self {
        Self::restore(data.buckets, data.total, data.max)
    }
}

impl From<Stats> for StatsData {
    fn from(stats: Stats) -> Self {
        let totals = stats.totals;
        Self {
            slots: stats.slots,
            held: stats.held,
            holders: stats.holders,
            waiting: stats.waiting,
            longest_wait: stats.longest_wait,
            granted: totals.granted,
            released: totals.released,
            queued: totals.queued,
            expired: totals.expired,
            evicted: totals.evicted,
            handed_on: totals.handed_on,
            timed_out: totals.timed_out,
            cancelled: totals.cancelled,
            refused: totals.refused,
            waits: HistogramData::from(&stats.waits),
            holds: HistogramData::from(&stats.holds),
            name: stats.name,
        }
    }
}

impl From<StatsData> for Stats {
    fn from(data: StatsData) -> Self {
        let mut totals = Totals::default();
        totals.granted = data.granted;
        totals.released = data.released;
        totals.queued = data.queued;
        totals.expired = data.expired;
        totals.evicted = data.evicted;
        totals.handed_on = data.handed_on;
        totals.timed_out = data.timed_out;
        totals.cancelled = data.cancelled;
        totals.refused = data.refused;
        let mut stats = semafor_core::Stats::default();
        stats.slots = data.slots;
        stats.held = data.held;
        stats.holders = data.holders;
        stats.waiting = data.waiting;
        stats.longest_wait = data.longest_wait;
        stats.totals = totals;
        stats.waits = data.waits.into();
        stats.holds = data.holds.into();
        Self::new(data.name, stats)
    }
}

#[derive(Serialize, Deserialize, Debug)]
pub(super) struct Holder {
    id: String,
    slot: Option<u32>,
    fencing_token: Option<u64>,
    weight: u32,
    label: Option<Arc<str>>,
    command: Option<Arc<str>>,
    host: Option<Arc<str>>,
    pid: Option<u32>,
    held_for: Duration,
    expires_in: Option<Duration>,
}

impl From<HolderInfo> for Holder {
    fn from(info: HolderInfo) -> Self {
        let HolderInfo { id, slot, fencing_token, weight, label, command, host, pid, held_for, expires_in } =
            info;
        let id = id.to_string();
        Self { id, slot, fencing_token, weight, label, command, host, pid, held_for, expires_in }
    }
}

impl From<Holder> for HolderInfo {
    fn from(holder: Holder) -> Self {
        let Holder { id, slot, fencing_token, weight, label, command, host, pid, held_for, expires_in } =
            holder;
        let id = PermitId::remote(id);
        Self { id, slot, fencing_token, weight, label, command, host, pid, held_for, expires_in }
    }
}

#[derive(Serialize, Deserialize, Debug)]
pub(super) struct Waiter {
    ahead: usize,
    weight: u32,
    label: Option<Arc<str>>,
    command: Option<Arc<str>>,
    host: Option<Arc<str>>,
    pid: Option<u32>,
    waited_for: Duration,
}

impl From<WaiterInfo> for Waiter {
    fn from(info: WaiterInfo) -> Self {
        let WaiterInfo { ahead, weight, label, command, host, pid, waited_for } = info;
        Self { ahead, weight, label, command, host, pid, waited_for }
    }
}

impl From<Waiter> for WaiterInfo {
    fn from(waiter: Waiter) -> Self {
        let Waiter { ahead, weight, label, command, host, pid, waited_for } = waiter;
        Self { ahead, weight, label, command, host, pid, waited_for }
    }
}

/// The label and the command of a client, shortened to fit into messages.
pub(super) fn label_and_command(who: &Who) -> (Option<Arc<str>>, Option<Arc<str>>) {
    (who.label.as_ref().map(shorten), who.command.as_ref().map(shorten))
}

/// The reply to a request that is not understood. The reason may quote the request, which may be as long as a message.
pub(super) fn not_understood(reason: String) -> Response {
    Response::NotUnderstood(shorten(&reason.into()).to_string())
}

/// Shortens a text to fit into messages, with others like it.
pub(super) fn shorten(text: &Arc<str>) -> Arc<str> {
    if text.len() <= MAX_TEXT {
        return Arc::clone(text);
    }
    let end = (0..=MAX_TEXT).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &text[..end]).into()
}

/// A message as bytes, with its length.
pub(super) fn frame(message: &impl Serialize) -> Vec<u8> {
    let mut frame = vec![0; 4];
    // Never fails: no message has maps with odd keys, and the writer is a vector.
    let _ = serde_json::to_writer(&mut frame, message);
    let length = u32::try_from(frame.len() - 4).unwrap_or(u32::MAX);
    frame[..4].copy_from_slice(&length.to_le_bytes());
    frame
}

/// The length of a message that begins with these bytes.
pub(super) fn length(prefix: [u8; 4]) -> io::Result<usize> {
    let length = u32::from_le_bytes(prefix) as usize;
    if length > MAX_MESSAGE {
        let message = format!("a message of {length} bytes, the limit is {MAX_MESSAGE}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(length)
}

/// Takes the first message out of `buffer`, if it is complete.
pub(super) fn take_first<M: DeserializeOwned>(buffer: &mut Vec<u8>) -> io::Result<Option<M>> {
    let Some(prefix) = buffer.first_chunk() else { return Ok(None) };
    let end = 4 + length(*prefix)?;
    let Some(body) = buffer.get(4..end) else { return Ok(None) };
    let message = serde_json::from_slice(body)?;
    buffer.drain(..end);
    Ok(Some(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_whole_from_any_chunks() {
        let bytes: Vec<u8> =
            (1..4).flat_map(|n| frame(&Call { number: n, request: Request::Cancel { call: n } })).collect();
        let (mut buffer, mut received) = (Vec::new(), Vec::new());
        for byte in bytes {
            buffer.push(byte);
            while let Some(Call { number, .. }) = take_first(&mut buffer).expect("it is one") {
                received.push(number);
            }
        }
        assert_eq!(received, [1, 2, 3]);
    }

    #[test]
    fn too_long_message_is_refused_before_it_is_read() {
        let mut buffer = u32::MAX.to_le_bytes().to_vec();
        assert!(take_first::<Call>(&mut buffer).is_err());
    }

    #[test]
    fn unknown_fields_are_ignored() {
        let message = br#"{"n":1,"ask":{"hello":{"protocol":9,"version":"9.9.9","mood":"good"}},"more":0}"#;
        let call: Call = serde_json::from_slice(message).expect("it is understood");
        assert!(matches!(call.request, Request::Hello { protocol: 9, .. }));
    }

    #[test]
    fn long_labels_are_shortened_at_a_character_boundary() {
        let label: Arc<str> = "ä".repeat(2000).into();
        let short = shorten(&label);
        assert!(short.len() <= MAX_TEXT + 3 && short.ends_with("ä…"));
    }

    #[test]
    fn page_of_the_longest_entries_fits_into_a_message() {
        let words: Arc<str> = "\u{1}".repeat(MAX_TEXT).into();
        let longest = || Waiter {
            ahead: usize::MAX,
            weight: u32::MAX,
            label: Some(Arc::clone(&words)),
            command: Some(Arc::clone(&words)),
            host: Some("h".repeat(64).into()),
            pid: Some(u32::MAX),
            waited_for: Duration::MAX,
        };
        let page = Response::Waiters(std::iter::repeat_with(longest).take(PAGE).collect());
        let framed = frame(&Reply { number: u64::MAX, more: true, response: page });
        assert!(framed.len() <= MAX_MESSAGE, "{}", framed.len());
    }
}
