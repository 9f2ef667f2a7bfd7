//! Explains errors of Redis, and says what to do.

use std::collections::HashMap;
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind, Value};

use super::config::Config;
use crate::error::{HomeError, HomeErrorKind};

/// The oldest server that works: its scripts replicate their effects, and it has push messages.
const OLDEST: (u32, u32) = (6, 0);

/// True if a retry on another connection, or a little later, may work.
pub(super) fn is_transient(error: &RedisError, config: &Config) -> bool {
    match error.kind() {
        ErrorKind::ClusterConnectionNotFound | ErrorKind::MasterNameNotFoundBySentinel => true,
        // While another server becomes master.
        ErrorKind::Server(
            ServerErrorKind::BusyLoading
            | ServerErrorKind::TryAgain
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ReadOnly,
        ) => true,
        ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => config.is_cluster(),
        ErrorKind::Io => tls_problem(error).is_none(),
        _ => error.code() == Some("BUSY"),
    }
}

/// True if the connection can't be used any more after this error.
pub(super) fn breaks_connection(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Io
            | ErrorKind::Parse
            | ErrorKind::Server(
                ServerErrorKind::ReadOnly
                    | ServerErrorKind::Moved
                    | ServerErrorKind::ClusterDown
                    | ServerErrorKind::MasterDown
            )
    )
}

/// True if the server does not know, or does not allow, the command.
pub(super) fn is_refusal(error: &RedisError) -> bool {
    matches!(error.code(), Some("ERR" | "NOPERM"))
}

pub(super) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

pub(super) fn explain(error: &RedisError, config: &Config) -> HomeError {
    use HomeErrorKind::{
        AccessDenied, InvalidUrl, Other, OutOfMemory, ReadOnly, Unreachable, Unsupported, WrongType,
    };
    let place = config.redacted_url();
    if repeats_password(error, config) {
        let message = format!("{place} refuses the login command, and its answer repeats the password");
        return HomeError::new(AccessDenied, message);
    }
    let detail = error.detail().unwrap_or_default();
    // Older servers wrap the error of a command in a script.
    let says = |code: &str| error.code() == Some(code) || detail.contains(&format!("{code} "));
    let (kind, message) = if error.kind() == ErrorKind::AuthenticationFailed || says("WRONGPASS") {
        (AccessDenied, format!("{place} refuses the user name or the password: check them in the URL"))
    } else if says("NOAUTH") || detail.contains("without any password configured") {
        (
            AccessDenied,
            format!("{place} wants a password: redis://user:password@host, or redis://:password@host"),
        )
    } else if says("NOPERM") || detail.contains("ACL failure") || detail.contains("user executing the script")
    {
        let message =
            format!("the user of {place} lacks a permission ({detail}). {}", sufficient_acl(config));
        (AccessDenied, message)
    } else if says("READONLY") {
        let remedy = "use the address of the master, or redis+sentinel://";
        (ReadOnly, format!("{place} is a read-only replica: {remedy}"))
    } else if says("OOM") {
        (
            OutOfMemory,
            format!("{place} has no memory left and accepts no writes: raise maxmemory, or free some"),
        )
    } else if says("WRONGTYPE") {
        let message = format!(
            "something else is stored in {place} under the semaphore's keys: \
             use another namespace than {:?}, or delete it",
            config.namespace
        );
        (WrongType, message)
    } else if says("MISCONF") {
        (Other, format!("{place} can't save to its disk, and accepts no writes until it can: {detail}"))
    } else if detail.contains("DB index is out of range") {
        (
            InvalidUrl,
            format!("{place} has no database of that number: CONFIG GET databases shows how many it has"),
        )
    } else if error.kind() == ErrorKind::InvalidClientConfig {
        let complaint = error.detail().map_or_else(|| error.to_string(), str::to_owned);
        (InvalidUrl, format!("{place} can't be used: {complaint}"))
    } else if error.kind() == ErrorKind::Parse {
        let remedy = "check host and port, and use rediss:// if it uses TLS";
        (InvalidUrl, format!("the server at {place} is not a Redis: {remedy}"))
    } else if detail.starts_with("unknown command 'SENTINEL'") {
        (
            InvalidUrl,
            format!("the server at {place} is not a sentinel: use redis:// if it is the Redis itself"),
        )
    } else if error.kind() == ErrorKind::MasterNameNotFoundBySentinel {
        (
            Unreachable,
            format!("no server at {place} knows a master of that name: check the name after the hosts"),
        )
    } else if let Some(complaint) = tls_problem(error) {
        (InvalidUrl, format!("no TLS with {place}: {complaint}"))
    } else if matches!(error.code(), Some("CROSSSLOT" | "MOVED" | "ASK")) && !config.is_cluster() {
        (Unsupported, cluster_node_message(config))
    } else if is_transient(error, config) {
        let message = format!("{place} does not answer: {error}. Is it running, and is this its address?");
        (Unreachable, message)
    } else {
        (Other, format!("{place} answers: {error}"))
    };
    HomeError::caused_by(error.clone(), kind, message)
}

