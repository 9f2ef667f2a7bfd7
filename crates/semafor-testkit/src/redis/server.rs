//! One Redis server.
//!
//! It is up when the process that we started answers on the port that we chose: another server may have taken that port
//! first, and would answer as well.

use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::BuildHasher;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use redis::{Client, Connection, IntoConnectionInfo, RedisConnectionInfo, RedisError, RedisResult, Value};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tempfile::TempDir;

use super::eventually::eventually;
use crate::spawner::spawn;

/// How long an administrator connection waits for a reply. A paused server sends none.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// A Redis server for one test, on a free port of the loopback interface, without persistence unless the settings ask
/// for it.
///
/// Dropping it kills it and removes its directory.
pub struct RedisServer {
    role: Role,
    password: Option<String>,
    port: u16,
    tls_port: Option<u16>,
    process: Mutex<Option<Child>>,
    dir: TempDir,
}

/// What a server is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Alone,
    WithTls,
    ClusterNode,
    Sentinel,
}

/// The port was free, but another process took it before the server did.
struct PortTaken;

impl RedisServer {
    /// Starts a server with default settings.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with these settings, each a line of `redis.conf`: `("appendonly", "yes")`.
    ///
    /// # Panics
    ///
    /// If it does not come up, with its log. The same holds for all functions here that start one.
    pub fn with(settings: &[(&str, &str)]) -> Self {
        Self::launch(Role::Alone, settings)
    }

    /// Starts a server that also speaks TLS, with a certificate for `127.0.0.1` and `localhost` that [its own
    /// authority](Self::ca_certificate) has signed.
    pub fn with_tls() -> Self {
        Self::launch(Role::WithTls, &[])
    }

    pub(super) fn launch(role: Role, settings: &[(&str, &str)]) -> Self {
        for _ in 0..20 {
            let server = Self::configure(role, settings);
            if let Ok(()) = server.run() {
                return server;
            }
        }
        panic!("no port stays free for long enough to start a Redis server on it");
    }

    fn configure(role: Role, settings: &[(&str, &str)]) -> Self {
        let dir = tempfile::Builder::new().prefix("semafor-redis-").tempdir().expect("a temporary directory");
        let port = free_port();
        let mut lines = vec![
            "bind 127.0.0.1".to_owned(),
            format!("port {port}"),
            format!("dir {}", dir.path().display()),
            format!("unixsocket {}", socket_in(dir.path()).display()),
            "save \"\"".to_owned(),
            "appendonly no".to_owned(),
            "daemonize no".to_owned(),
            // Otherwise a master would wait for more replicas before it starts to send its data.
            "repl-diskless-sync-delay 0".to_owned(),
        ];
        let tls_port = (role == Role::WithTls).then(free_port);
        if let Some(tls_port) = tls_port {
            write_certificates(dir.path());
            lines.push(format!("tls-port {tls_port}"));
            lines.push("tls-auth-clients no".to_owned());
            for (directive, file) in [
                ("tls-ca-cert-file", CA_CERTIFICATE),
                ("tls-cert-file", CERTIFICATE),
                ("tls-key-file", CERTIFICATE_KEY),
            ] {
                lines.push(format!("{directive} {}", dir.path().join(file).display()));
            }
        }
        if role == Role::ClusterNode {
            lines.push("cluster-enabled yes".to_owned());
            lines.push(format!("cluster-port {}", free_port()));
        }
        let mut password = None;
        for &(directive, value) in settings {
            if directive == "requirepass" && !value.is_empty() {
                password = Some(value.to_owned());
            }
            lines.push(format!("{directive} {}", if value.is_empty() { "\"\"" } else { value }));
        }
        // Written once: sentinels store their state in it.
        fs::write(dir.path().join(CONFIGURATION), lines.join("\n") + "\n").expect("it can be written");
        Self { role, password, port, tls_port, process: Mutex::new(None), dir }
    }

