//! Redis servers to test against, and faults to test with.
//!
//! - [`RedisServer`]: a process of its own, which can be paused, killed and started again.
//! - [`RedisCluster`] and [`RedisSentinel`]: several of them, with a master that can be made to fail.
//! - [`Contender`]: a process that contends for their slots, and can be stopped and killed.
//! - [`Proxy`]: forwards to a server, and loses requests, replies or connections.
//! - [`Keyspace`] and [`Monitor`]: the keys of a semaphore on a server, and the commands that a server gets.
//!
//! All servers listen on the loopback interface only, and none outlives the test, however the test ends.

mod cluster;
mod contender;
mod eventually;
mod keyspace;
mod leftovers;
mod monitor;
mod proxy;
mod sentinel;
mod server;

pub use cluster::RedisCluster;
pub use contender::Contender;
pub use eventually::{eventually, until_seen};
pub use keyspace::Keyspace;
pub use leftovers::leftovers;
pub use monitor::{Monitor, Observed};
pub use proxy::Proxy;
pub use sentinel::RedisSentinel;
pub use server::RedisServer;
