//! The current task, for [`Semaphore::release_latest`](crate::Semaphore::release_latest).
//!
//! Rust has no notion of a task that all runtimes share. The current task is the innermost
//! [`scope`], else the tokio task (with the feature `tokio`), else the thread. On other runtimes several tasks share a
//! thread, so wrap them in a [`scope`].

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ThreadId;

thread_local! {
    static SCOPE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Runs `work` as a task of its own, whichever runtime and threads poll it.
///
/// ```
/// use semafor::{Semaphore, task};
///
/// # pollster::block_on(async {
/// let sem = Semaphore::memory("docs-scope").slots(2).build().unwrap();
/// let outer = sem.acquire().await.unwrap().detach();
///
/// let inner = task::scope(async {
///     let inner = sem.acquire().await.unwrap().detach();
///     assert_eq!(sem.release_latest().await.unwrap(), inner);
///     assert!(sem.release_latest().await.is_err(), "the other one is not ours");
/// });
/// inner.await;
///
/// assert_eq!(sem.release_latest().await.unwrap(), outer);
/// # });
/// ```
pub async fn scope<F: Future>(work: F) -> F::Output {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut work = pin!(work);
    poll_fn(|cx| {
        let _entered = Entered { outer: SCOPE.replace(Some(id)) };
        work.as_mut().poll(cx)
    })
    .await
}

struct Entered {
    outer: Option<u64>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        SCOPE.set(self.outer);
    }
}

#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TaskKey {
    Scope(u64),
    #[cfg(feature = "tokio")]
    Tokio(tokio::task::Id),
    Thread(ThreadId),
}

impl TaskKey {
    pub fn current() -> Self {
        if let Some(scope) = SCOPE.get() {
            return Self::Scope(scope);
        }
        #[cfg(feature = "tokio")]
        if let Some(id) = tokio::task::try_id() {
            return Self::Tokio(id);
        }
        Self::Thread(std::thread::current().id())
    }
}
