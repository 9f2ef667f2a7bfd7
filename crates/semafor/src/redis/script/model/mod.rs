//! Tests of the scripts on a server, with a clock that the test controls.

mod clock;
mod closing;
mod core_comparison;
mod fencing;
mod heartbeats;
mod lost_keys;
mod random_runs;
mod repetitions;
mod request;
mod scripts;
