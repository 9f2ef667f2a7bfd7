//! The one connection.
//!
//! Runs scripts, tries again, and dials anew when the connection is lost. What the server pushes, and that there is a new
//! connection, goes to the [`Fleet`](super::fleet::Fleet) as [`Event`]s.
//!
//! What reads and writes it lives in the runtime that connected, if that has several threads: a trip then wakes no thread that
//! a bare one would not, and waking threads is what a trip costs. If that runtime is gone, or does not get round to it in
//! time for a heartbeat, it moves to the fleet's own thread, and stays there.
//!
//! It is one connection to one server on a cluster as well: a namespace has one `{tag}`, so all it has is in one place.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionInfo, ErrorKind, Pipeline, ProtocolVersion, PushInfo, PushKind,
    RedisError, Value, cmd,
};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use super::config::{Address, Config, Protocol};
use super::keys::{self, Keys};
use super::lua::Script;
use super::master;
use super::trouble::{
    Introduction, breaks_connection, explain, explain_greeting, is_passing, is_refusal, is_unknown_script,
    silent_for, wrong_type,
};
use crate::error::{HomeError, HomeErrorKind};

/// How long a runtime may take to begin with something.
const HOST_PATIENCE: Duration = Duration::from_millis(100);

/// What happens on the connection without being asked for.
pub(super) enum Event {
    /// There is a new one: nothing is registered on it yet.
    Connected,
    Push {
        generation: u64,
        push: PushInfo,
    },
}

/// Hears them, at once and without waiting.
pub(super) type Ear = Arc<dyn Fn(Event) + Send + Sync>;

/// How a server tells news.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Hearing {
    /// It publishes on our channel.
    pub(super) messages: bool,
    /// It tells when a key that we looked at has changed.
    pub(super) tracking: bool,
}

pub(super) struct Link {
    config: Arc<Config>,
    address: Address,
    channel: String,
    ear: Ear,
    own: Handle,
    host: Mutex<Option<Handle>>,
    current: Mutex<Option<Line>>,
    /// Held by who dials; the last failure is for all who waited for it.
    dialling: tokio::sync::Mutex<Option<Failure>>,
    generations: AtomicU64,
    /// Nodes of the cluster that were seen, beside those of the URL.
    nodes: Mutex<Vec<ConnectionInfo>>,
    /// What was last said about how little the server tells.
    announced: Mutex<Option<Hearing>>,
}

struct Failure {
    at: Instant,
    why: HomeError,
}

#[derive(Clone)]
pub(super) struct Line {
    wire: MultiplexedConnection,
    generation: u64,
    pub(super) hearing: Hearing,
}

/// What a script answered, and when it was asked. The server's time of execution lies between the two.
pub(super) struct Answered {
    pub(super) value: Value,
    pub(super) sent: Instant,
    pub(super) received: Instant,
    /// True if an earlier attempt may have been carried out.
    pub(super) again: bool,
}

impl Link {
    pub(super) fn new(config: Arc<Config>, address: Address, channel: String, ear: Ear, own: Handle) -> Self {
        Self {
            address,
            config,
            channel,
            ear,
            own,
            host: Mutex::default(),
            current: Mutex::new(None),
            dialling: tokio::sync::Mutex::new(None),
            generations: AtomicU64::new(0),
            nodes: Mutex::default(),
            announced: Mutex::default(),
        }
    }

    /// Lets the next connection live in that runtime.
    pub(super) fn move_to(&self, host: Handle) {
        *self.host.lock() = Some(host);
    }

    /// True if it does not live on the fleet's own thread.
    pub(super) fn is_hosted(&self) -> bool {
        self.host.lock().is_some()
    }

    /// Moves to the fleet's own thread, whatever its host may be doing.
    pub(super) fn leave_host(&self) {
        let host = self.host.lock().take();
        let generation = self.current.lock().as_ref().map(|line| line.generation);
        if let (Some(_), Some(generation)) = (host, generation) {
            self.hang_up(generation);
        }
    }

    /// False if its host does not get round to anything; then it is not the server that keeps everybody waiting.
    pub(super) async fn is_host_at_work(&self) -> bool {
        let host = self.host.lock().clone();
        match host {
            Some(host) => timeout(HOST_PATIENCE, host.spawn(async {})).await.is_ok_and(|done| done.is_ok()),
            None => true,
        }
    }

