use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::HomeError;
#[cfg(feature = "local")]
use crate::local::LocalHome;
#[cfg(feature = "redis")]
use crate::redis::{Config, RedisHome};
use crate::remote::RemoteSemaphore;
use crate::{Builder, Stats, StatsQuery};

/// Where semaphores are that more than one process shares. From [`Semaphore::connect`](crate::Semaphore::connect).
///
/// A clone is the same home. A process has one connection to it, whatever it holds and waits for.
#[derive(Clone)]
pub struct Home(Place);

#[derive(Clone)]
enum Place {
    #[cfg(feature = "local")]
    Local(LocalHome),
    #[cfg(feature = "redis")]
    Redis(RedisHome),
}

impl Home {
    /// Connects to the home at `url`.
    pub(crate) async fn connect(url: &str) -> Result<Self, HomeError> {
        #[cfg(feature = "local")]
        if crate::local::Config::is_meant_by(url) {
            return Ok(Self::local(url.parse()?));
        }
        #[cfg(feature = "redis")]
        return Self::with_config(url.parse()?).await;
        #[cfg(not(feature = "redis"))]
        Err(HomeError::new(
            crate::HomeErrorKind::InvalidUrl,
            format!(
                "{url:?} is no address of a home here: `local:` is (for a Redis, turn on the feature `redis`)"
            ),
        ))
    }

    /// The processes of this user on this machine. An agent is started when the first of them needs it.
    #[cfg(feature = "local")]
    pub fn local(config: crate::local::Config) -> Self {
        Self(Place::Local(LocalHome::new(config)))
    }

    /// A Redis, as `config` says. It is connected to when it is first asked for something, and that is tried as often as
    /// everything else; [`with_config`](Self::with_config) connects at once, and tries once.
    ///
    /// # Errors
    ///
    /// [`HomeError`] if the configuration makes no sense.
    #[cfg(feature = "redis")]
    pub fn redis(config: Config) -> Result<Self, HomeError> {
        RedisHome::new(config).map(Place::Redis).map(Self)
    }

    /// Connects to a Redis as `config` says.
    ///
    /// # Errors
    ///
    /// As for [`Semaphore::connect`](crate::Semaphore::connect).
    #[cfg(feature = "redis")]
    pub async fn with_config(config: Config) -> Result<Self, HomeError> {
        RedisHome::connect(config).await.map(Place::Redis).map(Self)
    }

    /// The semaphore of that name, for everybody who connects to this home.
    pub fn named(&self, name: impl Into<String>) -> Builder {
        Builder::elsewhere(self.clone(), name.into())
    }

    /// Statistics of all names, or of some, as the query says. Changes nothing.
    ///
    /// # Errors
    ///
    /// [`HomeError`] if nobody answers.
    pub async fn stats(&self, query: &StatsQuery) -> Result<Vec<Stats>, HomeError> {
        match &self.0 {
            #[cfg(feature = "local")]
            Place::Local(home) => home.stats(query).await,
            #[cfg(feature = "redis")]
            Place::Redis(home) => home.stats(query).await,
        }
    }

    pub(crate) fn semaphore(
        &self,
        name: &str,
        slots: Option<u32>,
        max_waiting: Option<usize>,
        // Of no use where a connection is all the heartbeat there is.
        #[cfg_attr(not(feature = "redis"), expect(unused_variables))] heartbeat: Duration,
    ) -> Arc<dyn RemoteSemaphore> {
        match &self.0 {
            #[cfg(feature = "local")]
            Place::Local(home) => Arc::new(home.semaphore(name, slots, max_waiting)),
            #[cfg(feature = "redis")]
            Place::Redis(home) => Arc::new(home.semaphore(name, slots, max_waiting, heartbeat)),
        }
    }
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut home = f.debug_tuple("Home");
        match &self.0 {
            #[cfg(feature = "local")]
            Place::Local(local) => home.field(local.config()),
            #[cfg(feature = "redis")]
            Place::Redis(redis) => home.field(redis.config()),
        };
        home.finish()
    }
}
