//! The connection of this process to the agent.
//!
//! Whoever asks writes its call to the socket itself; a thread reads the answers. The thread is there while there is a
//! connection: it also makes it, starts an agent where one is needed, and makes a new one when the agent died. Then all
//! calls that have no answer yet are said again, in their order: who waited goes on waiting.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, ErrorKind, Read};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SendFlags;
use semafor_core::{Loss, NotHeld};
use tokio::sync::oneshot;

use super::address::{self, Config};
use super::hold::Hold;
use super::launch;
use super::protocol::{Ask, Call, MAX_MESSAGE, PROTOCOL, Reply, Say, Target, frame, take_first};
use super::semaphore::Lease;
use crate::error::{AcquireError, HomeError, HomeErrorKind};
use crate::task::TaskKey;

/// How long an agent may take for what it can answer at once.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// How much later than it should an agent may say that somebody's patience is over.
const SLACK: Duration = Duration::from_secs(2);
/// How long to go on trying to find or start an agent.
const START_TIME: Duration = Duration::from_secs(10);
/// The pause between two attempts, the first and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));

/// A user's hold on the connection. When the last one goes, it is closed.
pub(super) struct Anchor(Arc<Link>);

pub(super) struct Link {
    pub(super) config: Config,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    phase: Phase,
    last_number: u64,
    /// Not answered yet.
    calls: BTreeMap<u64, Unanswered>,
    deadlines: BTreeSet<(Instant, u64)>,
    /// Those whose loss the agent has not told, by the number of the call that acquired them.
    leases: HashMap<u64, Arc<Hold>>,
    detached: Vec<Detached>,
    is_abandoned: bool,
}

#[derive(Default)]
enum Phase {
    /// No connection, and no thread.
    #[default]
    Resting,
    /// The thread is about to have one.
    Connecting,
    Connected(Socket),
}

struct Socket {
    stream: Arc<UnixStream>,
    /// What the socket would not take yet.
    unsent: Vec<u8>,
    /// Wakes the thread.
    bell: Arc<UnixStream>,
    /// Until when the thread sleeps, unless it hears something.
    sleeps_until: Option<Instant>,
    directory: PathBuf,
    /// Once it has said who it is.
    agent: Option<AgentCard>,
}

/// Who the agent is.
#[derive(Clone, Debug)]
pub(super) struct AgentCard {
    pub(super) pid: u32,
    pub(super) version: String,
    pub(super) directory: PathBuf,
}

struct Unanswered {
    frame: Vec<u8>,
    /// Without an agent there is nothing to ask for: true if one is to be started for it.
    needs_agent: bool,
    deadline: Option<Instant>,
    pages: Vec<Say>,
    asker: Asker,
}

enum Asker {
    Question(oneshot::Sender<Result<Vec<Say>, HomeError>>),
    Acquire(Box<Acquiring>),
}

struct Acquiring {
    anchor: Weak<Anchor>,
    of: Target,
    weight: u32,
    ttl: Option<Duration>,
    answer: oneshot::Sender<Result<Lease, AcquireError>>,
}

struct Detached {
    task: TaskKey,
    hold: Arc<Hold>,
    /// Without a time to live, it is held although nobody has a handle any more.
    _anchor: Option<Arc<Anchor>>,
}

impl Anchor {
    pub(super) fn new(config: Config) -> Arc<Self> {
        Arc::new(Self(Arc::new(Link { config, state: Mutex::default() })))
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        &self.0
    }

    /// Asks for what the agent can answer at once. Without an agent, nothing, if none is needed for it.
    ///
    /// It is said when this is called, whether the answer is awaited or not.
    pub(super) fn ask(
        self: &Arc<Self>,
        ask: Ask,
        needs_agent: bool,
    ) -> impl Future<Output = Result<Vec<Say>, HomeError>> + Send + use<> {
        let (asker, answer) = oneshot::channel();
        let deadline = Instant::now() + ANSWER_TIME;
        self.0.call(ask, needs_agent, Some(deadline), Asker::Question(asker));
        let anchor = Arc::clone(self);
        async move {
            let answer = answer.await;
            drop(anchor);
            answer.unwrap_or_else(|_| Err(no_answer("the agent")))
        }
    }

