//! The engine without a connection, for simulations and fuzzing: what the client would send, and what it makes of a
//! reply.

#![allow(missing_docs, reason = "it is hidden")]

use std::sync::Arc;
use std::time::Duration;

use redis::{Arg, Cmd, PushInfo, Value};

use super::config::Config;
use super::connection::ScriptReply;
use super::diagnostics;
use super::engine::Engine;
use super::ids::Ids;
use super::inspect::{self, Snapshot};
use super::keys::{self, Keys};
use super::requirements;
use super::script::lua::{self, Script};
use crate::error::HomeError;
use crate::remote::call::{Call, Key, Push, Reply};
use crate::remote::client::{Liveness, Settings};
use crate::remote::clock::Instant;
use crate::remote::target::Target;
use crate::{HolderInfo, Stats};

/// A script to run, as `EVALSHA` and `EVAL` take it.
#[derive(Clone, Debug)]
pub struct ScriptCall {
    pub digest: &'static str,
    pub code: &'static str,
    pub keys: Arc<[String]>,
    pub arguments: Vec<Vec<u8>>,
}

/// Encodes and decodes for one simulated process.
pub struct OfflineEngine {
    config: Arc<Config>,
    engine: Engine,
}

impl OfflineEngine {
    /// Processes with different numbers have different ids.
    pub fn new(config: Config, process: u64) -> Self {
        let config = Arc::new(config);
        let engine = Engine::with_ids(Arc::clone(&config), Arc::default(), Ids::of_process(process));
        Self { config, engine }
    }

    /// The settings of a client that uses this engine.
    pub fn settings(&self) -> Settings {
        Settings {
            liveness: Liveness::Heartbeats,
            retry: self.config.retry(),
            reply_timeout: self.config.socket_timeout,
            no_reply_error: diagnostics::no_answer(&self.config),
        }
    }

    /// The channel on which scripts send messages to this process.
    pub fn channel(&self) -> String {
        keys::channel(&self.config.namespace, self.engine.ids.process())
    }

    pub fn target(&self, name: &str, slots: Option<u32>, heartbeat: Duration) -> Arc<Target> {
        let keys = Keys::new(&self.config.namespace, name).all;
        Arc::new(Target::new(name, slots, None, heartbeat, keys))
    }

    /// The script of a call; `None` for calls that are not one script.
    pub fn script_of(&self, call: &Call) -> Option<ScriptCall> {
        let script = Engine::script(&call.command)?;
        Some(self.script_call(script, &call.target, |command| self.engine.encode(call, command)))
    }

    pub fn resize(&self, target: &Target, slots: u32) -> ScriptCall {
        self.script_call(&lua::RESIZE, target, |command| {
            command.arg(slots);
        })
    }

    /// `place` is 0, or what the last reply said.
    pub fn close(&self, target: &Target, place: i64) -> ScriptCall {
        self.script_call(&lua::CLOSE, target, |command| {
            command.arg(place);
        })
    }

    fn script_call(
        &self,
        script: &'static Script,
        target: &Target,
        encode: impl FnOnce(&mut Cmd),
    ) -> ScriptCall {
        let mut command = Cmd::new();
        command.arg(&self.config.namespace);
        encode(&mut command);
        let arguments = command.args_iter().map(|argument| match argument {
            Arg::Simple(bytes) => bytes.to_vec(),
            _ => Vec::new(),
        });
        let arguments = arguments.collect();
        ScriptCall { digest: &script.digest, code: &script.code, keys: Arc::clone(&target.keys), arguments }
    }

    pub fn decode(
        &self,
        call: &Call,
        value: Value,
        sent: Instant,
        received: Instant,
    ) -> Result<Reply, HomeError> {
        self.engine.decode(call, &ScriptReply { value, sent, received })
    }

    pub fn read_push(&self, push: PushInfo, now: Instant) -> Vec<Push> {
        self.engine.read_push(push, now)
    }

    /// Reads a reply of each kind that does not go through the client: statistics, a page of holders, and permissions.
    pub fn read_answers(
        &self,
        value: &Value,
    ) -> (Result<Stats, HomeError>, Result<Vec<HolderInfo>, HomeError>) {
        let _ = requirements::read_missing_permissions(value.clone(), &self.config.namespace);
        let stats = Snapshot::read(value.clone()).map(|snapshot| snapshot.into_stats("it".into(), 1));
        (stats, inspect::read_holders(value.clone()))
    }

    /// The error for a reply that is an error.
    pub fn explain(&self, value: Value) -> Option<HomeError> {
        let error = value.extract_error().err()?;
        let _ = diagnostics::explain_connect_error(&error, &self.config);
        Some(diagnostics::explain(&error, &self.config))
    }

    /// The id under which the server knows an acquisition.
    pub fn id(&self, target: &Target, key: Key) -> Arc<str> {
        self.engine.ids.text(&target.name, key)
    }

    /// The keys to track for a waiter.
    pub fn notifications(&self, target: &Target, key: Key, weight: u32) -> Vec<String> {
        self.engine.notifications(target, key, weight)
    }
}
