//! A cluster whose masters can fail.
//!
//! Three masters, because a majority of them elects a replica; and a replica of each, so that any master may fail.

use redis::{RedisResult, Value, from_redis_value};

use super::RedisServer;
use super::eventually::eventually;
use super::server::{Role, field};

const MASTERS: usize = 3;
const SLOTS: u32 = 16_384;

/// Three masters and three replicas.
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

/// A range of hash slots and its nodes, as one node sees it.
#[derive(PartialEq, Eq)]
struct Range {
    first: u32,
    last: u32,
    master: u16,
    replicas: Vec<u16>,
}

impl RedisCluster {
    /// Starts a cluster whose nodes know each other: all hash slots are covered, all replicas are up to date.
    ///
    /// # Panics
    ///
    /// If that does not happen.
    pub fn start() -> Self {
        let settings = [
            ("cluster-node-timeout", "1000"),
            ("cluster-announce-ip", "127.0.0.1"),
            // However long its master has been silent, a replica may take over.
            ("cluster-replica-validity-factor", "0"),
            // A replica that has heard nothing yet is not listed as one.
            ("repl-ping-replica-period", "1"),
        ];
        let nodes = (0..2 * MASTERS).map(|_| RedisServer::launch(Role::ClusterNode, &settings)).collect();
        let cluster = Self { nodes };
        cluster.share_out_slots();
        cluster.introduce();
        cluster.assign_replicas();
        eventually("the cluster is complete", || {
            cluster.agrees(|ranges| {
                ranges.len() == MASTERS && ranges.iter().all(|range| range.replicas.len() == 1)
            })
        });
        cluster
    }

    fn share_out_slots(&self) {
        for (n, master) in (0..).zip(&self.nodes[..MASTERS]) {
            let (first, next) = (SLOTS * n / MASTERS as u32, SLOTS * (n + 1) / MASTERS as u32);
            master.command(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &(next - 1).to_string()]);
        }
    }

    /// Introduces each node to all others, so that the cluster need not wait for gossip.
    fn introduce(&self) {
        for (n, node) in self.nodes.iter().enumerate() {
            // Two masters that claim the same epoch take time to sort it out.
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(n + 1).to_string()]);
        }
        for (n, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[..n] {
                let (port, bus) = (other.port().to_string(), bus_port(other));
                node.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
            }
        }
        eventually("all nodes have met", || {
            let ok = |node: &RedisServer| {
                let info: String = node.ask(&["CLUSTER", "INFO"]).ok()?;
                let known = field(&info, "cluster_known_nodes")?.parse() == Ok(self.nodes.len());
                (known && field(&info, "cluster_state")? == "ok").then_some(())
            };
            self.nodes.iter().map(ok).collect::<Option<()>>()
        });
    }

    fn assign_replicas(&self) {
        let (masters, replicas) = self.nodes.split_at(MASTERS);
        for (master, replica) in masters.iter().zip(replicas) {
            let id: String = master.ask(&["CLUSTER", "MYID"]).expect("a node has an id");
            replica.command(&["CLUSTER", "REPLICATE", &id]);
        }
        for replica in replicas {
            eventually("a replica is in step", || {
                let info: String = replica.ask(&["INFO", "replication"]).ok()?;
                (field(&info, "master_link_status")? == "up").then_some(())
            });
        }
    }

    /// The ranges, if all nodes that are up see the same ranges, report a good cluster state, and `wanted` is true.
    fn agrees(&self, wanted: impl Fn(&[Range]) -> bool) -> Option<Vec<Range>> {
        let mut agreed: Option<Vec<Range>> = None;
        for node in self.nodes.iter().filter(|node| node.is_up()) {
            let info: String = node.ask(&["CLUSTER", "INFO"]).ok()?;
            let ranges = ranges(node).ok()?;
            let as_others = agreed.as_ref().is_none_or(|agreed| *agreed == ranges);
            if field(&info, "cluster_state") != Some("ok") || !as_others {
                return None;
            }
            agreed = Some(ranges);
        }
        agreed.filter(|ranges| wanted(ranges))
    }

    /// Where each node is found.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }

    /// The nodes started as masters first, then those started as replicas. Roles may have changed since.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// Which of the [nodes](Self::nodes) is responsible for `key`.
    ///
    /// # Panics
    ///
    /// If the nodes do not agree about that.
    pub fn master_of(&self, key: &str) -> usize {
        let slot = self.slot_of(key);
        let ranges = eventually("the nodes agree about their roles", || self.agrees(|_| true));
        self.node_on(master_of_slot(&ranges, slot).expect("all slots are covered"))
    }

    /// Kills the master that is responsible for `key`, and returns its successor once all nodes know of it.
    ///
    /// The killed server can be [started again](RedisServer::start_again), and becomes a replica.
    ///
    /// # Panics
    ///
    /// If no replica takes over.
    pub fn fail_over(&self, key: &str) -> usize {
        let slot = self.slot_of(key);
        let failed = &self.nodes[self.master_of(key)];
        failed.kill();
        let successor = eventually("a replica takes over", || {
            let moved =
                |ranges: &[Range]| master_of_slot(ranges, slot).is_some_and(|master| master != failed.port());
            master_of_slot(&self.agrees(moved)?, slot)
        });
        self.node_on(successor)
    }

    fn slot_of(&self, key: &str) -> u32 {
        let node = self.nodes.iter().find(|node| node.is_up()).expect("a node is up");
        node.ask(&["CLUSTER", "KEYSLOT", key]).expect("any node can tell")
    }

    fn node_on(&self, port: u16) -> usize {
        self.nodes.iter().position(|node| node.port() == port).expect("it is one of ours")
    }
}

