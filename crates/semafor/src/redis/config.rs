use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use redis::{ConnectionInfo, IntoConnectionInfo, ProtocolVersion};
use url::form_urlencoded;

use super::keys;
use crate::error::{HomeError, HomeErrorKind};
use crate::remote::client::Retry;

/// The longest namespace, in bytes.
const MAX_NAMESPACE_LEN: usize = 256;

/// How to reach a Redis, and how to use it. Parsed from a URL; see the [module](crate::redis) for its forms.
///
/// ```
/// use std::time::Duration;
/// use semafor::redis::Config;
///
/// let config: Config = "redis://user:secret@cache.example/2?namespace=my-app&socket_timeout=5".parse().unwrap();
/// assert_eq!(config.namespace, "my-app");
/// assert_eq!(config.socket_timeout, Duration::from_secs(5));
/// assert!(!format!("{config:?}").contains("secret"));
/// ```
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// The URL without the options below.
    pub url: String,
    /// The prefix of all keys. On a cluster it needs a `{tag}`.
    pub namespace: String,
    /// Not used, because one connection is enough. Accepted because the Python library asyncio-advanced-semaphores has
    /// this option.
    pub max_connections: u32,
    /// How long to wait for a reply.
    pub socket_timeout: Duration,
    /// How long to wait for a connection.
    pub socket_connect_timeout: Duration,
    /// How often a call is tried in total.
    pub number_of_attempts: u32,
    /// The pause before the first retry, in seconds; each further one is twice as long.
    pub retry_multiplier: f64,
    /// The shortest pause.
    pub retry_min_delay: Duration,
    /// The longest pause.
    pub retry_max_delay: Duration,
    /// RESP3 with push messages, or RESP2 with polling only.
    pub protocol: Protocol,
    /// The certificate authority to trust, in PEM, instead of the system's.
    pub ca: Option<PathBuf>,
}

/// The protocol of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Protocol {
    /// RESP2: no push messages, so the client polls for its waiters.
    Resp2,
    /// RESP3, the default.
    Resp3,
}

/// Where to find Redis.
#[derive(Clone, Debug)]
pub(super) enum Address {
    Server(Box<ConnectionInfo>),
    Cluster(Vec<ConnectionInfo>),
    Sentinel { sentinels: Vec<ConnectionInfo>, master: String, server: Box<ConnectionInfo> },
}

const FORMS: &str = "redis://host:port/db, rediss://host (TLS), unix:///path/to/socket, \
    redis+cluster://host,host,host or redis+sentinel://host,host/master/db";

impl Config {
    /// The defaults, for a URL without options.
    fn new(url: String) -> Self {
        Self {
            url,
            namespace: "adv-sem".into(),
            max_connections: 300,
            socket_timeout: Duration::from_secs(30),
            socket_connect_timeout: Duration::from_secs(10),
            number_of_attempts: 3,
            retry_multiplier: 2.0,
            retry_min_delay: Duration::from_secs(1),
            retry_max_delay: Duration::from_secs(60),
            protocol: Protocol::Resp3,
            ca: None,
        }
    }

