//! A master with a replica, and sentinels that promote the replica when the master fails.

use redis::Value;

use super::RedisServer;
use super::eventually::eventually;
use super::server::{Role, field};

const MASTER_NAME: &str = "tower";
/// Three, so that one of them may fail.
const SENTINELS: usize = 3;
const QUORUM: usize = 2;

/// How often sentinels ping and ask, in milliseconds. By default they connect at most once per second: too slow to find
/// the new master alive, which has to answer within a second. But after five pings they no longer trust the state that
/// a replica reported, and they ask for that once per second: so not too often either.
const SENTINEL_PERIODS: &str =
    "ping-period 400 ask-period 100 publish-period 200 info-period 1000 tilt-period 3000";

/// A master, its replica and three sentinels.
pub struct RedisSentinel {
    servers: [RedisServer; 2],
    sentinels: Vec<RedisServer>,
}

impl RedisSentinel {
    /// Starts servers whose replica is up to date, and sentinels that know it and each other.
    ///
    /// # Panics
    ///
    /// If that does not happen.
    pub fn start() -> Self {
        let master = RedisServer::start();
        let port = master.port().to_string();
        let replica = RedisServer::with(&[("replicaof", &format!("127.0.0.1 {port}"))]);
        eventually("the replica is in step", || {
            let info: String = replica.ask(&["INFO", "replication"]).ok()?;
            (field(&info, "master_link_status")? == "up").then_some(())
        });
        let settings = [
            format!("monitor {MASTER_NAME} 127.0.0.1 {port} {QUORUM}"),
            format!("down-after-milliseconds {MASTER_NAME} 1000"),
            format!("failover-timeout {MASTER_NAME} 1000"),
        ];
        let settings: Vec<_> = settings.iter().map(|setting| ("sentinel", setting.as_str())).collect();
        let sentinels = (0..SENTINELS).map(|_| RedisServer::launch(Role::Sentinel, &settings)).collect();
        let watched = Self { servers: [master, replica], sentinels };
        for sentinel in &watched.sentinels {
            sentinel.command(
                &["SENTINEL", "DEBUG"].into_iter().chain(SENTINEL_PERIODS.split(' ')).collect::<Vec<_>>(),
            );
        }
        for sentinel in &watched.sentinels {
            eventually("a sentinel knows its peers", || {
                let info: String = sentinel.ask(&["INFO", "sentinel"]).ok()?;
                let known = format!("status=ok,address=127.0.0.1:{port},slaves=1,sentinels={SENTINELS}");
                info.trim_end().ends_with(&known).then_some(())
            });
        }
        watched
    }

    /// Where each sentinel is found.
    pub fn sentinel_urls(&self) -> Vec<String> {
        self.sentinels.iter().map(RedisServer::url).collect()
    }

    /// The sentinels.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// The watched servers: first the server started as master, then its replica. Roles may have changed since.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The sentinels' name for the master.
    pub fn master_name(&self) -> &str {
        MASTER_NAME
    }

    /// Which of the [servers](Self::servers) is the master.
    ///
    /// # Panics
    ///
    /// If the sentinels do not agree about that.
    pub fn master(&self) -> usize {
        eventually("the sentinels agree about the master", || self.agreed_master())
    }

    /// The master that all sentinels that are up agree on.
    fn agreed_master(&self) -> Option<usize> {
        let mut agreed = None;
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_up()) {
            let (_, port): (String, u16) =
                sentinel.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME]).ok()?;
            if agreed.is_some_and(|agreed| agreed != port) {
                return None;
            }
            agreed = Some(port);
        }
        self.servers.iter().position(|server| Some(server.port()) == agreed)
    }

    /// Kills the master, and returns its successor once all sentinels report it and it accepts writes.
    ///
    /// The killed server can be [started again](RedisServer::start_again), and becomes a replica.
    ///
    /// # Panics
    ///
    /// If no replica takes over.
    pub fn fail_over(&self) -> usize {
        let failed = self.master();
        self.servers[failed].kill();
        eventually("the replica takes over", || {
            let master = self.agreed_master().filter(|&master| master != failed)?;
            let written: Value =
                self.servers[master].ask(&["SET", "a:write:to:the:new:master", "", "PX", "1"]).ok()?;
            (written == Value::Okay).then_some(master)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_replica_takes_over_with_what_the_master_had_and_the_master_comes_back_as_its_replica() {
        let watched = RedisSentinel::start();
        let before = watched.master();
        // `WAIT` covers only the writes of its own connection.
        let mut connection = watched.servers()[before].connection();
        redis::cmd("SET").arg("key").arg("value").exec(&mut connection).unwrap();
        let replicas: u32 = redis::cmd("WAIT").arg(1).arg(0).query(&mut connection).unwrap();
        assert_eq!(replicas, 1);
        watched.sentinels()[0].kill();

        let after = watched.fail_over();
        assert_ne!(after, before);
        assert_eq!(watched.master(), after);
        let value: String = watched.servers()[after].ask(&["GETSET", "key", "new"]).expect("it takes writes");
        assert_eq!(value, "value");

        watched.servers()[before].start_again();
        eventually("it is the new master's replica", || {
            let info: String = watched.servers()[before].ask(&["INFO", "replication"]).ok()?;
            let port = watched.servers()[after].port().to_string();
            (field(&info, "master_port")? == port && field(&info, "master_link_status")? == "up")
                .then_some(())
        });
    }
}
