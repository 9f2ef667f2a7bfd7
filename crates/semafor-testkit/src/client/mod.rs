//! An engine for the client of the remote homes that is nothing but queues: no sockets, no threads, and a clock that the test
//! holds. It shows what an engine has to do, and lets a test decide what happens to every single message.

mod server;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use semafor::__client::{
    AcquireRequest, Acquired, Call, Client, Event, Failure, Instant, Key, Liveness, Push, Reply, Retry,
    ServerClock, ServerPushes, Settings, Target, Wait, unreachable,
};
use semafor::AcquireError;

pub use server::Server;

/// How long the server takes a client for alive after a heartbeat.
pub const HEARTBEAT: Duration = Duration::from_secs(10);

/// An answer of the server, still without the time at which it is received.
pub type MakeReply = Box<dyn FnOnce(ServerClock) -> Reply>;

/// Some processes and their server.
pub struct World {
    /// What time it is, for all of them.
    pub now: Instant,
    /// The server.
    pub server: Server,
    /// The processes, each with its connection.
    pub processes: Vec<Process>,
}

/// A process: its client, and what is on the way between it and the server.
pub struct Process {
    /// The client under test.
    pub client: Client,
    /// Its only semaphore.
    pub target: Arc<Target>,
    /// Calls that the server has not got yet, with when they were sent.
    pub requests: VecDeque<(Call, Instant)>,
    /// Calls whose answer has not come back yet, with the server's time.
    pub replies: VecDeque<(Call, Instant, f64, MakeReply)>,
    /// What the server tells, and the process has not heard yet: with the server's time.
    pub pushes: VecDeque<(f64, Push)>,
    /// Losses that holders were told of.
    pub losses: Vec<Arc<str>>,
    last_clock: Option<ServerClock>,
}

impl World {
    /// So many processes, and a semaphore with so many slots.
    pub fn new(processes: usize, slots: u32) -> Self {
        let now = Instant::at(Duration::from_secs(1_000_000));
        let processes = (0..processes).map(|_| Process::new(slots)).collect();
        let mut world = Self { now, server: Server::new(slots), processes };
        (0..world.processes.len()).for_each(|process| world.connect(process));
        world
    }

