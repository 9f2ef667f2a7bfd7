//! Sends the calls of this process's [`Client`] to the agent, and passes the replies and the time to the client.
//!
//! A user's thread writes its call to the socket itself; a thread of the driver reads the replies. That thread runs
//! while there is a connection: it also connects, starts an agent if one is needed, and connects again when the agent
//! died. Then the client repeats the calls without a reply, in their order.
//!
//! Questions that concern no acquisition (statistics, for example) do not go through the client. They share the numbers
//! of its calls, and are repeated here.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::oneshot;

use super::address::{self, Config};
use super::lifeline::Lifeline;
use super::protocol::{self, MAX_MESSAGE, PROTOCOL, Request, Response, frame, take_first};
use super::socket::{self, Socket};
use super::{engine, fork, launch};
use crate::error::{HomeError, HomeErrorKind};
use crate::remote::call::{Call, Command, Push, Reply};
use crate::remote::client::{Client, Event, Liveness, Retry, ServerPushes, ServerStart, Settings};
use crate::remote::clock::{Instant, ServerClock};
use crate::remote::per_process::PerProcess;

/// How long an agent may take for an answer that needs no waiting in line.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// How late an agent may report that a timeout has ended.
const TIMEOUT_SLACK: Duration = Duration::from_secs(2);
/// How long to try to find or start an agent.
const START_TIME: Duration = Duration::from_secs(10);
/// How long to wait for an agent that another process is starting.
const WAIT_FOR_OTHER_STARTER: Duration = Duration::from_secs(2);
/// The pauses between attempts, the first and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));
/// The pause after a failure to find or start an agent, for a holder that needs one.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// Keeps the connection open. When the last handle is dropped, the connection is closed.
pub(super) struct DriverHandle(Arc<LocalDriver>);

pub(super) struct LocalDriver {
    pub(super) config: Config,
    state: Mutex<State>,
}

struct State {
    client: Client,
    /// Calls of the client that were sent and have no reply yet, with the time of sending.
    calls: BTreeMap<u64, (Call, Instant)>,
    /// Questions without an answer yet.
    questions: BTreeMap<u64, Question>,
    question_deadlines: BTreeSet<(Instant, u64)>,
    phase: Phase,
    /// `None` until the agent has sent its welcome.
    agent: Option<AgentInfo>,
    /// Shows this agent and the next one that this process is alive. `None` while it uses no agent.
    lifeline: Option<Lifeline>,
    is_abandoned: bool,
}

enum Phase {
    /// There is no connection and no thread.
    Idle,
    /// The thread is connecting.
    Connecting,
    Connected(Socket),
}

/// The agent at the other end of the connection.
#[derive(Clone, Debug)]
pub(super) struct AgentInfo {
    pub(super) pid: u32,
    pub(super) version: String,
    pub(super) directory: PathBuf,
}

/// A request that the agent can answer at once.
struct Question {
    frame: Vec<u8>,
    start: ServerStart,
    deadline: Instant,
    pages: Vec<Response>,
    reply_to: oneshot::Sender<Result<Vec<Response>, HomeError>>,
}

type Drivers = Mutex<Vec<(Config, Weak<DriverHandle>)>>;

static DRIVERS: PerProcess<Drivers> = PerProcess::new();

/// A forked child has none of the threads, and must not write to the connections of its parent.
pub(super) fn after_fork() {
    DRIVERS.begin_anew();
}

impl DriverHandle {
    /// The existing connection of this process to the same agent, or a new one, which connects when it is needed.
    pub(super) fn at(config: Config) -> Arc<Self> {
        let mut known = DRIVERS.get().lock();
        known.retain(|(_, handle)| handle.strong_count() > 0);
        let found = known.iter().find(|(known, _)| known.is_same(&config));
        if let Some(handle) = found.and_then(|(_, handle)| handle.upgrade()) {
            return handle;
        }
        let handle = Self::new(config.clone());
        known.push((config, Arc::downgrade(&handle)));
        handle
    }