    /// Stands in line. Dropping the answer leaves it.
    pub(super) async fn acquire(
        self: Arc<Self>,
        of: Target,
        wish: super::protocol::Wanted,
    ) -> Result<Lease, AcquireError> {
        let (answer, answered) = oneshot::channel();
        let patience = if wish.waits { wish.patience } else { Some(Duration::ZERO) };
        let deadline =
            patience.and_then(|patience| Instant::now().checked_add(patience + SLACK + ANSWER_TIME));
        let acquiring = Acquiring {
            anchor: Arc::downgrade(&self),
            of: of.clone(),
            weight: wish.weight,
            ttl: wish.ttl,
            answer,
        };
        let n = self.0.call(Ask::Acquire { of, wish }, true, deadline, Asker::Acquire(Box::new(acquiring)));
        let place = Place { link: &self.0, n };
        let outcome = answered.await;
        drop(place);
        outcome.unwrap_or_else(|_| Err(no_answer("the agent").into()))
    }
}

impl Drop for Anchor {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_abandoned = true;
        if let Phase::Connected(socket) = &state.phase {
            // What was said before is still heard.
            let _ = socket.stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// A call whose caller may go away.
struct Place<'a> {
    link: &'a Link,
    n: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.link.state.lock();
        // Answered, else: then whoever drops the answer gives it back.
        if let Some(call) = state.take_call(self.n) {
            state.say(Ask::Cancel { call: self.n });
            drop(state);
            drop(call);
        }
    }
}

impl Link {
    fn call(self: &Arc<Self>, ask: Ask, needs_agent: bool, deadline: Option<Instant>, asker: Asker) -> u64 {
        let mut state = self.state.lock();
        state.last_number += 1;
        let n = state.last_number;
        let frame = frame(&Call { n, ask });
        if let Some(deadline) = deadline {
            state.deadlines.insert((deadline, n));
        }
        match &mut state.phase {
            Phase::Resting => {
                state.phase = Phase::Connecting;
                let this = Arc::clone(self);
                let thread = std::thread::Builder::new().name("semafor-local".into());
                state.calls.insert(n, Unanswered { frame, needs_agent, deadline, pages: Vec::new(), asker });
                drop(state);
                if let Err(error) = thread.spawn(move || this.run()) {
                    self.give_up(&refused(format!("no thread for the connection: {error}")));
                    self.state.lock().phase = Phase::Resting;
                }
                return n;
            }
            Phase::Connecting => {}
            Phase::Connected(socket) => {
                socket.send(&frame);
                socket.wake_by(deadline);
            }
        }
        state.calls.insert(n, Unanswered { frame, needs_agent, deadline, pages: Vec::new(), asker });
        n
    }

    /// Says something that is not answered. If there is no agent, nobody needs to hear it.
    pub(super) fn say(&self, ask: Ask) {
        self.state.lock().say(ask);
    }

    /// Who answers, if anybody does.
    pub(super) fn agent(&self) -> Option<AgentCard> {
        self.state.lock().agent().cloned()
    }

    // Leases

    /// Its holder does not want it any more. True if the agent has something to give back for it.
    pub(super) fn let_go(&self, hold: &Hold) -> bool {
        self.state.lock().leases.remove(&hold.n).is_some()
    }

    pub(super) fn detach(&self, hold: Arc<Hold>, anchor: Arc<Anchor>) {
        let mut state = self.state.lock();
        state.say(Ask::Detach { lease: hold.n });
        let mut anchor = Some(anchor);
        if hold.ends_at().is_some() {
            // The agent keeps it without us. (Its caller has another anchor: this is not the last.)
            state.leases.remove(&hold.n);
            anchor = None;
        }
        let now = Instant::now();
        state.detached.retain(|detached| detached.hold.ends_at().is_none_or(|end| end > now));
        state.detached.push(Detached { task: TaskKey::current(), hold, _anchor: anchor });
    }

