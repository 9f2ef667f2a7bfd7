//! A connection that does not follow the protocol does not disturb clients.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use semafor_testkit::cli::CommandEnv;
use serde_json::{Value, json};

use crate::{agent, env};

/// A connection to the agent.
struct RawClient(UnixStream);

impl RawClient {
    fn connect(env: &CommandEnv) -> Self {
        let stream =
            UnixStream::connect(env.agent_directory().join("agent.sock")).expect("the agent listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("set the option");
        Self(stream)
    }

    fn send(&mut self, message: &[u8]) {
        let length = u32::try_from(message.len()).expect("the length fits").to_le_bytes();
        // The agent may have closed the connection already.
        let _ = self.0.write_all(&[&length, message].concat());
    }

    fn receive(&mut self) -> Value {
        let mut length = [0; 4];
        self.0.read_exact(&mut length).expect("it sends a length");
        let mut message = vec![0; u32::from_le_bytes(length) as usize];
        self.0.read_exact(&mut message).expect("it sends the message");
        serde_json::from_slice(&message).expect("the message is JSON")
    }

    /// True if the agent has closed the connection without an answer.
    fn is_disconnected(&mut self) -> bool {
        matches!(self.0.read(&mut [0; 1]), Ok(0) | Err(_))
    }
}

/// Checks that other clients are still served by the same agent.
fn assert_others_are_served(env: &CommandEnv, pid: u32) {
    assert_eq!(env.run(["run", "--name", "other", "--", "echo", "served"]).text(), "served\n");
    assert_eq!(env.agents(), [pid]);
}

#[test]
fn invalid_message_is_disconnected() {
    let env = env();
    let pid = agent(&env);
    for message in [&b"not JSON"[..], b"", b"{", b"\xff\xfe", b"[1, 2]extra"] {
        let mut client = RawClient::connect(&env);
        client.send(message);
        assert!(client.is_disconnected(), "{message:?}");
    }
    let mut client = RawClient::connect(&env);
    client.0.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("the agent listens");
    assert!(client.is_disconnected(), "the first bytes are an enormous length");
    assert_others_are_served(&env, pid);
}

#[test]
fn overlong_message_is_disconnected_after_its_length() {
    let env = env();
    let pid = agent(&env);
    for length in [1024 * 1024 + 1, u32::MAX] {
        let mut client = RawClient::connect(&env);
        client.0.write_all(&u32::to_le_bytes(length)).expect("the agent listens");
        assert!(client.is_disconnected(), "{length}");
    }
    assert_others_are_served(&env, pid);
}

#[test]
fn incomplete_message_delays_no_client() {
    let env = env();
    let pid = agent(&env);
    let mut slow = RawClient::connect(&env);
    slow.0.write_all(&1000_u32.to_le_bytes()).expect("the agent listens");
    slow.0.write_all(b"{\"n\":").expect("the agent listens");
    assert_others_are_served(&env, pid);
    slow.0.shutdown(Shutdown::Write).expect("the pipe is open");
    assert!(slow.is_disconnected());
}

#[test]
fn silent_connection_delays_no_client() {
    let env = env();
    let pid = agent(&env);
    let silent: Vec<_> = (0..50).map(|_| RawClient::connect(&env)).collect();
    assert_others_are_served(&env, pid);
    assert_eq!(env.run(["agent", "stop"]).text(), "", "silent connections hold no slots");
    drop(silent);
}

#[test]
fn client_that_does_not_read_delays_no_other_client() {
    let env = env();
    let pid = agent(&env);
    let mut unread = RawClient::connect(&env);
    unread.0.set_nonblocking(true).expect("set the option");
    let call = json!({ "n": 1, "ask": "status" }).to_string();
    let frame =
        [&u32::try_from(call.len()).expect("the length fits").to_le_bytes(), call.as_bytes()].concat();
    // Until the agent reads no more.
    let mut sent = 0_usize;
    while unread.0.write_all(&frame).is_ok() {
        sent += 1;
    }
    assert!(sent > 100, "{sent}");
    assert_others_are_served(&env, pid);
}

#[test]
fn newer_client_can_connect_and_unknown_requests_get_an_error() {
    let env = env();
    let pid = agent(&env);
    let mut newer = RawClient::connect(&env);
    newer
        .send(br#"{"n":1,"ask":{"hello":{"protocol":99,"version":"99.0.0","mood":"good"}},"more":"fields"}"#);
    let welcome = newer.receive();
    assert_eq!(welcome["say"]["welcome"]["pid"], pid);
    assert_eq!(welcome["say"]["welcome"]["protocol"], 1);
    newer.send(br#"{"n":2,"ask":{"teleport":{"where":"home"}}}"#);
    let answer = newer.receive();
    assert_eq!(answer["n"], 2);
    assert!(answer["say"]["misunderstood"].is_string(), "{answer}");
    newer.send(br#"{"n":3,"ask":"status"}"#);
    assert_eq!(newer.receive()["say"]["status"]["held"], 0, "the connection still works");
    assert_others_are_served(&env, pid);
}

#[test]
fn agent_of_another_version_is_an_error() {
    let env = env();
    agent(&env);
    assert_eq!(env.run(["agent", "stop"]).text(), "");
    let socket = env.agent_directory().join("agent.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).expect("it can be bound");
    let old = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a client connects");
        let mut agent = RawClient(stream);
        assert_eq!(agent.receive()["ask"]["hello"]["protocol"], 1);
        agent.send(br#"{"n":0,"say":{"welcome":{"protocol":0,"version":"0.0.1","pid":4711}}}"#);
        // Until the client has closed the connection.
        while !agent.is_disconnected() {}
    });
    let output = env.run(["run", "--", "true"]);
    let complaint = output.complaint(69);
    assert!(complaint.contains("0.0.1") && complaint.contains("agent stop"), "{complaint}");
    old.join().expect("the client sent a hello");
    std::fs::remove_file(socket).expect("this user owns it");
}

#[test]
fn slot_is_released_when_its_connection_closes() {
    let env = env();
    agent(&env);
    let mut client = RawClient::connect(&env);
    let target = json!({ "handle": 1, "name": "it", "slots": 1, "max_waiting": null });
    let wish =
        json!({ "weight": 1, "ttl": null, "timeout": null, "waits": true, "label": "me", "command": null });
    client
        .send(json!({ "n": 1, "ask": { "acquire": { "of": target, "wish": wish } } }).to_string().as_bytes());
    assert!(client.receive()["say"]["granted"]["id"].is_string());
    let mut waiter = env.start(["run", "--name", "it", "--", "true"]);
    env.until_waiting("it", 1);
    drop(client);
    assert_eq!(waiter.wait().text(), "");
}
