//! How grants ended that their holders did not release.
//!
//! A released id needs no record: an id that was issued, is not held and was not lost, was released. Only losses are
//! recorded, and only the newest [`REMEMBERED`]. For an id older than a forgotten loss, the answer is
//! [`NotHeld::Unknown`] rather than a guess.

use std::collections::VecDeque;
use std::fmt;

const REMEMBERED: usize = 1024;

/// Why a holder lost its slot before releasing it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Loss {
    /// Its lease ended.
    Expired,
    /// It was evicted.
    Evicted,
    /// Its home no longer has a record of it: missed heartbeats, a flush, a failover. Only from remote homes, not from
    /// a gate.
    Vanished,
    /// Its home was unreachable for so long that it may have granted the slot to another holder. Only from remote
    /// homes.
    OutOfTouch,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its time to live ran out",
            Self::Evicted => "it was evicted",
            Self::Vanished => "its home knows nothing of it any more",
            Self::OutOfTouch => "its home could not be reached in time",
        })
    }
}

/// Why an id holds nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NotHeld {
    /// It was released before. (A forged id with a token that was issued gets this answer, too.)
    Released,
    /// Its slot was lost first.
    Lost(Loss),
    /// The gate never issued it, or it ended so long ago that the gate has forgotten how.
    Unknown,
}

impl NotHeld {
    /// True if the lease ended first.
    pub fn is_expired(&self) -> bool {
        matches!(self, Self::Lost(Loss::Expired))
    }
}

impl fmt::Display for NotHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Released => f.write_str("this permit was released already"),
            Self::Lost(loss) => write!(f, "this permit lost its slot: {loss}"),
            Self::Unknown => f.write_str("this semaphore does not know that permit id"),
        }
    }
}

impl std::error::Error for NotHeld {}

#[derive(Default)]
pub(crate) struct Endings {
    losses: VecDeque<(u64, Loss)>,
    newest_forgotten: u64,
}

impl Endings {
    pub(crate) fn record(&mut self, token: u64, loss: Loss) {
        if self.losses.len() == REMEMBERED
            && let Some((forgotten, _)) = self.losses.pop_front()
        {
            self.newest_forgotten = self.newest_forgotten.max(forgotten);
        }
        self.losses.push_back((token, loss));
    }

    /// Why a token that was issued no longer holds a slot.
    pub(crate) fn look_up(&self, token: u64) -> NotHeld {
        let known = self.losses.iter().rev().find(|(lost, _)| *lost == token);
        match known {
            Some((_, loss)) => NotHeld::Lost(*loss),
            None if token <= self.newest_forgotten => NotHeld::Unknown,
            None => NotHeld::Released,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgotten_loss_is_unknown_and_never_reported_as_a_release() {
        let mut endings = Endings::default();
        for token in (2..).step_by(2).take(REMEMBERED + 1) {
            endings.record(token, Loss::Expired);
        }
        assert_eq!(endings.look_up(1), NotHeld::Unknown);
        assert_eq!(endings.look_up(2), NotHeld::Unknown);
        assert_eq!(endings.look_up(3), NotHeld::Released);
        assert_eq!(endings.look_up(4), NotHeld::Lost(Loss::Expired));
    }
}
