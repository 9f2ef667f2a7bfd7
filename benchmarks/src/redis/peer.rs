//! Peers that are measured in processes of their own.
//!
//! A peer prints its name and then answers requests, a line each: `cycle 200`, `handoff 8`, `contend 100 10` with how
//! long each time took, in microseconds; `wait 100` and `hold 100` once so many wait or hold, and keep doing so. An
//! answer is `{"ok": …}`, or `{"skip": "why it can't be done"}`.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::as_peer;
use super::setup::Setup;

/// A peer that takes longer is left out.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Answer<T> {
    Ok(T),
    Skip(String),
}

pub(super) struct Peer {
    name: String,
    process: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
}

/// How a peer is started.
pub(super) struct PeerCommand {
    program: OsString,
    arguments: [OsString; 2],
}

impl PeerCommand {
    /// This program as a peer.
    pub(super) fn ours(setup: &Setup) -> Self {
        let program = std::env::current_exe().expect("this program has a path").into();
        Self { program, arguments: [as_peer::WORD.into(), setup.server.url().into()] }
    }

    /// All other peers whose runtimes are installed.
    pub(super) fn others(setup: &Setup) -> Vec<Self> {
        let python = std::env::var_os("SEMAFOR_BENCH_PYTHON");
        let node = std::env::var_os("SEMAFOR_BENCH_NODE_DIR").map(|_| "node".into());
        let scripts = [
            (python.clone(), "python/redis_advanced.py"),
            (node, "node/redis_semaphore.mjs"),
            (python, "python/redis_limiters.py"),
        ];
        let invited = scripts.into_iter().filter_map(|(runtime, script)| {
            let Some(program) = runtime else {
                println!("left out: {script}: no runtime (`cargo xtask bench redis` looks for one)");
                return None;
            };
            let script = format!("{}/{script}", env!("CARGO_MANIFEST_DIR"));
            Some(Self { program, arguments: [script.into(), setup.server.url().into()] })
        });
        invited.collect()
    }

    pub(super) fn script(&self) -> String {
        self.arguments[0].display().to_string()
    }

    pub(super) fn start(&self) -> Result<Peer, String> {
        let mut command = Command::new(&self.program);
        // Otherwise Python leaves files beside its scripts.
        command.args(&self.arguments).env("PYTHONDONTWRITEBYTECODE", "1");
        Peer::start(command)
    }
}

impl Peer {
    /// All peers that could be started.
    pub(super) fn others(setup: &Setup) -> Vec<Self> {
        let invited = PeerCommand::others(setup);
        let started = invited.iter().map(|other| (other, other.start()));
        let come = started.filter_map(|(other, started)| {
            started.inspect_err(|reason| println!("left out: {}: {reason}", other.script())).ok()
        });
        come.collect()
    }

    fn start(mut command: Command) -> Result<Self, String> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("can't be started: {error}"))?;
        let requests = process.stdin.take().expect("it is piped");
        let lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let (send, answers) = channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| send.send(line)));
        let mut peer = Self { name: String::new(), process, requests, answers };
        peer.name = peer.answer()?;
        Ok(peer)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(super) fn ask<T: DeserializeOwned>(&mut self, request: &str) -> Result<T, String> {
        self.request(request)?;
        self.answer()
    }

    pub(super) fn request(&mut self, request: &str) -> Result<(), String> {
        writeln!(self.requests, "{request}").map_err(|error| format!("it takes no request: {error}"))
    }

    pub(super) fn answer<T: DeserializeOwned>(&mut self) -> Result<T, String> {
        let line = self.answers.recv_timeout(ANSWER_TIMEOUT).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                // It would disturb the others.
                let _ = self.process.kill();
                format!("it takes more than {} seconds", ANSWER_TIMEOUT.as_secs())
            }
            RecvTimeoutError::Disconnected => "it has ended".to_owned(),
        })?;
        match serde_json::from_str(&line) {
            Ok(Answer::Ok(answer)) => Ok(answer),
            Ok(Answer::Skip(reason)) => Err(reason),
            Err(error) => Err(format!("it answers {line:?}: {error}")),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
