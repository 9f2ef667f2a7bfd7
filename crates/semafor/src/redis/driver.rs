//! Sends the calls of this process's [`Client`] to one Redis, and passes the replies and the time to the client.
//!
//! The driver has its own thread, which handles the client's timeouts and sends heartbeats, sweeps and releases in the
//! background. So holders keep their slots even if the users' runtimes are blocked, and dropped permits are released even
//! if the user's runtime has ended. Calls that a user waits for are sent from the user's runtime while that works: waking
//! another thread is most of the cost of a round trip.
//!
//! The driver decides nothing: the scripts decide which client gets a slot, and [`Client`] what this process holds.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::ThreadId;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use redis::PushKind;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::alarm::Alarm;
use super::config::Config;
use super::connection::{Connection, Event as ConnectionEvent};
use super::diagnostics;
use super::engine::Engine;
use super::keys;
use crate::error::{HomeError, HomeErrorKind};
use crate::remote::call::{Call, Command, Failure, Key, Reply};
use crate::remote::client::{Client, Event, Liveness, Settings};
use crate::remote::clock::Instant;
use crate::remote::per_process::PerProcess;
use crate::remote::target::Target;

/// How long the drop of the last handle waits for the next release in the background. It waits again after each one.
const FINAL_WAIT: Duration = Duration::from_secs(2);
/// Bounds of the time that a user's runtime may take to send a heartbeat.
const HOST_TIMEOUT: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));

pub(super) struct RedisDriver {
    pub(super) config: Arc<Config>,
    /// The server's URL without passwords, for logs.
    display_name: String,
    pub(super) engine: Engine,
    pub(super) connection: Arc<Connection>,
    runtime: Handle,
    thread: ThreadId,
    state: Mutex<State>,
    timeout_changed: Notify,
    /// Signals progress of the unfinished work.
    progressed: Condvar,
    stop: CancellationToken,
}

struct State {
    client: Client,
    /// Until when the thread sleeps, unless it is woken.
    sleeps_until: Option<Instant>,
}

type Drivers = Mutex<Known>;

#[derive(Default)]
struct Known {
    drivers: Vec<(Config, Weak<DriverHandle>)>,
    /// The largest fencing token that this process has seen of each server. A server may forget its last tokens, in a
    /// failover or with its clock set back. So every request for a slot carries this token.
    ///
    /// One number for all names of a server: tokens are close to the server's time, so it does no harm if the tokens of
    /// one name also rise with those of another.
    newest_tokens: BTreeMap<String, Arc<AtomicU64>>,
}

static DRIVERS: PerProcess<Drivers> = PerProcess::new();

/// Keeps the driver running. When the last handle is dropped, the thread ends, after dropped permits are released.
pub(super) struct DriverHandle(Arc<RedisDriver>);

impl RedisDriver {
    /// The existing driver of this process for the same server, or a new one, which connects when it is needed.
    pub(super) fn at(config: Config) -> Result<Arc<DriverHandle>, HomeError> {
        let mut known = DRIVERS.get().lock();
        let Known { drivers, newest_tokens } = &mut *known;
        drivers.retain(|(_, handle)| handle.strong_count() > 0);
        let found = drivers.iter().find(|(known, _)| *known == config);
        if let Some(handle) = found.and_then(|(_, handle)| handle.upgrade()) {
            return Ok(handle);
        }
        let newest_token = Arc::clone(newest_tokens.entry(config.redacted_url()).or_default());
        let handle = Arc::new(DriverHandle(Self::start(config.clone(), newest_token)?));
        drivers.push((config, Arc::downgrade(&handle)));
        Ok(handle)
    }

    /// The same, connected.
    pub(super) async fn connect(config: Config) -> Result<Arc<DriverHandle>, HomeError> {
        let handle = Self::at(config)?;
        let driver = Arc::clone(handle.driver());
        if !driver.connection.is_connected() {
            if let Ok(here) = Handle::try_current()
                && can_host_connection(&here)
            {
                driver.connection.move_to(here);
            }
            driver.on_own_thread(|driver| async move { driver.connection.live().await.map(drop) }).await?;
        }
        Ok(handle)
    }