/// A server that does not know a command repeats its arguments.
fn repeats_password(error: &RedisError, config: &Config) -> bool {
    let mut texts = vec![error.to_string()];
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        texts.push(format!("{cause} {cause:?}"));
        source = cause.source();
    }
    config.passwords().iter().any(|password| texts.iter().any(|text| text.contains(password)))
}

/// The permissions that a user needs.
fn sufficient_acl(config: &Config) -> String {
    let namespace = &config.namespace;
    format!("This is enough: ACL SETUSER … ~{namespace}:* &{namespace}:* +@all -@admin -@dangerous +info")
}

/// For a user that lacks permissions: without this check, a script would stop half-way.
pub(super) fn missing_permission(missing: &str, config: &Config) -> HomeError {
    let message =
        format!("the user of {} may not {missing}. {}", config.redacted_url(), sufficient_acl(config));
    HomeError::new(HomeErrorKind::AccessDenied, message)
}

/// The warning for a server that deletes keys in use.
pub(super) fn eviction_warning(policy: &str, config: &Config) -> String {
    format!(
        "{} has the maxmemory-policy {policy}: when its memory runs out, it deletes semaphores that are in use, and grants \
         their slots twice. Use noeviction there, or another server",
        config.redacted_url()
    )
}

/// A problem with the certificate, or a server without TLS. A retry would not help.
fn tls_problem(error: &RedisError) -> Option<&'static str> {
    let text = error.to_string();
    if text.contains("invalid peer certificate") {
        if text.contains("NotValidForName") {
            return Some("its certificate is for another host name");
        }
        let expired = text.contains("Expired") || text.contains("NotValidYet");
        return Some(if expired {
            "its certificate is not valid at this time"
        } else {
            "its certificate is not signed by a trusted authority. Trust one with ?ca=/path/to/ca.pem"
        });
    }
    text.contains("received corrupt message")
        .then_some("the server does not use TLS there. Is it redis://, or another port?")
}

/// For an error before the first reply on a connection.
pub(super) fn explain_connect_error(error: &RedisError, config: &Config) -> HomeError {
    let hung_up = error.is_connection_dropped() && !error.is_connection_refusal();
    if !hung_up || config.is_tls() {
        return explain(error, config);
    }
    let message =
        format!("{} closes the connection: {error}. If it uses TLS, use rediss://", config.redacted_url());
    HomeError::caused_by(error.clone(), HomeErrorKind::Unreachable, message)
}

/// Clients of the Python library count members, and a weight has at most `bound` of them.
pub(super) fn weight_too_large_for_python(weight: u32, bound: u32, name: &str) -> HomeError {
    let message = format!(
        "a weight of {weight} is not possible under `{name}`: clients of the Python library use that name, or did within \
         the last hour, and would count only {bound} of it. Ask for at most {bound}, or use a name that they do not use"
    );
    HomeError::new(HomeErrorKind::Unsupported, message)
}

pub(super) fn no_answer(config: &Config) -> HomeError {
    let message =
        format!("{} does not answer. Is it running, and is this its address?", config.redacted_url());
    HomeError::new(HomeErrorKind::Unreachable, message)
}

pub(super) fn no_connection_within(timeout: Duration, config: &Config) -> HomeError {
    let tls = if config.is_tls() { ", and does it use TLS there" } else { "" };
    let message =
        format!("no connection to {} within {timeout:?}: is this its address{tls}?", config.redacted_url());
    HomeError::new(HomeErrorKind::Unreachable, message)
}

pub(super) fn wrong_type(key: &str, found: &str, expected: &str, config: &Config) -> HomeError {
    let message = format!(
        "{key:?} in {} is a {found}, not a {expected}: something else is stored there. \
         Use another name or namespace, or delete it",
        config.redacted_url()
    );
    HomeError::new(HomeErrorKind::WrongType, message)
}

fn cluster_node_message(config: &Config) -> String {
    format!(
        "{} is a node of a cluster: use redis+cluster:// and a namespace with a {{tag}}",
        config.redacted_url()
    )
}

