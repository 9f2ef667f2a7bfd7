//! Redis servers to test against, and what can go wrong with them.
//!
//! - [`RedisServer`]: a process of its own, which can be paused, killed and started again.
//! - [`RedisCluster`] and [`RedisSentinel`]: several of them, with a master that can be made to fail.
//! - [`Proxy`]: stands before a server and loses requests, replies or connections.
//!
//! All of it listens on the loopback interface only, and no server outlives the test, however the test ends.

mod cluster;
mod eventually;
mod proxy;
mod sentinel;
mod server;
mod spawner;

pub use cluster::RedisCluster;
pub use proxy::Proxy;
pub use sentinel::RedisSentinel;
pub use server::RedisServer;