    /// A forked child has none of the threads, and must not write to the connections of its parent.
    ///
    /// It knows the tokens that its parent has seen, unless a thread of the parent held the lock when it forked.
    pub(super) fn after_fork() {
        let parents = DRIVERS.begin_anew().and_then(|known| known.try_lock());
        if let Some(parents) = parents {
            let seen = parents.newest_tokens.iter();
            let seen = seen.map(|(server, token)| (server.clone(), token.load(Ordering::SeqCst)));
            DRIVERS.get().lock().newest_tokens =
                seen.map(|(server, token)| (server, Arc::new(token.into()))).collect();
        }
    }

    fn start(config: Config, newest_token: Arc<AtomicU64>) -> Result<Arc<Self>, HomeError> {
        let no_thread = |error: std::io::Error| {
            let message = format!("can't start the thread for Redis: {error}");
            HomeError::caused_by(error, HomeErrorKind::Other, message)
        };
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
        let handle = runtime.handle().clone();
        let config = Arc::new(config);
        let engine = Engine::new(Arc::clone(&config), newest_token);
        let channel = keys::channel(&config.namespace, engine.ids.process());
        let address = config.address()?;
        let (send_driver, take_driver) = std::sync::mpsc::channel::<Arc<Self>>();
        let stop = CancellationToken::new();
        let thread = std::thread::Builder::new().name("semafor-redis".into()).spawn({
            let stop = stop.clone();
            move || {
                if let Ok(driver) = take_driver.recv() {
                    runtime.block_on(driver.run_timers(stop));
                }
            }
        });
        let thread = thread.map_err(no_thread)?.thread().id();
        let client = Client::new(Settings {
            liveness: Liveness::Heartbeats,
            retry: config.retry(),
            reply_timeout: config.socket_timeout,
            no_reply_error: diagnostics::no_answer(&config),
        });
        let driver = Arc::new_cyclic(|driver: &Weak<Self>| Self {
            connection: {
                let driver = Weak::clone(driver);
                let on_event = Arc::new(move |event| {
                    if let Some(driver) = driver.upgrade() {
                        driver.handle_event(event);
                    }
                });
                Arc::new(Connection::new(Arc::clone(&config), address, channel, on_event, handle.clone()))
            },
            display_name: config.redacted_url(),
            config,
            engine,
            runtime: handle,
            thread,
            state: Mutex::new(State { client, sleeps_until: None }),
            timeout_changed: Notify::new(),
            progressed: Condvar::new(),
            stop,
        });
        let _ = send_driver.send(Arc::clone(&driver));
        Ok(driver)
    }

    // The client

    /// Changes the client, and carries out the resulting calls and events.
    pub(super) fn change<R>(self: &Arc<Self>, change: impl FnOnce(&mut Client, Instant) -> R) -> R {
        let now = Instant::now();
        let (result, (calls, events), is_sooner) = {
            let mut state = self.state.lock();
            let (progress, had_unfinished_work) =
                (state.client.progress(), state.client.has_unfinished_work());
            let result = change(&mut state.client, now);
            let calls: Vec<_> = std::iter::from_fn(|| state.client.poll_transmit(now)).collect();
            let events: Vec<_> = std::iter::from_fn(|| state.client.poll_event()).collect();
            let next = state.client.poll_timeout();
            let is_sooner = next.is_some_and(|next| state.sleeps_until.is_none_or(|until| next < until));
            if is_sooner {
                state.sleeps_until = next;
            }
            let has_progressed = progress != state.client.progress();
            if has_progressed || had_unfinished_work && !state.client.has_unfinished_work() {
                self.progressed.notify_all();
            }
            (result, (calls, events), is_sooner)
        };
        if is_sooner {
            self.timeout_changed.notify_one();
        }
        self.carry_out(calls, events);
        result
    }

    pub(super) fn read<R>(&self, read: impl FnOnce(&Client, Instant) -> R) -> R {
        read(&self.state.lock().client, Instant::now())
    }

    fn carry_out(self: &Arc<Self>, calls: Vec<Call>, events: Vec<Event>) {
        for call in calls {
            let runtime = self.runtime_for(&call.command);
            // If the runtime has ended and drops the task, the client learns that the call failed.
            let in_flight = CallInFlight { driver: Arc::clone(self), call: Some(call) };
            runtime.spawn(in_flight.send());
        }
        for event in events {
            match event {
                // It may be the last handle of this driver: its drop must not wait here for the releases.
                Event::DropKeepAlive(keep_alive) => drop(self.runtime.spawn(async move { drop(keep_alive) })),
                event => event.carry_out(&self.display_name),
            }
        }
    }