/// What a server says about itself. Missing fields are assumed to be right.
#[derive(Default)]
pub(super) struct ServerInfo {
    version: Option<String>,
    mode: Option<String>,
    role: Option<String>,
}

impl ServerInfo {
    /// From the reply to `HELLO`.
    pub(super) fn read(hello: Value) -> Self {
        let mut fields: HashMap<String, Value> = redis::from_redis_value(hello).unwrap_or_default();
        let mut text = |field: &str| redis::from_redis_value(fields.remove(field)?).ok();
        Self { version: text("version"), mode: text("mode"), role: text("role") }
    }

    /// From the reply to `INFO server`.
    pub(super) fn from_info(info: &str) -> Self {
        let field = |name: &str| {
            let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.map(|value| value.trim().to_owned())
        };
        Self { version: field("redis_version"), mode: field("redis_mode"), role: None }
    }

    pub(super) fn is_replica(&self) -> bool {
        matches!(self.role.as_deref(), Some("replica" | "slave"))
    }

    /// Fails if the server can't be used.
    pub(super) fn check(&self, config: &Config) -> Result<(), HomeError> {
        let place = config.redacted_url();
        if let Some(version) = self.version.as_deref().filter(|version| is_too_old(version)) {
            let (major, minor) = OLDEST;
            let message = format!(
                "{place} is Redis {version}, which is too old: {major}.{minor} is the oldest that works"
            );
            return Err(HomeError::new(HomeErrorKind::Unsupported, message));
        }
        match self.mode.as_deref() {
            Some("cluster") if !config.is_cluster() => {
                return Err(HomeError::new(HomeErrorKind::Unsupported, cluster_node_message(config)));
            }
            Some("sentinel") => {
                let message = format!(
                    "{place} is a sentinel, not a server: use redis+sentinel://host,host/name-of-the-master"
                );
                return Err(HomeError::new(HomeErrorKind::Unsupported, message));
            }
            _ => {}
        }
        if self.is_replica() {
            let replica = (ErrorKind::Server(ServerErrorKind::ReadOnly), "this is a replica");
            return Err(explain(&RedisError::from(replica), config));
        }
        Ok(())
    }
}

