//! What every home of a semaphore promises, written once and run by each of them.
//!
//! - [`mod@conformance`]: the promises. A home says how it is [opened](Home), [`conformance!`] makes a test of each.
//! - [`history`]: records what contestants saw, and checks that one semaphore can have shown it to them.
//! - [`by_hand`]: futures polled by hand, to establish that a waiter is in line without waiting for it.
//! - [`heap`]: how much memory is in use.
//! - [`stepwise`]: the same without a runtime, for homes whose time can stand still.
//! - [`mod@redis`]: Redis servers to test against, and what can go wrong with them.
#![cfg_attr(
    feature = "client",
    doc = "- [`client`]: the client of the remote homes, with a server in the same thread, and a clock that stands still."
)]
#![cfg_attr(
    feature = "cli",
    doc = "- [`cli`]: the `semafor` command as its users have it, and what its processes leave behind."
)]
#![cfg_attr(feature = "documents", doc = "- [`documents`]: README and book, whose examples are tests.")]
#![cfg_attr(feature = "trees", doc = "- [`trees`]: directories of which it is known what a purge removes.")]
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
pub mod heap;
pub mod history;
mod home;
pub mod redis;
#[cfg(feature = "simulation")]
pub mod simulation;
mod spawner;
pub mod stepwise;
#[cfg(feature = "terminal")]
pub mod terminal;
#[cfg(feature = "trees")]
pub mod trees;

pub use home::{Home, Spec};