    /// Sends a call that a user waits for from the user's runtime, if possible: then no other thread has to be woken.
    fn runtime_for(&self, ask: &Command) -> Handle {
        let is_awaited = matches!(
            ask,
            Command::Acquire { .. }
                | Command::CheckWaiter { .. }
                | Command::Subscribe { .. }
                | Command::Release { .. }
        );
        match Handle::try_current() {
            Ok(here) if is_awaited && can_host_connection(&here) && self.connection.is_hosted() => here,
            _ => self.runtime.clone(),
        }
    }

    async fn execute(&self, call: &Call) -> Result<Reply, Failure> {
        let unsent = |error: HomeError| Failure { is_transient: true, was_sent: false, error };
        match &call.command {
            Command::Connect => self.connection.live().await.map(|_| Reply::Done).map_err(unsent),
            Command::Subscribe { waiters } => self.subscribe(&call.target, waiters).await.map_err(unsent),
            Command::Watch => {
                let holders = [call.target.keys[0].clone()];
                let is_watched = self.connection.track(&holders).await.is_ok();
                let state = match self.run(call).await {
                    Ok(Reply::Swept(state)) => Some(state),
                    _ => None,
                };
                Ok(Reply::Watched { is_watched, state })
            }
            Command::Heartbeat { .. } => self.send_heartbeat(call).await,
            _ => self.run(call).await,
        }
    }

    async fn run(&self, call: &Call) -> Result<Reply, Failure> {
        let Some(script) = Engine::script(&call.command) else { return Ok(Reply::Done) };
        let encode = |command: &mut redis::Cmd| self.engine.encode(call, command);
        let script_reply = self.connection.attempt(script, &call.target.keys, encode).await?;
        let failure = |error| Failure { error, is_transient: false, was_sent: true };
        self.engine.decode(call, &script_reply).map_err(failure)
    }

    /// From now on, the server pushes grants by Python's scripts. The reply shows earlier ones.
    async fn subscribe(&self, target: &Target, waiters: &[(Key, u32)]) -> Result<Reply, HomeError> {
        let (mut lists, mut owners) = (Vec::new(), Vec::new());
        for (key, weight) in waiters {
            let of_waiter = self.engine.notifications(target, *key, *weight);
            owners.extend(std::iter::repeat_n(*key, of_waiter.len()));
            lists.extend(of_waiter);
        }
        // If the server does not push, heartbeats find the grants.
        let exists = self.connection.track(&lists).await?.unwrap_or_default();
        let granted = owners.into_iter().zip(exists).filter(|(_, exists)| *exists).map(|(key, _)| key);
        Ok(Reply::Subscribed { granted: granted.collect() })
    }

    /// If no reply comes, checks whether the user's runtime still drives the connection.
    async fn send_heartbeat(&self, call: &Call) -> Result<Reply, Failure> {
        let interval = self.read(|client, _| client.heartbeat_interval());
        let host_timeout = (interval * 2).clamp(HOST_TIMEOUT.0, HOST_TIMEOUT.1);
        let mut answer = pin!(self.run(call));
        loop {
            match timeout(host_timeout, answer.as_mut()).await {
                Ok(outcome) => return outcome,
                Err(_) if self.connection.is_host_responsive().await => {}
                Err(_) => {
                    self.connection.leave_host();
                    return Err(Failure { error: shut_down(), is_transient: true, was_sent: true });
                }
            }
        }
    }

    /// Called in the runtime that drives the connection.
    fn handle_event(self: &Arc<Self>, event: ConnectionEvent) {
        match event {
            ConnectionEvent::Connected => {
                let pushes = self.connection.pushes();
                self.change(|client, now| client.connected(pushes, now));
            }
            ConnectionEvent::Push { generation, push } if push.kind == PushKind::Disconnection => {
                self.connection.disconnect(generation);
            }
            ConnectionEvent::Push { generation, .. } if self.connection.is_superseded(generation) => {}
            ConnectionEvent::Push { push, .. } => self.change(|client, now| {
                self.engine.read_push(push, now).into_iter().for_each(|push| client.handle_push(push, now));
            }),
            ConnectionEvent::Disconnected => self.change(|client, now| client.disconnected(Vec::new(), now)),
        }
    }

