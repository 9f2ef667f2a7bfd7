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

/// A place for semaphores that several processes share. From [`Home::connect`].
///
/// A process has one connection to a home, for any number of slots and waiters. Clones share it, and so do homes that
/// were opened with the same settings.
#[derive(Clone)]
pub struct Home(Backend);

#[derive(Clone)]
enum Backend {
    #[cfg(feature = "local")]
    Local(LocalHome),
    #[cfg(feature = "redis")]
    Redis(RedisHome),
}

impl Home {
    /// Opens the home at `url`: `local:` for the processes of this user on this machine (feature `local`), or the URL of
    /// a Redis (feature `redis`). The module `redis` and `local::Config` list all forms.
    ///
    /// Contacts a Redis server at once, and tries once. Does not contact the local agent: the first acquire starts one
    /// if none is running, with the `semafor` command in `PATH` or `local::Config::program`.
    ///
    /// # Errors
    ///
    /// [`HomeError`] if the URL is invalid or the server is unreachable. The answer comes in bounded time, and the
    /// message says what to do.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use semafor::{Home, secs};
    ///
    /// let home = Home::connect("redis://127.0.0.1/?namespace=my-app").await?;
    /// let sem = home.named("images").slots(10).ttl(secs(30)).build()?;
    /// let permit = sem.acquire().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(url: &str) -> Result<Self, HomeError> {
        #[cfg(feature = "local")]
        if crate::local::Config::is_meant_by(url) {
            return Ok(Self::local(url.parse()?));
        }
        #[cfg(feature = "redis")]
        return RedisHome::connect(url.parse()?).await.map(Backend::Redis).map(Self);
        #[cfg(not(feature = "redis"))]
        Err(HomeError::new(
            crate::HomeErrorKind::InvalidUrl,
            format!(
                "{url:?} is not the address of a home: write `local:` (for a Redis, turn on the feature `redis`)"
            ),
        ))
    }

    /// The home for the processes of this user on this machine.
    ///
    /// Does not contact the agent. The first acquire starts one if none is running. For this it needs the `semafor`
    /// command in `PATH`, or [`local::Config::program`](crate::local::Config::program).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use semafor::{Home, local};
    /// # pollster::block_on(async {
    /// let home = Home::local(local::Config::default());
    /// let sem = home.named("images").slots(10).open().await?;
    /// # Ok::<(), semafor::BuildError>(())
    /// # }).unwrap();
    /// ```
    #[cfg(feature = "local")]
    #[cfg_attr(docsrs, doc(cfg(feature = "local")))]
    pub fn local(config: crate::local::Config) -> Self {
        Self(Backend::Local(LocalHome::new(config)))
    }

    #[cfg(feature = "local")]
    pub(crate) fn on(home: LocalHome) -> Self {
        Self(Backend::Local(home))
    }

    /// The home on a Redis server.
    ///
    /// Does not contact the server: the first operation connects, and is retried like any other. To find out at once
    /// whether the server answers, use [`connect`](Self::connect).
    ///
    /// # Errors
    ///
    /// [`HomeError`] if the configuration is invalid.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use semafor::Home;
    /// let home = Home::redis("redis://127.0.0.1/?namespace=my-app".parse()?)?;
    /// let sem = home.named("images").slots(10).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "redis")]
    #[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
    pub fn redis(config: Config) -> Result<Self, HomeError> {
        RedisHome::new(config).map(Backend::Redis).map(Self)
    }

    /// Opens the semaphore of that name, which all clients of this home share.
    ///
    /// Does not contact the home: [`Builder::open`] does, or the first acquire.
    pub fn named(&self, name: impl Into<String>) -> Builder {
        Builder::remote(self.clone(), name.into())
    }

    /// Statistics of all names, or of those that the query selects. Changes nothing.
    ///
    /// # Errors
    ///
    /// [`HomeError`] if the home does not answer.
    ///
    /// # Examples
    ///
    /// ```
    /// use semafor::StatsQuery;
    /// # async fn example(home: semafor::Home) -> Result<(), semafor::HomeError> {
    /// for stats in home.stats(&StatsQuery::default().limit(10)).await? {
    ///     println!("{}: {} of {} slots held", stats.name, stats.held, stats.slots);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn stats(&self, query: &StatsQuery) -> Result<Vec<Stats>, HomeError> {
        match &self.0 {
            #[cfg(feature = "local")]
            Backend::Local(home) => home.stats(query).await,
            #[cfg(feature = "redis")]
            Backend::Redis(home) => home.stats(query).await,
        }
    }

    /// Problems found at the last connect that do not stop this home from working, for example a server that may delete
    /// semaphores in use. Also sent to `tracing`, if that feature is on. The local home reports its warnings to
    /// `local::Config::on_warning` instead.
    pub fn warnings(&self) -> Vec<String> {
        match &self.0 {
            #[cfg(feature = "local")]
            Backend::Local(_) => Vec::new(),
            #[cfg(feature = "redis")]
            Backend::Redis(home) => home.warnings(),
        }
    }

    /// Blocks until the home has released everything that was dropped so far. Call it in a process that is about to end
    /// without dropping its handles. Gives up after 2 seconds without progress.
    ///
    /// Dropping the last handle of a home, its semaphores or its permits waits in the same way. So on Redis, the drop
    /// of the last permit that outlives its home may wait 2 seconds for a silent server. The local home has nothing to
    /// wait for.
    pub fn finish_background_work(&self) {
        match &self.0 {
            #[cfg(feature = "local")]
            Backend::Local(_) => {}
            #[cfg(feature = "redis")]
            Backend::Redis(home) => home.finish_background_work(),
        }
    }

    pub(crate) fn semaphore(
        &self,
        name: &str,
        slots: Option<u32>,
        max_waiting: Option<usize>,
        // The local home needs no heartbeat: its connection is enough.
        #[cfg_attr(not(feature = "redis"), expect(unused_variables))] heartbeat: Duration,
    ) -> Arc<dyn RemoteSemaphore> {
        match &self.0 {
            #[cfg(feature = "local")]
            Backend::Local(home) => Arc::new(home.semaphore(name, slots, max_waiting)),
            #[cfg(feature = "redis")]
            Backend::Redis(home) => Arc::new(home.semaphore(name, slots, max_waiting, heartbeat)),
        }
    }
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut home = f.debug_tuple("Home");
        match &self.0 {
            #[cfg(feature = "local")]
            Backend::Local(local) => home.field(local.config()),
            #[cfg(feature = "redis")]
            Backend::Redis(redis) => home.field(redis.config()),
        };
        home.finish()
    }
}