    /// When a failed call is repeated.
    pub(super) fn retry(&self) -> Retry {
        Retry {
            attempts: self.number_of_attempts,
            multiplier: self.retry_multiplier,
            shortest: self.retry_min_delay,
            longest: self.retry_max_delay,
        }
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), HomeError> {
        let wrong = |wanted: &str| invalid(format!("{option} must be {wanted}, got {value:?}"));
        let seconds = || -> Result<Duration, HomeError> {
            let parsed = value.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            parsed.filter(|duration| !duration.is_zero()).ok_or_else(|| wrong("a number of seconds above 0"))
        };
        let number = || -> Result<u32, HomeError> {
            let parsed = value.parse().ok().filter(|number| *number > 0);
            parsed.ok_or_else(|| wrong("a whole number of at least 1"))
        };
        match option {
            "namespace" => self.namespace = value.into(),
            "max_connections" => self.max_connections = number()?,
            "socket_timeout" => self.socket_timeout = seconds()?,
            "socket_connect_timeout" => self.socket_connect_timeout = seconds()?,
            "number_of_attempts" => self.number_of_attempts = number()?,
            "retry_multiplier" => self.retry_multiplier = seconds()?.as_secs_f64(),
            "retry_min_delay" => self.retry_min_delay = seconds()?,
            "retry_max_delay" => self.retry_max_delay = seconds()?,
            "protocol" => {
                self.protocol = match value {
                    "2" | "resp2" => Protocol::Resp2,
                    "3" | "resp3" => Protocol::Resp3,
                    _ => return Err(wrong("resp2 or resp3")),
                }
            }
            "ca" => self.ca = Some(value.into()),
            _ => {
                return Err(invalid(format!(
                    "unknown option {option:?}: the options are namespace, socket_timeout, socket_connect_timeout, \
                     number_of_attempts, retry_multiplier, retry_min_delay, retry_max_delay, max_connections, \
                     protocol and ca"
                )));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), HomeError> {
        self.address()?;
        if self.ca.is_some() && !self.is_tls() {
            return Err(invalid("ca is for TLS: the URL has to start with rediss".into()));
        }
        let namespace = &self.namespace;
        let odd = namespace.chars().find(|character| character.is_whitespace() || character.is_control());
        let complaint = if namespace.is_empty() {
            "it is empty".to_owned()
        } else if namespace.len() > MAX_NAMESPACE_LEN {
            format!("it is {} bytes long, the limit is {MAX_NAMESPACE_LEN}", namespace.len())
        } else if let Some(odd) = odd {
            format!("{odd:?} in it is white space or a control character")
        } else if let Some((start, kind)) = keys::ambiguity(namespace) {
            format!(
                "its keys could be those of a name in the namespace {start:?}, because of \":{kind}\" in it"
            )
        } else if self.is_cluster() && !has_hash_tag(namespace) {
            format!(
                "on a cluster it needs a tag in braces, such as {{{namespace}}}, to keep its keys together"
            )
        } else {
            return Ok(());
        };
        Err(invalid(format!("namespace {namespace:?} is invalid: {complaint}")))
    }

    /// The servers that the URL names.
    pub(super) fn address(&self) -> Result<Address, HomeError> {
        let (scheme, rest) = self
            .url
            .split_once("://")
            .ok_or_else(|| self.invalid_url("it has no ://, as in redis://host:6379"))?;
        if self.is_tls() && cfg!(not(feature = "redis-tls")) {
            return Err(self.invalid_url("TLS needs the feature `redis-tls` of the crate semafor"));
        }
        match scheme {
            "redis" | "rediss" | "unix" | "redis+unix" => {
                Ok(Address::Server(Box::new(self.connection_info(self.url.clone())?)))
            }
            "redis+cluster" | "rediss+cluster" => {
                let scheme = scheme.trim_end_matches("+cluster");
                let (hosts, path) = self.hosts(rest)?;
                if !path.is_empty() && path != "0" {
                    return Err(self.invalid_url("a cluster has only the database 0"));
                }
                let nodes = hosts.iter().map(|host| self.connection_info(format!("{scheme}://{host}/")));
                Ok(Address::Cluster(nodes.collect::<Result<_, _>>()?))
            }
            "redis+sentinel" | "rediss+sentinel" => {
                let scheme = scheme.trim_end_matches("+sentinel");
                let (hosts, path) = self.hosts(rest)?;
                let (master, db) = path.split_once('/').unwrap_or((path, "0"));
                if master.is_empty() {
                    return Err(self.invalid_url("the name of the master is missing after the hosts"));
                }
                let with_port = |host: &str| match host.rsplit_once(':') {
                    Some((_, port)) if port.parse::<u16>().is_ok() => host.to_owned(),
                    _ => format!("{host}:26379"),
                };
                let sentinels =
                    hosts.iter().map(|host| self.connection_info(format!("{scheme}://{}/", with_port(host))));
                let server =
                    hosts.first().map(|host| self.connection_info(format!("{scheme}://{host}/{db}")));
                Ok(Address::Sentinel {
                    sentinels: sentinels.collect::<Result<_, _>>()?,
                    master: master.into(),
                    server: Box::new(server.ok_or_else(|| self.invalid_url("it has no host"))??),
                })
            }
            _ => Err(self.invalid_url("its scheme is unknown")),
        }
    }

    /// `user:password@a,b/path` as `user:password@a` and `user:password@b`, and `path`.
    fn hosts<'a>(&self, rest: &'a str) -> Result<(Vec<String>, &'a str), HomeError> {
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (format!("{user}@"), hosts),
            None => (String::new(), authority),
        };
        let hosts: Vec<_> =
            hosts.split(',').filter(|host| !host.is_empty()).map(|host| format!("{user}{host}")).collect();
        if hosts.is_empty() {
            return Err(self.invalid_url("it has no host"));
        }
        Ok((hosts, path.trim_end_matches('/')))
    }

