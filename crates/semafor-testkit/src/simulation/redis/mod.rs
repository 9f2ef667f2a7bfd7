//! A Redis server in the same thread: the production scripts in Lua, over a small model of the commands they use.

pub mod number;
mod script;
mod store;
mod zset;

pub use script::Scripts;
pub use store::{Outcome, Store};
