//! One home with its clients and its faults.
//!
//! A director for each site starts the clients, brings about the faults, and tells the [watch](super::watch) of each before it
//! happens.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use semafor::{Home, local};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::client::Client;
use super::faults::Fault;
use super::samples::{Role, Roster};
use super::watch::Note;
use super::{CONTESTANTS, CONTESTANTS_OF_NAME, Message, Programs, Time};
use crate::history::now;
use crate::random::Random;
use crate::redis::{Proxy, RedisServer, leftovers};

/// How long a client of Redis counts as alive after a heartbeat.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long the rules are suspended after a loss of data: until every holder has had a heartbeat answered, or has given up.
const RECOVERY: Duration = Duration::from_secs(HEARTBEAT.as_secs() + 10);
/// A local client reports an error if the agent does not answer for ten seconds.
const LONGEST_STOP_OF_AGENT: Duration = Duration::from_secs(4);
/// How often a client is started again if the server does not answer it in time.
const ATTEMPTS: u32 = 5;
/// Until then nothing may be left at the home: leases and heartbeats of killed clients are over.
const TIME_TO_LEAVE: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "soak";
/// A missing answer is noticed soon, and no call fails because of a fault.
const CONFIGURATION: &str = "namespace=soak&socket_timeout=1&socket_connect_timeout=2&retry_multiplier=0.05\
    &retry_min_delay=0.05&retry_max_delay=0.5&number_of_attempts=100";

/// What a site is to be.
#[derive(Clone)]
pub(super) struct Plan {
    /// For reports.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Its faults. A site whose server is never replaced shows whether that server grows.
    pub(super) faults: &'static [Fault],
    /// How many clients it has at a time.
    pub(super) clients: u64,
    /// How many of the Python library.
    pub(super) python: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Redis,
    /// A server that stores every write before it answers.
    DurableRedis,
    Local,
}

/// A semaphore and how each client uses it.
pub(super) struct Use {
    pub(super) name: &'static str,
    pub(super) slots: u32,
    tasks: u64,
    options: &'static str,
    /// Tasks of each Python client.
    python_tasks: u64,
}

const USES: [Use; 6] = [
    Use { name: "one", slots: 1, tasks: 2, options: "hold=20 pause=150 drops=0", python_tasks: 0 },
    Use {
        name: "weighted",
        slots: 3,
        tasks: 3,
        options: "heaviest=3 timeout=2 hold=30 pause=80",
        python_tasks: 0,
    },
    Use {
        name: "dropped",
        slots: 2,
        tasks: 3,
        options: "heaviest=2 drop_after=150 hold=20 pause=80",
        python_tasks: 0,
    },
    Use { name: "leased", slots: 2, tasks: 2, options: "ttl=1 hold=1500 pause=300 drops=0", python_tasks: 0 },
    // Held for longer than a heartbeat interval: only this shows whether holders give up in time.
    Use { name: "held", slots: 2, tasks: 2, options: "hold=9000 pause=500 drops=0", python_tasks: 0 },
    Use { name: "shared", slots: 2, tasks: 2, options: "hold=20 pause=150", python_tasks: 2 },
];

/// The semaphores of every site.
pub(super) fn names() -> impl Iterator<Item = (String, u32)> {
    USES.iter().map(|used| (used.name.to_owned(), used.slots))
}

const NETWORK_AND_CLIENTS: [Fault; 10] = [
    Fault::ClientKilled,
    Fault::ClientStopped,
    Fault::ConnectionCut,
    Fault::ConnectionHalfOpen,
    Fault::RepliesLost,
    Fault::ReplyLost,
    Fault::RequestLost,
    Fault::ConnectionsKilled,
    Fault::ServerStopped,
    Fault::ScriptsForgotten,
];

/// The same, and loss of data.
const ALL_OF_REDIS: [Fault; 14] = {
    let mut all = [Fault::ServerRestarted; 14];
    let mut at = 0;
    while at < NETWORK_AND_CLIENTS.len() {
        all[at] = NETWORK_AND_CLIENTS[at];
        at += 1;
    }
    all[11] = Fault::DataLost;
    all[12] = Fault::Flushed;
    all[13] = Fault::KeyDeleted;
    all
};