    fn connection_info(&self, url: String) -> Result<ConnectionInfo, HomeError> {
        let info = url.into_connection_info().map_err(|error| self.invalid_url(&error.to_string()))?;
        let settings = info.redis_settings().clone();
        Ok(info.set_redis_settings(settings.set_protocol(match self.protocol {
            Protocol::Resp2 => ProtocolVersion::RESP2,
            Protocol::Resp3 => ProtocolVersion::RESP3,
        })))
    }

    fn invalid_url(&self, complaint: &str) -> HomeError {
        invalid(format!(
            "{:?} is not the URL of a Redis ({complaint}): it looks like {FORMS}",
            self.redacted_url()
        ))
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.scheme().ends_with("+cluster")
    }

    pub(super) fn is_tls(&self) -> bool {
        self.scheme().starts_with("rediss")
    }

    fn scheme(&self) -> &str {
        self.url.split_once("://").map_or("", |(scheme, _)| scheme)
    }

    /// The passwords in the URL, as they are sent.
    pub(super) fn passwords(&self) -> Vec<String> {
        let servers = match self.address() {
            Ok(Address::Server(server)) => vec![*server],
            Ok(Address::Cluster(nodes)) => nodes,
            Ok(Address::Sentinel { server, .. }) => vec![*server],
            Err(_) => Vec::new(),
        };
        servers.iter().filter_map(|server| server.redis_settings().password().map(str::to_owned)).collect()
    }

    /// The URL without passwords.
    pub(super) fn redacted_url(&self) -> String {
        redact(&self.url)
    }
}

impl std::str::FromStr for Config {
    type Err = HomeError;

