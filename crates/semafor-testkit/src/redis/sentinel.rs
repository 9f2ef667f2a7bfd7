//! A master with a replica, and sentinels that replace the one with the other.

use redis::Value;

use super::RedisServer;
use super::eventually::eventually;
use super::server::{Role, field};

const MASTER_NAME: &str = "tower";
/// So that one of them may fail.
const SENTINELS: usize = 3;
const QUORUM: usize = 2;

/// How often they look around, in milliseconds. Usually they connect at most once per second: too slow to find alive whom
/// they have just appointed, which has to answer within a second. But after five pings they do not trust what a replica
/// said of itself, which it is asked to say once per second: so not too often either.
const SENTINEL_PERIODS: &str =
    "ping-period 400 ask-period 100 publish-period 200 info-period 1000 tilt-period 3000";

/// A master, its replica and three sentinels.
pub struct RedisSentinel {
    servers: [RedisServer; 2],
    sentinels: Vec<RedisServer>,
}

impl RedisSentinel {
    /// One whose replica is in step, and whose sentinels know of it and of each other.
    ///
    /// # Panics
    ///
    /// If it does not come to that.
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

    /// The watched servers: the one started as master first, then its replica. Roles may have changed since.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// What the sentinels call the master.
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

    /// Of the sentinels that are up.
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
    /// The one that was killed can be [started again](RedisServer::start_again), and is made a replica.
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
        // A connection waits for its own writes only.
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
