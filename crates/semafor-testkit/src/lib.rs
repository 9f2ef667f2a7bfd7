//! Tools for the tests of semafor. Every home runs the same conformance suite.
//!
//! - [`mod@conformance`]: the promises of every home. A home implements [`Home`], and [`conformance!`] makes a test of
//!   each promise.
//! - [`history`]: records what contestants saw, and checks that one semaphore can have produced it.
//! - [`by_hand`]: futures polled by hand, to check that a waiter is in line without waiting for it.
//! - [`heap`]: how much memory is in use.
//! - [`stepwise`]: futures polled step by step without a runtime, for homes whose clock can stand still.
//! - [`mod@redis`]: Redis servers to test against, and faults to test with.
#![cfg_attr(
    feature = "client",
    doc = "- [`client`]: the client of the remote homes, with a server in the same thread, and a clock that stands still."
)]
#![cfg_attr(
    feature = "cli",
    doc = "- [`cli`]: runs the real `semafor` binary, and checks what its processes leave behind."
)]
#![cfg_attr(feature = "documents", doc = "- [`documents`]: README and book, whose examples are tests.")]
#![cfg_attr(feature = "fuzz", doc = "- [`fuzz`]: functions that take any bytes, with saved inputs.")]
#![cfg_attr(feature = "soak", doc = "- [`soak`]: real processes and faults for hours, checked as they go.")]
#![cfg_attr(feature = "trees", doc = "- [`trees`]: directory trees with a known result of a purge.")]
#![cfg_attr(
    feature = "terminal",
    doc = "- [`terminal`]: a terminal to run programs in, and to read their screen."
)]

pub mod by_hand;
#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "client")]
pub mod client;
pub mod conformance;
#[cfg(feature = "documents")]
pub mod documents;
#[cfg(feature = "fuzz")]
pub mod fuzz;
pub mod heap;
pub mod history;
mod home;
#[cfg(any(feature = "simulation", feature = "soak"))]
mod random;
pub mod redis;
#[cfg(feature = "simulation")]
pub mod simulation;
#[cfg(feature = "soak")]
pub mod soak;
mod spawner;
pub mod stepwise;
#[cfg(feature = "terminal")]
pub mod terminal;
#[cfg(feature = "trees")]
pub mod trees;

pub use home::{Home, Spec};
