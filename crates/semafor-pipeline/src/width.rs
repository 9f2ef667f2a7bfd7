//! How many slots a pipeline lets itself use: at most one per worker, at least one.
//!
//! From tight to critical memory, the number falls in proportion. Once memory is fine again, all slots are used. The
//! number depends only on the current memory, so there are no steps to count and no delays.

use std::time::Duration;

use crate::latency::LatencyScale;

pub(crate) struct Width {
    limit: u32,
    by_memory: u32,
    is_tight: bool,
    by_latency: Option<LatencyScale>,
}

impl Width {
    pub(crate) fn new(limit: u32, tolerance: Option<f64>) -> Self {
        let by_latency = tolerance.map(|tolerance| LatencyScale::new(limit, tolerance));
        Self { limit, by_memory: limit, is_tight: false, by_latency }
    }

    pub(crate) fn get(&self) -> u32 {
        self.by_latency.as_ref().map_or(self.limit, LatencyScale::width).min(self.by_memory)
    }

    /// True while memory is tight.
    pub(crate) fn is_tight(&self) -> bool {
        self.is_tight
    }

    /// Sets the pressure of memory, from tight (0) to critical (1). True if memory has just become tight.
    pub(crate) fn press(&mut self, pressure: f64) -> bool {
        let was_tight = std::mem::replace(&mut self.is_tight, pressure >= 0.0);
        self.by_memory = if self.is_tight {
            let left = f64::from(self.limit) * (1.0 - pressure.min(1.0));
            (left.round() as u32).min(self.limit - 1).max(1)
        } else {
            self.limit
        };
        self.is_tight && !was_tight
    }

    /// Records how long an item took.
    pub(crate) fn observe(&mut self, took: Duration, now: Duration) {
        if let Some(by_latency) = &mut self.by_latency {
            by_latency.observe(took, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_narrows_in_proportion_down_to_one_and_widens_again() {
        let mut width = Width::new(10, None);
        let widths = [-5.0, -0.01, 0.0, 0.25, 0.5, 0.99, 1.0, 7.0, 0.5, -0.1].map(|pressure| {
            width.press(pressure);
            width.get()
        });
        assert_eq!(widths, [10, 10, 9, 8, 5, 1, 1, 1, 5, 10]);
    }

    #[test]
    fn a_narrowing_is_reported_once() {
        let mut width = Width::new(10, None);
        let reported = [-1.0, 0.1, 0.5, 0.1, -1.0, 0.1].map(|pressure| width.press(pressure));
        assert_eq!(reported, [false, true, false, false, false, true]);
    }

    #[test]
    fn a_limit_of_one_stays_one_when_memory_is_tight() {
        let mut width = Width::new(1, None);
        assert!(width.press(0.5) && width.is_tight());
        assert_eq!(width.get(), 1);
    }

    #[test]
    fn the_narrower_of_memory_and_latency_counts() {
        let mut width = Width::new(16, Some(2.0));
        assert_eq!(width.get(), 1, "scaling by latency begins with one");
        let tick = Duration::from_millis(1);
        (0..100).for_each(|n| width.observe(tick, tick * n));
        assert_eq!(width.get(), 16);
        width.press(0.5);
        assert_eq!(width.get(), 8);
    }
}
