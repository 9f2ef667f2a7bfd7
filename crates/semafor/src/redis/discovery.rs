//! Finds the current master of a cluster or behind sentinels.
//!
//! All known nodes or sentinels are asked at the same time, so that one that is down or slow delays nothing. The server
//! that they name is asked as well, and must confirm that it is the master: they may not know yet that it failed.

use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, FromRedisValue,
    ProtocolVersion, RedisConnectionInfo, RedisError, Value, cmd,
};
use tokio::task::JoinSet;

use super::diagnostics::{ServerInfo, is_refusal};

/// The answer of a node or sentinel that was asked for the master.
enum Finding {
    Master(Box<ConnectionInfo>),
    Redirect { host: String, port: u16 },
}

type Findings = JoinSet<Result<Finding, RedisError>>;

/// The master of the part of a cluster that has `key`.
pub(super) async fn of_cluster(
    nodes: &[&ConnectionInfo],
    key: &str,
    client: impl Fn(&ConnectionInfo) -> Result<Client, RedisError>,
) -> Result<ConnectionInfo, RedisError> {
    let ask_node = |info: &ConnectionInfo| -> Result<_, RedisError> {
        let (client, info, key) = (client(&plain(info))?, info.clone(), key.to_owned());
        Ok(async move {
            match ask::<Value>(&client, cmd("EXISTS").arg(key)).await {
                Err(error) => redirection(&error, info.addr()).ok_or(error),
                // Only a master answers for its keys; other nodes redirect.
                Ok(_) => Ok(Finding::Master(info.into())),
            }
        })
    };
    let mut findings = Findings::new();
    for node in nodes {
        findings.spawn(ask_node(node)?);
    }
    let Some(template) = nodes.first() else { return Err(no_master()) };
    decide(findings, template, |findings, info| {
        findings.spawn(ask_node(info)?);
        Ok(())
    })
    .await
}

/// The master that sentinels watch under `name`; `template` has its credentials and options.
pub(super) async fn of_sentinels(
    sentinels: &[ConnectionInfo],
    name: &str,
    template: &ConnectionInfo,
    client: impl Fn(&ConnectionInfo) -> Result<Client, RedisError>,
) -> Result<ConnectionInfo, RedisError> {
    let mut findings = Findings::new();
    for sentinel in sentinels {
        // Many sentinels have no password, and refuse any.
        let anonymous = plain(sentinel).set_redis_settings(RedisConnectionInfo::default());
        let (without_password, with_password) = (client(&anonymous)?, client(&plain(sentinel))?);
        let name = name.to_owned();
        findings.spawn(async move {
            let mut question = cmd("SENTINEL");
            question.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
            let found: Result<Option<(String, u16)>, _> = match ask(&without_password, &question).await {
                Err(error) if error.code() == Some("NOAUTH") => ask(&with_password, &question).await,
                found => found,
            };
            let (host, port) = found?.ok_or_else(no_master)?;
            Ok(Finding::Redirect { host, port })
        });
    }
    decide(findings, template, |findings, info| {
        let (client, info) = (client(&plain(info))?, info.clone());
        findings.spawn(async move {
            let hello = match ask(&client, &cmd("HELLO")).await {
                // The user may not run HELLO: trust the sentinel.
                Err(error) if is_refusal(&error) => Value::Nil,
                hello => hello?,
            };
            if ServerInfo::read(hello).is_replica() {
                Err(still_replica())
            } else {
                Ok(Finding::Master(info.into()))
            }
        });
        Ok(())
    })
    .await
}

/// Asks the servers that the answers name, until one confirms that it is the master.
async fn decide(
    mut findings: Findings,
    template: &ConnectionInfo,
    mut ask_node: impl FnMut(&mut Findings, &ConnectionInfo) -> Result<(), RedisError>,
) -> Result<ConnectionInfo, RedisError> {
    let mut asked = Vec::new();
    let mut failure: Option<RedisError> = None;
    while let Some(finding) = findings.join_next().await {
        let error = match finding {
            Ok(Ok(Finding::Master(info))) => return Ok(*info),
            Ok(Ok(Finding::Redirect { host, port })) => {
                let info = at(template, host, port);
                if !asked.contains(info.addr()) {
                    asked.push(info.addr().clone());
                    ask_node(&mut findings, &info)?;
                }
                continue;
            }
            Ok(Err(error)) => error,
            Err(_) => continue,
        };
        // Some servers may be down. An error of one that is up says more.
        if failure.as_ref().is_none_or(RedisError::is_io_error) {
            failure = Some(error);
        }
    }
    Err(failure.unwrap_or_else(no_master))
}

