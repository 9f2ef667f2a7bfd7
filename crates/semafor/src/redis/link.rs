//! The one connection.
//!
//! Runs scripts, and dials anew when the connection is lost. What the server pushes, and that there is a new connection, goes
//! to the [driver](super::driver) as [`Event`]s.
//!
//! What reads and writes it lives in the runtime that connected, if that has several threads: a trip then wakes no thread that
//! a bare one would not, and waking threads is what a trip costs. If that runtime is gone, or does not get round to it in
//! time for a heartbeat, it moves to the driver's own thread, and stays there.
//!
//! It is one connection to one server on a cluster as well: a namespace has one `{tag}`, so all it has is in one place.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, Pipeline, ProtocolVersion,
    PushInfo, RedisError, ServerErrorKind, Value, cmd,
};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use super::config::{Address, Config, Protocol};
use super::diagnostics::{
    Introduction, breaks_connection, denied, explain, explain_greeting, forgetful, is_refusal, is_transient,
    is_unknown_script, silent_for, wrong_type,
};
use super::keys;
use super::script::lua::Script;
use super::{discovery, needs};
use crate::error::{HomeError, HomeErrorKind};
use crate::remote::call::Failure;
use crate::remote::client::ServerPushes;
use crate::remote::clock::Instant;

/// How long a runtime may take to begin with something.
const HOST_PATIENCE: Duration = Duration::from_millis(100);

/// What happens on the connection without being asked for.
pub(super) enum Event {
    /// There is a new one: nothing is registered on it yet.
    Connected,
    /// It has ended.
    Disconnected,
    Push {
        generation: u64,
        push: PushInfo,
    },
}

/// Hears them, at once and without waiting.
pub(super) type Ear = Arc<dyn Fn(Event) + Send + Sync>;

pub(super) struct Link {
    config: Arc<Config>,
    address: Address,
    channel: String,
    ear: Ear,
    own: Handle,
    host: Mutex<Option<Handle>>,
    current: Mutex<Option<Line>>,
    /// Held by who dials; the last failure is for all who waited for it.
    dialling: tokio::sync::Mutex<Option<DialFailure>>,
    generations: AtomicU64,
    /// Nodes of the cluster that were seen, beside those of the URL.
    nodes: Mutex<Vec<ConnectionInfo>>,
    /// What was last said about how little the server tells.
    announced: Mutex<Option<ServerPushes>>,
    /// How the server makes room when its memory runs out, if it deletes keys in use.
    eviction_policy: Mutex<Option<String>>,
    /// Where a part of the cluster is on its way to.
    destination: Mutex<Option<Destination>>,
}

struct Destination {
    address: ConnectionAddr,
    wire: MultiplexedConnection,
}

struct DialFailure {
    at: Instant,
    why: HomeError,
}

#[derive(Clone)]
pub(super) struct Line {
    wire: MultiplexedConnection,
    generation: u64,
    pub(super) pushes: ServerPushes,
    info: Arc<ConnectionInfo>,
    /// What its user may not do of what scripts need.
    missing: Option<Arc<str>>,
}