    /// The latest that `task` detached under `name` and still holds, as far as is known here.
    pub(super) fn latest_detached(&self, task: TaskKey, name: &str) -> Option<Arc<Hold>> {
        let state = self.state.lock();
        let own = state.detached.iter().filter(|detached| {
            detached.task == task && *detached.hold.of.name == *name && detached.hold.why_not_held().is_none()
        });
        own.max_by_key(|detached| detached.hold.token).map(|detached| Arc::clone(&detached.hold))
    }

    pub(super) fn detached_by_id(&self, id: &str) -> Option<Arc<Hold>> {
        let state = self.state.lock();
        let found = state.detached.iter().find(|detached| *detached.hold.id == *id);
        found.map(|detached| Arc::clone(&detached.hold))
    }

    /// Ends what is known of a detached lease here.
    pub(super) fn forget_detached(&self, hold: &Hold) {
        let forgotten = {
            let mut state = self.state.lock();
            let at = state.detached.iter().position(|detached| detached.hold.n == hold.n);
            at.map(|at| state.detached.swap_remove(at))
        };
        // Outside of the lock: it may be the last hold on the connection.
        drop(forgotten);
    }

    // The thread

    fn run(self: Arc<Self>) {
        let mut deaths = 0;
        loop {
            match self.connect() {
                Ok(Some((stream, ear))) => {
                    self.attend(&stream, &ear);
                    // One that served was no failure.
                    deaths = if self.state.lock().was_welcome() { 0 } else { deaths + 1 };
                    if deaths > 20 {
                        self.give_up(&refused("the agent hangs up at once, again and again".to_owned()));
                    }
                }
                Ok(None) => {}
                Err(error) => self.give_up(&error),
            }
            if self.rest() {
                return;
            }
            if deaths > 0 {
                std::thread::sleep(PAUSE.0 * deaths);
            }
        }
    }

    /// True if nobody asks for anything any more: then there is no thread either.
    fn rest(&self) -> bool {
        let mut state = self.state.lock();
        let is_done = state.is_abandoned || state.calls.is_empty() && state.leases.is_empty();
        state.phase = if is_done { Phase::Resting } else { Phase::Connecting };
        is_done
    }

