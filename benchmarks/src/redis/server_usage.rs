//! The load of the server, as it reports it.

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

    /// Milliseconds of processor time that it uses per second, over `window`.
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

    /// How often it gets each command per second, over `window`; scripts by their digests. Without the commands in
    /// scripts.
    ///
    /// `MONITOR` costs the server time, so do not measure its processor time meanwhile.
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
                // Nothing came, or a part of a line, which stays in the buffer.
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
