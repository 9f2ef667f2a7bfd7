use std::time::Duration;

/// A time by the caller's clock: nanoseconds since an epoch that the caller chooses.
///
/// The core never reads a clock. It tolerates times that run a little backwards, because homes mix a
/// cheap coarse clock with a precise one: differences saturate at zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Later than every real time: means that there is no deadline.
    pub const NEVER: Self = Self(u64::MAX);

    /// The time `nanos` nanoseconds after the epoch.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the epoch.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// `span` later; [`NEVER`](Self::NEVER) if that is out of range.
    #[inline]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(span)))
    }

    /// The time since `earlier`; zero if `earlier` is later.
    #[inline]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }

    #[inline]
    pub(crate) const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

#[inline]
pub(crate) fn saturating_nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
