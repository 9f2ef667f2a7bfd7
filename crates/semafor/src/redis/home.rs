//! One Redis, and this process's one connection to it.

use std::sync::Arc;
use std::time::Duration;

use super::config::Config;
use super::connection::ScriptReply;
use super::driver::{DriverHandle, RedisDriver};
use super::engine::{max_waiting, note_open, why_not_open};
use super::inspect::{self, Snapshot};
use super::keys::Keys;
use super::script::lua::{self, Script};
use super::script::reply::ReplyReader;
use super::script::schema::word;
use crate::error::{BuildError, HomeError, InvalidDuration, MeantAs};
use crate::remote::BoxFuture;
use crate::remote::client::Client;
use crate::remote::clock::Instant;
use crate::remote::driver::{Driver, KeepAlive, RemoteHome};
use crate::remote::semaphore::NamedSemaphore;
use crate::remote::target::Target;
use crate::span::LONGEST;
use crate::{HolderInfo, Stats, StatsQuery, WaiterInfo};

#[derive(Clone)]
pub(crate) struct RedisHome(Arc<DriverHandle>);

impl RedisHome {
    pub(crate) fn new(config: Config) -> Result<Self, HomeError> {
        RedisDriver::at(config).map(Self)
    }

    pub(crate) async fn connect(config: Config) -> Result<Self, HomeError> {
        RedisDriver::connect(config).await.map(Self)
    }

    pub(crate) fn config(&self) -> &Config {
        &self.0.driver().config
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        self.0.driver().connection.warnings()
    }

    pub(crate) fn finish_background_work(&self) {
        self.0.driver().wait_for_unfinished_work();
    }

    pub(crate) fn semaphore(
        &self,
        name: &str,
        slots: Option<u32>,
        max_waiting: Option<usize>,
        heartbeat: Duration,
    ) -> NamedSemaphore {
        let keys = Keys::new(&self.config().namespace, name).all;
        let target = Target::new(name, slots, max_waiting, heartbeat, keys);
        NamedSemaphore::new(Arc::<DriverHandle>::clone(&self.0), target)
    }

    pub(crate) async fn stats(&self, query: &StatsQuery) -> Result<Vec<Stats>, HomeError> {
        inspect::survey(self.0.driver(), query).await
    }
}

impl DriverHandle {
    /// Runs a script on the driver's thread, without the client.
    async fn run(
        &self,
        script: &'static Script,
        target: &Arc<Target>,
        arguments: impl Fn(&mut redis::Cmd) + Send + Sync + 'static,
    ) -> Result<ScriptReply, HomeError> {
        let target = Arc::clone(target);
        let run = |driver: Arc<RedisDriver>| async move {
            driver.connection.run(script, &target.keys, arguments).await
        };
        self.driver().on_own_thread(run).await
    }

    async fn snapshot(&self, target: &Arc<Target>) -> Result<Snapshot, HomeError> {
        Snapshot::read(self.run(&lua::SNAPSHOT, target, |_| {}).await?.value)
    }

    /// Agrees with the server on the number of slots.
    async fn agree(&self, target: &Arc<Target>) -> Result<(), BuildError> {
        let (slots, limit) = (target.slots(), max_waiting(target));
        let script_reply = self.run(&lua::OPEN, target, move |command| {
            command.arg(slots).arg(limit);
        });
        let mut words = ReplyReader::of(script_reply.await?.value)?;
        let word = words.text()?;
        if word == word::OPEN {
            return Ok(note_open(target, &mut words)?);
        }
        Err(why_not_open(target, &word, &mut words)?)
    }
}

impl Driver for DriverHandle {
    fn change(&self, change: &mut dyn FnMut(&mut Client, Instant)) {
        self.driver().change(change);
    }

    fn read(&self, read: &mut dyn FnMut(&Client, Instant)) {
        self.driver().read(read);
    }

    /// Heartbeats have to go on when there is no handle any more.
    fn keep_alive(self: Arc<Self>) -> Option<KeepAlive> {
        Some(Box::new(self))
    }

    /// The server counts it in milliseconds, and adds it to the time of day.
    fn check_ttl(&self, ttl: Option<Duration>) -> Result<(), InvalidDuration> {
        match ttl {
            Some(ttl) if ttl > LONGEST => {
                Err(InvalidDuration { meant_as: MeantAs::TtlOnRedis, seconds: ttl.as_secs_f64() })
            }
            _ => Ok(()),
        }
    }
}

impl RemoteHome for DriverHandle {
    fn open<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, Result<(), BuildError>> {
        Box::pin(self.agree(target))
    }

    fn locked<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, Result<bool, HomeError>> {
        Box::pin(async move { Ok(self.snapshot(target).await?.is_locked()) })
    }

    fn resize<'a>(&'a self, target: &'a Arc<Target>, slots: u32) -> BoxFuture<'a, Result<(), HomeError>> {
        Box::pin(async move {
            let resized = self.run(&lua::RESIZE, target, move |command| {
                command.arg(slots);
            });
            resized.await?;
            if target.is_open() {
                target.note_slots(slots);
                return Ok(());
            }
            let snapshot = self.snapshot(target).await?;
            if snapshot.is_closed() {
                target.ask_for(slots);
            } else {
                target.note_open(slots, snapshot.epoch());
            }
            Ok(())
        })
    }

    fn close<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, Result<(), HomeError>> {
        Box::pin(async move {
            if !target.is_open() {
                // So that this handle stays closed when another one opens the name again.
                let snapshot = self.snapshot(target).await?;
                target.note_open(target.slots(), snapshot.epoch());
            }
            // A long line is turned away in several steps.
            let mut place: i64 = 0;
            while place >= 0 {
                let script_reply = self.run(&lua::CLOSE, target, move |command| {
                    command.arg(place);
                });
                let mut words = ReplyReader::of(script_reply.await?.value)?;
                let _turned_away = words.next()?;
                place = words.number()?;
            }
            Ok(())
        })
    }

    fn is_closed<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, Result<bool, HomeError>> {
        Box::pin(async move {
            let snapshot = self.snapshot(target).await?;
            let epoch = target.epoch();
            Ok(snapshot.is_closed() || epoch >= 0 && epoch < snapshot.epoch())
        })
    }

    fn stats<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, Result<Stats, HomeError>> {
        Box::pin(async move {
            Ok(self.snapshot(target).await?.into_stats(Arc::clone(&target.name), target.slots()))
        })
    }

    fn holders<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, Result<Vec<HolderInfo>, HomeError>> {
        let target = Arc::clone(target);
        Box::pin(
            self.driver()
                .on_own_thread(|driver| async move { inspect::holders(&driver, &target.keys).await }),
        )
    }

    fn waiters<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, Result<Vec<WaiterInfo>, HomeError>> {
        let target = Arc::clone(target);
        Box::pin(
            self.driver()
                .on_own_thread(|driver| async move { inspect::waiters(&driver, &target.keys).await }),
        )
    }

    fn forget(&self, _: &Target) {}
}
