use std::time::Duration;

use crate::time::saturating_nanos;

/// Buckets per doubling, as a power of two: four, so a bucket is at most a quarter wider than its start.
const STEPS: u32 = 2;
/// Durations below 2^10 ns, about a microsecond, share the first bucket.
const FLOOR: u32 = 10;

/// Counts of durations in buckets that grow with the duration.
///
/// Four buckets per doubling from a microsecond upwards: a quantile is right to within a quarter. It grows only up to
/// the longest duration it has seen, so a short-lived semaphore stores only a few numbers.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: Vec<u64>,
    total_nanos: u64,
    max_nanos: u64,
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&mut self, span: Duration) {
        self.record_nanos(saturating_nanos(span));
    }

    #[inline]
    pub(crate) fn record_nanos(&mut self, nanos: u64) {
        let bucket = bucket_of(nanos);
        match self.buckets.get_mut(bucket) {
            Some(count) => *count += 1,
            None => self.grow_to(bucket),
        }
        self.total_nanos = self.total_nanos.saturating_add(nanos);
        self.max_nanos = self.max_nanos.max(nanos);
    }

    #[cold]
    fn grow_to(&mut self, bucket: usize) {
        self.buckets.resize(bucket, 0);
        self.buckets.push(1);
    }

    /// A histogram from counts made elsewhere with the same buckets: pairs of a bucket's number and its count.
    ///
    /// The first bucket is below 1024 ns; after it come four per doubling. Counts saturate: a faulty server may send any.
    pub fn restore(buckets: impl IntoIterator<Item = (usize, u64)>, total: Duration, max: Duration) -> Self {
        let mut restored = Self {
            buckets: Vec::new(),
            total_nanos: saturating_nanos(total),
            max_nanos: saturating_nanos(max),
        };
        for (bucket, count) in buckets.into_iter().filter(|(bucket, _)| *bucket <= bucket_of(u64::MAX)) {
            if restored.buckets.len() <= bucket {
                restored.buckets.resize(bucket + 1, 0);
            }
            restored.buckets[bucket] = restored.buckets[bucket].saturating_add(count);
        }
        restored
    }

    /// The numbers of the non-empty buckets and their counts, as [`restore`](Self::restore) takes them.
    pub fn counts(&self) -> impl Iterator<Item = (usize, u64)> {
        self.buckets.iter().copied().enumerate().filter(|(_, count)| *count > 0)
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The sum of all durations.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.total_nanos)
    }

    /// The longest duration, exactly.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max_nanos)
    }

    /// The mean duration; zero if nothing was counted.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.total_nanos.checked_div(self.count()).unwrap_or(0))
    }

    /// The duration that a share `q` of all counted durations did not exceed, rounded up by at most a quarter.
    ///
    /// `q` is clamped to 0..=1. Zero if nothing was counted.
    ///
    /// ```
    /// use std::time::Duration;
    /// let mut waits = semafor_core::Histogram::default();
    /// for ms in 1..=100 {
    ///     waits.record(Duration::from_millis(ms));
    /// }
    /// let median = waits.quantile(0.5);
    /// assert!((Duration::from_millis(50)..Duration::from_millis(63)).contains(&median));
    /// assert_eq!(waits.quantile(1.0), Duration::from_millis(100));
    /// ```
    pub fn quantile(&self, q: f64) -> Duration {
        let rank = ((self.count() as f64 * q.clamp(0.0, 1.0)).ceil() as u64).max(1);
        let mut seen = 0u64;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen = seen.saturating_add(*count);
            if seen >= rank {
                return Duration::from_nanos((upper_bound(bucket) - 1).min(self.max_nanos));
            }
        }
        self.max()
    }

    /// The non-empty buckets in order, as (upper bound, count).
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let filled = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(bucket, count)| (Duration::from_nanos(upper_bound(bucket)), *count))
    }
}

#[inline]
fn bucket_of(nanos: u64) -> usize {
    if nanos < 1 << FLOOR {
        return 0;
    }
    let octave = nanos.ilog2();
    let step = (nanos >> (octave - STEPS)) & ((1 << STEPS) - 1);
    1 + ((u64::from(octave - FLOOR) << STEPS) + step) as usize
}

fn upper_bound(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let octave = (bucket >> STEPS) + u64::from(FLOOR);
    let step = bucket & ((1 << STEPS) - 1);
    let start = 1u128 << octave;
    u64::try_from(start + ((start * u128::from(step)) >> STEPS)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn restored_counts_saturate() {
        let counts = [(3, u64::MAX), (3, 1), (4, u64::MAX), (usize::MAX, 1)];
        let restored = Histogram::restore(counts, Duration::MAX, Duration::MAX);
        assert_eq!((restored.count(), restored.buckets.len()), (u64::MAX, 5));
        assert_eq!(restored.quantile(1.0), Duration::from_nanos(upper_bound(3) - 1));
        assert_eq!(restored.mean(), Duration::from_nanos(1));
    }

    proptest! {
        #[test]
        fn every_duration_falls_into_the_bucket_that_covers_it(nanos in any::<u64>()) {
            let bucket = bucket_of(nanos);
            prop_assert!(nanos < upper_bound(bucket) || upper_bound(bucket) == u64::MAX);
            if bucket > 0 {
                prop_assert!(nanos >= upper_bound(bucket - 1));
            }
        }

        #[test]
        fn a_quantile_is_right_to_within_a_quarter(
            mut spans in proptest::collection::vec(1_024..1u64 << 40, 1..200),
            q in 0.0..=1.0f64,
        ) {
            let mut histogram = Histogram::default();
            for nanos in &spans {
                histogram.record(Duration::from_nanos(*nanos));
            }
            spans.sort_unstable();
            let rank = ((spans.len() as f64 * q).ceil() as usize).clamp(1, spans.len());
            let exact = spans[rank - 1];
            let quantile = histogram.quantile(q).as_nanos() as u64;
            prop_assert!(quantile >= exact && quantile <= exact + exact / 4 + 1, "{quantile} for {exact}");
        }
    }

    #[test]
    fn empty_histogram_answers_zero() {
        assert_eq!(Histogram::default().quantile(0.99), Duration::ZERO);
        assert_eq!(Histogram::default().mean(), Duration::ZERO);
    }
}
