//! What Redis says when something is wrong, in words that say what to do.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::config::Config;
use crate::error::{HomeError, HomeErrorKind};

/// The oldest server that will do: scripts that replicate their effects, and push messages.
pub(super) const OLDEST: (u32, u32) = (6, 0);

/// True if the same may work on another connection, or a little later.
pub(super) fn is_passing(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Io | ErrorKind::ClusterConnectionNotFound | ErrorKind::MasterNameNotFoundBySentinel => {
            true
        }
        // While somebody else is made master.
        ErrorKind::Server(
            ServerErrorKind::BusyLoading
            | ServerErrorKind::TryAgain
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ReadOnly
            | ServerErrorKind::Moved
            | ServerErrorKind::Ask,
        ) => true,
        _ => error.is_io_error() || error.is_timeout() || error.is_connection_dropped(),
    }
}

/// True if the connection it came over is of no use any more.
pub(super) fn breaks_connection(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_connection_dropped()
        || error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
}

pub(super) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

pub(super) fn explain(error: &RedisError, config: &Config) -> HomeError {
    let place = config.shown();
    let code = error.code().unwrap_or_default();
    let detail = error.detail().unwrap_or_default();
    let (kind, message) = match error.kind() {
        ErrorKind::AuthenticationFailed => (
            HomeErrorKind::AccessDenied,
            format!("{place} refuses the user name or the password: check them in the URL"),
        ),
        _ if matches!(code, "WRONGPASS" | "NOAUTH") || detail.contains("WRONGPASS") => (
            HomeErrorKind::AccessDenied,
            format!("{place} wants a user name and a password: redis://user:password@host"),
        ),
        _ if code == "NOPERM" => (
            HomeErrorKind::AccessDenied,
            format!(
                "the user of {place} may not do what is needed ({detail}): \
                 it needs ~{ns}:* &{ns}:* +@all -@admin -@dangerous +info",
                ns = config.namespace
            ),
        ),
        _ if code == "READONLY" => (
            HomeErrorKind::ReadOnly,
            format!("{place} is a read-only replica: use the address of the master, or redis+sentinel://"),
        ),
        _ if code == "OOM" || detail.contains("OOM ") => (
            HomeErrorKind::OutOfMemory,
            format!("{place} has no memory left and takes no writes: raise maxmemory, or free some"),
        ),
        _ if code == "WRONGTYPE" || detail.contains("WRONGTYPE") => (
            HomeErrorKind::WrongType,
            format!(
                "something else is stored in {place} under the semaphore's keys: \
                 use another namespace than {:?}, or delete it",
                config.namespace
            ),
        ),
        _ if code == "CROSSSLOT" => (
            HomeErrorKind::Unsupported,
            format!("{place} is a node of a cluster: use redis+cluster:// and a namespace with a {{tag}}"),
        ),
        _ if matches!(code, "MOVED" | "ASK") => (
            HomeErrorKind::Unsupported,
            format!("{place} is one node of a cluster: use redis+cluster://, with several of its nodes"),
        ),
        ErrorKind::InvalidClientConfig => {
            (HomeErrorKind::InvalidUrl, format!("{place} can't be used: {error}"))
        }
        ErrorKind::MasterNameNotFoundBySentinel => {
            (HomeErrorKind::Unreachable, format!("the sentinels of {place} know no such master"))
        }
        _ if is_passing(error) => (
            HomeErrorKind::Unreachable,
            format!("{place} does not answer: {error}. Is it running, and is this its address?"),
        ),
        _ => (HomeErrorKind::Other, format!("{place} answers: {error}")),
    };
    HomeError::new(kind, message)
}

pub(super) fn silent(config: &Config) -> HomeError {
    let message = format!("{} does not answer. Is it running, and is this its address?", config.shown());
    HomeError::new(HomeErrorKind::Unreachable, message)
}

/// From what `INFO server` says; a server that does not say is taken at its word for everything else.
pub(super) fn check_version(info: &str, config: &Config) -> Result<(), HomeError> {
    let Some(version) = info.lines().find_map(|line| line.strip_prefix("redis_version:")) else {
        return Ok(());
    };
    let mut numbers = version.trim().split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found >= OLDEST {
        return Ok(());
    }
    let message = format!(
        "{} is Redis {}, which is too old: {}.{} is the oldest that will do",
        config.shown(),
        version.trim(),
        OLDEST.0,
        OLDEST.1
    );
    Err(HomeError::new(HomeErrorKind::Unsupported, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_too_old_is_told_from_one_that_will_do() {
        let config: Config = "redis://host".parse().unwrap();
        for good in ["redis_version:6.0.16\r\n", "# Server\r\nredis_version:7.2.4", "redis_version:8.0.1", ""]
        {
            assert_eq!(check_version(good, &config), Ok(()), "{good:?}");
        }
        let error = check_version("# Server\r\nredis_version:5.0.14\r\nos:Linux", &config).unwrap_err();
        assert_eq!(error.kind(), HomeErrorKind::Unsupported);
        assert_eq!(
            error.to_string(),
            "redis://host is Redis 5.0.14, which is too old: 6.0 is the oldest that will do"
        );
    }
}