    /// Finds an agent, or starts one if need be. `None` if there is none, and nobody needs one.
    fn connect(&self) -> Result<Option<(Arc<UnixStream>, UnixStream)>, HomeError> {
        let started = Instant::now();
        let (mut is_retry, mut pause) = (false, PAUSE.0);
        loop {
            let places = self.config.places();
            for directory in &places {
                if let Some(stream) = knock(directory)? {
                    return self.greet(stream, directory).map(Some);
                }
            }
            if !self.is_agent_needed() {
                return Ok(None);
            }
            if is_retry {
                // Somebody else's, that is not quite there yet, or on its way out.
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE.1);
            }
            if started.elapsed() > START_TIME {
                let message = format!(
                    "no agent answers in {}, and none could be started within {START_TIME:?}",
                    places.first().map_or_else(String::new, |place| place.display().to_string())
                );
                return Err(refused(message));
            }
            if let Some(first) = places.first() {
                launch::start(self.config.program.as_deref(), first)?;
            }
            is_retry = true;
        }
    }

    /// Answers with nothing what needs no agent. True if something else is left.
    fn is_agent_needed(&self) -> bool {
        let answered = {
            let mut state = self.state.lock();
            if state.calls.values().any(|call| call.needs_agent) || !state.leases.is_empty() {
                return true;
            }
            state.deadlines.clear();
            std::mem::take(&mut state.calls)
        };
        for (_, call) in answered {
            call.asker.answer(Ok(Vec::new()));
        }
        false
    }

    /// Says everything that is to be said on a new connection.
    fn greet(
        &self,
        stream: UnixStream,
        directory: &Path,
    ) -> Result<(Arc<UnixStream>, UnixStream), HomeError> {
        let pair = UnixStream::pair().and_then(|(bell, ear)| {
            ear.set_nonblocking(true)?;
            bell.set_nonblocking(true)?;
            Ok((bell, ear))
        });
        let (bell, ear) = pair.map_err(|error| refused(format!("no sockets: {error}")))?;
        let stream = Arc::new(stream);
        note_connection(&stream);
        let mut socket = Socket {
            stream: Arc::clone(&stream),
            unsent: Vec::new(),
            bell: Arc::new(bell),
            sleeps_until: None,
            directory: directory.to_owned(),
            agent: None,
        };
        let mut state = self.state.lock();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let mut opening = frame(&Call { n: 0, ask: Ask::Hello { protocol: PROTOCOL, version } });
        for (n, hold) in &state.leases {
            let (of, weight, slot) = (hold.of.clone(), hold.weight, Some(hold.slot));
            opening.extend(frame(&Call { n: *n, ask: Ask::Occupy { of, weight, slot } }));
        }
        for call in state.calls.values() {
            opening.extend(&call.frame);
        }
        socket.send(&opening);
        state.phase = Phase::Connected(socket);
        Ok((stream, ear))
    }

    /// Hears what the agent says, until the connection ends.
    fn attend(&self, stream: &UnixStream, ear: &UnixStream) {
        let mut heard = Vec::new();
        let mut chunk = vec![0; 16 * 1024];
        loop {
            let wanted = {
                let mut state = self.state.lock();
                let next = state.deadlines.first().map(|(deadline, _)| *deadline);
                let Phase::Connected(socket) = &mut state.phase else { return };
                socket.sleeps_until = next;
                let flags =
                    if socket.unsent.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
                let patience = next.map(|next| next.saturating_duration_since(Instant::now()));
                (flags, patience)
            };
            let (flags, patience) = wanted;
            let timeout = patience.and_then(|patience| Timespec::try_from(patience).ok());
            let mut ready = [PollFd::new(stream, flags), PollFd::new(ear, PollFlags::IN)];
            let _ = poll(&mut ready, timeout.as_ref());
            let (of_stream, of_ear) = (ready[0].revents(), ready[1].revents());
            if !of_ear.is_empty() {
                let _ = (&mut &*ear).read(&mut chunk);
            }
            if of_stream.contains(PollFlags::OUT)
                && let Phase::Connected(socket) = &mut self.state.lock().phase
            {
                socket.flush();
            }
            self.end_overdue();
            if !of_stream.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                continue;
            }
            let ending = match (&mut &*stream).read(&mut chunk) {
                Ok(0) => Some(None),
                Ok(count) => {
                    heard.extend_from_slice(&chunk[..count]);
                    self.understand(&mut heard).err().map(Some)
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => None,
                Err(error) if error.kind() == ErrorKind::WouldBlock => None,
                Err(_) => Some(None),
            };
            if let Some(reason) = ending {
                self.lose_all();
                if let Some(reason) = reason {
                    self.give_up(&reason);
                }
                return;
            }
        }
    }

    fn understand(&self, heard: &mut Vec<u8>) -> Result<(), HomeError> {
        while let Some(reply) = take_first::<Reply>(heard).map_err(|error| not_understood(&error))? {
            self.hear(reply)?;
        }
        debug_assert!(heard.len() <= MAX_MESSAGE + 4);
        Ok(())
    }

    fn hear(&self, Reply { n, more, say }: Reply) -> Result<(), HomeError> {
        let mut state = self.state.lock();
        match say {
            Say::Welcome { protocol, version, pid } => {
                if protocol < PROTOCOL {
                    let agent = format!("the agent (pid {pid}, semafor {version})");
                    return Err(HomeError::new(
                        HomeErrorKind::Unsupported,
                        format!(
                            "{agent} is older than this: once nothing is held, `semafor agent stop` ends it, \
                             and the next command starts a new one"
                        ),
                    ));
                }
                if let Phase::Connected(socket) = &mut state.phase {
                    let directory = socket.directory.clone();
                    socket.agent = Some(AgentCard { pid, version, directory });
                }
            }
            Say::Lost { why, is_kept } => {
                let hold = if is_kept { state.leases.get(&n).cloned() } else { state.leases.remove(&n) };
                drop(state);
                if let Some(hold) = hold {
                    hold.lose(why.into());
                }
            }
            say if more => {
                if let Some(call) = state.calls.get_mut(&n) {
                    call.pages.push(say);
                }
            }
            say => {
                let Some(call) = state.take_call(n) else { return Ok(()) };
                let agent = state.agent_name();
                match call.asker {
                    Asker::Question(asker) => {
                        drop(state);
                        let mut pages = call.pages;
                        pages.push(say);
                        let answer = match pages.pop() {
                            Some(Say::Misunderstood(_)) => Err(too_old(&agent)),
                            last => {
                                pages.extend(last);
                                Ok(pages)
                            }
                        };
                        let _ = asker.send(answer);
                    }
                    Asker::Acquire(acquiring) => {
                        let outcome = acquiring.read(&mut state, n, say, &agent);
                        drop(state);
                        // If nobody is there to take it any more, this drops the lease, and that gives it back.
                        let _ = acquiring.answer.send(outcome);
                    }
                }
            }
        }
        Ok(())
    }

    fn end_overdue(&self) {
        let now = Instant::now();
        loop {
            let mut state = self.state.lock();
            let overdue = match state.deadlines.first() {
                Some((deadline, n)) if *deadline <= now => *n,
                _ => return,
            };
            let agent = state.agent_name();
            let Some(call) = state.take_call(overdue) else { return };
            if matches!(call.asker, Asker::Acquire(_)) {
                state.say(Ask::Cancel { call: overdue });
            }
            drop(state);
            call.asker.answer(Err(no_answer(&agent)));
        }
    }

    /// The agent is gone, and with it whatever was held. Those who held it learn that; until they have let go of it, it
    /// is kept occupied.
    fn lose_all(&self) {
        let holds: Vec<_> = {
            let state = self.state.lock();
            if state.is_abandoned {
                return;
            }
            state.leases.values().cloned().collect()
        };
        for hold in holds {
            hold.lose(NotHeld::Lost(Loss::Vanished));
        }
    }

    /// Nothing can be had from here.
    fn give_up(&self, error: &HomeError) {
        let calls = {
            let mut state = self.state.lock();
            state.phase = Phase::Connecting;
            state.deadlines.clear();
            // There is nobody to occupy them with.
            state.leases.clear();
            std::mem::take(&mut state.calls)
        };
        for (_, call) in calls {
            call.asker.answer(Err(error.clone()));
        }
    }
}

