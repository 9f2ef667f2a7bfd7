//! The agent, and this process's one connection to it.

use std::sync::Arc;
use std::time::Duration;

use super::address::Config;
use super::driver::{DriverHandle, unexpected};
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
pub(crate) struct LocalHome(Arc<DriverHandle>);

impl LocalHome {
    pub(crate) fn new(config: Config) -> Self {
        Self(DriverHandle::at(config))
    }

    pub(super) fn of(handle: Arc<DriverHandle>) -> Self {
        Self(handle)
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
        // No heartbeats: the agent knows by the connection that this process is alive.
        let target = Target::new(name, slots, max_waiting, Duration::ZERO, []);
        NamedSemaphore::new(Arc::<DriverHandle>::clone(&self.0), target)
    }

    pub(crate) async fn stats(&self, query: &StatsQuery) -> Result<Vec<Stats>, HomeError> {
        let mut stats = Vec::new();
        for page in
            self.0.ask(Request::AllStats { names: query.names.clone() }, ServerStart::IfOneDied).await?
        {
            match page {
                Response::Stats(page) => stats.extend(page.into_iter().map(Stats::from)),
                other => return Err(unexpected(&other)),
            }
        }
        Ok(query.pick(stats))
    }
}

/// The only page of an answer, if there is an answer.
fn last_page(mut pages: Vec<Response>) -> Option<Response> {
    pages.pop()
}

fn failure(response: Response) -> HomeError {
    match response {
        Response::Refused(refusal) => refusal.into_home_error(),
        other => unexpected(&other),
    }
}

impl DriverHandle {
    async fn ask_bool(&self, request: Request) -> Result<bool, HomeError> {
        match last_page(self.ask(request, ServerStart::IfOneDied).await?) {
            None => Ok(false),
            Some(Response::Bool(value)) => Ok(value),
            Some(other) => Err(failure(other)),
        }
    }

    async fn ask_done(&self, request: Request) -> Result<(), HomeError> {
        match last_page(self.ask(request, ServerStart::Always).await?) {
            Some(Response::Done) | None => Ok(()),
            Some(other) => Err(failure(other)),
        }
    }
}

impl Driver for DriverHandle {
    fn change(&self, change: &mut dyn FnMut(&mut Client, Instant)) {
        self.driver().change(change);
    }

    fn read(&self, read: &mut dyn FnMut(&Client, Instant)) {
        self.driver().read(read);
    }

    /// A permit without a time to live is held as long as the connection lasts.
    fn keep_alive(self: Arc<Self>) -> Option<KeepAlive> {
        Some(Box::new(self))
    }

    fn check_ttl(&self, _: Option<Duration>) -> Result<(), InvalidDuration> {
        Ok(())
    }
}

impl RemoteHome for DriverHandle {
    fn open<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, Result<(), BuildError>> {
        Box::pin(async move {
            match last_page(
                self.ask(Request::Open(engine::encode_target(target)), ServerStart::Always).await?,
            ) {
                Some(Response::Done) => {
                    target.note_agreed();
                    Ok(())
                }
                Some(Response::Refused(refusal)) => Err(refusal.into_build_error(&target.name)),
                Some(other) => Err(unexpected(&other).into()),
                None => Err(BuildError::SlotsNotSet { name: target.name.to_string() }),
            }
        })
    }

    fn locked<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, Result<bool, HomeError>> {
        Box::pin(self.ask_bool(Request::Locked(engine::encode_target(target))))
    }

    fn resize<'a>(&'a self, target: &'a Arc<Target>, slots: u32) -> BoxFuture<'a, Result<(), HomeError>> {
        Box::pin(self.ask_done(Request::Resize { of: engine::encode_target(target), slots }))
    }

    fn close<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, Result<(), HomeError>> {
        Box::pin(self.ask_done(Request::Close(engine::encode_target(target))))
    }

    fn is_closed<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, Result<bool, HomeError>> {
        Box::pin(self.ask_bool(Request::IsClosed(engine::encode_target(target))))
    }

    fn stats<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, Result<Stats, HomeError>> {
        Box::pin(async move {
            let stats = match last_page(
                self.ask(Request::Stats(engine::encode_target(target)), ServerStart::IfOneDied).await?,
            ) {
                Some(Response::Stats(mut stats)) => stats.pop(),
                None => None,
                Some(other) => return Err(failure(other)),
            };
            Ok(stats.map_or_else(
                || {
                    let mut empty = semafor_core::Stats::default();
                    empty.slots = target.asked_slots.unwrap_or_default();
                    Stats::new(Arc::clone(&target.name), empty)
                },
                Stats::from,
            ))
        })
    }

    fn holders<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, Result<Vec<HolderInfo>, HomeError>> {
        Box::pin(async move {
            let mut holders = Vec::new();
            for page in
                self.ask(Request::Holders(engine::encode_target(target)), ServerStart::IfOneDied).await?
            {
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
            for page in
                self.ask(Request::Waiters(engine::encode_target(target)), ServerStart::IfOneDied).await?
            {
                match page {
                    Response::Waiters(page) => waiters.extend(page.into_iter().map(WaiterInfo::from)),
                    other => return Err(failure(other)),
                }
            }
            Ok(waiters)
        })
    }

    fn forget(&self, target: &Target) {
        self.driver().send(Request::Forget { handle: target.number });
    }
}
