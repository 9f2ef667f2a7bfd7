//! What the server has to do, in its own words.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::{Connection, cmd};
use semafor_testkit::redis::RedisServer;

pub(super) struct ServerUsage {
    connection: Connection,
    port: u16,
}

impl ServerUsage {
    pub(super) fn open(server: &RedisServer) -> Self {
        Self { connection: server.connection(), port: server.port() }
    }

    /// How many connections there are, without this one.
    pub(super) fn connections(&mut self) -> usize {
        let list: String = cmd("CLIENT").arg("LIST").query(&mut self.connection).expect("it answers");
        list.lines().count() - 1
    }

    /// Milliseconds of processor time that it takes per second, over so long.
    pub(super) fn cpu(&mut self, window: Duration) -> f64 {
        let (start, before) = (Instant::now(), self.cpu_so_far());
        sleep(window);
        (self.cpu_so_far() - before) * 1e3 / start.elapsed().as_secs_f64()
    }

    fn cpu_so_far(&mut self) -> f64 {
        let info: String = cmd("INFO").arg("cpu").query(&mut self.connection).expect("it answers");
        let seconds = |name| {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|value| value.parse::<f64>().ok()).expect("it is said")
        };
        seconds("used_cpu_user") + seconds("used_cpu_sys")
    }

    /// How often it is sent each command per second, over so long; scripts by their digests. Not what scripts call.
    ///
    /// Listening in costs the server something, so its processor time is not to be measured meanwhile.
    pub(super) fn commands(&mut self, window: Duration) -> BTreeMap<String, f64> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it answers");
        stream.set_read_timeout(Some(Duration::from_millis(50))).expect("a valid time");
        stream.write_all(b"MONITOR\r\n").expect("it listens");
        let (mut lines, mut line) = (BufReader::new(stream), Vec::new());
        let mut commands = BTreeMap::new();
        let start = Instant::now();
        while start.elapsed() < window {
            match lines.read_until(b'\n', &mut line) {
                Ok(_) => {
                    if let Some(command) = sent(&String::from_utf8_lossy(&line)) {
                        *commands.entry(command).or_insert(0.0) += 1.0;
                    }
                    line.clear();
                }
                // Nothing happens; or half of a line has come, and stays where it is.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("the server hung up: {error}"),
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        commands.values_mut().for_each(|count| *count /= seconds);
        commands
    }
}

/// From `+1700000000.123456 [0 127.0.0.1:50000] "GET" "key"`, unless a script called it.
fn sent(line: &str) -> Option<String> {
    let (sender, command) = line.split_once(" [")?.1.split_once("] ")?;
    let mut words = command.split('"').skip(1).step_by(2);
    let word = words.next()?.to_uppercase();
    match word.as_str() {
        _ if sender.ends_with(" lua") => None,
        "EVALSHA" => Some(format!("{word} {}", words.next()?)),
        _ => Some(word),
    }
}