    /// Runs a script. `arguments` are those behind the namespace, and are told whether an earlier attempt may have been
    /// carried out.
    ///
    /// Tries as often as the configuration says, and not beyond `patience`.
    pub(super) async fn run(
        self: &Arc<Self>,
        script: &Script,
        keys: &Keys,
        patience: Option<Duration>,
        mut arguments: impl FnMut(bool, &mut Cmd),
    ) -> Result<Answered, HomeError> {
        let mut attempts = 0;
        let (mut again, started) = (false, Instant::now());
        loop {
            let failure = match self.line().await {
                Err(error) if is_worth_another_try(&error) => error,
                Err(error) => return Err(error),
                Ok(line) => {
                    let sent = Instant::now();
                    match self.call(&line, script, keys, |command| arguments(again, command)).await {
                        Ok(value) => {
                            return Ok(Answered { value, sent, received: Instant::now(), again });
                        }
                        Err(error) if is_passing(&error, &self.config) => {
                            again = true;
                            explain(&error, &self.config)
                        }
                        Err(error) => return Err(self.explain_more(&line, &error, keys).await),
                    }
                }
            };
            attempts += 1;
            if attempts >= self.config.number_of_attempts {
                return Err(failure);
            }
            let pause = self.config.pause_after(attempts);
            if patience.is_some_and(|patience| started.elapsed() + pause >= patience) {
                return Err(failure);
            }
            sleep(pause).await;
        }
    }