    async fn run_timers(self: Arc<Self>, stop: CancellationToken) {
        let alarm = Alarm::new();
        loop {
            let next = {
                let mut state = self.state.lock();
                state.sleeps_until = state.client.poll_timeout();
                state.sleeps_until
            };
            let wait = async {
                match next {
                    None => std::future::pending().await,
                    Some(next) => alarm.sleep_until(next).await,
                }
            };
            tokio::select! {
                () = self.timeout_changed.notified() => {}
                () = wait => self.change(Client::handle_timeout),
                () = stop.cancelled() => break,
            }
        }
        let mut final_wait = FinalWait::new(&self);
        while self.read(|client, _| client.has_unfinished_work()) && Instant::now() < final_wait.end(&self) {
            tokio::time::sleep(Duration::from_millis(1)).await;
            self.change(Client::handle_timeout);
        }
    }

    /// Runs `work` on the driver's thread, to its end, even if the caller stops waiting.
    pub(super) async fn on_own_thread<T, F>(
        self: &Arc<Self>,
        work: impl FnOnce(Arc<Self>) -> F,
    ) -> Result<T, HomeError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, HomeError>> + Send + 'static,
    {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let work = work(Arc::clone(self));
        self.runtime.spawn(async move {
            let _ = sender.send(work.await);
        });
        receiver.await.unwrap_or_else(|_| Err(shut_down()))
    }

    pub(super) fn wait_for_unfinished_work(&self) {
        let has_waited = Cell::new(false);
        let wait = || {
            let mut final_wait = FinalWait::new(self);
            let mut state = self.state.lock();
            while state.client.has_unfinished_work() {
                let end = final_wait.renewed(state.client.progress());
                if Instant::now() >= end {
                    break;
                }
                self.progressed.wait_until(&mut state, end.into());
            }
            has_waited.set(true);
        };
        let is_in_task = tokio::task::try_id().is_some();
        if is_in_task && Handle::try_current().is_ok_and(|here| can_host_connection(&here)) {
            // The releases may need this very thread, so it passes its tasks to another one. In a `LocalSet` that is not
            // allowed, and not needed.
            crate::catch_panic::call(|| tokio::task::block_in_place(wait));
        }
        if !has_waited.get() {
            wait();
        }
    }
}

/// A call that is being sent. If its task is dropped, for example with its runtime, the client learns that the call
/// failed.
struct CallInFlight {
    driver: Arc<RedisDriver>,
    call: Option<Call>,
}

impl CallInFlight {
    async fn send(self) {
        let Some(call) = &self.call else { return };
        let outcome = self.driver.execute(call).await;
        self.finish(outcome);
    }

    fn finish(mut self, outcome: Result<Reply, Failure>) {
        let Some(call) = self.call.take() else { return };
        self.driver.change(|client, now| match outcome {
            Ok(reply) => client.handle_reply(call, reply, now),
            Err(failure) => client.handle_failure(call, &failure, now),
        });
    }
}

impl Drop for CallInFlight {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            let driver = Arc::clone(&self.driver);
            self.driver.runtime.spawn(async move {
                let failure = Failure { error: shut_down(), is_transient: true, was_sent: true };
                driver.change(|client, now| client.handle_failure(call, &failure, now));
            });
        }
    }
}

/// Until when to wait for unfinished work: longer after each progress.
struct FinalWait {
    progress: u64,
    end: Instant,
}

impl FinalWait {
    fn new(driver: &RedisDriver) -> Self {
        let progress = driver.read(|client, _| client.progress());
        Self { progress, end: Instant::now() + FINAL_WAIT }
    }

    fn end(&mut self, driver: &RedisDriver) -> Instant {
        self.renewed(driver.read(|client, _| client.progress()))
    }

    fn renewed(&mut self, progress: u64) -> Instant {
        if progress != self.progress {
            *self = Self { progress, end: Instant::now() + FINAL_WAIT };
        }
        self.end
    }
}

impl DriverHandle {
    pub(super) fn driver(&self) -> &Arc<RedisDriver> {
        &self.0
    }
}