/// What a script answered, and when it was asked. The server's time of execution lies between the two.
pub(super) struct Answered {
    pub(super) value: Value,
    pub(super) sent: Instant,
    pub(super) received: Instant,
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
            eviction_policy: Mutex::default(),
            destination: Mutex::default(),
        }
    }

    /// What is wrong with the server, though it works.
    pub(super) fn warnings(&self) -> Vec<String> {
        let policy = self.eviction_policy.lock();
        policy.iter().map(|policy| forgetful(policy, &self.config)).collect()
    }

    /// Lets the next connection live in that runtime.
    pub(super) fn move_to(&self, host: Handle) {
        *self.host.lock() = Some(host);
    }

    /// True if it does not live on the driver's own thread.
    pub(super) fn is_hosted(&self) -> bool {
        self.host.lock().is_some()
    }

    /// Moves to the driver's own thread, whatever its host may be doing.
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

    /// Runs a script, and tries as often as the configuration says. `arguments` are those behind the namespace.
    pub(super) async fn run(
        self: &Arc<Self>,
        script: &Script,
        keys: &[String],
        arguments: impl Fn(&mut Cmd),
    ) -> Result<Answered, HomeError> {
        let retry = self.config.retry();
        let mut attempts = 0;
        loop {
            let failure = match self.attempt(script, keys, &arguments).await {
                Ok(answered) => return Ok(answered),
                Err(failure) => failure,
            };
            attempts += 1;
            if !failure.is_transient || attempts >= retry.attempts {
                return Err(failure.error);
            }
            sleep(retry.pause_after(attempts)).await;
        }
    }

    /// Runs a script once.
    pub(super) async fn attempt(
        self: &Arc<Self>,
        script: &Script,
        keys: &[String],
        arguments: impl Fn(&mut Cmd),
    ) -> Result<Answered, Failure> {
        let line = self.line().await.map_err(|error| Failure {
            is_transient: is_worth_another_try(&error),
            was_sent: false,
            error,
        })?;
        self.check(&line, script).await.map_err(|error| Failure {
            error,
            is_transient: false,
            was_sent: false,
        })?;
        let sent = Instant::now();
        match self.call(&line, script, keys, arguments).await {
            Ok(value) => Ok(Answered { value, sent, received: Instant::now() }),
            Err(error) if is_transient(&error, &self.config) => {
                Err(Failure { error: explain(&error, &self.config), is_transient: true, was_sent: true })
            }
            Err(error) => {
                let error = self.explain_more(&line, &error, keys).await;
                Err(Failure { error, is_transient: false, was_sent: true })
            }
        }
    }

    /// Says why a script must not be run: it would be stopped half-way. The user may have been given the right meanwhile.
    async fn check(&self, line: &Line, script: &Script) -> Result<(), HomeError> {
        if line.missing.is_none() || !script.changes {
            return Ok(());
        }
        let missing = self.ask_for_missing(line).await.map_err(|error| explain(&error, &self.config))?;
        if let Some(current) =
            self.current.lock().as_mut().filter(|current| current.generation == line.generation)
        {
            current.missing.clone_from(&missing);
        }
        missing.map_or(Ok(()), |missing| Err(denied(&missing, &self.config)))
    }

    async fn call(
        &self,
        line: &Line,
        script: &Script,
        keys: &[String],
        arguments: impl Fn(&mut Cmd),
    ) -> Result<Value, RedisError> {
        let build = |name: &str, body: &str| {
            let mut command = cmd(name);
            command.arg(body).arg(keys.len()).arg(keys).arg(&self.config.namespace);
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
        if !line.pushes.tracking {
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
        let answer =
            self.in_time(line, async { wire.req_packed_command(command).await?.extract_error() }).await;
        match answer {
            Err(error)
                if error.kind() == ErrorKind::Server(ServerErrorKind::Ask) && self.config.is_cluster() =>
            {
                self.send_on(line, &error, command).await
            }
            answer => answer,
        }
    }

    /// Sends a command to where `ASK` points: the part of the cluster that it is about is on its way there, and what the
    /// command needs has arrived.
    async fn send_on(&self, line: &Line, ask: &RedisError, command: &Cmd) -> Result<Value, RedisError> {
        let Some(info) = discovery::destination(ask, &line.info) else { return Err(ask.clone()) };
        let known = self
            .destination
            .lock()
            .as_ref()
            .filter(|known| known.address == *info.addr())
            .map(|known| known.wire.clone());
        let answer = async {
            let mut wire = match known {
                Some(wire) => wire,
                None => self.dial_destination(&info).await?,
            };
            let mut both = Pipeline::with_capacity(2);
            both.cmd("ASKING").add_command(command.clone());
            let answers = wire.req_packed_commands(&both, 1, 1).await?;
            answers.into_iter().next().unwrap_or(Value::Nil).extract_error()
        };
        let answer =
            timeout(self.config.socket_timeout, answer).await.unwrap_or_else(|_| Err(self.no_answer()));
        if answer.as_ref().is_err_and(breaks_connection) {
            *self.destination.lock() = None;
        }
        answer
    }

    async fn dial_destination(&self, info: &ConnectionInfo) -> Result<MultiplexedConnection, RedisError> {
        let client = self.client(&discovery::plain(info))?;
        let options = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        // It outlives the runtime of who happens to ask.
        let dialled = self
            .own
            .spawn(async move { client.get_multiplexed_async_connection_with_config(&options).await })
            .await;
        let wire = dialled.unwrap_or_else(|_| Err(self.no_answer()))?;
        *self.destination.lock() = Some(Destination { address: info.addr().clone(), wire: wire.clone() });
        Ok(wire)
    }

    fn no_answer(&self) -> RedisError {
        let wait = self.config.socket_timeout;
        std::io::Error::new(std::io::ErrorKind::TimedOut, format!("no answer within {wait:?}")).into()
    }

    async fn in_time<T>(
        &self,
        line: &Line,
        answer: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, RedisError> {
        let answer = match timeout(self.config.socket_timeout, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(self.no_answer()),
        };
        if answer.as_ref().is_err_and(breaks_connection) {
            self.hang_up(line.generation);
        }
        answer
    }

    /// Names the key that is in the way.
    async fn explain_more(&self, line: &Line, error: &RedisError, keys: &[String]) -> HomeError {
        let explained = explain(error, &self.config);
        if explained.kind() != HomeErrorKind::WrongType {
            return explained;
        }
        for (key, expected) in keys::with_types(keys) {
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
                *last_failure = Some(DialFailure { at: Instant::now(), why: why.clone() });
                Err(why)
            }
        }
    }

    /// Has no more to do with that connection.
    pub(super) fn hang_up(&self, generation: u64) {
        let hung_up = self.current.lock().take_if(|line| line.generation == generation);
        if hung_up.is_some() {
            // It is silent from now on, whoever ended it.
            (self.ear)(Event::Disconnected);
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.current.lock().is_some()
    }

    pub(super) fn pushes(&self) -> ServerPushes {
        self.current.lock().as_ref().map_or(ServerPushes::default(), |line| line.pushes)
    }

    async fn dial_where_it_lives(self: &Arc<Self>) -> Result<Line, HomeError> {
        let host = self.host.lock().clone();
        if let Some(host) = host {
            let this = Arc::clone(self);
            let wait = self.config.socket_connect_timeout + Duration::from_millis(500);
            match timeout(wait, host.spawn(async move { this.dial().await })).await {
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
        let wait = self.config.socket_connect_timeout;
        match timeout(wait, self.dial_in_peace()).await {
            Ok(line) => line,
            Err(_) => Err(silent_for(wait, &self.config)),
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
                discovery::of_cluster(&nodes, &key, |info| self.client(info)).await.map_err(explained)?
            }
            Address::Sentinel { sentinels, master, then } => {
                let found = discovery::of_sentinels(sentinels, master, then, |info| self.client(info)).await;
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
                self.dial_server(&info.clone().set_redis_settings(settings), listener).await
            }
            dialled => dialled,
        };
        let mut line = Line {
            wire: wire.map_err(greeted)?,
            generation,
            pushes: ServerPushes::default(),
            info: Arc::new(info),
            missing: None,
        };
        self.inspect(&line).await?;
        let (missing, ()) = tokio::join!(self.ask_for_missing(&line), self.look_at_eviction(&line));
        line.missing = missing.map_err(explained)?;
        if resp3 {
            line.pushes = self.listen(&line).await.map_err(explained)?;
        }
        self.announce(line.pushes);
        if let Address::Cluster(seeds) = &self.address
            && let (Some(seed), Ok(slots)) =
                (seeds.first(), self.send(&line, cmd("CLUSTER").arg("SLOTS")).await)
        {
            *self.nodes.lock() = discovery::nodes(&slots, seed);
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

    /// The permissions that scripts need and the user lacks. A user that may not ask counts as one that has them all.
    async fn ask_for_missing(&self, line: &Line) -> Result<Option<Arc<str>>, RedisError> {
        let namespace = &self.config.namespace;
        let process = self.channel.rsplit(':').next().unwrap_or_default();
        match self.send(line, &needs::ask_for_missing(namespace, process)).await {
            Ok(answer) => Ok(needs::read_missing(answer, namespace).ok().flatten().map(Arc::from)),
            Err(error) if breaks_connection(&error) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Warns of a server that deletes keys in use when its memory runs out: once, and again only if its policy changes.
    /// A user that may not ask is not warned.
    async fn look_at_eviction(&self, line: &Line) {
        let info = self.send(line, cmd("INFO").arg("memory")).await;
        let info =
            info.ok().and_then(|info| redis::from_redis_value::<String>(info).ok()).unwrap_or_default();
        let policy = needs::eviction_policy(&info).map(str::to_owned);
        let before = std::mem::replace(&mut *self.eviction_policy.lock(), policy.clone());
        if let Some(policy) = policy.filter(|policy| before.as_ref() != Some(policy)) {
            crate::observe::home_may_forget(&forgetful(&policy, &self.config));
        }
    }

    /// Asks for push messages. Without the right to, it goes without.
    async fn listen(&self, line: &Line) -> Result<ServerPushes, RedisError> {
        let subscribed = self.in_time(line, async { line.wire.clone().subscribe(&self.channel).await }).await;
        let tracked = self.send(line, cmd("CLIENT").arg("TRACKING").arg("ON").arg("OPTIN")).await;
        let is_granted = |answer: Result<(), RedisError>| match answer {
            Err(error) if !is_refusal(&error) => Err(error),
            answer => Ok(answer.is_ok()),
        };
        Ok(ServerPushes { messages: is_granted(subscribed)?, tracking: is_granted(tracked.map(drop))? })
    }

    /// Once, and again only if it has changed.
    fn announce(&self, pushes: ServerPushes) {
        let before = self.announced.lock().replace(pushes);
        if before != Some(pushes) && !(pushes.messages && pushes.tracking) {
            crate::observe::home_hears_little(&self.config.shown(), pushes.messages);
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