    /// Runs a script once.
    pub(super) async fn run_once(
        self: &Arc<Self>,
        script: &Script,
        keys: &Keys,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<Answered, HomeError> {
        let line = self.line().await?;
        let sent = Instant::now();
        match self.call(&line, script, keys, arguments).await {
            Ok(value) => Ok(Answered { value, sent, received: Instant::now(), again: false }),
            Err(error) => Err(explain(&error, &self.config)),
        }
    }

    async fn call(
        &self,
        line: &Line,
        script: &Script,
        keys: &Keys,
        mut arguments: impl FnMut(&mut Cmd),
    ) -> Result<Value, RedisError> {
        let mut build = |name: &str, body: &str| {
            let mut command = cmd(name);
            command.arg(body).arg(keys.all.len()).arg(&keys.all).arg(&self.config.namespace);
            arguments(&mut command);
            command
        };
        match self.send(line, &build("EVALSHA", &script.digest)).await {
            Err(error) if is_unknown_script(&error) => self.send(line, &build("EVAL", &script.code)).await,
            answer => answer,
        }
    }

    /// Sends a command that is no script of ours.
    pub(super) async fn ask(self: &Arc<Self>, command: &Cmd) -> Result<Value, HomeError> {
        let line = self.line().await?;
        self.send(&line, command).await.map_err(|error| explain(&error, &self.config))
    }

    /// Looks at `keys` in such a way that the server tells when they change. Says which of them exist; `None` where the
    /// server does not tell.
    pub(super) async fn track(self: &Arc<Self>, keys: &[String]) -> Result<Option<Vec<bool>>, HomeError> {
        let line = self.line().await?;
        if !line.hearing.tracking {
            return Ok(None);
        }
        let mut pipeline = Pipeline::with_capacity(keys.len() * 2);
        for key in keys {
            pipeline.cmd("CLIENT").arg("CACHING").arg("YES").ignore();
            pipeline.cmd("EXISTS").arg(key);
        }
        let answers = self.in_time(&line, async {
            let mut wire = line.wire.clone();
            pipeline.query_async::<Vec<bool>>(&mut wire).await
        });
        answers.await.map(Some).map_err(|error| explain(&error, &self.config))
    }

    async fn send(&self, line: &Line, command: &Cmd) -> Result<Value, RedisError> {
        let mut wire = line.wire.clone();
        self.in_time(line, async { wire.req_packed_command(command).await?.extract_error() }).await
    }

    async fn in_time<T>(
        &self,
        line: &Line,
        answer: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, RedisError> {
        let answer = match timeout(self.config.socket_timeout, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(RedisError::from(std::io::Error::new(
                std::io::ErrorKind::TimedOut,
                format!("no answer within {:?}", self.config.socket_timeout),
            ))),
        };
        if let Err(error) = &answer
            && breaks_connection(error)
        {
            self.hang_up(line.generation);
        }
        answer
    }

    /// Names the key that is in the way.
    async fn explain_more(&self, line: &Line, error: &RedisError, keys: &Keys) -> HomeError {
        let explained = explain(error, &self.config);
        if explained.kind() != HomeErrorKind::WrongType {
            return explained;
        }
        for (key, expected) in keys.with_types() {
            let found = self.send(line, cmd("TYPE").arg(key)).await.ok();
            let found = found.and_then(|value| redis::from_redis_value::<String>(value).ok());
            if let Some(found) = found.filter(|found| found != expected && found != "none") {
                return wrong_type(key, &found, expected, &self.config);
            }
        }
        explained
    }

    /// The connection there is, or else a new one.
    pub(super) async fn line(self: &Arc<Self>) -> Result<Line, HomeError> {
        if let Some(line) = self.current.lock().clone() {
            return Ok(line);
        }
        let asked = Instant::now();
        let mut last_failure = self.dialling.lock().await;
        if let Some(line) = self.current.lock().clone() {
            return Ok(line);
        }
        if let Some(failure) = last_failure.as_ref().filter(|failure| failure.at >= asked) {
            return Err(failure.why.clone());
        }
        match self.dial_where_it_lives().await {
            Ok(line) => {
                *self.current.lock() = Some(line.clone());
                (self.ear)(Event::Connected);
                Ok(line)
            }
            Err(why) => {
                *last_failure = Some(Failure { at: Instant::now(), why: why.clone() });
                Err(why)
            }
        }
    }

    /// Has no more to do with that connection.
    pub(super) fn hang_up(&self, generation: u64) {
        let hung_up = self.current.lock().take_if(|line| line.generation == generation);
        if hung_up.is_some() {
            // It is silent from now on, whoever ended it.
            let push = PushInfo { kind: PushKind::Disconnection, data: Vec::new() };
            (self.ear)(Event::Push { generation, push });
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.current.lock().is_some()
    }

    pub(super) fn hearing(&self) -> Hearing {
        self.current.lock().as_ref().map_or(Hearing::default(), |line| line.hearing)
    }

    async fn dial_where_it_lives(self: &Arc<Self>) -> Result<Line, HomeError> {
        let host = self.host.lock().clone();
        if let Some(host) = host {
            let this = Arc::clone(self);
            let patience = self.config.socket_connect_timeout + Duration::from_millis(500);
            match timeout(patience, host.spawn(async move { this.dial().await })).await {
                Ok(Ok(line)) => return line,
                // It is gone, is busy otherwise, or lacks what is needed.
                Ok(Err(_)) | Err(_) => *self.host.lock() = None,
            }
        }
        let this = Arc::clone(self);
        let dialled = self.own.spawn(async move { this.dial().await });
        dialled.await.unwrap_or_else(|_| Err(silent_for(Duration::ZERO, &self.config)))
    }

    async fn dial(&self) -> Result<Line, HomeError> {
        let patience = self.config.socket_connect_timeout;
        match timeout(patience, self.dial_in_peace()).await {
            Ok(line) => line,
            Err(_) => Err(silent_for(patience, &self.config)),
        }
    }

    async fn dial_in_peace(&self) -> Result<Line, HomeError> {
        let explained = |error: RedisError| explain(&error, &self.config);
        let info = match &self.address {
            Address::Server(info) => (**info).clone(),
            Address::Cluster(seeds) => {
                let known = self.nodes.lock().clone();
                let nodes: Vec<_> = seeds.iter().filter(|seed| !has(&known, seed)).chain(&known).collect();
                let key = keys::any(&self.config.namespace);
                master::of_cluster(&nodes, &key, |info| self.client(info)).await.map_err(explained)?
            }
            Address::Sentinel { sentinels, master, then } => {
                let found = master::of_sentinels(sentinels, master, then, |info| self.client(info)).await;
                found.map_err(explained)?
            }
        };
        let greeted = |error: RedisError| explain_greeting(&error, &self.config);
        let generation = self.generations.fetch_add(1, Ordering::Relaxed);
        let ear = Arc::clone(&self.ear);
        let listener = move |push: PushInfo| -> Result<(), Infallible> {
            ear(Event::Push { generation, push });
            Ok(())
        };
        let mut resp3 = self.config.protocol == Protocol::Resp3;
        let wire = match self.dial_server(&info, listener.clone()).await {
            Err(error) if error.kind() == ErrorKind::RESP3NotSupported => {
                resp3 = false;
                let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP2);
                self.dial_server(&info.set_redis_settings(settings), listener).await
            }
            dialled => dialled,
        };
        let mut line = Line { wire: wire.map_err(greeted)?, generation, hearing: Hearing::default() };
        self.inspect(&line).await?;
        if resp3 {
            line.hearing = self.listen(&line).await.map_err(explained)?;
        }
        self.announce(line.hearing);
        if let Address::Cluster(seeds) = &self.address
            && let (Some(seed), Ok(slots)) =
                (seeds.first(), self.send(&line, cmd("CLUSTER").arg("SLOTS")).await)
        {
            *self.nodes.lock() = master::nodes(&slots, seed);
        }
        Ok(line)
    }

    async fn dial_server(
        &self,
        info: &ConnectionInfo,
        listener: impl Fn(PushInfo) -> Result<(), Infallible> + Send + Sync + 'static,
    ) -> Result<MultiplexedConnection, RedisError> {
        // There are timeouts around all of it already.
        let mut options = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1024);
        if info.redis_settings().protocol() == ProtocolVersion::RESP3 {
            options = options.set_push_sender(listener);
        }
        self.client(info)?.get_multiplexed_async_connection_with_config(&options).await
    }

    #[cfg(feature = "redis-tls")]
    fn client(&self, info: &ConnectionInfo) -> Result<redis::Client, RedisError> {
        match info.addr() {
            redis::ConnectionAddr::TcpTls { .. } => super::tls::client(info, self.config.ca.as_deref()),
            _ => redis::Client::open(info.clone()),
        }
    }

    #[cfg(not(feature = "redis-tls"))]
    fn client(&self, info: &ConnectionInfo) -> Result<redis::Client, RedisError> {
        redis::Client::open(info.clone())
    }

    /// Says what is wrong before anybody relies on it. What a user may not ask is taken for granted.
    async fn inspect(&self, line: &Line) -> Result<(), HomeError> {
        match self.send(line, &cmd("HELLO")).await {
            Ok(hello) => Introduction::read(hello).check(&self.config),
            Err(error) if is_refusal(&error) => {
                // Too old to introduce itself?
                let info = self.send(line, cmd("INFO").arg("server")).await;
                let info = info.ok().and_then(|info| redis::from_redis_value::<String>(info).ok());
                Introduction::from_info(&info.unwrap_or_default()).check(&self.config)
            }
            Err(error) => Err(explain(&error, &self.config)),
        }
    }

    /// Asks for push messages. Without the right to, it goes without.
    async fn listen(&self, line: &Line) -> Result<Hearing, RedisError> {
        let subscribed = self.in_time(line, async { line.wire.clone().subscribe(&self.channel).await }).await;
        let tracked = self.send(line, cmd("CLIENT").arg("TRACKING").arg("ON").arg("OPTIN")).await;
        let is_granted = |answer: Result<(), RedisError>| match answer {
            Err(error) if !is_refusal(&error) => Err(error),
            answer => Ok(answer.is_ok()),
        };
        Ok(Hearing { messages: is_granted(subscribed)?, tracking: is_granted(tracked.map(drop))? })
    }

    /// Once, and again only if it has changed.
    fn announce(&self, hearing: Hearing) {
        let before = self.announced.lock().replace(hearing);
        if before != Some(hearing) && !(hearing.messages && hearing.tracking) {
            crate::observe::home_hears_little(&self.config.shown(), hearing.messages);
        }
    }
}

/// True if somebody is expected to be back, or to be made master.
fn is_worth_another_try(error: &HomeError) -> bool {
    matches!(error.kind(), HomeErrorKind::Unreachable | HomeErrorKind::ReadOnly)
}

fn has(nodes: &[ConnectionInfo], node: &ConnectionInfo) -> bool {
    nodes.iter().any(|known| known.addr() == node.addr())
}