    /// Moves the clock. Timers that are due before its new time fire in their order.
    pub fn advance(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            let due = self.processes.iter().filter_map(|process| process.client.poll_timeout()).min();
            match due.filter(|due| *due <= end) {
                Some(due) => self.now = self.now.max(due),
                None => break,
            }
            for process in 0..self.processes.len() {
                let now = self.now;
                self.processes[process].client.handle_timeout(now);
                self.take(process);
            }
        }
        self.now = end;
    }

    /// Takes what the client of `process` has to send, and carries out its events.
    pub fn take(&mut self, process: usize) {
        let now = self.now;
        let process = &mut self.processes[process];
        while let Some(call) = process.client.poll_transmit(now) {
            process.requests.push_back((call, now));
        }
        while let Some(event) = process.client.poll_event() {
            match event {
                Event::Wake(waker) => waker.wake(),
                Event::Lost { id, .. } => process.losses.push(id),
                Event::DropWaker(_) | Event::EndedById(_) | Event::DropKeepAlive(_) => {}
            }
        }
    }

    /// Lets the client of `process` do something, and takes what follows.
    pub fn with<R>(&mut self, process: usize, change: impl FnOnce(&mut Client, Instant) -> R) -> R {
        let result = change(&mut self.processes[process].client, self.now);
        self.take(process);
        result
    }

    /// Asks for one slot.
    pub fn acquire(&mut self, process: usize, ttl: Option<Duration>, wait: Wait) -> Key {
        let target = Arc::clone(&self.processes[process].target);
        self.with(process, |client, now| client.acquire(&target, AcquireRequest::new(1, ttl, wait), now))
    }

    /// Looks what became of it.
    pub fn poll(&mut self, process: usize, key: Key) -> Poll<Result<Acquired, AcquireError>> {
        self.with(process, |client, _| client.poll_acquire(key, Waker::noop().clone()))
    }

    // The network

    /// The server gets the next call of `process`, and its answer is on its way. False if there is none.
    pub fn execute(&mut self, process: usize) -> bool {
        let Some((call, sent)) = self.processes[process].requests.pop_front() else { return false };
        let then = seconds(self.now);
        let answer = self.server.answer(process, &call, then);
        self.processes[process].replies.push_back((call, sent, then, answer));
        for (to, push) in self.server.take_pushes() {
            self.processes[to].pushes.push_back((then, push));
        }
        true
    }

    /// The next answer arrives at `process`. False if there is none.
    pub fn arrive(&mut self, process: usize) -> bool {
        let Some((call, sent, then, answer)) = self.processes[process].replies.pop_front() else {
            return false;
        };
        let clock = ServerClock::new(then, sent, self.now);
        self.processes[process].last_clock = Some(clock);
        self.with(process, |client, now| client.handle_reply(call, answer(clock), now));
        true
    }

    /// The server tells `process` the next thing. False if there is none.
    pub fn hear(&mut self, process: usize) -> bool {
        let Some((then, push)) = self.processes[process].pushes.pop_front() else { return false };
        let clock = self.processes[process].last_clock.and_then(|clock| clock.at_message(then, self.now));
        let push = match (push, clock) {
            (Push::Granted { key, mut grant }, Some(clock)) => {
                grant.safe_until = clock.sent() + HEARTBEAT;
                grant.clock = clock;
                Push::Granted { key, grant }
            }
            (Push::Granted { key, .. }, None) => Push::MayBeGranted { key },
            (push, _) => push,
        };
        self.with(process, |client, now| client.handle_push(push, now));
        true
    }

    /// The next call of `process` never gets to the server, or its answer never comes back.
    pub fn lose_next(&mut self, process: usize) -> bool {
        let process_ = &mut self.processes[process];
        let lost = process_.replies.pop_front().map(|(call, ..)| call);
        let Some(call) = lost.or_else(|| process_.requests.pop_front().map(|(call, _)| call)) else {
            return false;
        };
        self.with(process, |client, now| client.handle_failure(call, &failure(), now));
        true
    }

    /// The connection of `process` ends: nothing that is on its way arrives.
    pub fn cut(&mut self, process: usize) {
        self.processes[process].pushes.clear();
        self.with(process, |client, now| client.disconnected(Vec::new(), now));
        while self.lose_next(process) {}
    }

    /// `process` has a new connection.
    pub fn connect(&mut self, process: usize) {
        let pushes = ServerPushes { messages: true, tracking: true };
        self.with(process, |client, now| client.connected(pushes, now));
    }

    /// Everything that is on its way arrives, until nothing is.
    pub fn settle(&mut self) {
        let all = 0..self.processes.len();
        while all.clone().any(|process| self.execute(process) || self.arrive(process) || self.hear(process)) {
        }
    }
}

impl Process {
    fn new(slots: u32) -> Self {
        let client = Client::new(Settings {
            liveness: Liveness::Heartbeats,
            retry: Retry {
                attempts: 3,
                multiplier: 0.1,
                shortest: Duration::from_millis(100),
                longest: Duration::from_secs(1),
            },
            reply_timeout: Duration::from_secs(5),
            no_reply_error: unreachable("the server is silent"),
        });
        Self {
            client,
            target: Arc::new(Target::new("it", Some(slots), None, HEARTBEAT, [])),
            requests: VecDeque::new(),
            replies: VecDeque::new(),
            pushes: VecDeque::new(),
            losses: Vec::new(),
            last_clock: None,
        }
    }
}

/// A call that brought no answer, but may be carried out.
pub fn failure() -> Failure {
    Failure { error: unreachable("the connection was lost"), is_transient: true, was_sent: true }
}

/// The server's clock.
pub fn seconds(now: Instant) -> f64 {
    now.saturating_duration_since(Instant::at(Duration::ZERO)).as_secs_f64()
}
