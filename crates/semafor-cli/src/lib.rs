//! How the `semafor` command reads and prints durations and numbers of slots, for the command itself and for fuzzing.
//!
//! Not a public interface: it may change with every release.

#![doc(hidden)]

pub mod duration;
pub mod slots;
