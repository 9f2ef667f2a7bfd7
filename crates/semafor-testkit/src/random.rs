//! Random numbers of simulations and long runs.

/// Random numbers that depend on the seed alone.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    #[cfg(feature = "simulation")]
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another stream, which does not depend on how many numbers this one has given.
    pub(crate) fn stream(seed: u64, number: u64) -> Self {
        let mut random = Self(seed ^ number.wrapping_mul(0xd1b5_4a32_d192_ed03));
        random.next();
        random
    }

    /// The next 64 bits, by splitmix64.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Times between events that come at random, once in `mean` on average.
    pub(crate) fn exponential(&mut self, mean: u64) -> u64 {
        let uniform = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        (-(1.0 - uniform).ln() * mean as f64) as u64
    }
}
