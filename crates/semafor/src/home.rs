use std::fmt;
use std::time::Duration;

use crate::error::HomeError;
use crate::redis::{Config, RedisHome, RedisSemaphore};
use crate::{Builder, Stats, StatsQuery};

/// Where semaphores are that more than one process shares. From [`Semaphore::connect`](crate::Semaphore::connect).
///
/// A clone is the same home. A process has one connection to it, whatever it holds and waits for.
#[derive(Clone)]
pub struct Home(RedisHome);

impl Home {
    /// Connects to the home at `url`.
    pub(crate) async fn connect(url: &str) -> Result<Self, HomeError> {
        Self::with_config(url.parse()?).await
    }

    /// Connects as `config` says.
    ///
    /// # Errors
    ///
    /// As for [`Semaphore::connect`](crate::Semaphore::connect).
    pub async fn with_config(config: Config) -> Result<Self, HomeError> {
        RedisHome::connect(config).await.map(Self)
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
        self.0.stats(query).await
    }

    pub(crate) fn semaphore(
        &self,
        name: &str,
        slots: Option<u32>,
        max_waiting: Option<usize>,
        heartbeat: Duration,
    ) -> RedisSemaphore {
        self.0.semaphore(name, slots, max_waiting, heartbeat)
    }
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Home").field(self.0.config()).finish()
    }
}
