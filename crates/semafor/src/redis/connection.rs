//! The one connection of a process to a Redis.
//!
//! Runs scripts, and connects again when the connection is lost. Messages of the server, and changes of the connection,
//! go to the [driver](super::driver) as [`Event`]s.
//!
//! The user's runtime that connected, the host, drives the connection if it has several threads: then a round trip wakes
//! no additional thread, and waking threads is most of its cost. If the host has ended, or is too busy for a heartbeat,
//! the connection moves to the driver's own thread, and stays there.
//!
//! On a cluster it is also one connection to one node: a namespace has one `{tag}`, so all its keys are on one node.

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
    ServerInfo, breaks_connection, eviction_warning, explain, explain_connect_error, is_refusal,
    is_transient, is_unknown_script, missing_permission, no_connection_within, wrong_type,
};
use super::keys;
use super::script::lua::Script;
use super::{discovery, requirements};
use crate::error::{HomeError, HomeErrorKind};
use crate::remote::call::Failure;
use crate::remote::client::ServerPushes;
use crate::remote::clock::Instant;

/// How long the host may take to run an empty task.
const HOST_TIMEOUT: Duration = Duration::from_millis(100);

/// A change of the connection, or a message of the server.
pub(super) enum Event {
    /// There is a new connection: the server does not know this client on it yet.
    Connected,
    /// The connection has ended.
    Disconnected,
    Push {
        generation: u64,
        push: PushInfo,
    },
}

/// Called for each event. Must not block.
pub(super) type EventHandler = Arc<dyn Fn(Event) + Send + Sync>;

pub(super) struct Connection {
    config: Arc<Config>,
    address: Address,
    channel: String,
    on_event: EventHandler,
    own_runtime: Handle,
    host: Mutex<Option<Handle>>,
    current: Mutex<Option<LiveConnection>>,
    /// Locked while a task connects. All tasks that wait for it share the last failure.
    connecting: tokio::sync::Mutex<Option<ConnectFailure>>,
    generations: AtomicU64,
    /// The generation of the newest connection that was in use.
    newest: AtomicU64,
    /// Known nodes of the cluster, besides those of the URL.
    nodes: Mutex<Vec<ConnectionInfo>>,
    /// Which pushes were available when that was last logged.
    logged_pushes: Mutex<Option<ServerPushes>>,
    /// The server's `maxmemory-policy`, if it deletes keys in use.
    eviction_policy: Mutex<Option<String>>,
    /// The node that a part of the cluster moves to.
    destination: Mutex<Option<Destination>>,
}

struct Destination {
    address: ConnectionAddr,
    wire: MultiplexedConnection,
}

struct ConnectFailure {
    at: Instant,
    why: HomeError,
}

#[derive(Clone)]
pub(super) struct LiveConnection {
    wire: MultiplexedConnection,
    generation: u64,
    pub(super) pushes: ServerPushes,
    info: Arc<ConnectionInfo>,
    /// The permissions that scripts need and its user lacks.
    missing: Option<Arc<str>>,
}

/// The reply of a script, and its times. The server ran the script between the two.
pub(super) struct ScriptReply {
    pub(super) value: Value,
    pub(super) sent: Instant,
    pub(super) received: Instant,
}

impl Connection {
    pub(super) fn new(
        config: Arc<Config>,
        address: Address,
        channel: String,
        on_event: EventHandler,
        own_runtime: Handle,
    ) -> Self {
        Self {
            address,
            config,
            channel,
            on_event,
            own_runtime,
            host: Mutex::default(),
            current: Mutex::new(None),
            connecting: tokio::sync::Mutex::new(None),
            generations: AtomicU64::new(0),
            newest: AtomicU64::new(0),
            nodes: Mutex::default(),
            logged_pushes: Mutex::default(),
            eviction_policy: Mutex::default(),
            destination: Mutex::default(),
        }
    }

    /// Problems of the server that do not stop the work.
    pub(super) fn warnings(&self) -> Vec<String> {
        let policy = self.eviction_policy.lock();
        policy.iter().map(|policy| eviction_warning(policy, &self.config)).collect()
    }

