//! Semaphores for a fleet, on Redis or Valkey.
//!
//! Processes that use the Python library `asyncio-advanced-semaphores` share them: the keys are the same.
//!
//! # The URL
//!
//! | | |
//! |---|---|
//! | `redis://user:password@host:6379/0` | one server |
//! | `rediss://host` | over TLS (feature `redis-tls`); `?ca=/path/to/ca.pem` for a certificate of one's own |
//! | `unix:///run/redis.sock?db=0&user=u&pass=p` | over a Unix socket |
//! | `redis+cluster://a:7000,b:7000/?namespace={app}` | a cluster; the `{tag}` keeps a namespace in one place |
//! | `redis+sentinel://a:26379,b:26379/mymaster/0` | whoever is master right now |
//!
//! The last two as `rediss+cluster` and `rediss+sentinel`, too: TLS with everybody there.
//!
//! Options: `namespace` (`adv-sem`), `socket_timeout` (30 s), `socket_connect_timeout` (10 s), `number_of_attempts` (3),
//! `retry_multiplier` (2), `retry_min_delay` (1 s), `retry_max_delay` (60 s), `protocol` (`resp3`), `max_connections` (300;
//! one is enough for any number of holders and waiters).
//!
//! # What is promised, and what is not
//!
//! - Who gets a slot is decided by scripts on the server, by its clock, in order of arrival.
//! - A holder that dies loses its slot after `heartbeat_max_interval`. One that can't reach the server is told so before
//!   the server can have given its slot away: [`Permit::lost`](crate::Permit::lost).
//! - A process that was stopped for longer than that runs on for a moment before it is told. So does one whose server
//!   forgot everything: a flush, or a failover before the replica had it. Where that must not do harm, hand the
//!   [fencing token](crate::Permit::fencing_token) to the resource.

mod answer;
mod config;
mod fleet;
mod hold;
mod ids;
mod inspect;
mod keys;
mod link;
mod lua;
mod master;
#[cfg(all(test, feature = "test-redis"))]
mod model;
mod semaphore;
#[cfg(feature = "redis-tls")]
mod tls;
mod trouble;

use std::sync::Arc;
use std::time::Duration;

pub use config::{Config, Protocol};
pub(crate) use semaphore::RedisSemaphore;

use crate::error::HomeError;
use crate::{Stats, StatsQuery};
use fleet::{Anchor, Fleet};

pub(crate) fn after_fork() {
    Fleet::after_fork();
}

/// A Redis, and this process's one connection to it.
#[derive(Clone)]
pub(crate) struct RedisHome(Arc<Anchor>);

impl RedisHome {
    pub(crate) fn new(config: Config) -> Result<Self, HomeError> {
        Fleet::at(config).map(Self)
    }

    pub(crate) async fn connect(config: Config) -> Result<Self, HomeError> {
        Fleet::connect(config).await.map(Self)
    }

    pub(crate) fn config(&self) -> &Config {
        &self.0.fleet().config
    }

    pub(crate) fn semaphore(
        &self,
        name: &str,
        slots: Option<u32>,
        max_waiting: Option<usize>,
        heartbeat: Duration,
    ) -> RedisSemaphore {
        RedisSemaphore::new(Arc::clone(&self.0), name, slots, max_waiting, heartbeat)
    }

    pub(crate) async fn stats(&self, query: &StatsQuery) -> Result<Vec<Stats>, HomeError> {
        inspect::survey(self.0.fleet(), query).await
    }
}
