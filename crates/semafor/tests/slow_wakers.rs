//! A waker that blocks delays only itself: neither other semaphores nor other waiters of its own semaphore.
//!
//! The wakers here block until the test ends, so a registry that waits for them would hang. What must happen meanwhile
//! gets a minute: a bound, not a measure of speed.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use semafor::{Acquire, Permit, Registry, Semaphore, secs};

const A_MINUTE: Duration = Duration::from_secs(60);

/// Signals that it was called, then blocks until the test drops the other end.
struct BlockingWake {
    called: Sender<()>,
    until: Mutex<Receiver<()>>,
}

impl Wake for BlockingWake {
    fn wake(self: Arc<Self>) {
        self.called.send(()).ok();
        self.until.lock().unwrap().recv().ok();
    }
}

/// A waker that blocks, a receiver that gets a message when it is called, and a sender to drop to end it.
fn blocking_waker() -> (Waker, Receiver<()>, Sender<()>) {
    let (called, is_called) = mpsc::channel();
    let (end, until) = mpsc::channel();
    (Waker::from(Arc::new(BlockingWake { called, until: Mutex::new(until) })), is_called, end)
}

fn wait_with<'a>(acquire: Acquire<'a>, waker: &Waker) -> std::pin::Pin<Box<Acquire<'a>>> {
    let mut acquire = Box::pin(acquire);
    assert!(acquire.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    acquire
}

fn one_slot(registry: &Registry, name: &str) -> Semaphore {
    registry.named(name).slots(1).build().unwrap()
}

/// Runs `work` in a thread and returns its result, within a minute.
fn within_a_minute<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || done.send(work()).ok());
    is_done.recv_timeout(A_MINUTE).expect("it is not held up")
}

#[test]
fn blocking_waker_delays_no_lease_of_another_semaphore() {
    let registry = Registry::new();
    let (slow, other) = (one_slot(&registry, "slow"), one_slot(&registry, "other"));
    let _short = slow.acquire().ttl(secs(0.01)).now().blocking().unwrap();
    let (waker, is_called, end) = blocking_waker();
    let waiting = wait_with(slow.acquire(), &waker);
    is_called.recv_timeout(A_MINUTE).expect("the lease ends");

    other.acquire().ttl(secs(0.01)).now().blocking().unwrap().detach();
    let next = within_a_minute(move || other.acquire().blocking().map(Permit::into_owned));
    assert!(next.is_ok());
    drop(end);
    drop(waiting);
}

#[test]
fn blocking_waker_delays_no_timeout_of_its_own_semaphore() {
    let registry = Registry::new();
    let sem = one_slot(&registry, "slow");
    let _held = sem.acquire().now().blocking().unwrap();
    let (waker, is_called, end) = blocking_waker();
    let waiting = wait_with(sem.acquire().timeout(secs(0.01)), &waker);
    is_called.recv_timeout(A_MINUTE).expect("its time is up");

    let impatient = sem.clone();
    let refused = within_a_minute(move || impatient.acquire().timeout(secs(0.01)).blocking().map(drop));
    assert!(refused.unwrap_err().is_timeout());
    drop(end);
    drop(waiting);
}

/// All end at the same moment.
#[test]
fn several_blocking_wakers_delay_no_waiter_behind_them() {
    let registry = Registry::new();
    let sem = one_slot(&registry, "slow");
    let _held = sem.acquire().now().blocking().unwrap();
    let slow: Vec<_> = (0..5).map(|_| blocking_waker()).collect();
    let line: Vec<_> =
        slow.iter().map(|(waker, ..)| wait_with(sem.acquire().timeout(secs(0.05)), waker)).collect();
    let last = sem.clone();
    let refused = within_a_minute(move || last.acquire().timeout(secs(0.05)).blocking().map(drop));
    assert!(refused.unwrap_err().is_timeout());
    drop(slow);
    drop(line);
}

#[test]
fn blocking_loss_listener_delays_no_other_lease() {
    let registry = Registry::new();
    let (slow, other) = (one_slot(&registry, "slow"), one_slot(&registry, "other"));
    let short = slow.acquire().ttl(secs(0.01)).now().blocking().unwrap();
    let (waker, is_called, end) = blocking_waker();
    let mut lost = Box::pin(short.lost());
    assert!(lost.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    is_called.recv_timeout(A_MINUTE).expect("the lease ends");

    let also_short = other.acquire().ttl(secs(0.01)).now().blocking().unwrap().into_owned();
    let why = within_a_minute(move || pollster::block_on(also_short.lost()));
    assert!(why.is_expired());
    drop(end);
    drop(lost);
}
