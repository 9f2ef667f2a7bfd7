use std::sync::Arc;
use std::time::{Duration, Instant};

use semafor_core::NotHeld;
use tokio_util::sync::CancellationToken;

use super::call::Key;
use super::client::Acquired;
use super::driver::{Pending, RemoteHome};
use super::target::Target;
use super::{BoxFuture, RemoteLease};
use crate::PermitId;
use crate::error::{ReleaseError, RenewError};
use crate::task::TaskKey;

/// Slots of a home outside of this process. Drop releases them.
pub(super) struct Lease {
    home: Arc<dyn RemoteHome>,
    target: Arc<Target>,
    key: Key,
    acquired: Acquired,
    /// Drop must no longer release the slots.
    is_over: bool,
}

impl Lease {
    pub(super) fn new(home: Arc<dyn RemoteHome>, target: Arc<Target>, key: Key, acquired: Acquired) -> Self {
        Self { home, target, key, acquired, is_over: false }
    }
}

impl RemoteLease for Lease {
    fn name(&self) -> &str {
        &self.target.name
    }

    fn id(&self) -> PermitId {
        PermitId::remote(Arc::clone(&self.acquired.id))
    }

    fn slot(&self) -> u32 {
        self.acquired.slot
    }

    fn fencing_token(&self) -> u64 {
        self.acquired.token
    }

    fn waited(&self) -> Duration {
        self.acquired.waited
    }

    fn expires_at(&self) -> Option<Instant> {
        self.home.with_ref(|client, _| client.expires_at(self.key)).map(Into::into)
    }

    fn safe_until(&self) -> Option<Instant> {
        self.home.with_ref(|client, _| client.safe_until(self.key)).map(Into::into)
    }

    fn why_not_held(&self) -> Option<NotHeld> {
        self.home.with_ref(|client, now| client.why_not_held(self.key, now))
    }

    fn lost_signal(&self) -> CancellationToken {
        self.acquired.lost.clone()
    }

    fn renew(&self, ttl: Option<Duration>) -> BoxFuture<'_, Result<(), RenewError>> {
        Box::pin(async move {
            if let Some(why) = self.why_not_held() {
                return Err(why.into());
            }
            self.home.check_ttl(ttl)?;
            let number =
                self.home.with(|client, now| client.renew(&self.target, &self.acquired.id, ttl, now));
            Ok(Pending::new(Arc::clone(&self.home), number).outcome().await?)
        })
    }

    fn release(mut self: Box<Self>) -> BoxFuture<'static, Result<(), ReleaseError>> {
        self.is_over = true;
        // Sent now, so that it counts even if the future is never polled.
        let number = self.home.with(|client, now| client.release(self.key, now));
        let released = Pending::new(Arc::clone(&self.home), number);
        Box::pin(async move { Ok(released.outcome().await?) })
    }

    fn detach(mut self: Box<Self>) -> PermitId {
        self.is_over = true;
        let keep_alive = Arc::clone(&self.home).keep_alive();
        let task = TaskKey::current();
        self.home.with(|client, now| client.detach(self.key, task, keep_alive, now));
        self.id()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.is_over {
            self.home.with(|client, now| client.drop_lease(self.key, now));
        }
    }
}