fn is_too_old(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    found < OLDEST
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Config {
        url.parse().unwrap()
    }

    fn server_error(line: &str) -> RedisError {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        value.extract_error().unwrap_err()
    }

    #[test]
    fn too_old_server_is_refused() {
        let config = config("redis://host");
        for good in ["redis_version:6.0.16\r\n", "# Server\r\nredis_version:7.2.4", "redis_version:8.0.1", ""]
        {
            assert_eq!(ServerInfo::from_info(good).check(&config), Ok(()), "{good:?}");
        }
        let old = ServerInfo::from_info("# Server\r\nredis_version:5.0.14\r\nos:Linux");
        let error = old.check(&config).unwrap_err();
        assert_eq!(error.kind(), HomeErrorKind::Unsupported);
        assert_eq!(
            error.to_string(),
            "redis://host is Redis 5.0.14, which is too old: 6.0 is the oldest that works"
        );
    }

    #[test]
    fn cluster_nodes_sentinels_and_replicas_are_recognised() {
        let hello = |fields: &[(&str, &str)]| {
            let text = |text: &str| Value::BulkString(text.into());
            // A list, as in RESP2.
            let list = fields.iter().flat_map(|(field, value)| [text(field), text(value)]);
            ServerInfo::read(Value::Array(list.collect()))
        };
        let usual = hello(&[("version", "7.0.15"), ("mode", "standalone"), ("role", "master")]);
        assert_eq!(usual.check(&config("redis://host")), Ok(()));
        let node = hello(&[("version", "7.0.15"), ("mode", "cluster"), ("role", "master")]);
        assert_eq!(node.check(&config("redis+cluster://host/?namespace={a}")), Ok(()));
        for (hello, kind, remedy) in [
            (node, HomeErrorKind::Unsupported, "use redis+cluster://"),
            (hello(&[("mode", "sentinel")]), HomeErrorKind::Unsupported, "use redis+sentinel://"),
            (hello(&[("role", "replica")]), HomeErrorKind::ReadOnly, "use the address of the master"),
            (hello(&[("version", "5.0.0")]), HomeErrorKind::Unsupported, "too old"),
        ] {
            let error = hello.check(&config("redis://host")).unwrap_err();
            assert_eq!(error.kind(), kind);
            assert!(error.to_string().contains(remedy), "{error}");
        }
    }

    #[test]
    fn errors_of_old_and_new_servers_are_explained() {
        use HomeErrorKind::*;
        let one = config("redis://user:hunter2@host");
        for (line, kind, remedy) in [
            ("WRONGPASS invalid username-password pair or user is disabled.", AccessDenied, "in the URL"),
            ("NOAUTH Authentication required.", AccessDenied, "redis://user:password@host"),
            ("NOPERM this user has no permissions to run the 'evalsha' command", AccessDenied, "+@all"),
            (
                "ERR ACL failure in script: User u has no permissions to run the 'zadd' command",
                AccessDenied,
                "~adv-sem:*",
            ),
            ("OOM command not allowed when used memory > 'maxmemory'.", OutOfMemory, "raise maxmemory"),
            (
                "ERR Error running script (call to f_1): @user_script:9: OOM command not allowed",
                OutOfMemory,
                "raise maxmemory",
            ),
            ("WRONGTYPE Operation against a key holding the wrong kind", WrongType, "another namespace"),
            (
                "ERR Error running script (call to f_1): @user_script:9: WRONGTYPE Operation against",
                WrongType,
                "another namespace",
            ),
            ("READONLY You can't write against a read only replica.", ReadOnly, "the master"),
            ("MOVED 1 10.0.0.1:7000", Unsupported, "redis+cluster://"),
            ("CROSSSLOT Keys in request don't hash to the same slot", Unsupported, "redis+cluster://"),
            ("LOADING Redis is loading the dataset in memory", Unreachable, "does not answer"),
            ("BUSY Redis is busy running a script.", Unreachable, "does not answer"),
            ("MISCONF Redis is configured to save RDB snapshots", Other, "disk"),
            ("ERR DB index is out of range", InvalidUrl, "no database of that number"),
            ("ERR something new", Other, "something new"),
        ] {
            let explained = explain(&server_error(line), &one);
            assert_eq!(explained.kind(), kind, "{line}");
            let message = explained.to_string();
            assert!(message.contains(remedy), "{line}: {message}");
            assert!(
                message.starts_with("redis://***@host") || message.contains("redis://***@host"),
                "{message}"
            );
        }
    }

    #[test]
    fn error_of_the_redis_client_is_the_source() {
        use std::error::Error;
        let one = config("redis://user:hunter2@host");
        let explained = explain(&server_error("READONLY You can't write"), &one);
        let source = explained.source().expect("the client's error");
        assert!(source.downcast_ref::<RedisError>().is_some_and(|error| error.code() == Some("READONLY")));
        let other = HomeError::new(explained.kind(), explained.to_string());
        assert_eq!(explained, other, "kind and message count, not the source");

        let refused = RedisError::from(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
        let explained = explain_connect_error(&refused, &one);
        assert!(explained.source().and_then(|source| source.downcast_ref::<RedisError>()).is_some());
    }

    #[test]
    fn answer_that_repeats_the_password_is_not_shown() {
        use std::error::Error;
        let line = "ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'user' 'hunter/2' ";
        for url in [
            "redis://user:hunter%2F2@host",
            "rediss://:hunter%2F2@host",
            "redis+cluster://user:hunter%2F2@host/?namespace={a}",
            "redis+sentinel://user:hunter%2F2@host/master",
            "unix:///path?user=user&pass=hunter%2F2",
        ] {
            let Ok(config) = url.parse() else { continue };
            let explained = explain(&server_error(line), &config);
            assert_eq!(explained.kind(), HomeErrorKind::AccessDenied, "{url}");
            assert!(!format!("{explained} {explained:?}").contains("hunter"), "{url}: {explained:?}");
            assert!(explained.source().is_none(), "{url}");
        }
        let without = explain(&server_error(line), &config("redis://host"));
        assert!(without.source().is_some());
    }

    #[test]
    fn redirections_are_transient_only_on_a_cluster() {
        let (one, cluster) = (config("redis://host"), config("redis+cluster://host/?namespace={a}"));
        let moved = server_error("MOVED 1 10.0.0.1:7000");
        assert!(is_transient(&moved, &cluster) && !is_transient(&moved, &one));
        assert!(breaks_connection(&moved));
        assert_eq!(explain(&moved, &cluster).kind(), HomeErrorKind::Unreachable);
        let denied = server_error("NOPERM no permissions");
        assert!(is_refusal(&denied) && !is_transient(&denied, &one) && !breaks_connection(&denied));
    }
}