pub(super) fn plans() -> [Plan; 4] {
    let python = 2;
    [
        Plan { name: "redis", kind: Kind::Redis, faults: &NETWORK_AND_CLIENTS, clients: 4, python },
        Plan {
            name: "redis-restarted",
            kind: Kind::DurableRedis,
            faults: &ALL_OF_REDIS,
            clients: 3,
            python: 1,
        },
        Plan {
            name: "agent",
            kind: Kind::Local,
            faults: &[Fault::ClientKilled, Fault::ClientStopped, Fault::ServerStopped],
            clients: 4,
            python: 0,
        },
        Plan {
            name: "agent-killed",
            kind: Kind::Local,
            faults: &[Fault::ClientKilled, Fault::ClientStopped, Fault::ServerStopped, Fault::AgentKilled],
            clients: 3,
            python: 0,
        },
    ]
}

/// What the main thread tells a director.
pub(super) enum Order {
    /// No more faults; the clients end their work.
    Settle,
    /// Checks that nothing is left, and ends everything.
    Finish,
    /// Ends everything.
    Abort,
}

enum Server {
    Redis(Box<RedisServer>),
    Agent(Agent),
}

struct Agent {
    directory: PathBuf,
    runtime: Runtime,
    /// Of the agent that was seen last.
    pid: Option<u32>,
}

/// What is to be done later.
enum Later {
    Resume(u64),
    Forward(u64),
    ResumeServer,
    StartServer { fault: Fault },
    Replace { is_python: bool },
}

struct Director {
    site: usize,
    plan: Plan,
    programs: Programs,
    random: Random,
    server: Server,
    folder: TempDir,
    clients: Vec<Client>,
    started: u64,
    agenda: BinaryHeap<Reverse<(Instant, u64)>>,
    later: BTreeMap<u64, Later>,
    sequence: u64,
    /// The server is stopped or down.
    is_server_away: bool,
    messages: SyncSender<Message>,
    roster: Roster,
    roster_updated: Option<Instant>,
}

/// Runs a site until it is told to end. An error is what must not happen, and has.
pub(super) fn direct(
    (site, plan): (usize, Plan),
    (programs, seed, pause): (Programs, u64, Duration),
    messages: SyncSender<Message>,
    orders: &Receiver<Order>,
    roster: Roster,
) -> Result<(), String> {
    let folder = tempfile::Builder::new().prefix("semafor-soak-").tempdir();
    let folder = folder.map_err(|error| format!("no temporary directory: {error}"))?;
    fs::write(folder.path().join("contender.py"), include_str!("contender.py"))
        .map_err(|error| error.to_string())?;
    let programs_folder = folder.path().join("bin");
    fs::create_dir(&programs_folder).map_err(|error| error.to_string())?;
    // Local clients find the program of the agent there.
    symlink(&programs.semafor, programs_folder.join("semafor")).map_err(|error| error.to_string())?;
    let server = match plan.kind {
        Kind::Redis => Server::Redis(Box::new(RedisServer::start())),
        Kind::DurableRedis => {
            let settings = [("appendonly", "yes"), ("appendfsync", "always")];
            Server::Redis(Box::new(RedisServer::with(&settings)))
        }
        Kind::Local => Server::Agent(Agent {
            directory: folder.path().join("agent"),
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|error| error.to_string())?,
            pid: None,
        }),
    };
    let random = Random::stream(seed, 1 + site as u64);
    let mut director = Director {
        site,
        plan,
        programs,
        random,
        server,
        folder,
        clients: Vec::new(),
        started: 0,
        agenda: BinaryHeap::new(),
        later: BTreeMap::new(),
        sequence: 0,
        is_server_away: false,
        messages,
        roster,
        roster_updated: None,
    };
    let is_over = Arc::<AtomicBool>::default();
    // The scripts of the other library grant slots without a token. It follows when a script of ours notices, which may be
    // after later grants. So tokens do not show the order there.
    let has_python = director.plan.python > 0 && director.programs.python.is_some();
    let lines = USES.iter().enumerate().filter(move |(_, used)| !has_python || used.python_tasks == 0);
    let lines: Vec<_> = lines.map(|(number, used)| (number, used.name)).collect();
    let observer = thread::spawn({
        let (url, messages, is_over) =
            (director.direct_url(), director.messages.clone(), Arc::clone(&is_over));
        move || observe(&url, site, &lines, &messages, &is_over)
    });
    let done = director.run(orders, pause);
    is_over.store(true, Ordering::Relaxed);
    director.end();
    let _ = observer.join();
    done
}

