//! The commands that a server gets, in order, with their clients.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::RedisServer;

/// A test that waits longer than this has failed. Not a measure of speed.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Records the commands of a server from its creation on, with `MONITOR`.
pub struct Monitor {
    stream: TcpStream,
    heard: Receiver<Observed>,
    listener: Option<JoinHandle<()>>,
}

/// One command.
#[derive(Clone, PartialEq, Debug)]
pub struct Observed {
    /// The time, by the server's clock, in seconds.
    pub at: f64,
    /// The client: `127.0.0.1:1234`, or `lua` if it is part of the script before it.
    pub by: String,
    /// Its words.
    pub words: Vec<String>,
}

impl Monitor {
    /// A monitor of `server`, which must not need a password.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub fn of(server: &RedisServer) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("the server is up");
        stream.write_all(b"MONITOR\r\n").expect("the server reads");
        let mut lines = BufReader::new(stream.try_clone().expect("a second handle"));
        let mut first = String::new();
        lines.read_line(&mut first).expect("the server answers");
        assert_eq!(first.trim_end(), "+OK");
        let (tell, heard) = channel();
        let listen = move || {
            for line in lines.lines().map_while(Result::ok) {
                let Some(observed) = Observed::read(&line) else { continue };
                if tell.send(observed).is_err() {
                    return;
                }
            }
        };
        Self { stream, heard, listener: Some(thread::spawn(listen)) }
    }

    /// The commands since the last call, up to now.
    pub fn so_far(&self, server: &RedisServer) -> Vec<Observed> {
        // All commands before this one were sent before now.
        let mark = format!("mark-{:?}", Instant::now());
        server.command(&["ECHO", &mark]);
        let mut observed = self.until("the mark is heard", |observed| observed.words.get(1) == Some(&mark));
        observed.pop();
        observed
    }

    /// The commands up to and including the first for which `wanted` is true.
    ///
    /// # Panics
    ///
    /// If there never is one.
    #[track_caller]
    pub fn until(&self, what: &str, mut wanted: impl FnMut(&Observed) -> bool) -> Vec<Observed> {
        let (deadline, mut all) = (Instant::now() + TIME_LIMIT, Vec::new());
        loop {
            match self.heard.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(observed) => {
                    let is_last = wanted(&observed);
                    all.push(observed);
                    if is_last {
                        return all;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("this never happened: {what}"),
                Err(RecvTimeoutError::Disconnected) => panic!("the server has gone before {what}"),
            }
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

impl Observed {
    /// `+1700000000.000001 [0 127.0.0.1:1234] "GET" "key"`.
    fn read(line: &str) -> Option<Self> {
        let (at, rest) = line.strip_prefix('+')?.split_once(" [")?;
        let (by, words) = rest.split_once("] ")?;
        let by = by.split_once(' ')?.1.to_owned();
        Some(Self { at: at.parse().ok()?, by, words: unquoted(words) })
    }

    /// True if it runs a script.
    pub fn is_script(&self) -> bool {
        self.words.first().is_some_and(|word| word.to_ascii_uppercase().starts_with("EVAL"))
    }

    /// True if its first word is `command`, and another word is `word`.
    pub fn is(&self, command: &str, word: &str) -> bool {
        self.words.first().is_some_and(|first| first.eq_ignore_ascii_case(command))
            && self.words[1..].iter().any(|other| other == word)
    }
}

/// Removes the quotes and escapes. Bytes that are not text are lost.
fn unquoted(text: &str) -> Vec<String> {
    let (mut words, mut characters) = (Vec::new(), text.chars());
    while characters.any(|character| character == '"') {
        let mut word = Vec::new();
        while let Some(character) = characters.next().filter(|character| *character != '"') {
            let plain = match character {
                '\\' => match characters.next() {
                    Some('n') => '\n',
                    Some('r') => '\r',
                    Some('t') => '\t',
                    Some('x') => {
                        let digits: String = characters.by_ref().take(2).collect();
                        word.push(u8::from_str_radix(&digits, 16).unwrap_or(b'?'));
                        continue;
                    }
                    Some(other) => other,
                    None => break,
                },
                plain => plain,
            };
            word.extend_from_slice(plain.encode_utf8(&mut [0; 4]).as_bytes());
        }
        words.push(String::from_utf8_lossy(&word).into_owned());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monitor_sees_commands_and_what_scripts_do() {
        let server = RedisServer::start();
        let monitor = Monitor::of(&server);
        server.command(&["SET", "a \"b\" \\ \n ä", "1"]);
        server.command(&["EVAL", "return redis.call('GET', KEYS[1])", "1", "key"]);
        let observed = monitor.so_far(&server);
        let of = |command: &str, word: &str| observed.iter().find(|observed| observed.is(command, word));
        assert!(
            of("SET", "a \"b\" \\ \n ä")
                .is_some_and(|observed| observed.at > 0.0 && observed.by.contains(':'))
        );
        assert!(of("EVAL", "key").is_some_and(Observed::is_script));
        assert_eq!(of("GET", "key").expect("the script does it").by, "lua");
        assert_eq!(monitor.so_far(&server).iter().filter(|observed| observed.is_script()).count(), 0);
    }
}
