//! The server: connections, scripts, messages, tracked keys, and what can happen to all of them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use hashbrown::HashMap;
use redis::{PushInfo, PushKind, Value};

use super::script::Scripts;
use super::store::Store;
use super::zset::SortedSet;

/// Names a connection.
pub type ConnectionId = u64;

/// What a script run led to.
pub struct Ran {
    /// The reply, or an error in the words of the server.
    pub reply: Result<Value, String>,
    /// Messages for connections, in order; those for the caller's connection come before its reply.
    pub pushes: Vec<(ConnectionId, PushInfo)>,
}

/// A Redis server.
pub struct Server {
    store: Rc<RefCell<Store>>,
    scripts: Scripts,
    known_scripts: BTreeSet<&'static str>,
    /// The channel of each connection.
    listeners: BTreeMap<ConnectionId, Vec<u8>>,
    /// Which connections want to hear of a change of a key.
    tracked: HashMap<Vec<u8>, BTreeSet<ConnectionId>>,
    /// How far its clock is from the true time, in microseconds.
    pub clock_offset: i64,
}

impl Default for Server {
    fn default() -> Self {
        let store = Rc::new(RefCell::new(Store::default()));
        let scripts = Scripts::new(&store);
        Self {
            store,
            scripts,
            known_scripts: BTreeSet::new(),
            listeners: BTreeMap::new(),
            tracked: HashMap::new(),
            clock_offset: 0,
        }
    }
}

impl Server {
    /// A client has said what it wants to hear.
    pub fn connect(&mut self, connection: ConnectionId, channel: &str) {
        self.stop_tracking(connection);
        self.listeners.insert(connection, channel.as_bytes().to_vec());
    }

    /// A connection has ended.
    pub fn disconnect(&mut self, connection: ConnectionId) {
        if self.listeners.remove(&connection).is_some() {
            self.stop_tracking(connection);
        }
    }

    fn stop_tracking(&mut self, connection: ConnectionId) {
        self.tracked.retain(|_, connections| {
            connections.remove(&connection);
            !connections.is_empty()
        });
    }

    /// False if the server does not know the connection.
    pub fn is_connected(&self, connection: ConnectionId) -> bool {
        self.listeners.contains_key(&connection)
    }

    /// Sets its clock to the true time, in microseconds since the epoch, and its offset.
    pub fn set_time(&mut self, now: i64) {
        self.store.borrow_mut().now = now + self.clock_offset;
    }

    /// Runs a script by its digest; by its code if that is given as well.
    pub fn run_script(
        &mut self,
        (digest, code): (&'static str, &'static str),
        has_code: bool,
        keys: &[String],
        arguments: &[Vec<u8>],
    ) -> Ran {
        if has_code {
            self.known_scripts.insert(digest);
        }
        self.store.borrow_mut().begin();
        let reply = if self.known_scripts.contains(digest) {
            self.scripts.run(code, keys, arguments)
        } else {
            Err("NOSCRIPT No matching script. Please use EVAL.".into())
        };
        Ran { reply, pushes: self.take_pushes() }
    }

    /// A sorted set as it is now; empty if the key does not exist.
    pub(in crate::simulation) fn sorted_set(&self, key: &str) -> Rc<SortedSet> {
        self.store.borrow().sorted_set(key).cloned().unwrap_or_default()
    }

    /// The milliseconds until a key expires; `None` if it has no expiry. And messages, if it has just expired.
    pub fn expires_in(&mut self, key: &str) -> (Option<i64>, Vec<(ConnectionId, PushInfo)>) {
        let left = self.store.borrow_mut().expires_in(key);
        (left, self.take_pushes())
    }

    /// Notes that a connection wants to hear of changes of these keys. Says which of them exist.
    pub fn track(&mut self, connection: ConnectionId, keys: &[String]) -> Vec<bool> {
        let mut exist = Vec::new();
        for key in keys {
            exist.push(self.store.borrow_mut().run(&["EXISTS", key]) == Ok(Value::Int(1)));
            if self.listeners.contains_key(&connection) {
                self.tracked.entry_ref(key.as_bytes()).or_default().insert(connection);
            }
        }
        exist
    }

    /// Removes keys whose time is over. Returns the messages about them.
    pub fn expire(&mut self) -> Vec<(ConnectionId, PushInfo)> {
        self.store.borrow_mut().expire();
        self.take_pushes()
    }

    /// Runs a command that is no script.
    pub fn run(&mut self, words: &[&str]) -> (Result<Value, String>, Vec<(ConnectionId, PushInfo)>) {
        self.store.borrow_mut().begin();
        let outcome = self.store.borrow_mut().run(words);
        (outcome, self.take_pushes())
    }

    fn take_pushes(&mut self) -> Vec<(ConnectionId, PushInfo)> {
        let (published, changed) = {
            let mut store = self.store.borrow_mut();
            (store.take_published(), store.take_changed())
        };
        let mut pushes = Vec::new();
        for (channel, text) in published {
            for (connection, listens_to) in &self.listeners {
                if *listens_to == channel {
                    let data = vec![Value::BulkString(channel.clone()), Value::BulkString(text.clone())];
                    pushes.push((*connection, PushInfo { kind: PushKind::Message, data }));
                }
            }
        }
        for key in changed {
            for connection in self.tracked.remove(&*key).unwrap_or_default() {
                let keys = Value::Array(vec![Value::BulkString(key.to_vec())]);
                pushes.push((connection, PushInfo { kind: PushKind::Invalidate, data: vec![keys] }));
            }
        }
        pushes
    }

    // What can happen

    /// The data, to come back to.
    pub fn snapshot(&self) -> Store {
        self.store.borrow().clone()
    }

    /// Starts again, with this data. All connections and scripts are gone.
    pub fn restart(&mut self, data: Store) {
        let now = self.store.borrow().now;
        *self.store.borrow_mut() = data.at_time(now);
        self.known_scripts.clear();
        self.listeners.clear();
        self.tracked.clear();
    }

    /// Forgets all scripts.
    pub fn flush_scripts(&mut self) {
        self.known_scripts.clear();
    }

    /// Removes all keys, and says so.
    pub fn flush(&mut self) -> Vec<(ConnectionId, PushInfo)> {
        let now = self.store.borrow().now;
        *self.store.borrow_mut() = Store::at(now);
        self.tracked.clear();
        let mut pushes = Vec::new();
        for connection in self.listeners.keys() {
            pushes.push((*connection, PushInfo { kind: PushKind::Invalidate, data: vec![Value::Nil] }));
        }
        pushes
    }

    /// Removes a key, as a server does that is short of memory.
    pub fn evict(&mut self, key: &[u8]) -> Vec<(ConnectionId, PushInfo)> {
        self.store.borrow_mut().evict(key);
        self.take_pushes()
    }

    /// Whether commands that need memory are refused.
    pub fn set_out_of_memory(&mut self, is_out_of_memory: bool) {
        self.store.borrow_mut().is_out_of_memory = is_out_of_memory;
    }

    /// Its keys, in order.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.store.borrow().keys().map(<[u8]>::to_vec).collect()
    }
}