impl State {
    fn take_call(&mut self, n: u64) -> Option<Unanswered> {
        let call = self.calls.remove(&n)?;
        if let Some(deadline) = call.deadline {
            self.deadlines.remove(&(deadline, n));
        }
        Some(call)
    }

    fn say(&mut self, ask: Ask) {
        if let Phase::Connected(socket) = &mut self.phase {
            socket.send(&frame(&Call { n: 0, ask }));
        }
    }

    fn agent(&self) -> Option<&AgentCard> {
        match &self.phase {
            Phase::Connected(socket) => socket.agent.as_ref(),
            _ => None,
        }
    }

    /// What to call it.
    fn agent_name(&self) -> String {
        let name = |agent: &AgentCard| format!("the agent (pid {}, semafor {})", agent.pid, agent.version);
        self.agent().map_or_else(|| "the agent".to_owned(), name)
    }

    fn was_welcome(&self) -> bool {
        self.agent().is_some()
    }
}

impl Socket {
    /// Never waits: what the socket does not take, the thread sends when it does.
    fn send(&mut self, frame: &[u8]) {
        let is_idle = self.unsent.is_empty();
        self.unsent.extend_from_slice(frame);
        if is_idle {
            self.flush();
            if !self.unsent.is_empty() {
                self.ring();
            }
        }
    }

    fn flush(&mut self) {
        while !self.unsent.is_empty() {
            match rustix::net::send(&*self.stream, &self.unsent, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                // The thread hears of it, too, and says everything again to the next agent.
                Err(_) => self.unsent.clear(),
            }
        }
    }

    fn wake_by(&mut self, deadline: Option<Instant>) {
        let Some(deadline) = deadline else { return };
        if self.sleeps_until.is_none_or(|until| deadline < until) {
            self.sleeps_until = Some(deadline);
            self.ring();
        }
    }