impl Director {
    fn run(&mut self, orders: &Receiver<Order>, pause: Duration) -> Result<(), String> {
        for number in 0..self.plan.clients {
            self.start_client(false, number == 0)?;
        }
        if self.programs.python.is_some() {
            for _ in 0..self.plan.python {
                self.start_client(true, false)?;
            }
        }
        let pause = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        let mut next_fault = Instant::now() + Duration::from_millis(self.random.exponential(pause));
        loop {
            let due = self.agenda.peek().map_or(next_fault, |Reverse((at, _))| next_fault.min(*at));
            let wait = due.saturating_duration_since(Instant::now()).min(Duration::from_millis(500));
            match orders.recv_timeout(wait) {
                Ok(Order::Settle) => break,
                Ok(Order::Finish | Order::Abort) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.replace_ended_clients()?;
            while let Some(later) = self.due() {
                self.carry_out(later)?;
            }
            if Instant::now() >= next_fault {
                if let Some(fault) = Fault::draw(self.plan.faults, &mut self.random) {
                    self.bring_about(fault)?;
                }
                next_fault = Instant::now() + Duration::from_millis(self.random.exponential(pause));
            }
            self.update_roster();
        }
        self.settle()?;
        loop {
            match orders.recv_timeout(Duration::from_millis(500)) {
                Ok(Order::Finish) => break,
                Ok(Order::Settle) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Order::Abort) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            self.check_clients()?;
        }
        self.check_leftovers(orders)
    }

    /// Ends all faults, and lets the clients end their work.
    fn settle(&mut self) -> Result<(), String> {
        while let Some(Reverse((_, number))) = self.agenda.pop() {
            match self.later.remove(&number) {
                None | Some(Later::Replace { .. }) => {}
                Some(later) => self.carry_out(later)?,
            }
        }
        for client in &self.clients {
            // One that has ended is noticed elsewhere.
            let _ = client.order("stop");
        }
        Ok(())
    }

    fn tell(&self, note: Note) {
        let at = now();
        // The main thread ends last.
        let _ = self.messages.send(Message::Note { site: self.site, at, note });
    }

    fn later(&mut self, after: Duration, what: Later) {
        self.sequence += 1;
        self.agenda.push(Reverse((Instant::now() + after, self.sequence)));
        self.later.insert(self.sequence, what);
    }

    fn due(&mut self) -> Option<Later> {
        let Reverse((at, number)) = *self.agenda.peek()?;
        if at > Instant::now() {
            return None;
        }
        self.agenda.pop();
        self.later.remove(&number)
    }

    // Clients

    fn direct_url(&self) -> String {
        match &self.server {
            Server::Redis(server) => with_configuration(&server.url()),
            Server::Agent(agent) => format!("local:{}", agent.directory.display()),
        }
    }

    fn start_client(&mut self, is_python: bool, is_steady: bool) -> Result<(), String> {
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            self.started += 1;
            let number = self.site as u64 * 1_000_000 + self.started;
            self.tell(Note::Starts { client: number, is_python });
            match self.try_start_client(number, is_python) {
                Ok(mut client) => {
                    client.is_python = is_python;
                    client.is_steady = is_steady;
                    self.clients.push(client);
                    return Ok(());
                }
                Err(reason) => last = reason,
            }
            self.tell(Note::Dies { client: number });
        }
        Err(format!("a client could not be started: {last}"))
    }

