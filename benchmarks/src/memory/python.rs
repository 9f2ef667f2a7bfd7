//! The Python library of the seed, and asyncio's own semaphore, in an interpreter that xtask has prepared.

use semafor_benchmarks::Report;

pub(super) fn measure(_report: &mut Report, _rounds: usize) {}
