//! The agent, and this process's one connection to it.

use std::sync::Arc;
use std::time::Duration;

use super::address::Config;
use super::driver::{Anchor, unexpected};
use super::engine;
use super::protocol::{Request, Response};
use crate::error::{BuildError, HomeError, InvalidDuration};
use crate::remote::BoxFuture;
use crate::remote::client::{Client, ServerStart};
use crate::remote::clock::Instant;
use crate::remote::driver::{Driver, KeepAlive, RemoteHome};
use crate::remote::semaphore::NamedSemaphore;
use crate::remote::target::Target;
use crate::{HolderInfo, Stats, StatsQuery, WaiterInfo};

#[derive(Clone)]
pub(crate) struct LocalHome(Arc<Anchor>);

impl LocalHome {
    pub(crate) fn new(config: Config) -> Self {
        Self(Anchor::at(config))
    }

    pub(crate) fn config(&self) -> &Config {
        &self.0.driver().config
    }

    pub(crate) fn semaphore(
        &self,
        name: &str,
        slots: Option<u32>,
        max_waiting: Option<usize>,
    ) -> NamedSemaphore {
        // The connection is the sign of life.
        let target = Target::new(name, slots, max_waiting, Duration::ZERO, []);
        NamedSemaphore::new(Arc::<Anchor>::clone(&self.0), target)
    }

    pub(crate) async fn stats(&self, query: &StatsQuery) -> Result<Vec<Stats>, HomeError> {
        let mut stats = Vec::new();
        for page in self.0.ask(Request::Survey { names: query.names.clone() }, ServerStart::IfOneDied).await?
        {
            match page {
                Response::Stats(page) => stats.extend(page.into_iter().map(Stats::from)),
                other => return Err(unexpected(&other)),
            }
        }
        Ok(query.pick(stats))
    }
}

/// The answer, where there is one.
fn only(mut pages: Vec<Response>) -> Option<Response> {
    pages.pop()
}

fn failure(say: Response) -> HomeError {
    match say {
        Response::No(complaint) => complaint.into_home_error(),
        other => unexpected(&other),
    }
}

impl Anchor {
    async fn ask_truth(&self, ask: Request) -> Result<bool, HomeError> {
        match only(self.ask(ask, ServerStart::IfOneDied).await?) {
            None => Ok(false),
            Some(Response::Truth(truth)) => Ok(truth),
            Some(other) => Err(failure(other)),
        }
    }

    async fn ask_to(&self, ask: Request) -> Result<(), HomeError> {
        match only(self.ask(ask, ServerStart::Always).await?) {
            Some(Response::Done) | None => Ok(()),
            Some(other) => Err(failure(other)),
        }
    }
}

impl Driver for Anchor {
    fn change(&self, change: &mut dyn FnMut(&mut Client, Instant)) {
        self.driver().change(change);
    }

    fn read(&self, read: &mut dyn FnMut(&Client, Instant)) {
        self.driver().read(read);
    }

    /// Without a time to live, it is held as long as the connection lasts.
    fn keep_alive(self: Arc<Self>) -> Option<KeepAlive> {
        Some(Box::new(self))
    }

    fn check_ttl(&self, _: Option<Duration>) -> Result<(), InvalidDuration> {
        Ok(())
    }
}

impl RemoteHome for Anchor {
    fn open<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, Result<(), BuildError>> {
        Box::pin(async move {
            match only(self.ask(Request::Open(engine::target(target)), ServerStart::Always).await?) {
                Some(Response::Done) => {
                    target.note_agreed();
                    Ok(())
                }
                Some(Response::No(complaint)) => Err(complaint.into_build_error(&target.name)),
                Some(other) => Err(unexpected(&other).into()),
                None => Err(BuildError::SlotsNotSet { name: target.name.to_string() }),
            }
        })
    }

    fn locked<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, Result<bool, HomeError>> {
        Box::pin(self.ask_truth(Request::Locked(engine::target(target))))
    }

    fn resize<'a>(&'a self, target: &'a Arc<Target>, slots: u32) -> BoxFuture<'a, Result<(), HomeError>> {
        Box::pin(self.ask_to(Request::Resize { of: engine::target(target), slots }))
    }

    fn close<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, Result<(), HomeError>> {
        Box::pin(self.ask_to(Request::Close(engine::target(target))))
    }

    fn is_closed<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, Result<bool, HomeError>> {
        Box::pin(self.ask_truth(Request::IsClosed(engine::target(target))))
    }

    fn stats<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, Result<Stats, HomeError>> {
        Box::pin(async move {
            let stats =
                match only(self.ask(Request::Stats(engine::target(target)), ServerStart::IfOneDied).await?) {
                    Some(Response::Stats(mut stats)) => stats.pop(),
                    None => None,
                    Some(other) => return Err(failure(other)),
                };
            Ok(stats.map_or_else(
                || {
                    let mut nothing = semafor_core::Stats::default();
                    nothing.slots = target.asked_slots.unwrap_or_default();
                    Stats::new(Arc::clone(&target.name), nothing)
                },
                Stats::from,
            ))
        })
    }

    fn holders<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, Result<Vec<HolderInfo>, HomeError>> {
        Box::pin(async move {
            let mut holders = Vec::new();
            for page in self.ask(Request::Holders(engine::target(target)), ServerStart::IfOneDied).await? {
                match page {
                    Response::Holders(page) => holders.extend(page.into_iter().map(HolderInfo::from)),
                    other => return Err(failure(other)),
                }
            }
            Ok(holders)
        })
    }

    fn waiters<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, Result<Vec<WaiterInfo>, HomeError>> {
        Box::pin(async move {
            let mut waiters = Vec::new();
            for page in self.ask(Request::Waiters(engine::target(target)), ServerStart::IfOneDied).await? {
                match page {
                    Response::Waiters(page) => waiters.extend(page.into_iter().map(WaiterInfo::from)),
                    other => return Err(failure(other)),
                }
            }
            Ok(waiters)
        })
    }

    fn forget(&self, target: &Target) {
        self.driver().say(Request::Forget { handle: target.number });
    }
}