    fn try_start_client(&self, number: u64, is_python: bool) -> Result<Client, String> {
        let proxy = match &self.server {
            Server::Redis(server) if !is_python => Some(Proxy::to(server.port())),
            _ => None,
        };
        let url = match (&proxy, &self.server) {
            (Some(proxy), _) => with_configuration(&proxy.url()),
            (None, Server::Redis(server)) if is_python => server.url(),
            _ => self.direct_url(),
        };
        let mut command = match &self.programs.python {
            Some(python) if is_python => {
                let mut command = Command::new(python);
                command.arg(self.folder.path().join("contender.py")).args([&*url, NAMESPACE]);
                command
            }
            _ => {
                let mut command = Command::new(&self.programs.contender);
                command.arg(url).env("PATH", self.folder.path().join("bin"));
                command
            }
        };
        command.current_dir(self.folder.path());
        let client = Client::start(command, (self.site, number), proxy, self.messages.clone())?;
        for order in orders_for(number, is_python, self.plan.kind) {
            client.order(&order).map_err(|error| format!("an order was not delivered: {error}"))?;
        }
        Ok(client)
    }

    /// A client of ours never ends by itself.
    fn check_clients(&mut self) -> Result<(), String> {
        for client in &mut self.clients {
            if let Some(status) = client.ended().filter(|_| !client.is_python) {
                return Err(format!("client {} has ended by itself: {status}", client.number));
            }
        }
        Ok(())
    }

    fn replace_ended_clients(&mut self) -> Result<(), String> {
        self.check_clients()?;
        let ended: Vec<_> = self.clients.extract_if(.., |client| client.ended().is_some()).collect();
        for client in ended {
            self.tell(Note::Dies { client: client.number });
            self.later(Duration::ZERO, Later::Replace { is_python: true });
        }
        Ok(())
    }

    /// One of these at random.
    fn pick(&mut self, wanted: impl Fn(&Client) -> bool) -> Option<usize> {
        let all: Vec<_> = (0..self.clients.len()).filter(|at| wanted(&self.clients[*at])).collect();
        let number = self.random.below(all.len().max(1) as u64) as usize;
        all.get(number).copied()
    }

    fn find(&mut self, number: u64) -> Option<&mut Client> {
        self.clients.iter_mut().find(|client| client.number == number)
    }

    // Faults

    fn happens(&self, fault: Fault, text: &str) {
        let text = format!("FAULT {}{text}", fault.name());
        self.tell(Note::Fault { text });
        let _ = self.messages.send(Message::Fault { site: self.site, fault });
    }

    fn note_end(&self, text: &str) {
        self.tell(Note::Fault { text: text.to_owned() });
    }