    fn run(&self) -> Result<(), PortTaken> {
        let mut process = self.process();
        assert!(process.is_none(), "the Redis server on port {} is up already", self.port);
        let before = self.log().len();
        let log = File::options().create(true).append(true).open(self.dir().join(LOG)).expect("a log");
        let mut command = Command::new("redis-server");
        command.arg(self.dir().join(CONFIGURATION)).current_dir(self.dir());
        if self.role == Role::Sentinel {
            command.arg("--sentinel");
        }
        // In a group of its own: Ctrl-C is for the program that started it, which ends it.
        command.process_group(0);
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        let child = spawn(command)
            .unwrap_or_else(|error| panic!("redis-server could not be started (is it installed?): {error}"));
        let child = process.insert(child);
        let pid = child.id();
        eventually("a Redis server that was started answers", || {
            if let Some(status) = child.try_wait().expect("it is our child") {
                let log = self.log();
                if log.get(before..).is_some_and(|log| log.contains("Address already in use")) {
                    return Some(Err(PortTaken));
                }
                panic!("the Redis server ended with {status}; its log:\n{log}");
            }
            self.is_answered_by(pid).unwrap_or(false).then_some(Ok(()))
        })
        .inspect_err(|_| *process = None)
    }

    /// Whether it is this process that answers, and is ready to serve.
    fn is_answered_by(&self, pid: u32) -> RedisResult<bool> {
        let soon = Duration::from_secs(1);
        let mut connection = self.client().get_connection_with_timeout(soon)?;
        connection.set_read_timeout(Some(soon))?;
        let answer = redis::cmd("PING")
            .exec(&mut connection)
            .and_then(|()| redis::cmd("INFO").arg("server").query::<String>(&mut connection));
        match answer {
            Ok(info) => Ok(field(&info, "process_id") == Some(&pid.to_string())),
            // It is up, but refuses our user: the test has set up its own users.
            Err(error) => Ok(matches!(error.code(), Some("NOAUTH" | "NOPERM" | "WRONGPASS"))),
        }
    }