    pub(super) fn new(config: Config) -> Arc<Self> {
        let client = Client::new(Settings {
            liveness: Liveness::Connection { reply_timeout: TIMEOUT_SLACK + ANSWER_TIME },
            // Calls are repeated on the next connection, not on this one.
            retry: Retry { attempts: 1, multiplier: 1.0, shortest: ANSWER_TIME, longest: ANSWER_TIME },
            reply_timeout: ANSWER_TIME,
            no_reply_error: no_answer("the agent"),
        });
        let state = State {
            client,
            calls: BTreeMap::new(),
            questions: BTreeMap::new(),
            question_deadlines: BTreeSet::new(),
            phase: Phase::Idle,
            agent: None,
            lifeline: None,
            is_abandoned: false,
        };
        Arc::new(Self(Arc::new(LocalDriver { config, state: Mutex::new(state) })))
    }

    pub(super) fn driver(&self) -> &Arc<LocalDriver> {
        &self.0
    }

    /// Sends a request that the agent can answer at once. If no agent runs and `start` does not start one, the answer
    /// is empty.
    ///
    /// The request is sent when this is called, even if the answer is not awaited. The answer borrows the handle,
    /// because the connection is closed without one.
    pub(super) fn ask(
        &self,
        request: Request,
        start: ServerStart,
    ) -> impl Future<Output = Result<Vec<Response>, HomeError>> + Send + use<'_> {
        let (reply_to, answer) = oneshot::channel();
        self.0.put_question(request, start, reply_to);
        async move { answer.await.unwrap_or_else(|_| Err(no_answer("the agent"))) }
    }
}