    fn bring_about(&mut self, fault: Fault) -> Result<(), String> {
        let mut length = fault.length(HEARTBEAT, &mut self.random);
        match fault {
            Fault::ClientKilled => {
                let Some(at) = self.pick(|client| !client.is_steady) else { return Ok(()) };
                let mut client = self.clients.swap_remove(at);
                self.happens(fault, &format!(": client {}", client.number));
                self.tell(Note::Dies { client: client.number });
                client.kill();
                let after = Duration::from_millis(self.random.between(0, 1_500));
                self.later(after, Later::Replace { is_python: client.is_python });
            }
            Fault::ClientStopped => {
                let Some(at) = self.pick(|client| !client.is_stopped) else { return Ok(()) };
                let number = self.clients[at].number;
                self.happens(fault, &format!(": client {number} for {length:.1?}"));
                self.tell(Note::Stops { client: number });
                self.clients[at].stop();
                self.later(length, Later::Resume(number));
            }
            Fault::ConnectionCut
            | Fault::ConnectionHalfOpen
            | Fault::RepliesLost
            | Fault::ReplyLost
            | Fault::RequestLost => {
                let Some(at) = self.pick(|client| client.proxy.is_some()) else { return Ok(()) };
                let number = self.clients[at].number;
                self.happens(fault, &format!(": client {number} for {length:.1?}"));
                self.tell(Note::Disturbs { client: Some(number) });
                let Some(proxy) = &self.clients[at].proxy else { return Ok(()) };
                match fault {
                    Fault::ConnectionCut => proxy.cut(),
                    Fault::ConnectionHalfOpen => proxy.swallow_requests(),
                    Fault::RepliesLost => proxy.swallow_replies(),
                    Fault::ReplyLost => proxy.cut_after_request("EVALSHA"),
                    _ => proxy.cut_before_request("EVALSHA"),
                }
                if matches!(fault, Fault::ReplyLost | Fault::RequestLost) {
                    length = HEARTBEAT / 2;
                }
                self.later(length, Later::Forward(number));
            }
            _ if self.is_server_away => {}
            Fault::AgentKilled => {
                let Some(pid) = self.agent_pid() else { return Ok(()) };
                self.happens(fault, &format!(": {pid}"));
                self.tell(Note::Disturbs { client: None });
                kill(pid, Signal::KILL);
                wait_for_end(pid);
                self.tell(Note::Calms { client: None });
            }
            Fault::ServerStopped => {
                let Some(pid) = self.server_pid() else { return Ok(()) };
                if matches!(self.server, Server::Agent(_)) {
                    length = length.min(LONGEST_STOP_OF_AGENT);
                }
                self.happens(fault, &format!(" for {length:.1?}"));
                self.tell(Note::Disturbs { client: None });
                self.is_server_away = true;
                match &self.server {
                    Server::Redis(server) => server.pause(),
                    Server::Agent(_) => kill(pid, Signal::STOP),
                }
                self.later(length, Later::ResumeServer);
            }
            _ => self.bring_about_on_redis(fault, length)?,
        }
        Ok(())
    }

