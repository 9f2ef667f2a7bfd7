//! What every home of a semaphore promises, written once and run by each of them.
//!
//! - [`mod@conformance`]: the promises. A home says how it is [opened](Home), [`conformance!`] makes a test of each.
//! - [`history`]: records what contestants saw, and checks that one semaphore can have shown it to them.
//! - [`by_hand`]: futures polled by hand, to establish that somebody waits without waiting for it.
//! - [`heap`]: how much memory is in use.
//! - [`stepwise`]: the same without a runtime, for homes whose time can stand still.
//! - [`mod@redis`]: Redis servers to test against, and what can go wrong with them.

pub mod by_hand;
pub mod conformance;
pub mod heap;
pub mod history;
mod home;
pub mod redis;
pub mod stepwise;

pub use home::{Home, Spec};