    /// The process, if it runs: a command may have ended it as well.
    fn process(&self) -> MutexGuard<'_, Option<Child>> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        process.take_if(|child| child.try_wait().expect("it is our child").is_some());
        process
    }

    fn client(&self) -> Client {
        let address = self.url().into_connection_info().expect("a valid address");
        let user = RedisConnectionInfo::default();
        let user = match &self.password {
            Some(password) => user.set_password(password),
            None => user,
        };
        Client::open(address.set_redis_settings(user)).expect("a valid address")
    }

    /// `redis://127.0.0.1:PORT/`, without a password.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// `rediss://127.0.0.1:PORT/`: the same server by TLS.
    ///
    /// # Panics
    ///
    /// If it was not started [with TLS](Self::with_tls).
    pub fn tls_url(&self) -> String {
        format!("rediss://127.0.0.1:{}/", self.tls_port.expect("it was started with TLS"))
    }

    /// `unix:///PATH`: the same server by its Unix socket.
    pub fn unix_url(&self) -> String {
        format!("unix://{}", socket_in(self.dir()).display())
    }

    /// The certificate, in PEM, of the authority to trust for [TLS](Self::with_tls).
    pub fn ca_certificate(&self) -> PathBuf {
        self.dir().join(CA_CERTIFICATE)
    }

    /// The port it listens on, whether it is up or not.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it keeps its files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Its log so far, over all starts.
    pub fn log(&self) -> String {
        fs::read(self.dir().join(LOG))
            .map(|log| String::from_utf8_lossy(&log).into_owned())
            .unwrap_or_default()
    }

    /// Its process id.
    ///
    /// # Panics
    ///
    /// If it is down.
    pub fn pid(&self) -> u32 {
        self.process().as_ref().map(Child::id).expect("the Redis server is up")
    }

    /// Whether its process runs. It may be paused.
    pub fn is_up(&self) -> bool {
        self.process().is_some()
    }

    /// Stops it from doing anything, until [resumed](Self::resume). Its connections stay open.
    ///
    /// # Panics
    ///
    /// If it is down.
    pub fn pause(&self) {
        let process = self.process();
        let pid = signal(process.as_ref().expect("the Redis server is up"), Signal::STOP);
        // The signal takes effect later, so wait until it has. This does not reap the child: its owner waits for it
        // later.
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(pid), stopped).expect("it is our child").expect("it was waited for");
        assert!(status.stopped(), "the Redis server has ended instead; its log:\n{}", self.log());
    }

    /// Continues it after a [pause](Self::pause).
    ///
    /// # Panics
    ///
    /// If it is down.
    pub fn resume(&self) {
        signal(self.process().as_ref().expect("the Redis server is up"), Signal::CONT);
    }

    /// Kills it: it cannot save anything. It is gone when this returns. Does nothing if it is down.
    pub fn kill(&self) {
        if let Some(mut child) = self.process().take() {
            child.kill().expect("it is our child");
            child.wait().expect("it is our child");
        }
    }

    /// Asks it to shut down, and returns when it has. Does nothing if it is down.
    pub fn stop(&self) {
        let Some(mut child) = self.process().take() else { return };
        signal(&child, Signal::TERM);
        signal(&child, Signal::CONT);
        eventually("a Redis server shuts down", || child.try_wait().expect("it is our child"));
    }

    /// Starts it again on the same port, in the same directory, with the same settings.
    ///
    /// # Panics
    ///
    /// If it is up, or does not come up.
    pub fn start_again(&self) {
        let Err(PortTaken) = self.run() else { return };
        panic!("another process has taken the port {} while its Redis server was down", self.port);
    }

    /// A connection for administration, signed on with the `requirepass` it was started with.
    ///
    /// # Panics
    ///
    /// If it does not answer.
    pub fn connection(&self) -> Connection {
        self.try_connection()
            .unwrap_or_else(|error| panic!("{error}; the log of the Redis server:\n{}", self.log()))
    }

    fn try_connection(&self) -> RedisResult<Connection> {
        let connection = self.client().get_connection_with_timeout(REPLY_TIMEOUT)?;
        connection.set_read_timeout(Some(REPLY_TIMEOUT))?;
        Ok(connection)
    }

    /// The answer to a command: `["CONFIG", "SET", "maxmemory", "1"]`.
    ///
    /// # Panics
    ///
    /// If the answer is an error.
    pub fn command(&self, words: &[&str]) -> Value {
        self.ask(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// The answer to a command, or the error.
    pub(crate) fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> Result<T, RedisError> {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        command.query(&mut self.try_connection()?)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        if let Some(mut child) = self.process().take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

const CONFIGURATION: &str = "redis.conf";
const LOG: &str = "redis.log";
const CA_CERTIFICATE: &str = "ca.pem";
const CERTIFICATE: &str = "server.pem";
const CERTIFICATE_KEY: &str = "server.key";

fn socket_in(dir: &Path) -> PathBuf {
    dir.join("redis.sock")
}

/// The value of a line `name:value`, as `INFO` and `CLUSTER INFO` write them.
pub(super) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

fn signal(child: &Child, signal: Signal) -> Pid {
    let pid = Pid::from_child(child);
    kill_process(pid, signal).expect("it is our child");
    pid
}

/// A port without a listener that this function has not returned before in this process.
///
/// Below the range that Linux uses for outgoing connections: such a connection could otherwise take the port of a
/// server that is down and will be started again.
fn free_port() -> u16 {
    const RANGE: std::ops::Range<u16> = 12_000..32_000;
    static FIRST: OnceLock<u16> = OnceLock::new();
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let span = RANGE.end - RANGE.start;
    // Other processes may run tests on this machine as well.
    let first =
        *FIRST.get_or_init(|| (RandomState::new().hash_one(std::process::id()) % u64::from(span)) as u16);
    for _ in RANGE {
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = RANGE.start + ((u32::from(first) + u32::from(nth)) % u32::from(span)) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("all ports of {RANGE:?} are in use");
}

/// An authority, and a certificate it has signed.
fn write_certificates(dir: &Path) {
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, "semafor-testkit");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().expect("a key");
    let authority = CertifiedIssuer::self_signed(authority, key).expect("a certificate");

    let key = KeyPair::generate().expect("a key");
    let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    let server = CertificateParams::new(names).expect("valid names");
    let server = server.signed_by(&key, &authority).expect("a certificate");
    for (file, pem) in [
        (CA_CERTIFICATE, authority.pem()),
        (CERTIFICATE, server.pem()),
        (CERTIFICATE_KEY, key.serialize_pem()),
    ] {
        fs::write(dir.join(file), pem).expect("it can be written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    fn text(value: Value) -> Option<String> {
        redis::from_redis_value(value).expect("text or nothing")
    }

    #[test]
    fn a_server_serves_by_tcp_and_by_unix_socket() {
        let server = RedisServer::start();
        server.command(&["SET", "key", "value"]);
        for url in [server.url(), server.unix_url()] {
            let mut connection = Client::open(url).unwrap().get_connection().unwrap();
            let value: String = redis::cmd("GET").arg("key").query(&mut connection).unwrap();
            assert_eq!(value, "value");
        }
    }

    #[test]
    fn only_the_administrator_connection_signs_on_by_itself() {
        let server = RedisServer::with(&[("requirepass", "secret")]);
        server.command(&["SET", "key", "value"]);
        let mut stranger = Client::open(server.url()).unwrap().get_connection().unwrap();
        let error = redis::cmd("GET").arg("key").exec(&mut stranger).expect_err("it did not sign on");
        assert_eq!(error.code(), Some("NOAUTH"));
    }

    #[test]
    fn a_server_comes_up_again_with_what_it_has_saved() {
        let durable = RedisServer::with(&[("appendonly", "yes"), ("appendfsync", "always")]);
        let forgetful = RedisServer::start();
        for server in [&durable, &forgetful] {
            server.command(&["SET", "key", "value"]);
            let pid = server.pid();
            server.kill();
            assert!(TcpStream::connect(("127.0.0.1", server.port())).is_err(), "it is down");
            server.start_again();
            assert_ne!(server.pid(), pid);
        }
        assert_eq!(text(durable.command(&["GET", "key"])), Some("value".to_owned()));
        assert_eq!(text(forgetful.command(&["GET", "key"])), None);

        durable.stop();
        assert!(durable.log().contains("bye bye"), "it had time to say so");
        durable.start_again();
        assert_eq!(text(durable.command(&["GET", "key"])), Some("value".to_owned()));

        forgetful.ask::<Value>(&["SHUTDOWN"]).expect_err("it does not answer that");
        eventually("it has ended by itself", || (!forgetful.is_up()).then_some(()));
        forgetful.start_again();
        forgetful.command(&["PING"]);
    }

    #[test]
    fn a_paused_server_answers_when_it_is_resumed() {
        let server = RedisServer::start();
        let mut connection = server.connection();
        server.pause();
        server.pause();
        connection.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        assert!(redis::cmd("PING").exec(&mut connection).expect_err("it is paused").is_timeout());
        server.resume();
        server.command(&["PING"]);
        server.pause();
        server.stop();
        assert!(!server.is_up());
    }

    #[test]
    fn clients_that_trust_its_authority_trust_the_server() {
        let (server, other) = (RedisServer::with_tls(), RedisServer::with_tls());
        let ping = |ca: &Path| {
            let mut cli = Command::new("redis-cli");
            cli.args(["-u", &server.tls_url()]).arg("--cacert").arg(ca).arg("PING");
            let output = cli.stdin(Stdio::null()).output().expect("it comes with the server");
            String::from_utf8_lossy(&output.stdout).contains("PONG")
        };
        assert!(ping(&server.ca_certificate()));
        assert!(!ping(&other.ca_certificate()));
    }

    #[test]
    #[should_panic(expected = "Bad directive or wrong number of arguments")]
    fn a_server_that_does_not_come_up_says_why() {
        RedisServer::with(&[("no-such-directive", "yes")]);
    }

    #[test]
    fn a_dropped_server_leaves_nothing_behind() {
        let server = RedisServer::start();
        let (dir, port) = (server.dir().to_owned(), server.port());
        server.pause();
        drop(server);
        assert!(!dir.exists());
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    }

    /// The test runs itself in a process of its own, which is killed while a server is up.
    #[test]
    fn a_server_does_not_outlive_a_killed_test() {
        const PORT_FILE: &str = "SEMAFOR_TESTKIT_PORT_FILE";
        if let Some(file) = std::env::var_os(PORT_FILE) {
            // From a thread that ends: the server must not end with it.
            let start = || RedisServer::start();
            let server = std::thread::spawn(start).join().unwrap();
            server.command(&["PING"]);
            let written = Path::new(&file).with_extension("new");
            fs::write(&written, server.port().to_string()).unwrap();
            fs::rename(written, file).unwrap();
            loop {
                std::thread::park();
            }
        }
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("port");
        let mut test = Command::new(std::env::current_exe().unwrap());
        test.args(["--exact", "redis::server::tests::a_server_does_not_outlive_a_killed_test"]);
        test.env(PORT_FILE, &file).env("TMPDIR", scratch.path()).stdout(Stdio::null());
        let mut test = spawn(test).unwrap();
        let port: u16 =
            eventually("the other test has a server", || fs::read_to_string(&file).ok()?.parse().ok());
        let connection = TcpStream::connect(("127.0.0.1", port));
        assert!(connection.is_ok(), "it is up");
        test.kill().unwrap();
        test.wait().unwrap();
        eventually("its server is gone", || TcpStream::connect(("127.0.0.1", port)).err());
    }
}
