//! A proxy that loses requests, replies or connections.
//!
//! TCP loses nothing within a connection: it delivers, or the connection breaks. So a connection from which something
//! was swallowed never delivers again. It is cut with the next change of mode.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A test that waits longer than this has failed. Not a measure of speed.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Forwards requests to a server and replies back, until the test changes its mode.
pub struct Proxy {
    port: u16,
    wire: Arc<Wire>,
    acceptor: Option<JoinHandle<()>>,
}

struct Wire {
    server: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    mode: Mode,
    trap: Option<Trap>,
    sprung: bool,
    swallowed: bool,
    closing: bool,
    connections: HashMap<u64, Ends>,
    connected: u64,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Forward,
    SwallowRequests,
    SwallowReplies,
    HoldReplies,
    Refuse,
}

struct Trap {
    matching: Vec<u8>,
    executed: bool,
}

/// The two ends of a connection.
struct Ends {
    client: TcpStream,
    server: TcpStream,
    /// Something was swallowed.
    torn: bool,
    /// The trap has sprung: no reply goes back.
    trapped: bool,
}

impl Ends {
    fn cut(&self) {
        // Either may be closed already.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

/// What to do with bytes that have arrived.
enum Action {
    Forward,
    Swallow,
    ForwardAndHangUp,
    Cut,
}

impl Proxy {
    /// A proxy for the server on this port.
    ///
    /// # Panics
    ///
    /// If there is no free port to listen on.
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let own = listener.local_addr().expect("it listens").port();
        let server = SocketAddr::from(([127, 0, 0, 1], port));
        let wire = Arc::new(Wire { server, state: Mutex::default(), changed: Condvar::new() });
        let accepting = Arc::clone(&wire);
        let acceptor = Some(thread::spawn(move || accepting.accept_on(&listener)));
        Self { port: own, wire, acceptor }
    }

    /// `redis://127.0.0.1:PORT/`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on everything is forwarded, and no trap is set.
    pub fn forward(&self) {
        self.wire.state().trap = None;
        self.change(Mode::Forward);
    }

    /// From now on requests are dropped: they are never executed.
    pub fn swallow_requests(&self) {
        self.change(Mode::SwallowRequests);
    }

    /// From now on replies are dropped: the server executes requests, but the client gets no answer.
    pub fn swallow_replies(&self) {
        self.change(Mode::SwallowReplies);
    }

    /// From now on replies and push messages are delayed: requests are executed, and the replies arrive, in order, with
    /// the next change of mode.
    pub fn hold_replies(&self) {
        self.change(Mode::HoldReplies);
    }

    /// From now on new connections are closed at once. Open connections continue.
    pub fn refuse(&self) {
        self.change(Mode::Refuse);
    }

    fn change(&self, mode: Mode) {
        let mut state = self.wire.state();
        state.mode = mode;
        state.swallowed = false;
        state.connections.values().filter(|ends| ends.torn).for_each(Ends::cut);
        drop(state);
        self.wire.changed.notify_all();
    }

    /// Closes all connections. New ones can be made.
    pub fn cut(&self) {
        self.wire.state().connections.values().for_each(Ends::cut);
        self.wire.changed.notify_all();
    }

    /// Sets a trap: the next request with `matching` in it is executed, and its connection closed without a reply.
    ///
    /// The server has executed it, or started to wait with it, when the client finds its connection closed.
    pub fn cut_after_request(&self, matching: &str) {
        self.set_trap(matching, true);
    }

    /// Sets a trap: with the next request that has `matching` in it, its connection is closed, and the request not
    /// executed.
    pub fn cut_before_request(&self, matching: &str) {
        self.set_trap(matching, false);
    }

    fn set_trap(&self, matching: &str, executed: bool) {
        assert!(!matching.is_empty(), "an empty text would match every request");
        let mut state = self.wire.state();
        state.trap = Some(Trap { matching: matching.as_bytes().to_owned(), executed });
        state.sprung = false;
    }

    /// Returns when the last trap set has sprung, and the connection is closed.
    ///
    /// # Panics
    ///
    /// If it never does.
    #[track_caller]
    pub fn wait_until_cut(&self) {
        self.wait_until("the trap springs", |state| state.sprung);
    }

    /// Returns when something was swallowed in the present mode: with [replies](Self::swallow_replies), its request was
    /// executed.
    ///
    /// # Panics
    ///
    /// If nothing ever is.
    #[track_caller]
    pub fn wait_until_swallowed(&self) {
        self.wait_until("something is swallowed", |state| state.swallowed);
    }

    #[track_caller]
    fn wait_until(&self, what: &str, wanted: impl Fn(&State) -> bool) {
        let state = self.wire.state();
        let (state, overtime) = self
            .wire
            .changed
            .wait_timeout_while(state, TIME_LIMIT, |state| !wanted(state))
            .unwrap_or_else(PoisonError::into_inner);
        drop(state);
        assert!(!overtime.timed_out(), "this never happened: {what}");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.wire.state().closing = true;
        self.cut();
        // The acceptor checks the flag only after a connection came in.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

impl Wire {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when it is closing and all connections have ended.
    fn accept_on(&self, listener: &TcpListener) {
        thread::scope(|threads| {
            for client in listener.incoming() {
                if self.state().closing {
                    break;
                }
                // A client that has disconnected already is no reason to stop.
                let Ok(client) = client else { continue };
                if self.state().mode != Mode::Refuse {
                    threads.spawn(|| self.serve(client));
                }
            }
        });
    }

    /// Returns when the connection has ended. Any error ends it.
    fn serve(&self, client: TcpStream) {
        let Ok((number, client, server)) = self.connect(client) else { return };
        thread::scope(|threads| {
            threads.spawn(|| {
                if self.forward_requests(number, &client, &server).is_ok() {
                    // The server finishes its work, and closes the connection in turn.
                    let _ = server.shutdown(Shutdown::Write);
                } else {
                    self.end(number);
                }
            });
            let _ = self.forward_replies(number, &client, &server);
            self.end(number);
        });
    }

    fn connect(&self, client: TcpStream) -> io::Result<(u64, TcpStream, TcpStream)> {
        let server = TcpStream::connect_timeout(&self.server, Duration::from_secs(5))?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let ends =
            Ends { client: client.try_clone()?, server: server.try_clone()?, torn: false, trapped: false };
        let mut state = self.state();
        if state.closing {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        state.connected += 1;
        let number = state.connected;
        state.connections.insert(number, ends);
        Ok((number, client, server))
    }

    fn end(&self, number: u64) {
        let mut state = self.state();
        let Some(ends) = state.connections.remove(&number) else { return };
        ends.cut();
        state.sprung |= ends.trapped;
        drop(state);
        self.changed.notify_all();
    }

    /// `Ok` when no more requests come. An error ends the connection at once.
    fn forward_requests(
        &self,
        number: u64,
        mut client: &TcpStream,
        mut server: &TcpStream,
    ) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        // The text that a trap matches may arrive in two pieces.
        let mut recent = Vec::new();
        loop {
            let length = client.read(&mut buffer)?;
            if length == 0 {
                return Ok(());
            }
            let request = &buffer[..length];
            recent.extend_from_slice(request);
            match self.action_for_request(number, &mut recent) {
                Action::Forward => server.write_all(request)?,
                Action::Swallow => {}
                Action::ForwardAndHangUp => return server.write_all(request),
                Action::Cut => return Err(io::ErrorKind::ConnectionAborted.into()),
            }
        }
    }

    fn forward_replies(&self, number: u64, mut client: &TcpStream, mut server: &TcpStream) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let length = server.read(&mut buffer)?;
            if length == 0 {
                return Ok(());
            }
            if let Action::Forward = self.action_for_reply(number) {
                client.write_all(&buffer[..length])?;
            }
        }
    }

    fn action_for_request(&self, number: u64, recent: &mut Vec<u8>) -> Action {
        let mut state = self.state();
        if state.mode == Mode::SwallowRequests {
            self.swallow(state, number);
            recent.clear();
            return Action::Swallow;
        }
        let Some(trap) = &state.trap else {
            recent.clear();
            return Action::Forward;
        };
        let length = trap.matching.len();
        if !recent.windows(length).any(|bytes| bytes == trap.matching) {
            let keep_from = recent.len().saturating_sub(length - 1);
            recent.drain(..keep_from);
            return Action::Forward;
        }
        let executed = trap.executed;
        state.trap = None;
        if let Some(ends) = state.connections.get_mut(&number) {
            ends.trapped = true;
        }
        if executed { Action::ForwardAndHangUp } else { Action::Cut }
    }

    fn action_for_reply(&self, number: u64) -> Action {
        let state = self.state();
        let is_held = |state: &mut State| {
            state.mode == Mode::HoldReplies && !state.closing && state.connections.contains_key(&number)
        };
        let state = self.changed.wait_while(state, is_held).unwrap_or_else(PoisonError::into_inner);
        if state.connections.get(&number).is_none_or(|ends| ends.trapped) {
            return Action::Swallow;
        }
        if state.mode == Mode::SwallowReplies {
            self.swallow(state, number);
            return Action::Swallow;
        }
        Action::Forward
    }

    fn swallow(&self, mut state: MutexGuard<'_, State>, number: u64) {
        if let Some(ends) = state.connections.get_mut(&number) {
            ends.torn = true;
        }
        state.swallowed = true;
        drop(state);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::RedisServer;

    /// Uses the inline form of the protocol, so that it can send requests without waiting for an answer.
    struct Speaker(TcpStream);

    impl Speaker {
        fn to(proxy: &Proxy) -> Self {
            let stream = TcpStream::connect(("127.0.0.1", proxy.port())).expect("it listens");
            stream.set_read_timeout(Some(TIME_LIMIT)).unwrap();
            Self(stream)
        }

        fn says(&mut self, request: &str) {
            self.0.write_all(request.as_bytes()).unwrap();
        }

        fn hears(&mut self, reply: &str) {
            let mut heard = vec![0; reply.len()];
            self.0.read_exact(&mut heard).expect("a reply");
            assert_eq!(String::from_utf8_lossy(&heard), reply);
        }

        /// Checks that the connection is closed, and that nothing arrived before.
        fn is_cut_off(&mut self) {
            match self.0.read(&mut [0]) {
                Ok(heard) => assert_eq!(heard, 0, "something came before the end"),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
            }
        }
    }

    fn count(server: &RedisServer) -> u32 {
        let count: Option<u32> = server.ask(&["GET", "count"]).unwrap();
        count.unwrap_or(0)
    }

    #[test]
    fn forwarded_requests_are_executed_and_answered() {
        let server = RedisServer::start();
        let proxy = Proxy::to(server.port());
        let mut connection = redis::Client::open(proxy.url()).unwrap().get_connection().unwrap();
        let big = "x".repeat(1_000_000);
        redis::cmd("SET").arg("big").arg(&big).exec(&mut connection).unwrap();
        let back: String = redis::cmd("GET").arg("big").query(&mut connection).unwrap();
        assert!(back == big);
    }

    #[test]
    fn a_swallowed_request_is_never_executed() {
        let server = RedisServer::start();
        let proxy = Proxy::to(server.port());
        let mut speaker = Speaker::to(&proxy);
        proxy.swallow_requests();
        speaker.says("INCR count\r\n");
        proxy.wait_until_swallowed();
        proxy.forward();
        speaker.is_cut_off();
        let mut another = Speaker::to(&proxy);
        another.says("INCR count\r\n");
        another.hears(":1\r\n");
    }

    #[test]
    fn request_with_a_swallowed_reply_is_executed() {
        let server = RedisServer::start();
        let proxy = Proxy::to(server.port());
        let mut speaker = Speaker::to(&proxy);
        proxy.swallow_replies();
        speaker.says("INCR count\r\n");
        proxy.wait_until_swallowed();
        assert_eq!(count(&server), 1);
        proxy.forward();
        speaker.is_cut_off();
    }

    #[test]
    fn held_replies_arrive_later_and_in_order() {
        let server = RedisServer::start();
        let proxy = Proxy::to(server.port());
        let mut speaker = Speaker::to(&proxy);
        proxy.hold_replies();
        speaker.says("INCR count\r\nINCR count\r\n");
        crate::redis::eventually("both are executed", || (count(&server) == 2).then_some(()));
        proxy.forward();
        speaker.hears(":1\r\n:2\r\n");
        // The connection of a waiting client can be cut.
        proxy.hold_replies();
        speaker.says("PING\r\n");
        proxy.cut();
        speaker.is_cut_off();
    }

    #[test]
    fn cut_closes_open_connections_and_accepts_new_ones() {
        let server = RedisServer::start();
        let proxy = Proxy::to(server.port());
        let mut speakers = [Speaker::to(&proxy), Speaker::to(&proxy)];
        for speaker in &mut speakers {
            speaker.says("PING\r\n");
            speaker.hears("+PONG\r\n");
        }
        proxy.cut();
        speakers.iter_mut().for_each(Speaker::is_cut_off);
        let mut another = Speaker::to(&proxy);
        another.says("PING\r\n");
        another.hears("+PONG\r\n");
    }

    #[test]
    fn refused_connections_do_not_disturb_accepted_ones() {
        let server = RedisServer::start();
        let proxy = Proxy::to(server.port());
        let mut inside = Speaker::to(&proxy);
        inside.says("PING\r\n");
        inside.hears("+PONG\r\n");
        proxy.refuse();
        Speaker::to(&proxy).is_cut_off();
        inside.says("PING\r\n");
        inside.hears("+PONG\r\n");
        proxy.forward();
        let mut welcome = Speaker::to(&proxy);
        welcome.says("PING\r\n");
        welcome.hears("+PONG\r\n");
    }

    #[test]
    fn cut_after_a_request_leaves_it_executed_and_unanswered() {
        let server = RedisServer::start();
        let proxy = Proxy::to(server.port());
        let (mut speaker, mut other) = (Speaker::to(&proxy), Speaker::to(&proxy));
        proxy.cut_after_request("INCR");
        speaker.says("PING\r\n");
        speaker.hears("+PONG\r\n");
        // It arrives in two pieces, or else in one.
        speaker.says("IN");
        speaker.says("CR count\r\n");
        speaker.is_cut_off();
        assert_eq!(count(&server), 1);
        proxy.wait_until_cut();
        other.says("INCR count\r\n");
        other.hears(":2\r\n");
    }

    #[test]
    fn cut_after_a_blocking_request_closes_the_connection() {
        let server = RedisServer::start();
        let proxy = Proxy::to(server.port());
        let mut speaker = Speaker::to(&proxy);
        proxy.cut_after_request("BLPOP");
        speaker.says("BLPOP nothing 0\r\n");
        proxy.wait_until_cut();
        speaker.is_cut_off();
    }

    #[test]
    fn cut_before_a_request_keeps_it_from_being_executed() {
        let server = RedisServer::start();
        let proxy = Proxy::to(server.port());
        let mut speaker = Speaker::to(&proxy);
        proxy.cut_before_request("INCR");
        speaker.says("INCR count\r\n");
        proxy.wait_until_cut();
        speaker.is_cut_off();
        assert_eq!(count(&server), 0);
        let mut another = Speaker::to(&proxy);
        another.says("INCR count\r\n");
        another.hears(":1\r\n");
    }

    #[test]
    fn dropped_proxy_closes_all_connections() {
        let server = RedisServer::start();
        let proxy = Proxy::to(server.port());
        let mut speaker = Speaker::to(&proxy);
        speaker.says("PING\r\n");
        speaker.hears("+PONG\r\n");
        server.pause();
        speaker.says("PING\r\n");
        drop(proxy);
        // Do not check that the port is free: another process may have taken it by now.
        speaker.is_cut_off();
    }
}
