use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::call::{EndReason, Key};
use super::driver::{Pending, RemoteHome};
use super::lease::Lease;
use super::target::Target;
use super::{AcquireRequest, BoxFuture, RemoteAcquire, RemoteLease, RemoteSemaphore};
use crate::error::{AcquireError, BuildError, HomeError, ReleaseError, RenewError};
use crate::task::TaskKey;
use crate::{HolderInfo, PermitId, Stats, WaiterInfo};

/// A handle of a named semaphore at a home outside of this process.
pub(crate) struct NamedSemaphore {
    home: Arc<dyn RemoteHome>,
    target: Arc<Target>,
}

impl NamedSemaphore {
    pub(crate) fn new(home: Arc<dyn RemoteHome>, target: Target) -> Self {
        Self { home, target: Arc::new(target) }
    }

    fn end_by_id(&self, id: &PermitId, reason: EndReason) -> BoxFuture<'_, Result<(), ReleaseError>> {
        let id = id.to_string();
        Box::pin(async move {
            let number = self.home.with(|client, now| client.end_by_id(&self.target, &id, reason, now));
            Ok(Pending::new(Arc::clone(&self.home), number).outcome().await?)
        })
    }
}

impl Drop for NamedSemaphore {
    fn drop(&mut self) {
        self.home.forget(&self.target);
    }
}

impl RemoteSemaphore for NamedSemaphore {
    fn name(&self) -> &str {
        &self.target.name
    }

    fn open(&self) -> BoxFuture<'_, Result<(), BuildError>> {
        self.home.open(&self.target)
    }

    fn acquire(&self, request: AcquireRequest) -> Pin<Box<dyn RemoteAcquire>> {
        let refusal = if request.weight == 0 {
            Some(AcquireError::ZeroWeight)
        } else {
            self.home.check_ttl(request.ttl).err().map(AcquireError::from)
        };
        let progress = match refusal {
            Some(error) => AcquireProgress::Refused(error),
            None => AcquireProgress::Asked(
                self.home.with(|client, now| client.acquire(&self.target, request, now)),
            ),
        };
        let (home, target) = (Arc::clone(&self.home), Arc::clone(&self.target));
        Box::pin(AcquireByKey { home, target, progress })
    }

    fn release(&self, id: &PermitId) -> BoxFuture<'_, Result<(), ReleaseError>> {
        self.end_by_id(id, EndReason::Released)
    }

    fn release_latest(&self) -> BoxFuture<'_, Result<PermitId, ReleaseError>> {
        let task = TaskKey::current();
        Box::pin(async move {
            let latest =
                || self.home.with_ref(|client, now| client.latest_detached(task, &self.target.name, now));
            // If the latest was lost meanwhile, releases the one before.
            while let Some(latest) = latest() {
                let id = PermitId::remote(Arc::clone(&latest));
                match self.release(&id).await {
                    Err(ReleaseError::NotHeld(_)) => {
                        self.home.with(|client, now| client.forget_id(&latest, now));
                    }
                    released => return released.map(|()| id),
                }
            }
            Err(ReleaseError::NothingDetached)
        })
    }

    fn renew(&self, id: &PermitId, ttl: Option<Duration>) -> BoxFuture<'_, Result<(), RenewError>> {
        let id = id.to_string();
        Box::pin(async move {
            self.home.check_ttl(ttl)?;
            let number = self.home.with(|client, now| client.renew(&self.target, &id, ttl, now));
            Ok(Pending::new(Arc::clone(&self.home), number).outcome().await?)
        })
    }

    fn evict(&self, id: &PermitId) -> BoxFuture<'_, Result<(), ReleaseError>> {
        self.end_by_id(id, EndReason::Evicted)
    }

    fn locked(&self) -> BoxFuture<'_, Result<bool, HomeError>> {
        self.home.locked(&self.target)
    }

    fn resize(&self, slots: u32) -> BoxFuture<'_, Result<(), HomeError>> {
        self.home.resize(&self.target, slots)
    }

    fn close(&self) -> BoxFuture<'_, Result<(), HomeError>> {
        self.home.close(&self.target)
    }

    fn is_closed(&self) -> BoxFuture<'_, Result<bool, HomeError>> {
        self.home.is_closed(&self.target)
    }

    fn stats(&self) -> BoxFuture<'_, Result<Stats, HomeError>> {
        self.home.stats(&self.target)
    }

    fn holders(&self) -> BoxFuture<'_, Result<Vec<HolderInfo>, HomeError>> {
        self.home.holders(&self.target)
    }

    fn waiters(&self) -> BoxFuture<'_, Result<Vec<WaiterInfo>, HomeError>> {
        self.home.waiters(&self.target)
    }
}

/// An acquire, by its entry in the client's table.
struct AcquireByKey {
    home: Arc<dyn RemoteHome>,
    target: Arc<Target>,
    progress: AcquireProgress,
}

enum AcquireProgress {
    Refused(AcquireError),
    Asked(Key),
    Done,
}

impl Future for AcquireByKey {
    type Output = Result<Box<dyn RemoteLease>, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match std::mem::replace(&mut self.progress, AcquireProgress::Done) {
            AcquireProgress::Refused(error) => Poll::Ready(Err(error)),
            AcquireProgress::Done => Poll::Pending,
            AcquireProgress::Asked(key) => {
                let waker = Waker::clone(cx.waker());
                match self.home.with(|client, _| client.poll_acquire(key, waker)) {
                    Poll::Pending => {
                        self.progress = AcquireProgress::Asked(key);
                        Poll::Pending
                    }
                    Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                    Poll::Ready(Ok(acquired)) => {
                        let (home, target) = (Arc::clone(&self.home), Arc::clone(&self.target));
                        Poll::Ready(Ok(Box::new(Lease::new(home, target, key, acquired))))
                    }
                }
            }
        }
    }
}

impl RemoteAcquire for AcquireByKey {
    fn leave(mut self: Pin<Box<Self>>) -> BoxFuture<'static, ()> {
        let AcquireProgress::Asked(key) = std::mem::replace(&mut self.progress, AcquireProgress::Done) else {
            return Box::pin(std::future::ready(()));
        };
        let home = Arc::clone(&self.home);
        home.with(|client, now| client.cancel(key, now));
        Box::pin(std::future::poll_fn(move |cx| {
            let waker = Waker::clone(cx.waker());
            home.with(|client, _| client.poll_gone(key, waker))
        }))
    }
}

impl Drop for AcquireByKey {
    fn drop(&mut self) {
        if let AcquireProgress::Asked(key) = self.progress {
            self.home.with(|client, now| client.cancel(key, now));
        }
    }
}
