//! Whatever a server, a client or a user sends: no panic, and nothing grows without bound.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use redis::{PushInfo, PushKind, Value};
use semafor::__client::{
    AcquireRequest, Call, Client, Command, EndReason, Event, Instant, Key, Leaver, ServerPushes, Target,
    TaskKey, Wait,
};
use semafor::__redis::OfflineEngine;
use semafor::redis::Config;

fn text() -> impl Strategy<Value = Vec<u8>> {
    // Words that replies and messages have, numbers of all kinds, and anything else.
    let words = [
        "granted",
        "queued",
        "busy",
        "full",
        "closed",
        "gone",
        "waiting",
        "renewed",
        "ended",
        "lost",
        "watch",
        "open",
        "mismatch",
        "0",
        "1",
        "-1",
        "2",
        "4294967295",
        "18446744073709551616",
        "1e308",
        "nan",
        "inf",
        "-0.0",
        "1789000000.5",
        "",
    ];
    prop_oneof![
        4 => prop::sample::select(words.to_vec()).prop_map(|word| word.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..40),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => text().prop_map(Value::BulkString),
        2 => any::<i64>().prop_map(Value::Int),
        1 => Just(Value::Nil),
        1 => Just(Value::Okay),
        1 => any::<f64>().prop_map(Value::Double),
        1 => any::<bool>().prop_map(Value::Boolean),
    ];
    leaf.prop_recursive(3, 40, 10, |inner| {
        prop_oneof![
            3 => vec(inner.clone(), 0..10).prop_map(Value::Array),
            1 => vec((inner.clone(), inner.clone()), 0..4).prop_map(Value::Map),
            1 => vec(inner, 0..4).prop_map(Value::Set),
        ]
    })
}

/// A client with acquisitions in several states, and what it has sent.
struct Fixture {
    engine: OfflineEngine,
    client: Client,
    target: Arc<Target>,
    now: Instant,
}

impl Fixture {
    fn new() -> Self {
        let config: Config = "redis://simulated/?namespace=fuzz".parse().expect("a valid URL");
        let engine = OfflineEngine::new(config, 7);
        let client = Client::new(engine.settings());
        let target = engine.target("it", Some(2), Duration::from_secs(10));
        let mut fixture = Self { engine, client, target, now: Instant::at(Duration::from_secs(1_000)) };
        let pushes = ServerPushes { messages: true, tracking: true };
        fixture.client.connected(pushes, fixture.now);
        for (ttl, wait) in
            [(None, Wait::Unlimited), (Some(5), Wait::For(Duration::from_secs(3))), (None, Wait::No)]
        {
            let request = AcquireRequest::new(1, ttl.map(Duration::from_secs), wait);
            fixture.client.acquire(&fixture.target, request, fixture.now);
        }
        fixture
    }

    fn calls(&mut self) -> Vec<Call> {
        let calls: Vec<_> = std::iter::from_fn(|| self.client.poll_transmit(self.now)).collect();
        while let Some(event) = self.client.poll_event() {
            if let Event::Wake(waker) = event {
                waker.wake();
            }
        }
        calls
    }