impl Drop for DriverHandle {
    fn drop(&mut self) {
        let driver = &self.0;
        if std::thread::current().id() != driver.thread
            && driver.read(|client, _| client.has_unfinished_work())
        {
            driver.wait_for_unfinished_work();
        }
        driver.stop.cancel();
    }
}

/// True if that runtime can drive a connection. A runtime with a single thread is too easily blocked.
fn can_host_connection(runtime: &Handle) -> bool {
    runtime.runtime_flavor() == RuntimeFlavor::MultiThread
}

pub(super) fn shut_down() -> HomeError {
    HomeError::new(HomeErrorKind::Other, "the connection to Redis was shut down before the reply came")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For tests that replace the list of drivers.
    static ONE_FORK_AT_A_TIME: Mutex<()> = Mutex::new(());

    /// In a child, a lock that another thread of its parent held stays locked.
    #[test]
    fn forked_child_does_not_wait_for_threads_of_its_parent() {
        let _turn = ONE_FORK_AT_A_TIME.lock();
        let (is_locked, locked) = std::sync::mpsc::channel();
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        let other_thread = std::thread::spawn(move || {
            let _drivers = DRIVERS.get().lock();
            is_locked.send(()).expect("it is waited for");
            let _ = is_done.recv();
        });
        locked.recv().expect("it locks");
        let (begun, has_begun) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            RedisDriver::after_fork();
            let config: Config = "redis://127.0.0.1:1".parse().expect("an address");
            let (one, other) = (RedisDriver::at(config.clone()), RedisDriver::at(config));
            begun
                .send(Arc::ptr_eq(&one.expect("a thread"), &other.expect("a thread")))
                .expect("it is waited for");
        });
        let is_same = has_begun.recv_timeout(Duration::from_secs(60));
        drop(done);
        other_thread.join().expect("no panic");
        assert_eq!(is_same, Ok(true), "it has its own list, and does not hang");
    }

    /// So it gets only larger tokens than those that its parent has seen.
    #[test]
    fn forked_child_knows_the_tokens_that_its_parent_has_seen() {
        let _turn = ONE_FORK_AT_A_TIME.lock();
        // Another test may hold the lock of the list at that moment, and then the child knows nothing. So several attempts.
        let knows = (1..=20).any(|token| {
            let config: Config = "redis://127.0.0.1:2".parse().expect("an address");
            let parents = RedisDriver::at(config.clone()).expect("a thread");
            parents.driver().engine.note_token(token);
            RedisDriver::after_fork();
            let childs = RedisDriver::at(config).expect("a thread");
            assert!(!Arc::ptr_eq(&parents, &childs), "it has its own connections");
            childs.driver().engine.newest_token() == token
        });
        assert!(knows);
    }

    /// The server's clock went on, so another client may have the slot by now.
    #[cfg(feature = "_test-redis")]
    #[tokio::test]
    async fn permit_is_lost_after_the_machine_was_suspended() {
        use std::sync::atomic::Ordering::SeqCst;

        use semafor_core::{Loss, NotHeld};

        use crate::remote::clock::tests::{ONE_AT_A_TIME, SUSPENDED_NANOS};
        let _turn = ONE_AT_A_TIME.lock().await;
        let server = semafor_testkit::redis::RedisServer::start();
        let home = crate::Home::connect(&server.url()).await.expect("it answers");
        let builder = home.named("suspended").slots(2).heartbeat_max_interval(Duration::from_secs(60));
        let semaphore = builder.open().await.expect("a valid name");
        let held = semaphore.acquire().await.expect("it is free");
        let leased = semaphore.acquire().ttl(Duration::from_secs(6)).await.expect("it is free");
        assert!(!held.is_lost() && !leased.is_lost());
        // From now on no heartbeat gets a reply.
        server.pause();
        SUSPENDED_NANOS.store(61_000_000_000, SeqCst);
        let (lost, expired) = (held.is_lost(), leased.is_lost());
        let losses =
            tokio::time::timeout(Duration::from_secs(60), async { (held.lost().await, leased.lost().await) });
        let losses = losses.await;
        SUSPENDED_NANOS.store(0, SeqCst);
        server.resume();
        assert!(lost && expired, "both are lost at once");
        assert_eq!(losses, Ok((NotHeld::Lost(Loss::OutOfTouch), NotHeld::Lost(Loss::Expired))));
    }
}
