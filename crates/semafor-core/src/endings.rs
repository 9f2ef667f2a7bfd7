//! How grants ended that their holders did not end themselves.
//!
//! A released id needs no record: whatever was issued, is not held and was not taken away, was released. Only
//! losses are remembered, and only the newest [`REMEMBERED`]; an id older than a forgotten loss gets
//! [`NotHeld::Unknown`] rather than a guess.

use std::collections::VecDeque;
use std::fmt;

const REMEMBERED: usize = 1024;

/// Why a holder lost its slot before releasing it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Loss {
    /// Its time to live ran out.
    Expired,
    /// Somebody took the slot away.
    Evicted,
    /// Its home lost sight of it: missed heartbeats, a flush, a failover. Not from a gate, only from homes that can.
    Vanished,
    /// Its home could not be reached for so long that it may have given the slot to another. Only from such homes, too.
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
    /// It was released before. (An id that somebody made up from numbers that were issued gets this answer too.)
    Released,
    /// Its slot was lost first.
    Lost(Loss),
    /// The gate never issued it, or it ended so long ago that nobody remembers how.
    Unknown,
}

impl NotHeld {
    /// True if the time to live ran out first.
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

    /// Why a token that was issued holds nothing any more.
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