    /// Every kind of call, whether the client sent it or not.
    fn commands(&self) -> Vec<Command> {
        let (key, id): (_, Arc<str>) = (Key(1), "0535dd93000000000007000000000001".into());
        let request = Arc::new(AcquireRequest::new(1, None, Wait::Unlimited));
        vec![
            Command::Acquire { request, place: 0.0, wait_left: None },
            Command::CheckWaiter { key },
            Command::Release { key },
            Command::End {
                leavers: [(key, EndReason::Cancelled), (Key(2), EndReason::TimedOut)]
                    .map(|(key, reason)| Leaver { key, reason, has_lost_attempt: false })
                    .to_vec(),
            },
            Command::EndById { id: Arc::clone(&id), reason: EndReason::Evicted },
            Command::Renew { id, ttl: Some(Duration::from_secs(1)) },
            Command::Heartbeat {
                holders: Vec::new(),
                waiters: Vec::new(),
                part: semafor::__client::HeartbeatPart::Holders,
            },
            Command::Sweep,
        ]
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Replies of a server that makes no sense, to a client with acquisitions in several states.
    #[test]
    fn replies_of_any_kind_do_no_harm(replies in vec(value(), 1..30), steps in vec(0u64..4_000, 1..30)) {
        let mut fixture = Fixture::new();
        let mut pending = fixture.calls();
        for (reply, step) in replies.iter().zip(steps.iter().cycle()) {
            let (sent, target) = (fixture.now, Arc::clone(&fixture.target));
            fixture.now = fixture.now + Duration::from_millis(*step);
            for command in fixture.commands() {
                let call = Call { number: 1, target: Arc::clone(&target), command, is_repeat: false };
                let _ = fixture.engine.decode(&call, reply.clone(), sent, fixture.now);
            }
            if let Some(call) = pending.pop() {
                let now = fixture.now;
                match fixture.engine.decode(&call, reply.clone(), sent, now) {
                    Ok(reply) => fixture.client.handle_reply(call, reply, now),
                    Err(error) => {
                        let failure = semafor::__client::Failure { error, is_transient: false, was_sent: true };
                        fixture.client.handle_failure(call, &failure, now);
                    }
                }
            }
            let now = fixture.now;
            fixture.client.handle_timeout(now);
            for key in 1..4 {
                let _ = fixture.client.poll_acquire(Key(key), Waker::noop().clone());
            }
            pending.extend(fixture.calls());
            prop_assert!(pending.len() < 100, "{} calls pending", pending.len());
        }
        let now = fixture.now;
        fixture.client.detach(Key(1), TaskKey::Scope(1), None, now);
        fixture.client.drop_lease(Key(2), now);
    }

    /// Messages that a server or a foreign client publishes.
    #[test]
    fn pushes_of_any_kind_do_no_harm(data in vec(value(), 0..4), words in vec(text(), 0..8), kind in 0..4) {
        let mut fixture = Fixture::new();
        let ids: [&[u8]; 2] = [b"0535dd93000000000007000000000001", b"0535dd93000000000007ffffffffffff"];
        let mut message = words.clone();
        message.insert(words.len().min(1), ids[kind as usize % 2].to_vec());
        let message = Value::BulkString(message.join(&b' '));
        let pushes = [
            PushInfo { kind: PushKind::Message, data: vec![Value::BulkString(b"channel".to_vec()), message] },
            PushInfo { kind: PushKind::Invalidate, data: data.clone() },
            PushInfo { kind: PushKind::Message, data: data.clone() },
            PushInfo { kind: PushKind::Other("strange".into()), data },
        ];
        for push in pushes {
            let now = fixture.now;
            for push in fixture.engine.read_push(push, now) {
                fixture.client.handle_push(push, now);
            }
        }
        prop_assert!(fixture.calls().len() < 50);
    }

    #[test]
    fn any_text_is_a_url_or_an_error(text in "\\PC{0,60}", scheme in "(redis|rediss|redis\\+cluster|redis\\+sentinel|unix|local|x)://") {
        let _ = text.parse::<Config>();
        if let Err(error) = format!("{scheme}user:hunter2hunter2@{text}").parse::<Config>() {
            prop_assert!(!error.to_string().contains("hunter2hunter2"), "{}", error);
        }
        let _ = format!("{scheme}{text}").parse::<semafor::local::Config>();
    }
}

/// Frames with any content, some of them nearly right, from clients that come and go.
#[test]
fn agent_survives_any_frames() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let directory = folder.path().join("semafor");
    let agent = semafor::local::Agent::bind(&directory).expect("the folder is ours");
    std::thread::spawn(move || agent.serve());
    let socket = std::fs::read_dir(&directory).expect("it is there").flatten().map(|entry| entry.path());
    let socket = socket.into_iter().find(|path| UnixStream::connect(path).is_ok()).expect("it listens");
    let near = [
        r#"{"n":1,"hello":{"protocol":1,"version":"0"}}"#,
        r#"{"n":1,"acquire":{"of":{"handle":1,"name":"it","slots":1},"request":{"weight":1,"waits":true}}}"#,
        r#"{"n":1,"release":{"lease":1}}"#,
        r#"{"n":1,"reclaim":{"of":{"handle":1,"name":"it","slots":1},"weight":4294967295,"slot":4294967295}}"#,
        r#"{"n":1,"resize":{"of":{"handle":1,"name":"it"},"slots":4294967295}}"#,
        r#"[]"#,
    ];
    proptest!(ProptestConfig::with_cases(300), |(
        frames in vec((0..near.len(), vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), any::<Option<u32>>()), 1..6)
    )| {
        let mut client = UnixStream::connect(&socket).expect("it still listens");
        client.set_read_timeout(Some(Duration::from_millis(1))).expect("a socket");
        for (which, changes, length) in frames {
            let mut message = near[which].as_bytes().to_vec();
            for (at, byte) in changes {
                let at = at.index(message.len());
                message[at] = byte;
            }
            let length = length.unwrap_or(message.len() as u32);
            let frame = [&length.to_le_bytes()[..], &message].concat();
            if client.write_all(&frame).is_err() {
                break;
            }
            let _ = client.read(&mut [0; 512]);
        }
    });
    let home = semafor::Home::local(semafor::local::Config::default().directory(&directory));
    let semaphore = home.named("afterwards").slots(1).build().expect("a valid name");
    let held = pollster::block_on(async { semaphore.acquire().await.map(|permit| permit.slot()) });
    assert_eq!(held.expect("the agent answers"), 0);
}