    fn bring_about_on_redis(&mut self, fault: Fault, length: Duration) -> Result<(), String> {
        let Server::Redis(server) = &self.server else { return Ok(()) };
        self.happens(fault, "");
        self.tell(Note::Disturbs { client: None });
        if fault.loses_grants() {
            self.tell(Note::Forgets { until: now() + nanos(length + RECOVERY) });
        }
        let ask = |words: &[&str]| {
            server.ask::<redis::Value>(words).map_err(|error| format!("{words:?} failed: {error}"))
        };
        match fault {
            Fault::ConnectionsKilled => {
                // A connection that subscribed to a channel has another type.
                for kind in ["normal", "pubsub"] {
                    ask(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"])?;
                }
            }
            Fault::ScriptsForgotten => _ = ask(&["SCRIPT", "FLUSH"])?,
            Fault::Flushed => _ = ask(&["FLUSHALL"])?,
            Fault::KeyDeleted => {
                let keys = server.ask::<Vec<String>>(&["KEYS", &format!("{NAMESPACE}:*")]);
                let keys = keys.map_err(|error| format!("KEYS failed: {error}"))?;
                if let Some(key) = keys.get(self.random.below(keys.len().max(1) as u64) as usize) {
                    self.tell(Note::Fault { text: format!("deletes {key}") });
                    let _ = ask(&["DEL", key])?;
                }
            }
            _ => {
                server.kill();
                self.is_server_away = true;
                self.later(length, Later::StartServer { fault });
                return Ok(());
            }
        }
        self.tell(Note::Calms { client: None });
        Ok(())
    }

    fn carry_out(&mut self, later: Later) -> Result<(), String> {
        match later {
            Later::Resume(number) => {
                let Some(client) = self.find(number) else { return Ok(()) };
                client.resume();
                self.note_end(&format!("client {number} continues"));
                self.tell(Note::Continues { client: number });
            }
            Later::Forward(number) => {
                if let Some(proxy) = self.find(number).and_then(|client| client.proxy.as_ref()) {
                    proxy.forward();
                }
                self.note_end(&format!("client {number} is connected"));
                self.tell(Note::Calms { client: Some(number) });
            }
            Later::ResumeServer => {
                match &mut self.server {
                    Server::Redis(server) => server.resume(),
                    Server::Agent(agent) => agent.pid.into_iter().for_each(|pid| kill(pid, Signal::CONT)),
                }
                self.is_server_away = false;
                self.note_end("the server or agent continues");
                self.tell(Note::Calms { client: None });
            }
            Later::StartServer { fault } => {
                if let Server::Redis(server) = &self.server {
                    if fault.loses_grants() {
                        self.tell(Note::Forgets { until: now() + nanos(RECOVERY) });
                        let data = server.dir().join("appendonlydir");
                        fs::remove_dir_all(data)
                            .map_err(|error| format!("the data can't be removed: {error}"))?;
                    }
                    server.start_again();
                }
                self.is_server_away = false;
                self.note_end("the server is up again");
                self.tell(Note::Calms { client: None });
            }
            // It would not be answered.
            Later::Replace { is_python } if self.is_server_away => {
                self.later(Duration::from_millis(200), Later::Replace { is_python });
            }
            Later::Replace { is_python } => self.start_client(is_python, false)?,
        }
        Ok(())
    }

    // The server

    fn server_pid(&mut self) -> Option<u32> {
        match &self.server {
            Server::Redis(server) => server.is_up().then(|| server.pid()),
            Server::Agent(_) => self.agent_pid(),
        }
    }

    fn agent_pid(&mut self) -> Option<u32> {
        let Server::Agent(agent) = &mut self.server else { return None };
        let status = agent.runtime.block_on(local::status(&agent.config()));
        agent.pid = status.ok().flatten().map(|status| status.pid);
        agent.pid
    }

    fn update_roster(&mut self) {
        if self.roster_updated.is_some_and(|at| at.elapsed() < Duration::from_secs(1)) {
            return;
        }
        self.roster_updated = Some(Instant::now());
        let server = if self.is_server_away { None } else { self.server_pid() };
        let mut roster = self.roster.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_server_away {
            roster.set(self.site, Role::Server, server.into_iter().collect());
        }
        let pids = |wanted: &dyn Fn(&Client) -> bool| {
            self.clients.iter().filter(|client| wanted(client)).map(Client::pid).collect()
        };
        roster.set(self.site, Role::SteadyClient, pids(&|client| client.is_steady));
        roster.set(self.site, Role::OtherClients, pids(&|client| !client.is_steady && !client.is_python));
        roster.set(self.site, Role::PythonClients, pids(&|client| client.is_python));
    }

    // The end

    fn check_leftovers(&mut self, orders: &Receiver<Order>) -> Result<(), String> {
        // A client of the Python library may hold something for ever after a fault.
        for client in &mut self.clients {
            if client.is_python {
                client.kill();
            }
        }
        let deadline = Instant::now() + TIME_TO_LEAVE;
        let observer = match &self.server {
            Server::Redis(_) => Some(open_home(&self.direct_url())?),
            Server::Agent(_) => None,
        };
        loop {
            let left = self.left(observer.as_ref());
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(format!("this is left at the home: {}", left.join("; ")));
            }
            if let Ok(Order::Abort) = orders.recv_timeout(Duration::from_millis(500)) {
                return Ok(());
            }
        }
    }

    fn left(&mut self, observer: Option<&(Runtime, Home)>) -> Vec<String> {
        match &self.server {
            Server::Redis(server) => {
                // This ends what is due, and changes nothing else.
                for used in &USES {
                    if let Some((runtime, home)) = observer {
                        let _ = runtime.block_on(home.named(used.name).open());
                    }
                }
                leftovers(server, NAMESPACE)
            }
            Server::Agent(agent) => match agent.runtime.block_on(local::status(&agent.config())) {
                Ok(Some(status)) if status.held + status.waiting > 0 => {
                    vec![format!("{} held, {} waiting", status.held, status.waiting)]
                }
                Ok(_) => Vec::new(),
                Err(error) => vec![error.to_string()],
            },
        }
    }

    /// Ends all processes of the site.
    fn end(&mut self) {
        self.clients.clear();
        if let Server::Agent(agent) = &self.server {
            if self.is_server_away
                && let Some(pid) = agent.pid
            {
                kill(pid, Signal::CONT);
            }
            let status = agent.runtime.block_on(local::status(&agent.config())).ok().flatten();
            let _ = agent.runtime.block_on(local::stop(&agent.config(), true));
            if let Some(status) = status {
                wait_for_end(status.pid);
            }
        }
    }
}