    fn ring(&self) {
        let _ = rustix::net::send(&*self.bell, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

impl Asker {
    fn answer(self, answer: Result<Vec<Say>, HomeError>) {
        match self {
            Self::Question(asker) => drop(asker.send(answer)),
            Self::Acquire(acquiring) => {
                let error = answer.err().unwrap_or_else(|| no_answer("the agent"));
                let _ = acquiring.answer.send(Err(error.into()));
            }
        }
    }
}

impl Acquiring {
    fn read(&self, state: &mut State, n: u64, say: Say, agent: &str) -> Result<Lease, AcquireError> {
        match say {
            Say::Granted { id, slot, token, waited } => {
                let of = self.of.clone();
                let hold = Arc::new(Hold::new(n, id, slot, token, waited, self.weight, of, self.ttl));
                let Some(anchor) = self.anchor.upgrade() else {
                    state.say(Ask::Cancel { call: n });
                    return Err(no_answer(agent).into());
                };
                state.leases.insert(n, Arc::clone(&hold));
                Ok(Lease::new(anchor, hold))
            }
            Say::No(complaint) => Err(complaint.into_acquire_error(&self.of.name)),
            Say::Misunderstood(_) => Err(too_old(agent).into()),
            other => Err(unexpected(&other).into()),
        }
    }
}

/// Connects to the agent of that folder, if there is one.
fn knock(directory: &Path) -> Result<Option<UnixStream>, HomeError> {
    if !address::check(directory)? {
        return Ok(None);
    }
    let socket = address::socket_in(directory);
    match UnixStream::connect(&socket) {
        Ok(stream) => check_peer(&stream, directory).map(|()| Some(stream)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => Ok(None),
        Err(error) => Err(address::trouble("connect to", &socket, &error)),
    }
}

/// Those of this process, for a child that is forked off.
static CONNECTIONS: Mutex<Vec<Weak<UnixStream>>> = Mutex::new(Vec::new());

fn note_connection(stream: &Arc<UnixStream>) {
    let mut connections = CONNECTIONS.lock();
    connections.retain(|known| known.strong_count() > 0);
    connections.push(Arc::downgrade(stream));
}

/// Lets go of the connections of the parent: as long as anybody has them, the agent takes it to be alive.
pub(crate) fn after_fork() {
    // If another thread was noting one just then, it is left as it is.
    let Some(mut connections) = CONNECTIONS.try_lock() else { return };
    let Ok(nothing) = std::fs::File::open("/dev/null") else { return };
    for stream in connections.drain(..).filter_map(|stream| stream.upgrade()) {
        // SAFETY: it is open, as long as `stream` is there; whoever has it now has something else of the same number.
        let mut descriptor = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(stream.as_raw_fd()) });
        // Else, it stays open.
        let _ = rustix::io::dup2(&nothing, &mut descriptor);
    }
}

/// That it is the user's own agent, and nobody who pretends to be.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn check_peer(stream: &UnixStream, directory: &Path) -> Result<(), HomeError> {
    let peer = rustix::net::sockopt::socket_peercred(stream);
    match peer {
        Ok(peer) if peer.uid == rustix::process::geteuid() => Ok(()),
        _ => Err(HomeError::new(
            HomeErrorKind::AccessDenied,
            format!("the agent in {} belongs to another user", directory.display()),
        )),
    }
}

/// The folder is the user's, and closed to others.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn check_peer(_: &UnixStream, _: &Path) -> Result<(), HomeError> {
    Ok(())
}

fn refused(message: String) -> HomeError {
    HomeError::new(HomeErrorKind::Unreachable, message)
}

fn no_answer(agent: &str) -> HomeError {
    refused(format!(
        "{agent} does not answer: is it stopped, or the machine that busy? `semafor agent status` tells"
    ))
}

fn too_old(agent: &str) -> HomeError {
    let message = format!(
        "{agent} does not know how to do that: it is older than this. Once nothing is held, `semafor agent stop` ends it, \
         and the next command starts a new one"
    );
    HomeError::new(HomeErrorKind::Unsupported, message)
}

fn not_understood(error: &io::Error) -> HomeError {
    HomeError::new(HomeErrorKind::Other, format!("the agent says something that makes no sense: {error}"))
}

pub(super) fn unexpected(say: &Say) -> HomeError {
    HomeError::new(HomeErrorKind::Other, format!("the agent says {say:?}, which is no answer to this"))
}
