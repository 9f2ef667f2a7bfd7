//! A connection that does not follow the protocol does not disturb clients.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use semafor_testkit::cli::CommandEnv;
use serde_json::{Value, json};

use crate::{agent, env};

/// A connection to the agent.
struct Stranger(UnixStream);

impl Stranger {
    fn knock(env: &CommandEnv) -> Self {
        let stream = UnixStream::connect(env.agent_directory().join("agent.sock")).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("it can be set");
        Self(stream)
    }

    fn say(&mut self, message: &[u8]) {
        let length = u32::try_from(message.len()).expect("it is short").to_le_bytes();
        // It may have been hung up on meanwhile.
        let _ = self.0.write_all(&[&length, message].concat());
    }

    fn hear(&mut self) -> Value {
        let mut length = [0; 4];
        self.0.read_exact(&mut length).expect("it answers");
        let mut message = vec![0; u32::from_le_bytes(length) as usize];
        self.0.read_exact(&mut message).expect("it goes on");
        serde_json::from_slice(&message).expect("it is JSON")
    }

    /// True if the agent has hung up without a word.
    fn is_hung_up_on(&mut self) -> bool {
        matches!(self.0.read(&mut [0; 1]), Ok(0) | Err(_))
    }
}

/// Other clients were not affected.
fn goes_on(env: &CommandEnv, pid: u32) {
    assert_eq!(env.run(["run", "--name", "other", "--", "echo", "served"]).text(), "served\n");
    assert_eq!(env.agents(), [pid]);
}

#[test]
fn garbage_is_hung_up_on() {
    let env = env();
    let pid = agent(&env);
    for message in [&b"not JSON"[..], b"", b"{", b"\xff\xfe", b"[1, 2]extra"] {
        let mut stranger = Stranger::knock(&env);
        stranger.say(message);
        assert!(stranger.is_hung_up_on(), "{message:?}");
    }
    let mut stranger = Stranger::knock(&env);
    stranger.0.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("it listens");
    assert!(stranger.is_hung_up_on(), "its length would be enormous");
    goes_on(&env, pid);
}

#[test]
fn an_overlong_message_is_hung_up_on_before_it_is_sent() {
    let env = env();
    let pid = agent(&env);
    for length in [1024 * 1024 + 1, u32::MAX] {
        let mut stranger = Stranger::knock(&env);
        stranger.0.write_all(&u32::to_le_bytes(length)).expect("it listens");
        assert!(stranger.is_hung_up_on(), "{length}");
    }
    goes_on(&env, pid);
}

#[test]
fn an_endless_message_delays_no_client() {
    let env = env();
    let pid = agent(&env);
    let mut slow = Stranger::knock(&env);
    slow.0.write_all(&1000_u32.to_le_bytes()).expect("it listens");
    slow.0.write_all(b"{\"n\":").expect("it listens");
    goes_on(&env, pid);
    slow.0.shutdown(Shutdown::Write).expect("it is open");
    assert!(slow.is_hung_up_on());
}

#[test]
fn a_silent_connection_delays_no_client() {
    let env = env();
    let pid = agent(&env);
    let silent: Vec<_> = (0..50).map(|_| Stranger::knock(&env)).collect();
    goes_on(&env, pid);
    assert_eq!(env.run(["agent", "stop"]).text(), "", "it holds nothing");
    drop(silent);
}

#[test]
fn a_client_that_does_not_read_delays_no_other() {
    let env = env();
    let pid = agent(&env);
    let mut deaf = Stranger::knock(&env);
    deaf.0.set_nonblocking(true).expect("it can be set");
    let call = json!({ "n": 1, "ask": "status" }).to_string();
    let frame = [&u32::try_from(call.len()).expect("it is short").to_le_bytes(), call.as_bytes()].concat();
    // Until the agent does not take any more.
    let mut sent = 0_usize;
    while deaf.0.write_all(&frame).is_ok() {
        sent += 1;
    }
    assert!(sent > 100, "{sent}");
    goes_on(&env, pid);
}

#[test]
fn a_client_of_another_version_is_welcome_and_told_what_is_not_understood() {
    let env = env();
    let pid = agent(&env);
    let mut newer = Stranger::knock(&env);
    newer.say(br#"{"n":1,"ask":{"hello":{"protocol":99,"version":"99.0.0","mood":"good"}},"more":"fields"}"#);
    let welcome = newer.hear();
    assert_eq!(welcome["say"]["welcome"]["pid"], pid);
    assert_eq!(welcome["say"]["welcome"]["protocol"], 1);
    newer.say(br#"{"n":2,"ask":{"teleport":{"where":"home"}}}"#);
    let answer = newer.hear();
    assert_eq!(answer["n"], 2);
    assert!(answer["say"]["misunderstood"].is_string(), "{answer}");
    newer.say(br#"{"n":3,"ask":"status"}"#);
    assert_eq!(newer.hear()["say"]["status"]["held"], 0, "it goes on");
    goes_on(&env, pid);
}

#[test]
fn an_agent_of_another_version_is_complained_of() {
    let env = env();
    agent(&env);
    assert_eq!(env.run(["agent", "stop"]).text(), "");
    let socket = env.agent_directory().join("agent.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).expect("it can be bound");
    let old = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a client connects");
        let mut agent = Stranger(stream);
        assert_eq!(agent.hear()["ask"]["hello"]["protocol"], 1);
        agent.say(br#"{"n":0,"say":{"welcome":{"protocol":0,"version":"0.0.1","pid":4711}}}"#);
        // Until it has understood.
        while !agent.is_hung_up_on() {}
    });
    let output = env.run(["run", "--", "true"]);
    let complaint = output.complaint(69);
    assert!(complaint.contains("0.0.1") && complaint.contains("agent stop"), "{complaint}");
    old.join().expect("it was spoken to");
    std::fs::remove_file(socket).expect("it is ours");
}

#[test]
fn what_a_stranger_held_is_free_when_it_leaves() {
    let env = env();
    agent(&env);
    let mut stranger = Stranger::knock(&env);
    let target = json!({ "handle": 1, "name": "it", "slots": 1, "max_waiting": null });
    let wish =
        json!({ "weight": 1, "ttl": null, "timeout": null, "waits": true, "label": "me", "command": null });
    stranger
        .say(json!({ "n": 1, "ask": { "acquire": { "of": target, "wish": wish } } }).to_string().as_bytes());
    assert!(stranger.hear()["say"]["granted"]["id"].is_string());
    let mut waiter = env.start(["run", "--name", "it", "--", "true"]);
    env.until_waiting("it", 1);
    drop(stranger);
    assert_eq!(waiter.wait().text(), "");
}