    fn from_str(text: &str) -> Result<Self, HomeError> {
        let (base, options) = text.split_once('?').unwrap_or((text, ""));
        if options.contains('@') && !base.contains('@') && !base.contains("unix:") {
            // The text behind the question mark may be a password, so it is not shown.
            return Err(invalid(
                "in the URL, a ? in a user name or password has to be written as %3F".into(),
            ));
        }
        let mut config = Self::new(base.to_owned());
        let mut kept_options = Vec::new();
        for (option, value) in form_urlencoded::parse(options.as_bytes()) {
            // The URL of a socket has no other place for these.
            match &*option {
                "db" | "user" | "pass" if base.starts_with("unix:") || base.starts_with("redis+unix:") => {
                    kept_options.push((option.into_owned(), value.into_owned()));
                }
                _ => config.set(&option, &value)?,
            }
        }
        if !kept_options.is_empty() {
            let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(kept_options).finish();
            config.url = format!("{base}?{query}");
        }
        config.check()?;
        Ok(config)
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("url", &self.redacted_url())
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

fn invalid(message: String) -> HomeError {
    HomeError::new(HomeErrorKind::InvalidUrl, message)
}

/// True if it has a hash tag: Redis then hashes only the first non-empty text in braces.
fn has_hash_tag(namespace: &str) -> bool {
    let tag = namespace.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    tag.is_some_and(|(tag, _)| !tag.is_empty())
}

/// Removes the user name, the password and the options.
fn redact(url: &str) -> String {
    let base = url.split_once('?').map_or(url, |(base, _)| base);
    match base.split_once("://") {
        Some((scheme, rest)) => match rest.rsplit_once('@') {
            Some((_, host)) => format!("{scheme}://***@{host}"),
            None => base.into(),
        },
        // It may be a password in the wrong place.
        None => "…".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Config, String> {
        url.parse::<Config>().map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_are_those_of_the_python_library() {
        let config = parse("redis://localhost:6379").unwrap();
        assert_eq!(config.namespace, "adv-sem");
        assert_eq!((config.max_connections, config.number_of_attempts), (300, 3));
        assert_eq!((config.socket_timeout.as_secs(), config.socket_connect_timeout.as_secs()), (30, 10));
        let pauses: Vec<_> = (1..8).map(|attempts| config.retry().pause_after(attempts).as_secs()).collect();
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn every_form_of_url_is_accepted() {
        for url in [
            "redis://127.0.0.1",
            "redis://user:pass@host:6380/3?namespace=app",
            "unix:///run/redis.sock?db=2&namespace=app",
            "redis+cluster://a:7000,b:7001,c?namespace={app}",
            "redis+sentinel://a,b:26380/mymaster/1",
            "redis+sentinel://:secret@a/mymaster",
        ] {
            let config = parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            config.address().unwrap_or_else(|error| panic!("{url}: {error}"));
        }
        let Address::Sentinel { sentinels, master, server } =
            parse("redis+sentinel://u:p@a,b:26380/mymaster/1").unwrap().address().unwrap()
        else {
            panic!("not a sentinel");
        };
        assert_eq!((sentinels.len(), master.as_str()), (2, "mymaster"));
        assert_eq!(sentinels[0].addr().to_string(), "a:26379");
        assert_eq!(sentinels[1].addr().to_string(), "b:26380");
        assert_eq!((server.redis_settings().db(), server.redis_settings().password()), (1, Some("p")));
    }

    #[test]
    fn errors_name_the_mistake_and_no_password() {
        for (url, complaint) in [
            ("localhost:6379", "it has no ://"),
            ("http://u:hunter2@host", "its scheme is unknown"),
            ("redis://u:hunter2@host:99999999/", "is not the URL of a Redis"),
            (
                "redis://u:hunter2@host/?socket_timeout=soon",
                "socket_timeout must be a number of seconds above 0, got \"soon\"",
            ),
            (
                "redis://h/?number_of_attempts=0",
                "number_of_attempts must be a whole number of at least 1, got \"0\"",
            ),
            ("redis://h/?colour=red", "unknown option \"colour\""),
            ("redis://h/?namespace=", "namespace \"\" is invalid: it is empty"),
            ("redis://h/?namespace=a%20b", "' ' in it is white space"),
            ("redis://h/?namespace=n:semaphore_main:x", "those of a name in the namespace \"n\""),
            ("redis+cluster://a,b/?namespace=app", "it needs a tag in braces, such as {app}"),
            ("redis+sentinel://a,b/", "the name of the master is missing"),
            ("redis+cluster:///", "it has no host"),
            ("redis+cluster://a/3?namespace={app}", "a cluster has only the database 0"),
            ("redis://h/two", "is not the URL of a Redis"),
            ("redis://u:hun?ter2@host", "has to be written as %3F"),
            ("redis://u:hunter2/3@host", "is not the URL of a Redis"),
            ("redis://u:hunter2#3@host", "is not the URL of a Redis"),
            ("unix:///s?pass=hunter2&colour=red", "unknown option \"colour\""),
            ("redis://u:hunter2@h/?ca=/ca.pem", "ca is for TLS"),
            ("redis://h/?protocol=4", "protocol must be resp2 or resp3"),
            ("redis://h/?retry_max_delay=NaN", "retry_max_delay must be a number of seconds above 0"),
            ("redis://h/?socket_timeout=-1", "socket_timeout must be a number of seconds above 0"),
        ] {
            let error = parse(url).and_then(|config| config.address().map_err(|error| error.to_string()));
            let error = error.expect_err(url);
            assert!(error.contains(complaint), "{url}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