fn bus_port(node: &RedisServer) -> String {
    let [_, port]: [String; 2] =
        node.ask(&["CONFIG", "GET", "cluster-port"]).expect("it is a cluster's node");
    port
}

/// Which node has which slots, according to one node. Failed nodes are left out.
fn ranges(node: &RedisServer) -> RedisResult<Vec<Range>> {
    type Node = (String, u16, String, Value);
    let said: Vec<Vec<Value>> = node.ask(&["CLUSTER", "SLOTS"])?;
    let mut ranges = Vec::new();
    for range in said {
        let mut range = range.into_iter();
        let mut next = || range.next().unwrap_or(Value::Nil);
        let (first, last) = (from_redis_value(next())?, from_redis_value(next())?);
        let mut ports = Vec::new();
        for node in range {
            let (_, port, _, _): Node = from_redis_value(node)?;
            ports.push(port);
        }
        if !ports.is_empty() {
            let master = ports.remove(0);
            ports.sort_unstable();
            ranges.push(Range { first, last, master, replicas: ports });
        }
    }
    ranges.sort_unstable_by_key(|range| range.first);
    Ok(ranges)
}

fn master_of_slot(ranges: &[Range], slot: u32) -> Option<u16> {
    ranges.iter().find(|range| (range.first..=range.last).contains(&slot)).map(|range| range.master)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_takes_over_with_what_its_master_had_and_the_master_comes_back_as_its_replica() {
        let cluster = RedisCluster::start();
        let before = cluster.master_of("key");
        // `WAIT` covers only the writes of its own connection.
        let mut connection = cluster.nodes()[before].connection();
        redis::cmd("SET").arg("key").arg("value").exec(&mut connection).unwrap();
        let replicas: u32 = redis::cmd("WAIT").arg(1).arg(0).query(&mut connection).unwrap();
        assert_eq!(replicas, 1);
        for (n, node) in cluster.nodes().iter().enumerate() {
            let answer: RedisResult<String> = node.ask(&["GET", "key"]);
            assert_eq!(answer.is_ok(), n == before, "only one node serves a key");
        }

        let after = cluster.fail_over("key");
        assert_ne!(after, before);
        assert_eq!(cluster.master_of("key"), after);
        let value: String = cluster.nodes()[after].ask(&["GETSET", "key", "new"]).expect("it takes writes");
        assert_eq!(value, "value");

        cluster.nodes()[before].start_again();
        eventually("it is the new master's replica", || {
            let info: String = cluster.nodes()[before].ask(&["INFO", "replication"]).ok()?;
            let port = cluster.nodes()[after].port().to_string();
            (field(&info, "master_port")? == port && field(&info, "master_link_status")? == "up")
                .then_some(())
        });
    }
}
