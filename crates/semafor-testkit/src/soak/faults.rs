//! What goes wrong in a long run, drawn from the seed.

use std::time::Duration;

use crate::random::Random;

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// SIGKILL to a client. Another one starts in its place.
    ClientKilled,
    /// SIGSTOP to a client, and SIGCONT later.
    ClientStopped,
    /// The connection of a client breaks; both sides notice.
    ConnectionCut,
    /// Neither requests nor replies of a client arrive, and neither side notices.
    ConnectionHalfOpen,
    /// The server carries out requests of a client, and the replies are lost.
    RepliesLost,
    /// The next request of a client is carried out, and its connection closed without a reply.
    ReplyLost,
    /// The next request of a client is lost with its connection.
    RequestLost,
    /// The server closes all connections: CLIENT KILL.
    ConnectionsKilled,
    /// SIGSTOP to the server or the agent, and SIGCONT later.
    ServerStopped,
    /// SCRIPT FLUSH.
    ScriptsForgotten,
    /// SIGKILL to the server, which starts again with its data.
    ServerRestarted,
    /// SIGKILL to the server, which starts again without data.
    DataLost,
    /// FLUSHALL.
    Flushed,
    /// One key is deleted.
    KeyDeleted,
    /// SIGKILL to the agent. A client starts the next one.
    AgentKilled,
}

impl Fault {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ClientKilled => "client killed",
            Self::ClientStopped => "client stopped and continued",
            Self::ConnectionCut => "connection cut",
            Self::ConnectionHalfOpen => "connection half-open",
            Self::RepliesLost => "replies lost for a while",
            Self::ReplyLost => "one reply lost",
            Self::RequestLost => "one request lost",
            Self::ConnectionsKilled => "all connections killed by the server",
            Self::ServerStopped => "server or agent stopped and continued",
            Self::ScriptsForgotten => "scripts flushed",
            Self::ServerRestarted => "server killed and restarted with its data",
            Self::DataLost => "server killed and restarted without data",
            Self::Flushed => "all data flushed",
            Self::KeyDeleted => "one key deleted",
            Self::AgentKilled => "agent killed",
        }
    }

    /// Whether the server has forgotten grants, or may end them early.
    pub(super) fn loses_grants(self) -> bool {
        matches!(self, Self::DataLost | Self::Flushed | Self::KeyDeleted)
    }

    /// How often it comes, beside the others.
    fn weight(self) -> u64 {
        match self {
            Self::ClientKilled | Self::ConnectionCut | Self::ClientStopped => 14,
            Self::ConnectionHalfOpen
            | Self::RepliesLost
            | Self::ReplyLost
            | Self::RequestLost
            | Self::ServerStopped => 10,
            Self::ScriptsForgotten | Self::ConnectionsKilled | Self::ServerRestarted => 8,
            Self::AgentKilled => 20,
            Self::Flushed | Self::KeyDeleted => 4,
            Self::DataLost => 3,
        }
    }

    /// One of these.
    pub(super) fn draw(faults: &[Self], random: &mut Random) -> Option<Self> {
        let total: u64 = faults.iter().map(|fault| fault.weight()).sum();
        let mut left = random.below(total.max(1));
        faults.iter().copied().find(|fault| match left.checked_sub(fault.weight()) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        })
    }

    /// How long it lasts: mostly shorter than a heartbeat interval, and sometimes longer.
    pub(super) fn length(self, heartbeat: Duration, random: &mut Random) -> Duration {
        let heartbeat = u64::try_from(heartbeat.as_millis()).unwrap_or(u64::MAX);
        let is_long = random.percent(35);
        let (least, most) = match self {
            Self::ClientStopped | Self::ConnectionHalfOpen | Self::RepliesLost if is_long => {
                (heartbeat, 3 * heartbeat)
            }
            Self::ServerStopped if is_long => (heartbeat, 2 * heartbeat),
            Self::ServerStopped => (50, heartbeat / 4),
            Self::ClientStopped | Self::ConnectionHalfOpen | Self::RepliesLost => (50, heartbeat / 2),
            Self::ServerRestarted | Self::DataLost => (50, 500),
            _ => return Duration::ZERO,
        };
        Duration::from_millis(random.between(least, most.max(least)))
    }
}
