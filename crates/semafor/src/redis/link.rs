//! The one connection.
//!
//! Runs scripts, tries again, and dials anew when the connection is lost. What the server pushes, and that there is a new
//! connection, goes to the [`Fleet`](super::fleet::Fleet) as [`Event`]s. Everything here runs on the fleet's own runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, Pipeline, ProtocolVersion,
    PushInfo, RedisError, RedisFuture, Value, cmd,
};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{sleep, timeout};

use super::config::{Address, Config, Protocol};
use super::keys::Keys;
use super::lua::Script;
use super::trouble::{breaks_connection, check_version, explain, is_passing, is_unknown_script};
use crate::error::{HomeError, HomeErrorKind};

/// What happens on the connection without being asked for.
pub(super) enum Event {
    /// There is a new one: nothing is registered on it yet.
    Connected,
    Push {
        generation: u64,
        push: PushInfo,
    },
}

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
    events: UnboundedSender<Event>,
    current: Mutex<Option<Line>>,
    dialling: tokio::sync::Mutex<()>,
    generations: AtomicU64,
}

#[derive(Clone)]
pub(super) struct Line {
    wire: Wire,
    generation: u64,
    pub(super) hearing: Hearing,
}

/// Nobody is there any more to hear it.
struct Deaf;

#[derive(Clone)]
enum Wire {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
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
    pub(super) fn new(
        config: Arc<Config>,
        channel: String,
        events: UnboundedSender<Event>,
    ) -> Result<Self, HomeError> {
        Ok(Self {
            address: config.address()?,
            config,
            channel,
            events,
            current: Mutex::new(None),
            dialling: tokio::sync::Mutex::new(()),
            generations: AtomicU64::new(0),
        })
    }