impl Drop for DriverHandle {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_abandoned = true;
        if let Phase::Connected(socket) = &state.phase {
            // The agent still reads what was sent before.
            let _ = socket.stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl LocalDriver {
    /// Changes the client, and carries out the resulting calls and events.
    pub(super) fn change<R>(self: &Arc<Self>, change: impl FnOnce(&mut Client, Instant) -> R) -> R {
        let now = Instant::now();
        let (result, events, is_thread_needed) = {
            let mut state = self.state.lock();
            let result = change(&mut state.client, now);
            let events = state.send_calls(now);
            (result, events, state.begin_connecting())
        };
        if is_thread_needed {
            self.start_thread();
        }
        carry_out(events);
        result
    }

    pub(super) fn read<R>(&self, read: impl FnOnce(&Client, Instant) -> R) -> R {
        read(&self.state.lock().client, Instant::now())
    }

    fn put_question(
        self: &Arc<Self>,
        request: Request,
        start: ServerStart,
        reply_to: oneshot::Sender<Result<Vec<Response>, HomeError>>,
    ) {
        let is_thread_needed = {
            let mut state = self.state.lock();
            let number = state.client.next_number();
            let deadline = Instant::now() + ANSWER_TIME;
            let frame = frame(&protocol::Call { number, request });
            state.question_deadlines.insert((deadline, number));
            if let Phase::Connected(socket) = &mut state.phase {
                socket.send(&frame);
                socket.wake_by(Some(deadline));
            }
            state.questions.insert(number, Question { frame, start, deadline, pages: Vec::new(), reply_to });
            state.begin_connecting()
        };
        if is_thread_needed {
            self.start_thread();
        }
    }

    /// Sends a request that has no reply. Without an agent, it is not needed.
    pub(super) fn send(&self, request: Request) {
        if let Phase::Connected(socket) = &mut self.state.lock().phase {
            socket.send(&frame(&protocol::Call { number: 0, request }));
        }
    }

    /// The agent, once it has sent its welcome.
    pub(super) fn agent(&self) -> Option<AgentInfo> {
        self.state.lock().agent.clone()
    }

    // The thread

    fn start_thread(self: &Arc<Self>) {
        let this = Arc::clone(self);
        let thread = std::thread::Builder::new().name("semafor-local".into());
        if let Err(error) = thread.spawn(move || this.run()) {
            let message = format!("can't start the thread for the connection: {error}");
            self.give_up(&HomeError::caused_by(error, HomeErrorKind::Unreachable, message));
            self.state.lock().phase = Phase::Idle;
        }
    }

    fn run(self: Arc<Self>) {
        let mut failed_sessions = 0;
        loop {
            let mut has_failed = false;
            match self.connect() {
                Ok(Some((stream, wake_receiver))) => {
                    self.read_replies(&stream, &wake_receiver);
                    // A session that was accepted is not a failure.
                    let was_accepted = self.state.lock().agent.take().is_some();
                    failed_sessions = if was_accepted { 0 } else { failed_sessions + 1 };
                    if failed_sessions > 20 {
                        self.give_up(&unreachable("the agent closes every connection at once".to_owned()));
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    has_failed = true;
                    self.fail_all(&error);
                }
            }
            if self.end_if_idle() {
                return;
            }
            if has_failed {
                // Tries again: the next agent has to occupy the slots that are held here.
                std::thread::sleep(FAILURE_PAUSE);
            }
            if failed_sessions > 0 {
                std::thread::sleep(PAUSE.0 * failed_sessions);
            }
        }
    }

    /// True if no handle is left, or nothing needs a connection: then the thread ends.
    fn end_if_idle(&self) -> bool {
        let mut state = self.state.lock();
        let is_done = state.is_abandoned || state.questions.is_empty() && state.client.is_idle();
        state.phase = if is_done { Phase::Idle } else { Phase::Connecting };
        if is_done {
            // Nothing that an agent may know of this process is held any more.
            state.lifeline = None;
            state.client.forget_connection();
        }
        is_done
    }

    /// Finds an agent, or starts one if needed. `None` if no agent runs and nothing needs one.
    fn connect(&self) -> Result<Option<(Arc<UnixStream>, UnixStream)>, HomeError> {
        let started = Instant::now();
        let (mut is_retry, mut pause) = (false, PAUSE.0);
        loop {
            // Skips places that belong to other users, so that they can't block this user.
            let (mut places, mut skipped) = (Vec::new(), Vec::new());
            for directory in self.config.places() {
                match socket::connect(&directory) {
                    Ok(Some(stream)) => return self.start_session(stream, &directory).map(Some),
                    Ok(None) => places.push(directory),
                    Err(error) if error.kind() == HomeErrorKind::AccessDenied => skipped.push(error),
                    Err(error) => return Err(error),
                }
            }
            // Where an agent has died, it left its journal: the next agent has to start there to read it.
            let with_dead_agent = places.iter().find(|directory| address::has_socket(directory));
            let Some(first) = with_dead_agent.or(places.first()) else {
                let no_place = || unreachable("there is no folder for an agent".to_owned());
                return Err(skipped.into_iter().next().unwrap_or_else(no_place));
            };
            if !self.is_agent_needed(with_dead_agent.is_some()) {
                return Ok(None);
            }
            if is_retry {
                // An agent may be about to start, or about to end.
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE.1);
            } else {
                for error in &skipped {
                    self.config.warn(&format!("{error}. Using {}", first.display()));
                }
            }
            if started.elapsed() > START_TIME {
                let message = format!(
                    "no agent answers in {}, and no agent could be started within {START_TIME:?}",
                    first.display()
                );
                return Err(unreachable(message));
            }
            let may_leave_to_other = started.elapsed() < WAIT_FOR_OTHER_STARTER;
            if let Some(warnings) = launch::start(self.config.program.as_deref(), first, may_leave_to_other)?
            {
                self.config.warn(&warnings);
            }
            is_retry = true;
        }
    }

    /// True if pending work needs an agent. If not, ends the pending work with empty answers.
    fn is_agent_needed(&self, has_died: bool) -> bool {
        let (questions, events) = {
            let mut state = self.state.lock();
            let for_questions = state.questions.values().map(|question| question.start).max();
            let start = state.client.server_start().max(for_questions.unwrap_or(ServerStart::Never));
            if start == ServerStart::Always || start == ServerStart::IfOneDied && has_died {
                return true;
            }
            let now = Instant::now();
            state.client.no_server(now);
            state.question_deadlines.clear();
            (std::mem::take(&mut state.questions), state.send_calls(now))
        };
        for question in questions.into_values() {
            let _ = question.reply_to.send(Ok(Vec::new()));
        }
        carry_out(events);
        false
    }

    /// Starts a new connection with the hello, and with everything that has to be repeated.
    pub(super) fn start_session(
        &self,
        stream: UnixStream,
        directory: &Path,
    ) -> Result<(Arc<UnixStream>, UnixStream), HomeError> {
        let pair = UnixStream::pair().and_then(|(wake_sender, wake_receiver)| {
            wake_receiver.set_nonblocking(true)?;
            wake_sender.set_nonblocking(true)?;
            Ok((wake_sender, wake_receiver))
        });
        let (wake_sender, wake_receiver) = pair.map_err(|error| {
            let message = format!("can't create a pair of sockets: {error}");
            HomeError::caused_by(error, HomeErrorKind::Unreachable, message)
        })?;
        let stream = Arc::new(stream);
        fork::register_connection(&stream);
        let mut socket = Socket::new(Arc::clone(&stream), wake_sender, directory);
        let now = Instant::now();
        let events = {
            let mut state = self.state.lock();
            if !state.lifeline.as_ref().is_some_and(|lifeline| lifeline.is_in(directory)) {
                state.lifeline = Lifeline::take(directory);
                state.lifeline.iter().for_each(fork::register_lifeline);
            }
            let lifeline = state.lifeline.as_ref().map(Lifeline::byte);
            let version = env!("CARGO_PKG_VERSION").to_owned();
            let hello = Request::Hello { protocol: PROTOCOL, version, lifeline, hears_renewals: true };
            socket.send(&frame(&protocol::Call { number: 0, request: hello }));
            state.phase = Phase::Connected(socket);
            state.client.connected(ServerPushes::default(), now);
            let events = state.send_calls(now);
            let State { phase, questions, .. } = &mut *state;
            if let Phase::Connected(socket) = phase {
                questions.values().for_each(|question| socket.send(&question.frame));
            }
            events
        };
        carry_out(events);
        Ok((stream, wake_receiver))
    }

    /// Reads the agent's messages until the connection ends.
    fn read_replies(&self, stream: &UnixStream, wake_receiver: &UnixStream) {
        let mut received = Vec::new();
        let mut chunk = vec![0; 16 * 1024];
        loop {
            let (flags, wait) = {
                let mut state = self.state.lock();
                let next = state.next_deadline();
                let Phase::Connected(socket) = &mut state.phase else { return };
                socket.sleeps_until = next;
                let flags = if socket.has_unsent() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
                (flags, next.map(|next| next.saturating_duration_since(Instant::now())))
            };
            let timeout = wait.and_then(|wait| Timespec::try_from(wait).ok());
            let mut ready = [PollFd::new(stream, flags), PollFd::new(wake_receiver, PollFlags::IN)];
            let _ = poll(&mut ready, timeout.as_ref());
            let (stream_events, wake_events) = (ready[0].revents(), ready[1].revents());
            if !wake_events.is_empty() {
                let _ = (&mut &*wake_receiver).read(&mut chunk);
            }
            if stream_events.contains(PollFlags::OUT)
                && let Phase::Connected(socket) = &mut self.state.lock().phase
            {
                socket.flush();
            }
            self.handle_timeouts();
            if !stream_events.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                continue;
            }
            match (&mut &*stream).read(&mut chunk) {
                Ok(0) => {}
                Ok(count) => {
                    received.extend_from_slice(&chunk[..count]);
                    if self.receive(&mut received).is_err() {
                        return;
                    }
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(_) => {}
            }
            self.disconnect();
            return;
        }
    }

    /// Takes the complete messages out of `received`. After an invalid one, the connection is given up.
    pub(super) fn receive(&self, received: &mut Vec<u8>) -> Result<(), HomeError> {
        self.handle_bytes(received).inspect_err(|reason| {
            self.disconnect();
            self.give_up(reason);
        })
    }

    fn handle_bytes(&self, received: &mut Vec<u8>) -> Result<(), HomeError> {
        while let Some(reply) = take_first(received).map_err(invalid_message)? {
            self.handle_message(reply)?;
        }
        debug_assert!(received.len() <= MAX_MESSAGE + 4);
        Ok(())
    }

    fn handle_message(
        &self,
        protocol::Reply { number, more, response }: protocol::Reply,
    ) -> Result<(), HomeError> {
        let now = Instant::now();
        let mut state = self.state.lock();
        match response {
            Response::Welcome { protocol, version, pid } => {
                return state.handle_welcome(protocol, version, pid);
            }
            Response::Lost { why, is_kept } => {
                let push = Push::Lost { key: engine::key(number), why: why.into(), is_kept };
                state.client.handle_push(push, now);
            }
            Response::Renewed { ttl } => {
                let clock = ServerClock::new(0.0, now, now);
                let end = Some((clock, ttl.map(|ttl| ttl.as_secs_f64())));
                state.client.handle_push(Push::Renewed { key: engine::key(number), end }, now);
            }
            response if more => {
                if let Some(question) = state.questions.get_mut(&number) {
                    question.pages.push(response);
                }
            }
            response => {
                if let Some(question) = state.take_question(number) {
                    let agent = state.agent_name();
                    drop(state);
                    let answer = match response {
                        Response::NotUnderstood(_) => Err(too_old(&agent)),
                        response => Ok(question.pages.into_iter().chain([response]).collect()),
                    };
                    let _ = question.reply_to.send(answer);
                    return Ok(());
                }
                let Some((call, sent)) = state.calls.remove(&number) else { return Ok(()) };
                match engine::decode(&call, response, &state.agent_name(), sent, now) {
                    Ok(reply) => state.client.handle_reply(call, reply, now),
                    Err(failure) => state.client.handle_failure(call, &failure, now),
                }
            }
        }
        let events = state.send_calls(now);
        drop(state);
        carry_out(events);
        Ok(())
    }

    pub(super) fn handle_timeouts(&self) {
        let now = Instant::now();
        let (questions, events, agent) = {
            let mut state = self.state.lock();
            let mut overdue = Vec::new();
            while let Some((deadline, number)) = state.question_deadlines.first().copied()
                && deadline <= now
            {
                overdue.extend(state.take_question(number));
            }
            state.client.handle_timeout(now);
            (overdue, state.send_calls(now), state.agent_name())
        };
        for question in questions {
            let _ = question.reply_to.send(Err(no_answer(&agent)));
        }
        carry_out(events);
    }

    /// The connection to the agent has ended.
    fn disconnect(&self) {
        let events = {
            let mut state = self.state.lock();
            if state.is_abandoned {
                return;
            }
            let calls = std::mem::take(&mut state.calls);
            let calls = calls.into_values().map(|(call, _)| call).collect();
            let now = Instant::now();
            state.phase = Phase::Connecting;
            state.client.disconnected(calls, now);
            state.send_calls(now)
        };
        carry_out(events);
    }

    /// Fails everything pending, and forgets all grants.
    fn give_up(&self, error: &HomeError) {
        {
            let mut state = self.state.lock();
            // No agent will occupy their slots, or wait for this process.
            state.client.forget_grants();
            state.lifeline = None;
        }
        self.fail_all(error);
    }

    /// Fails everything pending. Grants stay: the next agent occupies their slots.
    fn fail_all(&self, error: &HomeError) {
        let (questions, events) = {
            let mut state = self.state.lock();
            let now = Instant::now();
            state.phase = Phase::Connecting;
            state.calls.clear();
            state.question_deadlines.clear();
            state.client.fail_all(error, now);
            (std::mem::take(&mut state.questions), state.send_calls(now))
        };
        for question in questions.into_values() {
            let _ = question.reply_to.send(Err(error.clone()));
        }
        carry_out(events);
    }
}

impl State {
    /// Sends the client's calls. Returns its events, to be carried out without the lock.
    fn send_calls(&mut self, now: Instant) -> Vec<Event> {
        if let Phase::Connected(socket) = &mut self.phase {
            while let Some(call) = self.client.poll_transmit(now) {
                for (number, request) in engine::encode(&call) {
                    socket.send(&frame(&protocol::Call { number, request }));
                }
                if let Command::End { leavers } = &call.command {
                    // The agent does not reply to the request of an acquisition that leaves.
                    leavers.iter().for_each(|leaver| drop(self.calls.remove(&leaver.key.0)));
                }
                if engine::is_answered(&call.command) {
                    self.calls.insert(call.number, (call, now));
                } else {
                    self.client.handle_reply(call, Reply::Done, now);
                }
            }
            socket.wake_by(self.client.poll_timeout());
        }
        std::iter::from_fn(|| self.client.poll_event()).collect()
    }

    /// True if a thread has to be started now.
    fn begin_connecting(&mut self) -> bool {
        let is_needed =
            matches!(self.phase, Phase::Idle) && (self.client.has_calls() || !self.questions.is_empty());
        if is_needed {
            self.phase = Phase::Connecting;
        }
        is_needed
    }

    fn next_deadline(&self) -> Option<Instant> {
        let for_questions = self.question_deadlines.first().map(|(deadline, _)| *deadline);
        [for_questions, self.client.poll_timeout()].into_iter().flatten().min()
    }

    fn take_question(&mut self, number: u64) -> Option<Question> {
        let question = self.questions.remove(&number)?;
        self.question_deadlines.remove(&(question.deadline, number));
        Some(question)
    }

    fn handle_welcome(&mut self, protocol: u32, version: String, pid: u32) -> Result<(), HomeError> {
        if protocol < PROTOCOL {
            let agent = format!("the agent (pid {pid}, semafor {version})");
            return Err(HomeError::new(
                HomeErrorKind::Unsupported,
                format!(
                    "{agent} is older than this program: once nothing is held, `semafor agent stop` ends it, \
                     and the next command starts a new one"
                ),
            ));
        }
        if let Phase::Connected(socket) = &self.phase {
            let directory = socket.directory.clone();
            self.agent = Some(AgentInfo { pid, version, directory });
            let error = no_answer(&self.agent_name());
            self.client.set_no_reply_error(error);
        }
        Ok(())
    }

    /// The agent, for error messages.
    fn agent_name(&self) -> String {
        let name = |agent: &AgentInfo| format!("the agent (pid {}, semafor {})", agent.pid, agent.version);
        self.agent.as_ref().map_or_else(|| "the agent".to_owned(), name)
    }
}

fn carry_out(events: Vec<Event>) {
    events.into_iter().for_each(|event| event.carry_out("local:"));
}

fn unreachable(message: String) -> HomeError {
    HomeError::new(HomeErrorKind::Unreachable, message)
}

fn no_answer(agent: &str) -> HomeError {
    unreachable(format!(
        "{agent} does not answer: is it stopped, or the machine too busy? `semafor agent status` shows its state"
    ))
}

pub(super) fn too_old(agent: &str) -> HomeError {
    let message = format!(
        "{agent} does not know this request: it is older than this program. Once nothing is held, \
         `semafor agent stop` ends it, and the next command starts a new one"
    );
    HomeError::new(HomeErrorKind::Unsupported, message)
}

fn invalid_message(error: io::Error) -> HomeError {
    let message = format!("the agent sent an invalid message: {error}");
    HomeError::caused_by(error, HomeErrorKind::Other, message)
}

pub(super) fn unexpected(response: &Response) -> HomeError {
    HomeError::new(
        HomeErrorKind::Other,
        format!("the agent replied {response:?}, which does not fit the request"),
    )
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;
    use crate::Home;
    use crate::local::{Agent, stop};

    #[test]
    fn waiter_that_leaves_the_line_leaves_no_call_behind() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let place = folder.path().join("semafor");
        let agent = Agent::bind(&place).expect("no other agent");
        let agent = std::thread::spawn(move || agent.serve());
        let config = Config::default().directory(&place).program("/bin/true");
        let handle = DriverHandle::at(config.clone());
        pollster::block_on(async {
            let semaphore = Home::local(config.clone()).named("it").slots(1).build().expect("a valid name");
            let held = semaphore.acquire().await.expect("it is free");
            for _ in 0..10 {
                let mut waiting = Box::pin(semaphore.acquire().into_future());
                let polled = std::future::poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_pending()));
                assert!(polled.await, "it waits");
            }
            // When the agent replies to this, it has read all of the above.
            held.release().await.expect("it is held");
            assert_eq!(handle.driver().state.lock().calls.len(), 0);
            stop(&config, true).await.expect("it answers");
        });
        agent.join().expect("it does not panic").expect("it serves to its end");
    }
}
