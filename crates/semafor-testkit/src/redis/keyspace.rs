//! A semaphore's keys, as any Redis client sees them.

use std::sync::{Mutex, PoisonError};

use redis::{Connection, FromRedisValue};

use super::RedisServer;

/// The keys of one name, in the default namespace or in another.
pub struct Keyspace {
    connection: Mutex<Connection>,
    namespace: String,
    name: String,
}

impl Keyspace {
    /// The keys of `name` on `server`.
    pub fn of(server: &RedisServer, name: &str) -> Self {
        Self::within(server, "adv-sem", name)
    }

    /// The keys of `name` in `namespace`.
    pub fn within(server: &RedisServer, namespace: &str, name: &str) -> Self {
        let connection = Mutex::new(server.connection());
        Self { connection, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// The answer to a command.
    ///
    /// # Panics
    ///
    /// If the answer is an error. The same holds for all functions here that ask the server.
    #[track_caller]
    pub fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        command.query(&mut connection).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// `adv-sem:semaphore_KIND:NAME`.
    pub fn key(&self, kind: &str) -> String {
        format!("{}:semaphore_{kind}:{}", self.namespace, self.name)
    }

    /// `adv-sem:acquisition_notification:ID`.
    pub fn notification(&self, id: &str) -> String {
        format!("{}:acquisition_notification:{id}", self.namespace)
    }

    /// The server's time, in seconds.
    pub fn now(&self) -> f64 {
        let (seconds, micros): (f64, f64) = self.ask(&["TIME"]);
        seconds + micros / 1e6
    }

    /// The members of the set of that kind, in order.
    pub fn members(&self, kind: &str) -> Vec<String> {
        self.ask(&["ZRANGE", &self.key(kind), "0", "-1"])
    }

    /// The score of a member of the set of that kind.
    pub fn score(&self, kind: &str, member: &str) -> Option<f64> {
        self.ask(&["ZSCORE", &self.key(kind), member])
    }

    /// In how many milliseconds the key of that kind expires; negative as in `PTTL`.
    pub fn expires_in(&self, kind: &str) -> i64 {
        self.ask(&["PTTL", &self.key(kind)])
    }

    /// All notification lists.
    pub fn notifications(&self) -> Vec<String> {
        self.ask(&["KEYS", &self.notification("*")])
    }
}