    /// Runs a script. `arguments` are those behind the namespace, and are told whether an earlier attempt may have been
    /// carried out.
    ///
    /// Tries as often as the configuration says, and not beyond `patience`.
    pub(super) async fn run(
        &self,
        script: &Script,
        keys: &Keys,
        patience: Option<Duration>,
        mut arguments: impl FnMut(bool, &mut Cmd),
    ) -> Result<Answered, HomeError> {
        let mut attempts = 0;
        let (mut again, started) = (false, Instant::now());
        loop {
            let failure = match self.line().await {
                Err(error) => error,
                Ok(line) => {
                    let sent = Instant::now();
                    match self.call(&line, script, keys, |command| arguments(again, command)).await {
                        Ok(value) => {
                            return Ok(Answered { value, sent, received: Instant::now(), again });
                        }
                        Err(error) if is_passing(&error) => {
                            again = true;
                            explain(&error, &self.config)
                        }
                        Err(error) => return Err(self.explain_more(&line, &error, keys).await),
                    }
                }
            };
            attempts += 1;
            if !failure.is_unreachable() && failure.kind() != HomeErrorKind::ReadOnly
                || attempts >= self.config.number_of_attempts
            {
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
        &self,
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
    pub(super) async fn ask(&self, command: &Cmd) -> Result<Value, HomeError> {
        let line = self.line().await?;
        self.send(&line, command).await.map_err(|error| explain(&error, &self.config))
    }

    /// Looks at `keys` in such a way that the server tells when they change. Says which of them exist; `None` where the
    /// server does not tell.
    pub(super) async fn track(&self, keys: &[String]) -> Result<Option<Vec<bool>>, HomeError> {
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
        self.in_time(line, wire.req_packed_command(command)).await.and_then(Value::extract_error)
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
        const EXPECTED: [&str; 9] =
            ["zset", "zset", "string", "zset", "zset", "string", "hash", "zset", "hash"];
        for (key, expected) in keys.all.iter().zip(EXPECTED) {
            let found = self.send(line, cmd("TYPE").arg(key)).await.ok();
            let found = found.and_then(|value| redis::from_redis_value::<String>(value).ok());
            if let Some(found) = found.filter(|found| found != expected && found != "none") {
                let message = format!(
                    "{key:?} in {} is a {found}, not a {expected}: something else is stored there. \
                     Use another name or namespace, or delete it",
                    self.config.shown()
                );
                return HomeError::new(HomeErrorKind::WrongType, message);
            }
        }
        explained
    }

    /// The connection there is, or else a new one.
    pub(super) async fn line(&self) -> Result<Line, HomeError> {
        if let Some(line) = self.current.lock().clone() {
            return Ok(line);
        }
        let _turn = self.dialling.lock().await;
        if let Some(line) = self.current.lock().clone() {
            return Ok(line);
        }
        let line = self.dial().await?;
        *self.current.lock() = Some(line.clone());
        let _ = self.events.send(Event::Connected);
        Ok(line)
    }

    /// Has no more to do with that connection.
    pub(super) fn hang_up(&self, generation: u64) {
        let mut current = self.current.lock();
        if current.as_ref().is_some_and(|line| line.generation == generation) {
            // A cluster connection mends itself.
            if !matches!(current.as_ref().map(|line| &line.wire), Some(Wire::Cluster(_))) {
                *current = None;
            }
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.current.lock().is_some()
    }

    pub(super) fn hearing(&self) -> Hearing {
        self.current.lock().as_ref().map_or(Hearing::default(), |line| line.hearing)
    }

    async fn dial(&self) -> Result<Line, HomeError> {
        let patience = self.config.socket_connect_timeout;
        match timeout(patience, self.dial_in_peace()).await {
            Ok(line) => line,
            Err(_) => Err(HomeError::new(
                HomeErrorKind::Unreachable,
                format!("no connection to {} within {patience:?}: is this its address?", self.config.shown()),
            )),
        }
    }

    async fn dial_in_peace(&self) -> Result<Line, HomeError> {
        let explained = |error: RedisError| explain(&error, &self.config);
        let generation = self.generations.fetch_add(1, Ordering::Relaxed);
        let events = self.events.clone();
        let listener = move |push: PushInfo| events.send(Event::Push { generation, push }).map_err(|_| Deaf);
        let mut resp3 = self.config.protocol == Protocol::Resp3;
        let wire = match &self.address {
            Address::Server(info) => match self.dial_server(info, listener.clone()).await {
                Err(error) if error.kind() == ErrorKind::RESP3NotSupported => {
                    resp3 = false;
                    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP2);
                    let info = (**info).clone().set_redis_settings(settings);
                    Wire::Server(self.dial_server(&info, listener).await.map_err(explained)?)
                }
                connection => Wire::Server(connection.map_err(explained)?),
            },
            Address::Sentinel { sentinels, master, then } => {
                let info = self.find_master(sentinels, master, then).await.map_err(explained)?;
                Wire::Server(self.dial_server(&info, listener).await.map_err(explained)?)
            }
            Address::Cluster(nodes) => {
                let mut builder = ClusterClientBuilder::new(nodes.clone())
                    .retries(3)
                    .connection_timeout(self.config.socket_connect_timeout)
                    .response_timeout(self.config.socket_timeout);
                if resp3 {
                    builder = builder.use_protocol(ProtocolVersion::RESP3).push_sender(listener);
                }
                #[cfg(feature = "redis-tls")]
                if let Some(certificates) = self.certificates()? {
                    builder = builder.certs(certificates);
                }
                let client = builder.build().map_err(explained)?;
                Wire::Cluster(client.get_async_connection().await.map_err(explained)?)
            }
        };
        let mut line = Line { wire, generation, hearing: Hearing::default() };
        self.inspect(&line).await?;
        if resp3 {
            line.hearing = self.listen(&line).await;
        }
        if !line.hearing.tracking || !line.hearing.messages {
            crate::observe::home_hears_little(&self.config.shown(), line.hearing.messages);
        }
        Ok(line)
    }

    async fn dial_server(
        &self,
        info: &ConnectionInfo,
        listener: impl Fn(PushInfo) -> Result<(), Deaf> + Send + Sync + 'static,
    ) -> Result<MultiplexedConnection, RedisError> {
        let mut options = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.config.socket_connect_timeout))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1024);
        if info.redis_settings().protocol() == ProtocolVersion::RESP3 {
            options = options.set_push_sender(listener);
        }
        self.client(info)?.get_multiplexed_async_connection_with_config(&options).await
    }

