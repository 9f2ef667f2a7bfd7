//! A Redis server in the same thread: the production scripts in Lua, over a small model of the commands they use.

mod answer;
mod heap;
mod lua;
pub mod number;
mod script;
mod server;
mod store;
mod zset;

pub use script::Scripts;
pub use server::{ConnectionId, Ran, Server};
pub use store::{Outcome, Store};
pub(super) use zset::SortedSet;
