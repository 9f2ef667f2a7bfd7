//! What clients send to the agent. Each input meets an agent of its own.
//!
//! See [`messages`](super::messages) for the lines of an input.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::panic;
use std::path::Path;
use std::sync::mpsc;
use std::thread::{Scope, ScopedJoinHandle};

use semafor::local::Agent;
use serde_json::Value;

use super::messages::{Line, frame, lines};

/// What a client accepts.
const LONGEST_REPLY: u32 = 1 << 20;
const MOST_CONNECTIONS: usize = 8;
/// The request that shows by its reply that the agent has read all before it.
const LAST: u64 = 9_999_999_999_999_999_999;

pub(super) const WORDS: &[&str] = &[
    "\n+\n",
    "\n-\n",
    r#"{"n":1,"ask":{"hello":{"protocol":1,"version":"0","lifeline":1,"hears_renewals":true}}}"#,
    r#"{"n":2,"ask":{"open":{"handle":1,"name":"a","slots":2}}}"#,
    r#"{"n":3,"ask":{"acquire":{"of":{"handle":1,"name":"a","slots":2},"wish":{"weight":1,"waits":true}}}}"#,
    r#"{"n":4,"ask":{"occupy":{"of":{"handle":1,"name":"a"},"weight":1,"slot":0,"id":"1-0-5","slots":2}}}"#,
    r#"{"n":5,"ask":{"back":{"calls":3}}}"#,
    r#"{"n":6,"ask":{"cancel":{"call":3}}}"#,
    r#"{"n":7,"ask":{"release":{"lease":3}}}"#,
    r#"{"n":8,"ask":{"detach":{"lease":3}}}"#,
    r#"{"n":9,"ask":{"renew":{"of":{"handle":1,"name":"a"},"id":"1-0-5","ttl":{"secs":9,"nanos":0}}}}"#,
    r#"{"n":10,"ask":{"resize":{"of":{"handle":1,"name":"a"},"slots":3}}}"#,
    r#"{"n":11,"ask":{"close":{"handle":1,"name":"a"}}}"#,
    r#"{"n":12,"ask":{"survey":{"names":["a"]}}}"#,
    r#""release_id""#,
    r#""evict""#,
    r#""locked""#,
    r#""is_closed""#,
    r#""stats""#,
    r#""holders""#,
    r#""waiters""#,
    r#""forget""#,
    r#""status""#,
    r#"{"stop":{"force":true}}"#,
    r#""max_waiting":0"#,
    r#""is_agreed":true"#,
    r#""ttl":{"secs":18446744073709551615,"nanos":999999999}"#,
    r#""timeout":{"secs":0,"nanos":0}"#,
    r#""grace":{"secs":18446744073709551615,"nanos":0}"#,
    "4294967295",
    "18446744073709551615",
    "null",
    "true",
    "false",
    "[[[[[[[[",
];

pub(super) fn run(input: &[u8]) {
    // In memory where that is possible: the agent writes a journal.
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let folder =
        tempfile::Builder::new().prefix("semafor-fuzz-").tempdir_in(parent).expect("a temporary folder");
    let directory = folder.path().join("semafor");
    let agent = Agent::bind(&directory).expect("the folder is ours");
    let socket = directory.join("agent.sock");
    std::thread::scope(|scope| {
        let clients = scope.spawn(|| {
            let outcome = panic::catch_unwind(|| send_all(input, &socket));
            stop(&socket);
            outcome.unwrap_or_else(|panic| panic::resume_unwind(panic));
        });
        // In this thread, whose memory is measured.
        agent.serve().expect("it serves until it is stopped");
        clients.join().expect("the agent sends replies that a client accepts");
    });
}

/// Ends the agent, unless the input has done so.
fn stop(socket: &Path) {
    let Ok(mut last) = UnixStream::connect(socket) else { return };
    let _ = last.write_all(&frame(br#"{"n":1,"ask":{"stop":{"force":true}}}"#));
    let _ = last.read_to_end(&mut Vec::new());
}

fn send_all(input: &[u8], socket: &Path) {
    std::thread::scope(|scope| {
        let mut connections = Vec::from_iter(Connection::open(scope, socket));
        let mut opened = 1;
        for line in lines(input) {
            match line {
                Line::Reconnect | Line::AnotherConnection if opened == MOST_CONNECTIONS => {}
                Line::Reconnect => {
                    opened += 1;
                    connections.pop().into_iter().for_each(Connection::close);
                    connections.extend(Connection::open(scope, socket));
                }
                Line::AnotherConnection => {
                    opened += 1;
                    connections.extend(Connection::open(scope, socket));
                }
                Line::Bytes { bytes, is_raw } => {
                    let Some(connection) = connections.last_mut() else { return };
                    connection.is_framed &= !is_raw;
                    let _ = connection.stream.write_all(&bytes);
                }
            }
        }
        connections.into_iter().for_each(Connection::close);
    });
}

struct Connection<'scope> {
    stream: UnixStream,
    /// Everything sent was whole messages.
    is_framed: bool,
    replied_to_last: mpsc::Receiver<()>,
    reader: ScopedJoinHandle<'scope, ()>,
}

impl<'scope> Connection<'scope> {
    /// `None` if the agent has ended.
    fn open(scope: &'scope Scope<'scope, '_>, socket: &Path) -> Option<Self> {
        let stream = UnixStream::connect(socket).ok()?;
        let (replied, replied_to_last) = mpsc::channel();
        let incoming = stream.try_clone().expect("a descriptor");
        let reader = scope.spawn(move || read_replies(incoming, &replied));
        Some(Self { stream, is_framed: true, replied_to_last, reader })
    }

    fn close(mut self) {
        if self.is_framed {
            let last = format!(r#"{{"n":{LAST},"ask":"status"}}"#);
            let _ = self.stream.write_all(&frame(last.as_bytes()));
            // An error if the agent has ended the connection.
            let _ = self.replied_to_last.recv();
        }
        let _ = self.stream.shutdown(Shutdown::Write);
        self.reader.join().expect("replies that a client accepts");
    }
}

/// Reads until the connection ends.
fn read_replies(mut stream: UnixStream, replied_to_last: &mpsc::Sender<()>) {
    let mut prefix = [0; 4];
    while stream.read_exact(&mut prefix).is_ok() {
        let length = u32::from_le_bytes(prefix);
        assert!(length <= LONGEST_REPLY, "a reply of {length} bytes, which no client accepts");
        let mut reply = vec![0; length as usize];
        if stream.read_exact(&mut reply).is_err() {
            return;
        }
        let reply: Value = serde_json::from_slice(&reply).expect("a reply is JSON");
        let number = reply.get("n").and_then(Value::as_u64);
        assert!(
            number.is_some() && reply.get("say").is_some(),
            "a reply without a number or a response: {reply}"
        );
        if number == Some(LAST) {
            let _ = replied_to_last.send(());
        }
    }
}