    fn client(&self, info: &ConnectionInfo) -> Result<redis::Client, RedisError> {
        #[cfg(feature = "redis-tls")]
        if matches!(info.addr(), ConnectionAddr::TcpTls { .. })
            && let Some(certificates) = self.certificates().map_err(|error| {
                RedisError::from((ErrorKind::InvalidClientConfig, "ca", error.to_string()))
            })?
        {
            return redis::Client::build_with_tls(info.clone(), certificates);
        }
        if !info.addr().is_supported() || cfg!(not(feature = "redis-tls")) && is_tls(info.addr()) {
            return Err(RedisError::from((
                ErrorKind::InvalidClientConfig,
                "TLS needs the feature `redis-tls` of the crate semafor",
            )));
        }
        redis::Client::open(info.clone())
    }

    #[cfg(feature = "redis-tls")]
    fn certificates(&self) -> Result<Option<redis::TlsCertificates>, HomeError> {
        let Some(path) = &self.config.ca else { return Ok(None) };
        let read = std::fs::read(path).map_err(|error| {
            let message = format!("the certificate {path:?} can't be read: {error}");
            HomeError::new(HomeErrorKind::InvalidUrl, message)
        });
        Ok(Some(redis::TlsCertificates { client_tls: None, root_cert: Some(read?) }))
    }

    async fn find_master(
        &self,
        sentinels: &[ConnectionInfo],
        master: &str,
        then: &ConnectionInfo,
    ) -> Result<ConnectionInfo, RedisError> {
        let addresses = sentinels.iter().map(|sentinel| sentinel.addr().clone());
        let builder = SentinelClientBuilder::new(addresses, master, SentinelServerType::Master)?;
        let found = builder.build()?.async_get_client().await?;
        let addr = match (found.get_connection_info().addr().clone(), then.addr()) {
            (ConnectionAddr::Tcp(host, port), ConnectionAddr::TcpTls { insecure, tls_params, .. }) => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            (addr, _) => addr,
        };
        Ok(then.clone().set_addr(addr))
    }

    /// Says what is wrong before anybody relies on it. What a user may not ask is taken for granted.
    async fn inspect(&self, line: &Line) -> Result<(), HomeError> {
        let is_denied = |error: &RedisError| error.code() == Some("NOPERM");
        let first = self.send(line, cmd("PING").arg("semafor")).await;
        if let Err(error) = first
            && !is_denied(&error)
        {
            return Err(explain(&error, &self.config));
        }
        if matches!(self.address, Address::Cluster(_)) {
            return Ok(());
        }
        if let Ok(Value::VerbatimString { text, .. }) = self.send(line, cmd("INFO").arg("server")).await {
            check_version(&text, &self.config)?;
        }
        if let Ok(Value::Array(role)) = self.send(line, &cmd("ROLE")).await
            && let Some(Value::BulkString(role)) = role.first()
            && role == b"slave"
        {
            let error =
                RedisError::from((ErrorKind::Server(redis::ServerErrorKind::ReadOnly), "this is a replica"));
            self.hang_up(line.generation);
            return Err(explain(&error, &self.config));
        }
        Ok(())
    }

    /// Asks for push messages. Without the right to, it goes without.
    async fn listen(&self, line: &Line) -> Hearing {
        let messages = match &line.wire {
            Wire::Server(connection) => connection.clone().subscribe(&self.channel).await.is_ok(),
            Wire::Cluster(connection) => connection.clone().subscribe(&self.channel).await.is_ok(),
        };
        // On a cluster there is no telling on which of its connections a key would be looked at.
        let is_server = matches!(line.wire, Wire::Server(_));
        let tracking =
            is_server && self.send(line, cmd("CLIENT").arg("TRACKING").arg("ON").arg("OPTIN")).await.is_ok();
        Hearing { messages, tracking }
    }
}

fn is_tls(addr: &ConnectionAddr) -> bool {
    matches!(addr, ConnectionAddr::TcpTls { .. })
}

impl ConnectionLike for Wire {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Server(connection) => connection.req_packed_command(cmd),
            Self::Cluster(connection) => connection.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        cmd: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::Server(connection) => connection.req_packed_commands(cmd, offset, count),
            Self::Cluster(connection) => connection.req_packed_commands(cmd, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Server(connection) => connection.get_db(),
            Self::Cluster(connection) => connection.get_db(),
        }
    }
}