/// All nodes that `CLUSTER SLOTS` lists.
pub(super) fn nodes(slots: &Value, template: &ConnectionInfo) -> Vec<ConnectionInfo> {
    let mut nodes: Vec<ConnectionInfo> = Vec::new();
    let ranges = slots.as_sequence().unwrap_or_default();
    for node in ranges.iter().filter_map(Value::as_sequence).flat_map(|range| range.iter().skip(2)) {
        if let Some([host, port, ..]) = node.as_sequence()
            && let (Ok(Some(host)), Ok(port)) =
                (Option::<String>::from_redis_value_ref(host), u16::from_redis_value_ref(port))
            && !matches!(host.as_str(), "" | "?")
        {
            let info = at(template, host, port);
            if !nodes.iter().any(|known| known.addr() == info.addr()) {
                nodes.push(info);
            }
        }
    }
    nodes
}

async fn ask<T: FromRedisValue>(client: &Client, question: &Cmd) -> Result<T, RedisError> {
    let options = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let mut connection = client.get_multiplexed_async_connection_with_config(&options).await?;
    question.query_async(&mut connection).await
}

/// The node that an `ASK` of the node `from` names.
pub(super) fn destination(ask: &RedisError, from: &ConnectionInfo) -> Option<ConnectionInfo> {
    match redirection(ask, from.addr())? {
        Finding::Redirect { host, port } => Some(at(from, host, port)),
        Finding::Master(_) => None,
    }
}

/// RESP2, which every server understands, for one or two commands.
pub(super) fn plain(info: &ConnectionInfo) -> ConnectionInfo {
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP2);
    info.clone().set_redis_settings(settings)
}

/// The same connection options for another address.
fn at(template: &ConnectionInfo, host: String, port: u16) -> ConnectionInfo {
    template.clone().set_addr(match template.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host, port),
    })
}

/// The node that `MOVED` or `ASK` names. Without a host, it is the host of the sender.
fn redirection(error: &RedisError, from: &ConnectionAddr) -> Option<Finding> {
    let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
    let host = match (host, from) {
        ("", ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. }) => host,
        (host, _) => host,
    };
    Some(Finding::Redirect { host: host.to_owned(), port: port.parse().ok()? })
}

fn no_master() -> RedisError {
    RedisError::from((ErrorKind::MasterNameNotFoundBySentinel, "no server knows of a master"))
}

fn still_replica() -> RedisError {
    RedisError::from((ErrorKind::Server(redis::ServerErrorKind::ReadOnly), "it is still a replica"))
}

#[cfg(test)]
mod tests {
    use redis::{IntoConnectionInfo, make_extension_error};

    use super::*;

    fn info(url: &str) -> ConnectionInfo {
        url.into_connection_info().unwrap()
    }

    fn moved(to: &str) -> RedisError {
        let mut parser = redis::parse_redis_value(format!("-MOVED 1234 {to}\r\n").as_bytes());
        parser.as_mut().unwrap();
        parser.unwrap().extract_error().unwrap_err()
    }

    #[test]
    fn redirection_without_a_host_means_the_same_host() {
        let from = info("redis://node:7000");
        let asked = |to: &str| match redirection(&moved(to), from.addr()) {
            Some(Finding::Redirect { host, port }) => (host, port),
            _ => panic!("no redirection"),
        };
        assert_eq!(asked("10.0.0.7:7001"), ("10.0.0.7".into(), 7001));
        assert_eq!(asked("::1:7001"), ("::1".into(), 7001));
        assert_eq!(asked(":7001"), ("node".into(), 7001));
        let other = make_extension_error("ERR".into(), Some("1 a:1".into()));
        assert!(redirection(&other, from.addr()).is_none());
    }

    #[test]
    fn each_node_of_a_cluster_is_listed_once() {
        let node = |host: &str, port| {
            Value::Array(vec![Value::BulkString(host.into()), Value::Int(port), Value::Array(Vec::new())])
        };
        let range = |first, last, nodes: Vec<Value>| {
            Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat())
        };
        let slots = Value::Array(vec![
            range(0, 99, vec![node("a", 1), node("b", 2)]),
            range(100, 199, vec![node("b", 2), node("?", 3), node("", 4)]),
        ]);
        let found = nodes(&slots, &info("redis://user:secret@node:7000"));
        let addresses: Vec<_> = found.iter().map(|node| node.addr().to_string()).collect();
        assert_eq!(addresses, ["a:1", "b:2"]);
        assert!(found.iter().all(|node| node.redis_settings().password() == Some("secret")));
        assert!(nodes(&Value::Nil, &info("redis://node")).is_empty());
    }
}