impl Agent {
    /// Requests that only look start no agent.
    fn config(&self) -> local::Config {
        local::Config::default().directory(&self.directory)
    }
}

fn with_configuration(url: &str) -> String {
    format!("{url}?{CONFIGURATION}")
}

/// What a new client is to do.
fn orders_for(number: u64, is_python: bool, kind: Kind) -> Vec<String> {
    let heartbeat = HEARTBEAT.as_secs();
    let mut orders = Vec::new();
    if !is_python {
        orders.push("tick 100".to_owned());
    }
    for (at, used) in (0..).zip(&USES) {
        let first = number * CONTESTANTS + at * CONTESTANTS_OF_NAME;
        let Use { name, slots, tasks, options, python_tasks } = used;
        if is_python {
            if *python_tasks > 0 {
                orders.push(format!("load {first} {python_tasks} {name} {slots} {heartbeat} 20 150"));
            }
        } else {
            let heartbeat = if kind == Kind::Local { String::new() } else { format!("hb={heartbeat}") };
            orders.push(format!("load {first} {tasks} {} {name} {slots} {options} {heartbeat}", u32::MAX));
        }
    }
    orders
}

/// Reads the lines of waiters again and again.
fn observe(
    url: &str,
    site: usize,
    names: &[(usize, &str)],
    messages: &SyncSender<Message>,
    is_over: &AtomicBool,
) {
    let Ok((runtime, home)) = open_home(url) else { return };
    while !is_over.load(Ordering::Relaxed) {
        for (name, text) in names {
            let Ok(semaphore) = home.named(*text).build() else { continue };
            let waiters = runtime
                .block_on(async { tokio::time::timeout(Duration::from_secs(2), semaphore.waiters()).await });
            // A server that is stopped or down does not answer.
            let Ok(Ok(waiters)) = waiters else { continue };
            let labels = waiters.iter().filter_map(|waiter| waiter.label.as_deref());
            let line: Vec<(u64, u32)> = labels
                .filter_map(|label| label.split_once('.'))
                .filter_map(|(by, round)| Some((by.parse().ok()?, round.parse().ok()?)))
                .collect();
            if line.is_empty() {
                continue;
            }
            let note = Note::Line { name: *name, line };
            if messages.send(Message::Note { site, at: now(), note }).is_err() {
                return;
            }
        }
        sleep(Duration::from_millis(150));
    }
}

/// Contacts no server yet.
fn open_home(url: &str) -> Result<(Runtime, Home), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
    let home = if url.starts_with("local:") {
        url.parse().map(Home::local).map_err(|error: semafor::HomeError| error.to_string())?
    } else {
        let config: semafor::redis::Config =
            url.parse().map_err(|error: semafor::HomeError| error.to_string())?;
        Home::redis(config).map_err(|error| error.to_string())?
    };
    Ok((runtime, home))
}

fn nanos(time: Duration) -> Time {
    Time::try_from(time.as_nanos()).unwrap_or(Time::MAX)
}

fn pid(number: u32) -> Option<Pid> {
    i32::try_from(number).ok().and_then(Pid::from_raw)
}

fn kill(number: u32, signal: Signal) {
    if let Some(pid) = pid(number) {
        // It may have ended by itself.
        let _ = kill_process(pid, signal);
    }
}

/// Returns when the process is gone, or after ten seconds.
fn wait_for_end(number: u32) {
    let Some(pid) = pid(number) else { return };
    let deadline = Instant::now() + Duration::from_secs(10);
    while test_kill_process(pid).is_ok() && !is_zombie(number) && Instant::now() < deadline {
        sleep(Duration::from_millis(5));
    }
}

/// Its parent may not have read its exit code yet.
fn is_zombie(number: u32) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(number.to_string()).join("stat"));
    stat.map_or(true, |stat| stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['Z', 'X'])))
}

/// Shared by the directors and the thread that takes samples.
pub(super) fn new_roster() -> Roster {
    Arc::new(Mutex::default())
}