    /// Makes that runtime the host of the next connection.
    pub(super) fn move_to(&self, host: Handle) {
        *self.host.lock() = Some(host);
    }

    /// True if a user's runtime drives the connection.
    pub(super) fn is_hosted(&self) -> bool {
        self.host.lock().is_some()
    }

    /// Moves the connection to the driver's own thread.
    pub(super) fn leave_host(&self) {
        let host = self.host.lock().take();
        let generation = self.current.lock().as_ref().map(|live| live.generation);
        if let (Some(_), Some(generation)) = (host, generation) {
            self.disconnect(generation);
        }
    }

    /// False if the host does not run tasks. Then missing replies are not the server's fault.
    pub(super) async fn is_host_responsive(&self) -> bool {
        let host = self.host.lock().clone();
        match host {
            Some(host) => timeout(HOST_TIMEOUT, host.spawn(async {})).await.is_ok_and(|done| done.is_ok()),
            None => true,
        }
    }

    /// Runs a script, with retries as configured. `arguments` adds the arguments behind the namespace.
    pub(super) async fn run(
        self: &Arc<Self>,
        script: &Script,
        keys: &[String],
        arguments: impl Fn(&mut Cmd),
    ) -> Result<ScriptReply, HomeError> {
        let retry = self.config.retry();
        let mut attempts = 0;
        loop {
            let failure = match self.attempt(script, keys, &arguments).await {
                Ok(script_reply) => return Ok(script_reply),
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
    ) -> Result<ScriptReply, Failure> {
        let live = self.live().await.map_err(|error| Failure {
            is_transient: is_worth_a_retry(&error),
            was_sent: false,
            error,
        })?;
        self.check_permissions(&live, script).await.map_err(|error| Failure {
            error,
            is_transient: false,
            was_sent: false,
        })?;
        let sent = Instant::now();
        match self.call(&live, script, keys, arguments).await {
            Ok(value) => Ok(ScriptReply { value, sent, received: Instant::now() }),
            Err(error) if is_transient(&error, &self.config) => {
                Err(Failure { error: explain(&error, &self.config), is_transient: true, was_sent: true })
            }
            Err(error) => {
                let error = self.explain_wrong_type(&live, &error, keys).await;
                Err(Failure { error, is_transient: false, was_sent: true })
            }
        }
    }

    /// Fails if the server would stop the script half-way. Asks again, because the user may have the permissions by now.
    async fn check_permissions(&self, live: &LiveConnection, script: &Script) -> Result<(), HomeError> {
        if live.missing.is_none() || !script.is_write {
            return Ok(());
        }
        let missing = self.missing_permissions(live).await.map_err(|error| explain(&error, &self.config))?;
        if let Some(current) =
            self.current.lock().as_mut().filter(|current| current.generation == live.generation)
        {
            current.missing.clone_from(&missing);
        }
        missing.map_or(Ok(()), |missing| Err(missing_permission(&missing, &self.config)))
    }

    async fn call(
        &self,
        live: &LiveConnection,
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
        match self.send(live, &build("EVALSHA", &script.digest)).await {
            Err(error) if is_unknown_script(&error) => self.send(live, &build("EVAL", &script.code)).await,
            answer => answer,
        }
    }

    /// Sends a command that is not one of our scripts.
    pub(super) async fn ask(self: &Arc<Self>, command: &Cmd) -> Result<Value, HomeError> {
        let live = self.live().await?;
        self.send(&live, command).await.map_err(|error| explain(&error, &self.config))
    }

    /// Asks the server to push a message when one of `keys` changes. Returns which of them exist; `None` if the server
    /// does not push.
    pub(super) async fn track(self: &Arc<Self>, keys: &[String]) -> Result<Option<Vec<bool>>, HomeError> {
        let live = self.live().await?;
        if !live.pushes.tracking {
            return Ok(None);
        }
        let mut pipeline = Pipeline::with_capacity(keys.len() * 2);
        for key in keys {
            pipeline.cmd("CLIENT").arg("CACHING").arg("YES").ignore();
            pipeline.cmd("EXISTS").arg(key);
        }
        let answers = self.with_timeout(&live, async {
            let mut wire = live.wire.clone();
            pipeline.query_async::<Vec<bool>>(&mut wire).await
        });
        answers.await.map(Some).map_err(|error| explain(&error, &self.config))
    }

    async fn send(&self, live: &LiveConnection, command: &Cmd) -> Result<Value, RedisError> {
        let mut wire = live.wire.clone();
        let answer =
            self.with_timeout(live, async { wire.req_packed_command(command).await?.extract_error() }).await;
        match answer {
            Err(error)
                if error.kind() == ErrorKind::Server(ServerErrorKind::Ask) && self.config.is_cluster() =>
            {
                self.send_to_destination(live, &error, command).await
            }
            answer => answer,
        }
    }

    /// Sends a command to the node that `ASK` names: a part of the cluster is moving there, and the keys of the command
    /// are there already.
    async fn send_to_destination(
        &self,
        live: &LiveConnection,
        ask: &RedisError,
        command: &Cmd,
    ) -> Result<Value, RedisError> {
        let Some(info) = discovery::destination(ask, &live.info) else { return Err(ask.clone()) };
        let known = self
            .destination
            .lock()
            .as_ref()
            .filter(|known| known.address == *info.addr())
            .map(|known| known.wire.clone());
        let answer = async {
            let mut wire = match known {
                Some(wire) => wire,
                None => self.connect_to_destination(&info).await?,
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

    async fn connect_to_destination(
        &self,
        info: &ConnectionInfo,
    ) -> Result<MultiplexedConnection, RedisError> {
        let client = self.client(&discovery::plain(info))?;
        let options = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        // In the driver's runtime, because the connection may outlive the caller's runtime.
        let connected = self
            .own_runtime
            .spawn(async move { client.get_multiplexed_async_connection_with_config(&options).await })
            .await;
        let wire = connected.unwrap_or_else(|_| Err(self.no_answer()))?;
        *self.destination.lock() = Some(Destination { address: info.addr().clone(), wire: wire.clone() });
        Ok(wire)
    }

    fn no_answer(&self) -> RedisError {
        let wait = self.config.socket_timeout;
        std::io::Error::new(std::io::ErrorKind::TimedOut, format!("no answer within {wait:?}")).into()
    }

    async fn with_timeout<T>(
        &self,
        live: &LiveConnection,
        answer: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, RedisError> {
        let answer = match timeout(self.config.socket_timeout, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(self.no_answer()),
        };
        if answer.as_ref().is_err_and(breaks_connection) {
            self.disconnect(live.generation);
        }
        answer
    }

    /// Names the key that has the wrong type.
    async fn explain_wrong_type(
        &self,
        live: &LiveConnection,
        error: &RedisError,
        keys: &[String],
    ) -> HomeError {
        let explained = explain(error, &self.config);
        if explained.kind() != HomeErrorKind::WrongType {
            return explained;
        }
        for (key, expected) in keys::with_types(keys) {
            let found = self.send(live, cmd("TYPE").arg(key)).await.ok();
            let found = found.and_then(|value| redis::from_redis_value::<String>(value).ok());
            if let Some(found) = found.filter(|found| found != expected && found != "none") {
                return wrong_type(key, &found, expected, &self.config);
            }
        }
        explained
    }

    /// The current connection, or a new one.
    pub(super) async fn live(self: &Arc<Self>) -> Result<LiveConnection, HomeError> {
        if let Some(live) = self.current.lock().clone() {
            return Ok(live);
        }
        let asked = Instant::now();
        let mut last_failure = self.connecting.lock().await;
        if let Some(live) = self.current.lock().clone() {
            return Ok(live);
        }
        if let Some(failure) = last_failure.as_ref().filter(|failure| failure.at >= asked) {
            return Err(failure.why.clone());
        }
        match self.connect_in_runtime().await {
            Ok(live) => {
                self.newest.store(live.generation, Ordering::Relaxed);
                *self.current.lock() = Some(live.clone());
                (self.on_event)(Event::Connected);
                Ok(live)
            }
            Err(why) => {
                *last_failure = Some(ConnectFailure { at: Instant::now(), why: why.clone() });
                Err(why)
            }
        }
    }

    /// Drops that connection, if it is the current one.
    pub(super) fn disconnect(&self, generation: u64) {
        let ended = self.current.lock().take_if(|live| live.generation == generation);
        if ended.is_some() {
            // No more messages come from it, whichever side ended it.
            (self.on_event)(Event::Disconnected);
        }
    }

    /// Calls may still wait for their replies on an earlier connection, and its messages may be late: a message of a loss
    /// could be taken for the loss of a newer grant. The state of everything was asked for on the newer connection.
    pub(super) fn is_superseded(&self, generation: u64) -> bool {
        generation < self.newest.load(Ordering::Relaxed)
    }

    pub(super) fn is_connected(&self) -> bool {
        self.current.lock().is_some()
    }

    pub(super) fn pushes(&self) -> ServerPushes {
        self.current.lock().as_ref().map_or(ServerPushes::default(), |live| live.pushes)
    }

    async fn connect_in_runtime(self: &Arc<Self>) -> Result<LiveConnection, HomeError> {
        let host = self.host.lock().clone();
        if let Some(host) = host {
            let this = Arc::clone(self);
            let wait = self.config.socket_connect_timeout + Duration::from_millis(500);
            match timeout(wait, host.spawn(async move { this.connect().await })).await {
                Ok(Ok(live)) => return live,
                // The host has ended, is too busy, or was built without I/O or timers.
                Ok(Err(_)) | Err(_) => *self.host.lock() = None,
            }
        }
        let this = Arc::clone(self);
        let connected = self.own_runtime.spawn(async move { this.connect().await });
        connected.await.unwrap_or_else(|_| Err(no_connection_within(Duration::ZERO, &self.config)))
    }

    async fn connect(&self) -> Result<LiveConnection, HomeError> {
        let wait = self.config.socket_connect_timeout;
        match timeout(wait, self.connect_without_timeout()).await {
            Ok(live) => live,
            Err(_) => Err(no_connection_within(wait, &self.config)),
        }
    }

    async fn connect_without_timeout(&self) -> Result<LiveConnection, HomeError> {
        let explained = |error: RedisError| explain(&error, &self.config);
        let info = match &self.address {
            Address::Server(info) => (**info).clone(),
            Address::Cluster(url_nodes) => {
                let known = self.nodes.lock().clone();
                let nodes: Vec<_> =
                    url_nodes.iter().filter(|node| !contains(&known, node)).chain(&known).collect();
                let key = keys::any_key(&self.config.namespace);
                discovery::of_cluster(&nodes, &key, |info| self.client(info)).await.map_err(explained)?
            }
            Address::Sentinel { sentinels, master, server } => {
                let found =
                    discovery::of_sentinels(sentinels, master, server, |info| self.client(info)).await;
                found.map_err(explained)?
            }
        };
        let connect_error = |error: RedisError| explain_connect_error(&error, &self.config);
        let generation = self.generations.fetch_add(1, Ordering::Relaxed);
        let on_event = Arc::clone(&self.on_event);
        let listener = move |push: PushInfo| -> Result<(), Infallible> {
            on_event(Event::Push { generation, push });
            Ok(())
        };
        let mut resp3 = self.config.protocol == Protocol::Resp3;
        let wire = match self.connect_to(&info, listener.clone()).await {
            Err(error) if error.kind() == ErrorKind::RESP3NotSupported => {
                resp3 = false;
                let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP2);
                self.connect_to(&info.clone().set_redis_settings(settings), listener).await
            }
            connected => connected,
        };
        let mut live = LiveConnection {
            wire: wire.map_err(connect_error)?,
            generation,
            pushes: ServerPushes::default(),
            info: Arc::new(info),
            missing: None,
        };
        self.check_server(&live).await?;
        let (missing, ()) = tokio::join!(self.missing_permissions(&live), self.check_eviction_policy(&live));
        live.missing = missing.map_err(explained)?;
        if resp3 {
            live.pushes = self.subscribe_to_pushes(&live).await.map_err(explained)?;
        }
        self.log_missing_pushes(live.pushes);
        if let Address::Cluster(url_nodes) = &self.address
            && let (Some(template), Ok(slots)) =
                (url_nodes.first(), self.send(&live, cmd("CLUSTER").arg("SLOTS")).await)
        {
            *self.nodes.lock() = discovery::nodes(&slots, template);
        }
        Ok(live)
    }

    async fn connect_to(
        &self,
        info: &ConnectionInfo,
        listener: impl Fn(PushInfo) -> Result<(), Infallible> + Send + Sync + 'static,
    ) -> Result<MultiplexedConnection, RedisError> {
        // The callers have their own timeouts.
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

    /// Fails early if the server can't be used. Properties that the user may not query are assumed to be right.
    async fn check_server(&self, live: &LiveConnection) -> Result<(), HomeError> {
        match self.send(live, &cmd("HELLO")).await {
            Ok(hello) => ServerInfo::read(hello).check(&self.config),
            Err(error) if is_refusal(&error) => {
                // It may be too old for HELLO.
                let info = self.send(live, cmd("INFO").arg("server")).await;
                let info = info.ok().and_then(|info| redis::from_redis_value::<String>(info).ok());
                ServerInfo::from_info(&info.unwrap_or_default()).check(&self.config)
            }
            Err(error) => Err(explain(&error, &self.config)),
        }
    }

    /// The permissions that scripts need and the user lacks. A user that may not ask counts as one that has them all.
    async fn missing_permissions(&self, live: &LiveConnection) -> Result<Option<Arc<str>>, RedisError> {
        let namespace = &self.config.namespace;
        let process = self.channel.rsplit(':').next().unwrap_or_default();
        match self.send(live, &requirements::ask_for_missing_permissions(namespace, process)).await {
            Ok(answer) => {
                Ok(requirements::read_missing_permissions(answer, namespace).ok().flatten().map(Arc::from))
            }
            Err(error) if breaks_connection(&error) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Warns of a server that deletes keys in use when its memory runs out: once, and again only if its policy changes.
    /// A user that may not ask is not warned.
    async fn check_eviction_policy(&self, live: &LiveConnection) {
        let info = self.send(live, cmd("INFO").arg("memory")).await;
        let info =
            info.ok().and_then(|info| redis::from_redis_value::<String>(info).ok()).unwrap_or_default();
        let policy = requirements::eviction_policy(&info).map(str::to_owned);
        let before = std::mem::replace(&mut *self.eviction_policy.lock(), policy.clone());
        if let Some(policy) = policy.filter(|policy| before.as_ref() != Some(policy)) {
            crate::observe::home_may_forget(&eviction_warning(&policy, &self.config));
        }
    }

    /// Asks for push messages. Works without them if the user lacks the permission.
    async fn subscribe_to_pushes(&self, live: &LiveConnection) -> Result<ServerPushes, RedisError> {
        let subscribed =
            self.with_timeout(live, async { live.wire.clone().subscribe(&self.channel).await }).await;
        let tracked = self.send(live, cmd("CLIENT").arg("TRACKING").arg("ON").arg("OPTIN")).await;
        let is_granted = |answer: Result<(), RedisError>| match answer {
            Err(error) if !is_refusal(&error) => Err(error),
            answer => Ok(answer.is_ok()),
        };
        Ok(ServerPushes { messages: is_granted(subscribed)?, tracking: is_granted(tracked.map(drop))? })
    }

    /// Logs once, and again only after a change.
    fn log_missing_pushes(&self, pushes: ServerPushes) {
        let before = self.logged_pushes.lock().replace(pushes);
        if before != Some(pushes) && !(pushes.messages && pushes.tracking) {
            crate::observe::home_hears_little(&self.config.redacted_url(), pushes.messages);
        }
    }
}

/// True if the server may come back, or another one may become master.
fn is_worth_a_retry(error: &HomeError) -> bool {
    matches!(error.kind(), HomeErrorKind::Unreachable | HomeErrorKind::ReadOnly)
}

fn contains(nodes: &[ConnectionInfo], node: &ConnectionInfo) -> bool {
    nodes.iter().any(|known| known.addr() == node.addr())
}
