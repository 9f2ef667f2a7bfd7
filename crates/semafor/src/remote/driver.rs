use std::sync::Arc;
use std::task::{Poll, Waker};

use super::BoxFuture;
pub(crate) use super::client::KeepAlive;
use super::client::{Client, Event, OperationError};
use super::clock::Instant;
use super::target::Target;
use crate::error::{BuildError, HomeError, InvalidDuration};
use crate::{HolderInfo, Stats, WaiterInfo};

/// Connects a [`Client`] with a server: sends the client's calls, passes on the server's replies and messages, and
/// tells the client the time.
pub(crate) trait Driver: Send + Sync + 'static {
    /// Changes the client, and carries out the resulting events and calls before it returns. Never waits.
    fn change(&self, change: &mut dyn FnMut(&mut Client, Instant));

    /// Reads the client.
    fn read(&self, read: &mut dyn FnMut(&Client, Instant));

    /// A value that keeps the driver alive for a detached permit, if the driver needs that.
    fn keep_alive(self: Arc<Self>) -> Option<KeepAlive>;

    /// Refuses a `ttl` that the server could not represent.
    fn check_ttl(&self, ttl: Option<std::time::Duration>) -> Result<(), InvalidDuration>;
}

/// Queries and changes of a whole name.
pub(crate) trait RemoteHome: Driver {
    fn open<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, Result<(), BuildError>>;
    fn locked<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, Result<bool, HomeError>>;
    fn resize<'a>(&'a self, target: &'a Arc<Target>, slots: u32) -> BoxFuture<'a, Result<(), HomeError>>;
    fn close<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, Result<(), HomeError>>;
    fn is_closed<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, Result<bool, HomeError>>;
    fn stats<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, Result<Stats, HomeError>>;
    fn holders<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, Result<Vec<HolderInfo>, HomeError>>;
    fn waiters<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, Result<Vec<WaiterInfo>, HomeError>>;

    /// The last handle with this target was dropped.
    fn forget(&self, target: &Target);
}

impl dyn RemoteHome {
    pub(super) fn with<R>(&self, change: impl FnOnce(&mut Client, Instant) -> R) -> R {
        let (mut change, mut result) = (Some(change), None);
        self.change(&mut |client, now| {
            if let Some(change) = change.take() {
                result = Some(change(client, now));
            }
        });
        result.expect("a driver calls it once")
    }

    pub(super) fn with_ref<R>(&self, read: impl FnOnce(&Client, Instant) -> R) -> R {
        let (mut read, mut result) = (Some(read), None);
        self.read(&mut |client, now| {
            if let Some(read) = read.take() {
                result = Some(read(client, now));
            }
        });
        result.expect("a driver calls it once")
    }
}

impl Event {
    /// Runs user code, so the caller must hold no lock.
    pub(crate) fn carry_out(self, home: &str) {
        match self {
            Self::Wake(waker) => crate::catch_panic::call(|| waker.wake()),
            Self::DropWaker(waker) => crate::catch_panic::call(|| drop(waker)),
            Self::Lost { signal, id, why } => {
                crate::catch_panic::call(|| signal.cancel());
                crate::observe::remote_loss(home, &id, why);
            }
            Self::EndedById(signal) => crate::catch_panic::call(|| signal.cancel()),
            Self::DropKeepAlive(keep_alive) => drop(keep_alive),
        }
    }
}

/// An operation that a user waits for. Dropped, the operation goes on in the background.
pub(super) struct Pending {
    home: Arc<dyn RemoteHome>,
    number: Option<u64>,
}

impl Pending {
    pub(super) fn new(home: Arc<dyn RemoteHome>, number: u64) -> Self {
        Self { home, number: Some(number) }
    }

    pub(super) async fn outcome(mut self) -> Result<(), OperationError> {
        std::future::poll_fn(|cx| {
            let (waker, Some(number)) = (Waker::clone(cx.waker()), self.number) else {
                return Poll::Pending;
            };
            let polled = self.home.with(|client, _| client.poll_operation(number, waker));
            if polled.is_ready() {
                self.number = None;
            }
            polled
        })
        .await
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.home.with(|client, _| client.abandon_operation(number));
        }
    }
}
