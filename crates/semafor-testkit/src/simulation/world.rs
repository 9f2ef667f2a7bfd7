//! Lets everything happen, in order of time.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use hashbrown::HashMap;
use redis::{PushInfo, Value};
use semafor::__client::{
    AcquireRequest, Call, Client, Command, EndReason, Event as ClientEvent, Failure, Instant, Key,
    OperationError, Reply, ServerPushes, TaskKey, Wait, unreachable,
};
use semafor::__redis::ScriptCall;
use semafor::{Loss, NotHeld};
use tokio_util::sync::CancellationToken;

use super::faults::Fault;
use super::network::{Answer, Link, Request};
use super::process::{Dialling, Doing, Pending, Process, Work};
use super::queue::Queue;
use super::redis::{ConnectionId, Server, SortedSet, Store};
use super::rules::{Held, Rules};
use super::{Event, Outcome, SECOND, Settings, Time};
use crate::random::Random;

/// When the simulation begins, in microseconds since the epoch.
const EPOCH: i64 = 1_789_000_000_000_000;
/// How long everything has to settle after the last fault.
const SETTLE: Time = 900 * SECOND;
/// How often the server looks for keys whose time is over, and keeps a copy of its data.
const CYCLE: Time = SECOND / 2;
/// Scripts that a server runs at most in a window of that length, unless clients call without a pause.
const MOST_SCRIPTS: u64 = 10_000;
const WINDOW: Time = 10 * SECOND;
/// How long a client may take to learn what the server knows, while nothing is wrong between the two: a few messages.
const NEWS: Time = 2 * SECOND;
/// How long a client may do without a connection that it needs. Its longest pause is 2 s.
const UNCONNECTED: Time = 3 * SECOND;
/// How long a client may pause before it repeats a request, or between heartbeats.
const LONGEST_RETRY: Time = 10 * SECOND;
/// How much too late a time-out may be told. Waiters leave in few calls, however many they are.
const OVERDUE: Time = SECOND;
/// How many copies of its data a server keeps, to come back to.
const COPIES: usize = 64;

enum Due {
    AtServer {
        connection: ConnectionId,
        request: Request,
        sent: Time,
    },
    AtClient {
        connection: ConnectionId,
        answer: Answer,
        sent: Time,
    },
    /// The client's own timers.
    Timer {
        process: usize,
        life: u64,
    },
    /// A request has waited too long for its reply.
    NoReply {
        process: usize,
        life: u64,
        number: u64,
    },
    NoConnection {
        process: usize,
        life: u64,
        connection: ConnectionId,
    },
    /// A user does the next thing.
    User {
        process: usize,
        life: u64,
        user: usize,
        plan: u64,
    },
    Fault(Fault),
    Resume {
        process: usize,
        life: u64,
    },
    Start {
        process: usize,
    },
    ServerResumes,
    ServerStarts {
        data: Option<Box<Store>>,
        clock: i64,
    },
    MemoryIsBack,
    LinkIsQuick {
        connection: ConnectionId,
        latency: Time,
    },
    PythonLeaves {
        name: usize,
        member: String,
    },
    /// A process releases an id that it passed on to another one, which may have died before it took over.
    FormerHolderReleases {
        process: usize,
        life: u64,
        name: usize,
        id: Arc<str>,
    },
    ServerCycle,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ServerState {
    Up,
    Stopped,
    Down,
}

pub(super) struct World<'a> {
    settings: &'a Settings,
    now: Time,
    queue: Queue<Due>,
    server: Server,
    server_state: ServerState,
    /// What a stopped server has not read yet.
    unread: Vec<(ConnectionId, Request, Time)>,
    copies: Vec<(Time, Store)>,
    processes: Vec<Process>,
    /// What has happened to processes that stand still.
    missed: Vec<Vec<Due>>,
    links: BTreeMap<ConnectionId, Link>,
    last_number: u64,
    network: Random,
    rules: Rules,
    /// Ids whose holders know that they were evicted.
    evicted_ids: BTreeSet<String>,
    /// When the last disturbance ended.
    disturbed_until: Time,
    /// The places of waiters that know theirs.
    places: HashMap<String, f64>,
    /// By the key of the line.
    seen_lines: HashMap<String, SeenLine>,
    /// Ids of grants that were passed on to another process. They end by themselves.
    adopted: BTreeSet<Arc<str>>,
    /// Names with a free slot and a waiter that could have it, by when that was first seen.
    idle: BTreeMap<usize, (Time, String)>,
    /// What the clients of a process do not know yet, although they should, by when that was first seen.
    news: BTreeMap<(usize, usize), (Time, String)>,
    /// Until then, clients may learn of what is lost from their heartbeats alone.
    silent_until: Time,
    scripts: u64,
    /// When the current window began, and the scripts since.
    window: (Time, u64),
    faults: u64,
    events: Vec<Event>,
}

impl<'a> World<'a> {
    pub(super) fn new(settings: &'a Settings) -> Self {
        // A holder believes for a heartbeat after it last sent one, and longer messages take their time.
        let recovery = settings.heartbeat.as_micros() as Time + 10 * SECOND;
        let mut world = Self {
            settings,
            now: 0,
            queue: Queue::new(),
            server: Server::default(),
            server_state: ServerState::Up,
            unread: Vec::new(),
            copies: Vec::new(),
            processes: (0..settings.processes).map(|number| Process::new(settings, number, 0)).collect(),
            missed: (0..settings.processes).map(|_| Vec::new()).collect(),
            links: BTreeMap::new(),
            last_number: 0,
            network: Random::stream(settings.seed, 2),
            rules: Rules::new(&settings.slots, recovery),
            evicted_ids: BTreeSet::new(),
            disturbed_until: 0,
            places: HashMap::new(),
            seen_lines: HashMap::new(),
            adopted: BTreeSet::new(),
            idle: BTreeMap::new(),
            news: BTreeMap::new(),
            silent_until: 0,
            scripts: 0,
            window: (0, 0),
            faults: 0,
            events: Vec::new(),
        };
        for (at, fault) in settings.faults() {
            world.plan(at, Due::Fault(fault));
        }
        world.plan(CYCLE, Due::ServerCycle);
        (0..settings.processes).for_each(|process| world.start_users(process));
        world
    }

    pub(super) fn run(mut self) -> Outcome {
        let end = self.settings.length + SETTLE;
        while let Some((at, due)) = self.queue.pop() {
            if at > end || self.rules.violation.is_some() || self.is_settled() {
                break;
            }
            self.now = at;
            self.happen(due);
        }
        let simulated = self.now;
        if self.rules.violation.is_none() {
            self.check_the_end();
        }
        Outcome {
            simulated,
            grants: self.rules.grants.len() as u64,
            faults: self.faults,
            scripts: self.scripts,
            violation: self.rules.violation,
            holds: if self.settings.is_recorded { self.rules.grants } else { Vec::new() },
            events: self.events,
        }
    }

    fn plan(&mut self, at: Time, due: Due) {
        self.queue.push(at.max(self.now), due);
    }

    fn note(&mut self, process: Option<usize>, text: impl FnOnce() -> String) {
        if self.settings.is_recorded {
            self.events.push(Event { at: self.now, process, text: text(), sent: None });
        }
    }

    fn note_message(
        &mut self,
        process: Option<usize>,
        sent: (Time, Option<usize>),
        text: impl FnOnce() -> String,
    ) {
        if self.settings.is_recorded {
            self.events.push(Event { at: self.now, process, text: text(), sent: Some(sent) });
        }
    }

    fn is_over(&self) -> bool {
        self.now >= self.settings.length
    }

    /// Nothing is left to wait for.
    fn is_settled(&self) -> bool {
        let is_idle = |process: &Process| {
            !process.is_alive
                || process.runs()
                    && process.client.is_empty()
                    && process.pending.is_empty()
                    && process.users.iter().all(|user| matches!(user.doing, Doing::Nothing))
        };
        self.is_over() && self.server_state == ServerState::Up && self.processes.iter().all(is_idle)
    }

    fn happen(&mut self, due: Due) {
        let of_process = match &due {
            Due::Timer { process, life }
            | Due::NoReply { process, life, .. }
            | Due::NoConnection { process, life, .. }
            | Due::FormerHolderReleases { process, life, .. }
            | Due::User { process, life, .. } => Some((*process, *life)),
            Due::AtClient { connection, .. } => match self.links.get(connection) {
                Some(link) => Some((link.process, link.life)),
                None => return,
            },
            _ => None,
        };
        if let Some((process, life)) = of_process {
            if self.processes[process].life != life || !self.processes[process].is_alive {
                return;
            }
            if self.processes[process].is_paused {
                self.missed[process].push(due);
                return;
            }
        }
        match due {
            Due::AtServer { connection, request, sent } => self.at_server(connection, request, sent),
            Due::AtClient { connection, answer, sent } => self.at_client(connection, answer, sent),
            Due::Timer { process, .. } => {
                // As in a driver, only the last time that the client asked for counts.
                if self.processes[process].timer.take_if(|at| *at <= self.now).is_some() {
                    self.change(process, Client::handle_timeout);
                }
            }
            Due::NoReply { process, number, .. } => self.no_reply(process, number),
            Due::NoConnection { process, connection, .. } => {
                if self.processes[process]
                    .dialling
                    .as_ref()
                    .is_some_and(|dialling| dialling.connection == connection)
                {
                    self.dial_failed(process);
                }
            }
            Due::User { process, user, plan, .. } => {
                if self.processes[process].users[user].plan == plan {
                    self.user_acts(process, user);
                }
            }
            Due::Fault(fault) => self.go_wrong(fault),
            Due::Resume { process, life } => self.resume(process, life),
            Due::Start { process } => self.start(process),
            Due::ServerResumes => {
                if self.server_state == ServerState::Stopped {
                    self.server_state = ServerState::Up;
                    for (connection, request, sent) in std::mem::take(&mut self.unread) {
                        self.at_server(connection, request, sent);
                    }
                }
            }
            Due::ServerStarts { data, clock } => {
                self.server.clock_offset += clock;
                self.set_server_time();
                if let Some(data) = data {
                    self.server.restart(*data);
                }
                self.server_state = ServerState::Up;
                self.note(None, || "starts".into());
            }
            Due::MemoryIsBack => self.server.set_out_of_memory(false),
            Due::LinkIsQuick { connection, latency } => {
                if let Some(link) = self.links.get_mut(&connection) {
                    link.latency = latency;
                }
            }
            Due::PythonLeaves { name, member } => {
                let key = self.main_key(name);
                self.python_command(&["ZREM", &key, &member]);
            }
            Due::FormerHolderReleases { process, name, id, .. } => {
                let target = Arc::clone(&self.processes[process].targets[name]);
                self.change(process, |client, now| {
                    let number = client.end_by_id(&target, &id, EndReason::Released, now);
                    client.abandon_operation(number);
                });
            }
            Due::ServerCycle => {
                if self.server_state == ServerState::Up {
                    self.set_server_time();
                    let pushes = self.server.expire();
                    self.send_pushes(pushes);
                    self.look_for_disturbances();
                    self.check_idle_slots();
                    self.check_news();
                    self.check_leftovers();
                    self.copies.push((self.now, self.server.snapshot()));
                    if self.copies.len() > COPIES {
                        self.copies.remove(0);
                    }
                }
                if !self.is_settled() {
                    self.plan(self.now + CYCLE, Due::ServerCycle);
                }
            }
        }
    }

    // The server

    fn set_server_time(&mut self) {
        self.server.set_time(EPOCH + self.now as i64);
    }

    fn at_server(&mut self, connection: ConnectionId, request: Request, sent: Time) {
        match self.server_state {
            ServerState::Up => {}
            ServerState::Stopped => return self.unread.push((connection, request, sent)),
            ServerState::Down => {
                if matches!(request, Request::Hello) {
                    self.send_to_client(connection, Answer::Closed);
                }
                return;
            }
        }
        self.set_server_time();
        let from = self.links.get(&connection).map(|link| link.process);
        match request {
            Request::Hello => {
                let Some(link) = self.links.get(&connection) else { return };
                self.server.connect(connection, &self.processes[link.process].channel);
                self.send_to_client(connection, Answer::Welcome);
            }
            Request::Close => {
                self.server.disconnect(connection);
                self.links.remove(&connection);
            }
            // A server has forgotten the connections of before it started.
            _ if !self.server.is_connected(connection) => self.send_to_client(connection, Answer::Closed),
            Request::Track { number, keys } => {
                let exist = self.server.track(connection, &keys);
                self.send_to_client(connection, Answer::Tracked { number, exist });
            }
            Request::Script { number, call, has_code, resizes } => {
                self.scripts += 1;
                self.check_rate();
                let before = self.lines_of(&call);
                let ran =
                    self.server.run_script((call.digest, call.code), has_code, &call.keys, &call.arguments);
                self.check_order(&call, &before);
                self.check_error(&ran.reply);
                if ran.reply.is_ok() {
                    self.check_expiry(&call);
                }
                if let (Some((name, slots)), Ok(_)) = (resizes, &ran.reply) {
                    self.rules.resized(name, slots, self.now);
                }
                self.note_message(None, (sent, from), || describe(&call, &ran.reply));
                self.send_pushes(ran.pushes);
                self.send_to_client(connection, Answer::Reply { number, reply: ran.reply });
            }
        }
    }

    fn send_pushes(&mut self, pushes: Vec<(ConnectionId, PushInfo)>) {
        for (connection, push) in pushes {
            self.send_to_client(connection, Answer::Push(push));
        }
    }

    fn send_to_client(&mut self, connection: ConnectionId, answer: Answer) {
        let Some(link) = self.links.get_mut(&connection) else { return };
        if link.is_half_open {
            return;
        }
        if link.loses_reply && matches!(answer, Answer::Reply { .. }) {
            return self.break_connection(connection);
        }
        let at = link.at_client(self.now, &mut self.network);
        let sent = self.now;
        self.plan(at, Due::AtClient { connection, answer, sent });
    }

    /// Holders and waiters of the name that a script is about.
    fn lines_of(&self, call: &ScriptCall) -> Option<Lines> {
        let [holders, waiters] =
            [call.keys.first()?, call.keys.get(3)?].map(|key| self.server.sorted_set(key));
        Some(Lines { holders, waiters })
    }

    /// Rule 4, as it shows on the server.
    fn check_order(&mut self, call: &ScriptCall, before: &Option<Lines>) {
        let (Some(before), Some(after)) = (before, self.lines_of(call)) else { return };
        self.check_places(call, &after.waiters);
        if self.rules.is_suspended(self.now) || Rc::ptr_eq(&before.holders, &after.holders) {
            return;
        }
        let is_new = |id: &[u8]| before.holders.score(id).is_none() && !id.contains(&b'#');
        for (_, id) in after.holders.entries().iter().filter(|(_, id)| is_new(id)) {
            let was_at = before.waiters.score(id).or_else(|| returns_to(call, id));
            // Those that were before it, and still wait.
            let waiters = after.waiters.entries().iter();
            let mut ahead = waiters.take_while(|(at, _)| was_at.is_none_or(|was_at| *at < was_at));
            let overtaken = ahead.find(|(_, other)| {
                let stood_before = before.waiters.score(other).is_some();
                stood_before && !other.starts_with(id)
            });
            if let Some((at, other)) = overtaken {
                let (id, other) = (String::from_utf8_lossy(id), String::from_utf8_lossy(other));
                let what =
                    format!("{id} (place {was_at:?}) was granted its slots before {other} (place {at})");
                self.rules.report(self.now, "order", what);
            }
        }
    }

    /// A waiter that knows its place keeps it. Looks only at those that moved, or learned their place, since the last look.
    fn check_places(&mut self, call: &ScriptCall, waiters: &Rc<SortedSet>) {
        let Some(key) = call.keys.get(3) else { return };
        let seen = self.seen_lines.entry_ref(key.as_str()).or_default();
        let told = seen.told.drain(..).filter_map(|id| Some((waiters.score(id.as_bytes())?, id)));
        let mut moved: Vec<_> = told.collect();
        if !Rc::ptr_eq(&seen.waiters, waiters) {
            let before = std::mem::replace(&mut seen.waiters, Rc::clone(waiters));
            let has_moved = |(at, id): &&(f64, Rc<[u8]>)| before.score(id).is_none_or(|before| before != *at);
            let entries = waiters.entries().iter().filter(has_moved);
            moved.extend(entries.map(|(at, id)| (*at, String::from_utf8_lossy(id).into_owned())));
        }
        for (at, id) in moved {
            if let Some(place) = self.places.get(&id).filter(|place| **place < at) {
                self.rules.report(self.now, "order", format!("{id} had place {place}, and is back at {at}"));
            }
        }
    }

    /// Messages vanish, or take long, until a client notices.
    fn look_for_disturbances(&mut self) {
        if self.links.values().any(|link| link.is_disturbed(self.now)) {
            self.disturbed_until = self.disturbed_until.max(self.now);
        }
    }

    /// Nothing has gone wrong for so long that its effects are over.
    fn is_calm(&self) -> bool {
        self.now >= self.disturbed_until + self.rules.recovery
    }

    /// The time of the server, as scores have it.
    fn server_seconds(&self) -> f64 {
        (EPOCH + self.now as i64 + self.server.clock_offset) as f64 / SECOND as f64
    }

    /// Rule 9.
    fn check_idle_slots(&mut self) {
        for name in 0..self.settings.slots.len() {
            let idle = if self.is_calm() { self.idle_slot(name) } else { None };
            match (idle, self.idle.get(&name)) {
                (None, _) => {
                    self.idle.remove(&name);
                }
                (Some(head), Some((since, before))) if head == *before => {
                    let what = format!("{head} could have had a slot of n{name} since {since} µs");
                    self.rules.report(self.now, "no slot lies idle", what);
                }
                (Some(head), _) => {
                    self.idle.insert(name, (self.now, head));
                }
            }
        }
    }

    /// The first in line, if there is room for it.
    fn idle_slot(&mut self, name: usize) -> Option<String> {
        let [main, ttl, max, waiting, beats] =
            std::array::from_fn(|key| self.processes[0].targets[name].keys[key].clone());
        let (slots, pushes) = self.server.run(&["GET", &max]);
        self.send_pushes(pushes);
        let Ok(Value::BulkString(slots)) = slots else { return None };
        let slots: usize = str::from_utf8(&slots).ok()?.parse().ok()?;
        let now = self.server_seconds();
        let [main, leased, line, beats] =
            [&main, &ttl, &waiting, &beats].map(|key| self.server.sorted_set(key));
        let lives = |set: &SortedSet, id: &[u8]| set.score(id).is_some_and(|ends| ends > now);
        let is_over = |id: &[u8]| leased.score(id).is_some_and(|ends| ends <= now);
        let id_of = |member: &Rc<[u8]>| member.split(|byte| *byte == b'#').next().is_some_and(is_over);
        let held = main.from(now, false).iter().filter(|(_, member)| !id_of(member)).count();
        let (_, head) = line.entries().first()?;
        // A part of its weight may have left the line.
        let id = head.split(|byte| *byte == b'#').next()?;
        let weight = line.entries().iter().filter(|(_, member)| member.starts_with(id)).count();
        (lives(&beats, head) && held + weight <= slots).then(|| String::from_utf8_lossy(head).into_owned())
    }

    /// Rule 12.
    fn check_news(&mut self) {
        for process in 0..self.processes.len() {
            let users = self.processes[process].users.len();
            let is_fit = self.is_fit(process);
            for user in 0..users {
                let unknown = if is_fit { self.unknown_to(process, user) } else { None };
                self.note_news((process, user), NEWS, unknown);
            }
            let is_cut_off = self.is_cut_off(process).then(|| "has no connection".into());
            self.note_news((process, users), UNCONNECTED, is_cut_off);
            self.look_after_crowd(process, is_fit);
        }
    }

    fn note_news(&mut self, who: (usize, usize), patience: Time, unknown: Option<String>) {
        match (unknown, self.news.get(&who)) {
            (None, _) => {
                self.news.remove(&who);
            }
            (Some(what), Some((since, before))) if what == *before => {
                if self.now >= since + patience {
                    let what = format!("process {}, since {since} µs: {what}", who.0);
                    self.rules.report(self.now, "news in time", what);
                }
            }
            (Some(what), _) => {
                self.news.insert(who, (self.now, what));
            }
        }
    }

    /// Nothing is wrong between the process and the server.
    fn is_fit(&self, process: usize) -> bool {
        let (process, now) = (&self.processes[process], self.now);
        let link = process.connection.and_then(|connection| self.links.get(&connection));
        process.runs()
            && link.is_some_and(|link| !link.is_disturbed(now))
            && now >= self.silent_until.max(process.retries_until)
    }

    /// It needs a connection, has none, and makes none.
    fn is_cut_off(&self, process: usize) -> bool {
        let process = &self.processes[process];
        let is_busy = |doing: &Doing| {
            matches!(doing, Doing::Acquiring { .. } | Doing::Holding { .. } | Doing::Detached { .. })
        };
        process.runs()
            && process.connection.is_none()
            && process.dialling.is_none()
            && self.now >= process.retries_until
            && process.users.iter().any(|user| is_busy(&user.doing))
    }

    /// What the server knows and the client of a user does not.
    fn unknown_to(&self, process: usize, user: usize) -> Option<String> {
        let (name, id) = match &self.processes[process].users[user].doing {
            // One that has timed out may still wait for a call on a connection that was given up.
            Doing::Acquiring { key, name, .. }
                if self.processes[process].users[user].deadline.is_none_or(|at| self.now < at) =>
            {
                let target = &self.processes[process].targets[*name];
                (*name, self.processes[process].engine.id(target, *key))
            }
            Doing::Holding { name, grant, id, .. } | Doing::Detached { name, grant, id, .. }
                if !self.rules.is_ended(*grant) =>
            {
                (*name, Arc::clone(id))
            }
            _ => return None,
        };
        let keys = &self.processes[process].targets[name].keys;
        let has = |key: usize| self.server.sorted_set(&keys[key]).score(id.as_bytes()).is_some();
        let is_held = has(0) && has(9) && !has(3);
        // The reply to its request may be lost with a connection that was given up. That shows after the time limit of the call.
        let someone = &self.processes[process];
        let may_know = self.places.contains_key(&*id)
            || someone.pending.values().all(|pending| Some(pending.connection) == someone.connection);
        match &self.processes[process].users[user].doing {
            Doing::Acquiring { .. } if is_held && may_know => Some(format!("{id} was granted its slots")),
            // It knew its place.
            Doing::Acquiring { .. } if self.places.contains_key(&*id) && !has(0) && !has(3) && !has(9) => {
                Some(format!("{id} is not in line any more"))
            }
            Doing::Holding { .. } | Doing::Detached { .. } if !has(0) && !has(9) => {
                Some(format!("{id} is not held any more"))
            }
            _ => None,
        }
    }

    /// Waiters that time out together are told so, and leave what they were granted.
    fn look_after_crowd(&mut self, process: usize, is_fit: bool) {
        if !self.processes[process].runs() || self.processes[process].crowd.is_empty() {
            return;
        }
        let now = self.processes[process].local(self.now);
        let mut crowd = std::mem::take(&mut self.processes[process].crowd);
        crowd.retain(|(key, deadline)| {
            let client = &mut self.processes[process].client;
            match client.poll_acquire(*key, Waker::noop().clone()) {
                Poll::Ready(Ok(_)) => {
                    client.drop_lease(*key, now);
                    false
                }
                Poll::Ready(Err(_)) => false,
                Poll::Pending => {
                    if is_fit && self.is_calm() && self.now > deadline + OVERDUE {
                        let what = format!("{key:?} of process {process} has timed out at {deadline} µs");
                        self.rules.report(self.now, "news in time", what);
                    }
                    true
                }
            }
        });
        self.processes[process].crowd = crowd;
        self.carry_out(process);
    }

    /// Rule 5, for clients that have no entry.
    fn check_leftovers(&mut self) {
        if self.rules.is_suspended(self.now) {
            return;
        }
        // The key that has when each of our ids is over. All processes have the same keys.
        let own = self.processes[0].targets.iter().map(|target| self.server.sorted_set(&target.keys[9]));
        let (own, now): (Vec<_>, _) = (own.collect(), self.server_seconds());
        let living: Vec<_> = own.iter().flat_map(|own| own.from(now, false)).map(|(_, id)| id).collect();
        for number in 0..self.processes.len() {
            let process = &self.processes[number];
            let is_empty = process.client.is_empty() && process.pending.is_empty();
            // A detached grant that its client has given up ends by itself, at the end of its grace if it was evicted.
            let longest = self.rules.recovery + self.grace().as_micros() as Time;
            let has_given_up = process.gave_up_at.is_some_and(|at| self.now < at + longest);
            if !process.runs() || !is_empty || has_given_up {
                continue;
            }
            let mut left = living.iter().filter_map(|id| str::from_utf8(id).ok());
            if let Some(id) = left.find(|id| process.is_own(id) && !self.adopted.contains(*id)) {
                let what = format!("the server still has {id} of process {number}, which has no entry");
                return self.rules.report(self.now, "nothing is left", what);
            }
        }
    }

    /// Rule 11.
    fn check_rate(&mut self) {
        if self.now >= self.window.0 + WINDOW {
            self.window = (self.now, 0);
        }
        self.window.1 += 1;
        if self.window.1 > MOST_SCRIPTS {
            let what = format!("{MOST_SCRIPTS} scripts within {} s", WINDOW / SECOND);
            self.rules.report(self.now, "no busy loop", what);
        }
    }

    /// Rule 8, for the keys without which a grant is not known any more.
    fn check_expiry(&mut self, call: &ScriptCall) {
        if self.rules.is_suspended(self.now) || call.keys.len() < 10 {
            return;
        }
        let now = self.server_seconds();
        // The holders, and all that is known of holders and waiters.
        for (keys, set) in [(&[0][..], 0), (&[5, 6, 9][..], 9)] {
            let ends = self
                .server
                .sorted_set(&call.keys[set])
                .entries()
                .last()
                .map_or(0.0, |(ends, _)| ends.max(0.0));
            for key in keys.iter().map(|key| &call.keys[*key]) {
                let (left, pushes) = self.server.expires_in(key);
                self.send_pushes(pushes);
                if let Some(left) = left
                    && now + (left + 2) as f64 / 1_000.0 < ends
                {
                    let what =
                        format!("{key} expires in {left} ms, its content is over in {:.3} s", ends - now);
                    self.rules.report(self.now, "keys live as long as their content", what);
                }
            }
        }
    }

    /// Rule 7.
    fn check_error(&mut self, reply: &Result<Value, String>) {
        if let Err(error) = reply
            && !error.starts_with("NOSCRIPT")
            && !error.starts_with("OOM")
        {
            self.rules.report(self.now, "no raw errors", error.clone());
        }
    }

    // Connections

    fn at_client(&mut self, connection: ConnectionId, answer: Answer, sent: Time) {
        let Some(link) = self.links.get(&connection) else { return };
        if link.is_half_open {
            return;
        }
        let process = link.process;
        match answer {
            Answer::Welcome => {
                let dialling =
                    self.processes[process].dialling.take_if(|dialling| dialling.connection == connection);
                let Some(dialling) = dialling else { return };
                self.processes[process].connection = Some(connection);
                self.processes[process].newest_connection = connection;
                let pushes = ServerPushes { messages: true, tracking: true };
                self.note(Some(process), || "connected".into());
                self.change(process, |client, now| client.connected(pushes, now));
                for call in dialling.calls {
                    self.send_call(process, call);
                }
            }
            Answer::Closed => self.closed(connection),
            // The driver ignores it, too.
            Answer::Push(_) if connection < self.processes[process].newest_connection => {}
            Answer::Push(push) => {
                self.note_message(Some(process), (sent, None), || format!("push {}", show(&push.data)));
                let now = self.processes[process].local(self.now);
                for push in self.processes[process].engine.read_push(push, now) {
                    self.change(process, |client, now| client.handle_push(push, now));
                }
            }
            Answer::Tracked { number, exist } => self.tracked(process, number, &exist),
            Answer::Reply { number, reply } => self.replied(process, number, reply),
        }
    }

    fn dial(&mut self, process: usize, calls: Vec<Call>) {
        self.last_number += 1;
        let connection = self.last_number;
        let link = Link::new(process, self.processes[process].life, &mut self.network);
        self.links.insert(connection, link);
        self.processes[process].dialling = Some(Dialling { connection, calls });
        let life = self.processes[process].life;
        // Greetings, permissions, subscriptions: several trips. Sometimes names and certificates take long, too.
        let link = self.links.get_mut(&connection).expect("it was just made");
        let delay = if self.network.percent(10) {
            self.network.between(SECOND / 10, 3 * SECOND)
        } else {
            link.latency * 8
        };
        let at = link.at_server(self.now + delay, &mut self.network);
        let sent = self.now;
        self.plan(at, Due::AtServer { connection, request: Request::Hello, sent });
        let limit = self.settings.config.socket_connect_timeout.as_micros() as Time;
        self.plan(self.now + limit, Due::NoConnection { process, life, connection });
    }

    fn dial_failed(&mut self, process: usize) {
        let Some(dialling) = self.processes[process].dialling.take() else { return };
        self.links.remove(&dialling.connection);
        for call in dialling.calls {
            self.fail(process, call, false, true);
        }
    }

    fn fail(&mut self, process: usize, call: Call, was_sent: bool, is_transient: bool) {
        if matches!(call.command, Command::Acquire { .. } | Command::CheckWaiter { .. }) {
            self.processes[process].retries_until = self.now + LONGEST_RETRY;
        }
        let failure = Failure { error: unreachable("the simulated network failed"), is_transient, was_sent };
        self.change(process, |client, now| client.handle_failure(call, &failure, now));
    }

    /// The connection breaks, and both sides learn of it.
    fn break_connection(&mut self, connection: ConnectionId) {
        if let Some(link) = self.links.get_mut(&connection) {
            link.loses_reply = false;
            let at = link.at_server(self.now, &mut self.network);
            let sent = self.now;
            // The client first: then the link is gone.
            self.plan(self.now, Due::AtClient { connection, answer: Answer::Closed, sent });
            self.plan(at, Due::AtServer { connection, request: Request::Close, sent });
        }
    }

    /// A process learns that its connection has ended.
    fn closed(&mut self, connection: ConnectionId) {
        let Some(link) = self.links.get(&connection) else { return };
        let process = link.process;
        // The server reads what is on its way to it before it learns of the end.
        self.links.remove(&connection);
        if self.processes[process].dialling.as_ref().is_some_and(|dialling| dialling.connection == connection)
        {
            return self.dial_failed(process);
        }
        self.note(Some(process), || "connection lost".into());
        self.hang_up(process, connection);
        let lost: Vec<u64> = self.processes[process]
            .pending
            .iter()
            .filter(|(_, pending)| pending.connection == connection)
            .map(|(number, _)| *number)
            .collect();
        for number in lost {
            if let Some(pending) = self.processes[process].pending.remove(&number) {
                self.work_failed(process, pending.work, true);
            }
        }
    }

    fn hang_up(&mut self, process: usize, connection: ConnectionId) {
        if self.processes[process].connection.take_if(|current| *current == connection).is_some() {
            self.change(process, |client, now| client.disconnected(Vec::new(), now));
        }
    }

    fn work_failed(&mut self, process: usize, work: Work, is_transient: bool) {
        match work {
            Work::Script { call, .. } => self.fail(process, call, true, is_transient),
            Work::Subscribe { call, .. } => self.fail(process, call, false, true),
            // The driver sweeps although it could not track.
            Work::Watch { call } => self.transmit(process, Work::WatchSweep { call }),
            Work::WatchSweep { call } => {
                let reply = Reply::Watched { is_watched: false, state: None };
                self.change(process, |client, now| client.handle_reply(call, reply, now));
            }
            Work::Resize { .. } => {}
        }
    }

    // Requests

    fn send_call(&mut self, process: usize, call: Call) {
        let needs_connection = !matches!(
            call.command,
            Command::Detach { .. } | Command::Reclaim { .. } | Command::Reconnected { .. }
        );
        if needs_connection && self.processes[process].connection.is_none() {
            match &mut self.processes[process].dialling {
                Some(dialling) => dialling.calls.push(call),
                None => self.dial(process, vec![call]),
            }
            return;
        }
        let work = match &call.command {
            Command::Connect
            | Command::Detach { .. }
            | Command::Reclaim { .. }
            | Command::Reconnected { .. } => {
                return self.change(process, |client, now| client.handle_reply(call, Reply::Done, now));
            }
            Command::Subscribe { waiters } => {
                let mut owners = Vec::new();
                for (key, weight) in waiters {
                    let keys = self.processes[process].engine.notifications(&call.target, *key, *weight);
                    owners.extend(std::iter::repeat_n(*key, keys.len()));
                }
                Work::Subscribe { call, owners }
            }
            Command::Watch => Work::Watch { call },
            _ => match self.processes[process].engine.script_of(&call) {
                Some(script) => Work::Script { call, script: Rc::new(script) },
                None => {
                    return self.change(process, |client, now| client.handle_reply(call, Reply::Done, now));
                }
            },
        };
        self.transmit(process, work);
    }

    fn transmit(&mut self, process: usize, work: Work) {
        let Some(connection) = self.processes[process].connection else {
            return self.work_failed_unsent(process, work);
        };
        self.last_number += 1;
        let number = self.last_number;
        let engine = &self.processes[process].engine;
        let request = match &work {
            Work::Script { script, .. } | Work::Resize { script, .. } => {
                Request::Script { number, call: Rc::clone(script), has_code: false, resizes: work.resizes() }
            }
            Work::WatchSweep { call } => match engine.script_of(call) {
                Some(script) => {
                    Request::Script { number, call: Rc::new(script), has_code: false, resizes: None }
                }
                None => return,
            },
            Work::Watch { call } => Request::Track { number, keys: vec![call.target.keys[0].clone()] },
            Work::Subscribe { call, .. } => {
                let Command::Subscribe { waiters } = &call.command else { return };
                let keys = waiters
                    .iter()
                    .flat_map(|(key, weight)| engine.notifications(&call.target, *key, *weight));
                Request::Track { number, keys: keys.collect() }
            }
        };
        let (sent, life) = (self.processes[process].local(self.now), self.processes[process].life);
        self.processes[process].pending.insert(number, Pending { connection, sent, work });
        self.send_to_server(connection, request);
        let limit = self.settings.config.socket_timeout.as_micros() as Time;
        self.plan(self.now + limit, Due::NoReply { process, life, number });
    }

    fn work_failed_unsent(&mut self, process: usize, work: Work) {
        match work {
            Work::Script { call, .. } | Work::Subscribe { call, .. } => self.fail(process, call, false, true),
            Work::Watch { call } | Work::WatchSweep { call } => {
                let reply = Reply::Watched { is_watched: false, state: None };
                self.change(process, |client, now| client.handle_reply(call, reply, now));
            }
            Work::Resize { .. } => {}
        }
    }

    fn send_to_server(&mut self, connection: ConnectionId, request: Request) {
        let Some(link) = self.links.get_mut(&connection) else { return };
        if link.is_half_open {
            return;
        }
        let delay = if matches!(request, Request::Script { .. }) { link.delays_request.take() } else { None };
        let sent = self.now;
        let at = link.at_server(sent + delay.unwrap_or(0), &mut self.network);
        self.plan(at, Due::AtServer { connection, request, sent });
        if let Some(delay) = delay {
            self.disturbed_until = self.disturbed_until.max(sent + delay);
            self.break_connection(connection);
        }
    }

    fn no_reply(&mut self, process: usize, number: u64) {
        let Some(pending) = self.processes[process].pending.remove(&number) else { return };
        self.note(Some(process), || "no reply in time".into());
        self.hang_up(process, pending.connection);
        self.work_failed(process, pending.work, true);
        self.close_unused(process, pending.connection);
    }

    /// A connection that was given up ends with its last request.
    fn close_unused(&mut self, process: usize, connection: ConnectionId) {
        let process = &self.processes[process];
        let is_used = process.connection == Some(connection)
            || process.dialling.as_ref().is_some_and(|dialling| dialling.connection == connection)
            || process.pending.values().any(|pending| pending.connection == connection);
        if !is_used {
            self.send_to_server(connection, Request::Close);
        }
    }

    fn tracked(&mut self, process: usize, number: u64, exist: &[bool]) {
        let Some(pending) = self.processes[process].pending.remove(&number) else { return };
        match pending.work {
            Work::Subscribe { call, owners } => {
                let granted =
                    owners.into_iter().zip(exist).filter(|(_, exists)| **exists).map(|(key, _)| key);
                let reply = Reply::Subscribed { granted: granted.collect() };
                self.change(process, |client, now| client.handle_reply(call, reply, now));
            }
            Work::Watch { call } => self.transmit(process, Work::WatchSweep { call }),
            work => self.work_failed(process, work, true),
        }
        self.close_unused(process, pending.connection);
    }

    fn replied(&mut self, process: usize, number: u64, reply: Result<Value, String>) {
        let Some(pending) = self.processes[process].pending.remove(&number) else { return };
        let Pending { connection, sent, work } = pending;
        if Some(connection) != self.processes[process].connection {
            // It may be out of date, and only a heartbeat shows that.
            self.processes[process].retries_until = self.now + LONGEST_RETRY;
        }
        if reply.as_ref().is_err_and(|error| error.starts_with("NOSCRIPT")) {
            let script = match &work {
                Work::Script { script, .. } | Work::Resize { script, .. } => Some(Rc::clone(script)),
                Work::WatchSweep { call } => self.processes[process].engine.script_of(call).map(Rc::new),
                Work::Watch { .. } | Work::Subscribe { .. } => None,
            };
            if let Some(call) = script {
                let resizes = work.resizes();
                self.processes[process].pending.insert(number, Pending { connection, sent, work });
                return self
                    .send_to_server(connection, Request::Script { number, call, has_code: true, resizes });
            }
            return;
        }
        let received = self.processes[process].local(self.now);
        match (work, reply) {
            (Work::Script { call, script }, Ok(value)) => {
                match self.processes[process].engine.decode(&call, value, sent, received) {
                    Ok(reply) => {
                        if let Reply::Queued { place, .. } = reply {
                            let id =
                                script.arguments.get(1).map(|id| String::from_utf8_lossy(id).into_owned());
                            let seen = self.seen_lines.entry_ref(call.target.keys[3].as_str()).or_default();
                            seen.told.extend(id.clone());
                            self.places.extend(id.map(|id| (id, place)));
                        }
                        self.change(process, |client, now| client.handle_reply(call, reply, now));
                    }
                    Err(error) => {
                        self.rules.report(self.now, "no raw errors", error.to_string());
                        self.fail(process, call, true, false);
                    }
                }
            }
            (Work::WatchSweep { call }, Ok(value)) => {
                let state = match self.processes[process].engine.decode(&call, value, sent, received) {
                    Ok(Reply::Swept(state)) => Some(state),
                    _ => None,
                };
                let reply = Reply::Watched { is_watched: true, state };
                self.change(process, |client, now| client.handle_reply(call, reply, now));
            }
            (Work::Resize { name, slots, .. }, Ok(_)) => {
                self.processes[process].targets[name].note_slots(slots);
            }
            (Work::Watch { .. } | Work::Subscribe { .. }, _) => {}
            (work, Err(_)) => self.work_failed(process, work, false),
        }
        self.close_unused(process, connection);
    }

    // Clients

    /// Changes a client, and carries out what follows: calls, events, and what its users do then.
    fn change(&mut self, process: usize, change: impl FnOnce(&mut Client, Instant)) {
        let now = self.processes[process].local(self.now);
        change(&mut self.processes[process].client, now);
        self.carry_out(process);
    }

    fn carry_out(&mut self, process: usize) {
        loop {
            let now = self.processes[process].local(self.now);
            let calls: Vec<_> =
                std::iter::from_fn(|| self.processes[process].client.poll_transmit(now)).collect();
            let mut has_lost = false;
            while let Some(event) = self.processes[process].client.poll_event() {
                match event {
                    ClientEvent::Wake(waker) => waker.wake(),
                    ClientEvent::Lost { signal, id, why } => {
                        signal.cancel();
                        has_lost = true;
                        if why == NotHeld::Lost(Loss::Evicted) {
                            self.evicted_ids.insert(id.to_string());
                        }
                    }
                    ClientEvent::EndedById(signal) => {
                        signal.cancel();
                        has_lost = true;
                    }
                    ClientEvent::DropWaker(_) | ClientEvent::DropKeepAlive(_) => {}
                }
            }
            if has_lost {
                self.tell_of_losses(process);
            }
            let is_done = calls.is_empty();
            for call in calls {
                self.send_call(process, call);
            }
            if is_done {
                break;
            }
        }
        for user in 0..self.processes[process].users.len() {
            if self.processes[process].users[user].flag.take() {
                self.look(process, user);
            }
        }
        self.set_timer(process);
    }

    fn set_timer(&mut self, process: usize) {
        let Some(next) = self.processes[process].client.poll_timeout() else { return };
        let (at, life) = (self.processes[process].when(next).max(self.now), self.processes[process].life);
        if self.processes[process].timer.is_none_or(|planned| at < planned) {
            self.processes[process].timer = Some(at);
            self.plan(at, Due::Timer { process, life });
        }
    }

    // Users

    fn start_users(&mut self, process: usize) {
        for user in 0..self.processes[process].users.len() {
            self.rest(process, user);
        }
    }

    /// The user does nothing for a while.
    fn rest(&mut self, process: usize, user: usize) {
        let pause = self.settings.pause;
        let someone = &mut self.processes[process].users[user];
        someone.doing = Doing::Nothing;
        let after = someone.random.exponential(pause);
        self.act_after(process, user, after);
    }

    fn act_after(&mut self, process: usize, user: usize, after: Time) {
        let life = self.processes[process].life;
        let someone = &mut self.processes[process].users[user];
        someone.plan += 1;
        let plan = someone.plan;
        self.plan(self.now + after, Due::User { process, life, user, plan });
    }

    fn user_acts(&mut self, process: usize, user: usize) {
        let someone = &mut self.processes[process].users[user];
        match std::mem::replace(&mut someone.doing, Doing::Nothing) {
            Doing::Nothing => {
                if !self.is_over() {
                    self.acquire(process, user);
                }
            }
            Doing::Acquiring { key, .. } => {
                self.note(Some(process), || format!("user {user} cancels"));
                self.rest(process, user);
                self.change(process, |client, now| client.cancel(key, now));
            }
            Doing::Holding { key, name, grant, id, lost } => {
                self.go_on(process, user, (key, name, grant, id, lost));
            }
            Doing::Detached { name, grant, id, lost } => {
                self.rules.ended(grant, self.now, "released by id");
                self.note(Some(process), || format!("user {user} releases {id} by its id"));
                let now = self.processes[process].local(self.now);
                let target = Arc::clone(&self.processes[process].targets[name]);
                let number = self.processes[process].client.end_by_id(&target, &id, EndReason::Released, now);
                let then = Box::new(Doing::Detached { name, grant, id, lost });
                self.processes[process].users[user].doing = Doing::Operating { number, then };
                self.look(process, user);
                self.carry_out(process);
            }
            Doing::Finishing { key, grant } => self.finish(process, user, key, grant),
            Doing::Adopted { name, grant, id, until } => {
                self.rules.ended(grant, self.now, "released by id");
                self.note(Some(process), || format!("user {user} releases {id}, which it has adopted"));
                let now = self.processes[process].local(self.now);
                let target = Arc::clone(&self.processes[process].targets[name]);
                let number = self.processes[process].client.end_by_id(&target, &id, EndReason::Released, now);
                let then = Box::new(Doing::Adopted { name, grant, id, until });
                self.processes[process].users[user].doing = Doing::Operating { number, then };
                self.look(process, user);
                self.carry_out(process);
            }
            doing @ Doing::Operating { .. } => self.processes[process].users[user].doing = doing,
        }
    }

    /// Long enough for a message to arrive, and for a heartbeat if it does not.
    fn grace(&self) -> Duration {
        self.settings.heartbeat * 2
    }

    fn acquire(&mut self, process: usize, user: usize) {
        let grace = self.grace();
        let names = self.settings.slots.len() as u64;
        let someone = &mut self.processes[process].users[user];
        let random = &mut someone.random;
        let name = random.below(names) as usize;
        let weight = if random.percent(15) {
            random.between(1, u64::from(self.settings.slots[name])) as u32
        } else {
            1
        };
        let ttl = random.percent(40).then(|| Duration::from_micros(random.between(SECOND / 2, 15 * SECOND)));
        let wait = match random.below(10) {
            0 => Wait::No,
            1..4 => Wait::For(Duration::from_micros(random.between(SECOND / 10, 30 * SECOND))),
            _ => Wait::Unlimited,
        };
        let grace = (ttl.is_none() && random.percent(30)).then_some(grace);
        let cancels_after = random.percent(15).then(|| random.exponential(2 * SECOND));
        let (target, floor) =
            (Arc::clone(&self.processes[process].targets[name]), self.processes[process].newest_token);
        let now = self.processes[process].local(self.now);
        let request = AcquireRequest::new(weight, ttl, wait);
        let request = match grace {
            Some(grace) => request.with_grace(grace),
            None => request,
        };
        let ends = ttl.map(|ttl| self.now + ttl.as_micros() as Time);
        let deadline = wait.limit().map(|limit| self.now + limit.as_micros() as Time);
        // Clocks drift.
        self.processes[process].users[user].deadline = deadline.map(|at| at - (at - self.now) / 1_000);
        let key = self.processes[process].client.acquire(&target, request, now);
        self.note(Some(process), || {
            format!("user {user} acquires {weight} of n{name}, ttl {ttl:?}, {wait:?}: {key:?}")
        });
        let has_grace = grace.is_some();
        self.processes[process].users[user].doing =
            Doing::Acquiring { key, name, weight, has_grace, floor, ends };
        if let Some(after) = cancels_after {
            self.act_after(process, user, after);
        }
        self.look(process, user);
        self.carry_out(process);
    }

    /// The user looks whether what it waits for has come.
    fn look(&mut self, process: usize, user: usize) {
        let someone = &mut self.processes[process].users[user];
        let waker: Waker = someone.flag.waker();
        match std::mem::replace(&mut someone.doing, Doing::Nothing) {
            Doing::Acquiring { key, name, weight, has_grace, floor, ends } => {
                match self.processes[process].client.poll_acquire(key, waker) {
                    Poll::Pending => {
                        self.processes[process].users[user].doing =
                            Doing::Acquiring { key, name, weight, has_grace, floor, ends };
                    }
                    Poll::Ready(Err(error)) => {
                        self.note(Some(process), || format!("user {user}, {key:?}: {error}"));
                        self.rest(process, user);
                    }
                    Poll::Ready(Ok(acquired)) => {
                        let (slot, token, id) = (acquired.slot, acquired.token, acquired.id);
                        self.note(Some(process), || {
                            format!("user {user} has slot {slot} of n{name}: {key:?}, token {token}")
                        });
                        let held = Held {
                            process,
                            name,
                            weight,
                            slot,
                            token,
                            id: id.to_string(),
                            has_grace,
                            had_grace: has_grace,
                            floor,
                            from: self.now,
                            ends,
                            renewed_at: None,
                            until: None,
                        };
                        let grant = self.rules.granted(held);
                        let newest = &mut self.processes[process].newest_token;
                        *newest = token.max(*newest);
                        let hold = self.settings.hold;
                        let someone = &mut self.processes[process].users[user];
                        someone.doing = Doing::Holding { key, name, grant, id, lost: acquired.lost };
                        let mean = if someone.random.percent(5) { hold * 20 } else { hold };
                        let after = someone.random.exponential(mean);
                        self.act_after(process, user, after);
                    }
                }
            }
            Doing::Operating { number, then } => {
                match self.processes[process].client.poll_operation(number, waker) {
                    Poll::Pending => {
                        self.processes[process].users[user].doing = Doing::Operating { number, then }
                    }
                    // A release that did not get through is tried again; all others are over.
                    Poll::Ready(outcome) => match *then {
                        Doing::Nothing => self.rest(process, user),
                        Doing::Detached { .. } if !matches!(outcome, Err(OperationError::Home(_))) => {
                            self.rest(process, user);
                        }
                        // It has released it; or it could not renew it, or not in time.
                        Doing::Adopted { grant, until, .. }
                            if self.rules.is_ended(grant) || outcome.is_err() || until <= self.now =>
                        {
                            self.rules.ended(grant, self.now, "not renewed");
                            self.rest(process, user);
                        }
                        Doing::Adopted { name, grant, id, until } => {
                            self.note(Some(process), || format!("user {user} relies on {id}"));
                            self.rules.believe(grant, self.now);
                            self.processes[process].users[user].doing =
                                Doing::Adopted { name, grant, id, until };
                            self.act_after(process, user, until - self.now);
                        }
                        // Renewed: the user may renew again soon, or rely on it for long.
                        holding => {
                            let hold = self.settings.hold;
                            let someone = &mut self.processes[process].users[user];
                            someone.doing = holding;
                            let after = match someone.random.below(10) {
                                0..3 => someone.random.between(SECOND / 100, SECOND / 2),
                                3..6 => someone.random.between(SECOND, 10 * SECOND),
                                _ => hold,
                            };
                            self.act_after(process, user, after);
                        }
                    },
                }
            }
            doing => self.processes[process].users[user].doing = doing,
        }
    }

    /// A user that holds slots releases them in one way or another, or keeps them for longer.
    fn go_on(
        &mut self,
        process: usize,
        user: usize,
        (key, name, grant, id, lost): (Key, usize, usize, Arc<str>, CancellationToken),
    ) {
        // Users that have just renewed often renew again.
        let is_new =
            self.rules.grants[grant].renewed_at.is_some_and(|renewed| self.now < renewed + SECOND / 2);
        let random = &mut self.processes[process].users[user].random;
        let choice = if is_new && random.percent(70) { 99 } else { random.below(100) };
        let now = self.processes[process].local(self.now);
        match choice {
            0..55 => {
                self.rules.ended(grant, self.now, "released");
                self.note(Some(process), || format!("user {user} releases {key:?}"));
                let number = self.processes[process].client.release(key, now);
                let then = Box::new(Doing::Nothing);
                self.processes[process].users[user].doing = Doing::Operating { number, then };
                self.look(process, user);
            }
            55..75 => {
                self.rules.ended(grant, self.now, "dropped");
                self.note(Some(process), || format!("user {user} drops {key:?}"));
                self.processes[process].client.drop_lease(key, now);
                self.rest(process, user);
            }
            75..85 => {
                self.note(Some(process), || format!("user {user} detaches {key:?}"));
                self.processes[process].client.detach(key, TaskKey::Scope(user as u64), None, now);
                self.processes[process].users[user].doing = Doing::Detached { name, grant, id, lost };
                self.act_after(process, user, self.settings.hold);
            }
            _ => {
                let random = &mut self.processes[process].users[user].random;
                let longest = if random.percent(30) { 2 * SECOND } else { 20 * SECOND };
                let ttl =
                    random.percent(80).then(|| Duration::from_micros(random.between(SECOND / 2, longest)));
                self.rules.grants[grant].renewed_at = Some(self.now);
                self.note(Some(process), || format!("user {user} renews {key:?} for {ttl:?}"));
                // A lease may end before its grace.
                self.rules.grants[grant].had_grace &= ttl.is_none();
                if let Some(ttl) = ttl {
                    let ends = &mut self.rules.grants[grant].ends;
                    let new = self.now + ttl.as_micros() as Time;
                    *ends = Some(ends.map_or(new, |ends| ends.min(new)));
                }
                let target = Arc::clone(&self.processes[process].targets[name]);
                let number = self.processes[process].client.renew(&target, &id, ttl, now);
                let then = Box::new(Doing::Holding { key, name, grant, id, lost });
                self.processes[process].users[user].doing = Doing::Operating { number, then };
                self.look(process, user);
            }
        }
        self.carry_out(process);
    }

    /// An evicted user has come to its end.
    fn finish(&mut self, process: usize, user: usize, key: Key, grant: usize) {
        self.rules.ended(grant, self.now, "evicted");
        self.note(Some(process), || format!("user {user} has finished, and drops {key:?}"));
        self.rest(process, user);
        self.change(process, |client, now| client.drop_lease(key, now));
    }

    /// Users whose slots are lost stop using them at once.
    fn tell_of_losses(&mut self, process: usize) {
        fn loss_of(doing: &Doing) -> Option<(Option<Key>, usize)> {
            match doing {
                Doing::Holding { key, grant, lost, .. } => {
                    lost.is_cancelled().then_some((Some(*key), *grant))
                }
                Doing::Detached { grant, lost, .. } => lost.is_cancelled().then_some((None, *grant)),
                Doing::Operating { then, .. } => loss_of(then),
                Doing::Nothing
                | Doing::Acquiring { .. }
                | Doing::Adopted { .. }
                | Doing::Finishing { .. } => None,
            }
        }
        for user in 0..self.processes[process].users.len() {
            let Some((key, grant)) = loss_of(&self.processes[process].users[user].doing) else { continue };
            if self.rules.is_ended(grant) {
                continue;
            }
            self.note(Some(process), || format!("user {user} is told of its loss"));
            let held = &self.rules.grants[grant];
            if let (Some(key), true, true) = (key, held.had_grace, self.evicted_ids.contains(&held.id))
                && matches!(self.processes[process].users[user].doing, Doing::Holding { .. })
            {
                self.processes[process].users[user].doing = Doing::Finishing { key, grant };
                // It was told within a heartbeat interval, or not at all.
                self.act_after(process, user, self.settings.heartbeat.as_micros() as Time * 9 / 10);
                continue;
            }
            // Clocks drift, and clients are on the safe side.
            let is_over =
                held.ends.is_some_and(|ends| ends <= self.now + (self.now - held.from) / 100 + SECOND / 50);
            if self.is_calm()
                && !is_over
                && !self.rules.evicted.contains(&grant)
                && !self.evicted_ids.contains(&held.id)
            {
                let what = format!("{held:?} was lost");
                self.rules.report(self.now, "no needless loss", what);
            }
            self.rules.ended(grant, self.now, "lost");
            if key.is_none() {
                self.processes[process].gave_up_at = Some(self.now);
            }
            if let Some(key) = key {
                let now = self.processes[process].local(self.now);
                if let Doing::Operating { number, .. } = self.processes[process].users[user].doing {
                    self.processes[process].client.abandon_operation(number);
                }
                self.processes[process].client.drop_lease(key, now);
            }
            self.rest(process, user);
        }
    }

    // What goes wrong

    fn go_wrong(&mut self, fault: Fault) {
        self.faults += 1;
        self.note(None, || format!("fault: {fault:?}"));
        if fault.loses_grants() {
            self.rules.suspend(self.now);
        }
        if let Some(length) = fault.length() {
            self.disturbed_until = self.disturbed_until.max(self.now + length);
        }
        if matches!(fault, Fault::Evict { .. } | Fault::ClockStep { .. } | Fault::OutOfMemory { .. }) {
            // A memory that is full may be for as long as the fault lasts.
            let length = fault.length().unwrap_or(0);
            self.silent_until = self.silent_until.max(self.now + length + self.rules.recovery);
        }
        let connection = |world: &Self, process: usize| world.processes[process].connection;
        match fault {
            Fault::Cut { process } => {
                if let Some(connection) = connection(self, process) {
                    self.break_connection(connection);
                }
            }
            Fault::LateRequest { process, delay } => {
                if let Some(link) =
                    connection(self, process).and_then(|connection| self.links.get_mut(&connection))
                {
                    link.delays_request = Some(delay);
                }
            }
            Fault::HalfOpen { process } => {
                if let Some(link) =
                    connection(self, process).and_then(|connection| self.links.get_mut(&connection))
                {
                    link.is_half_open = true;
                }
            }
            Fault::LostReply { process } => {
                if let Some(link) =
                    connection(self, process).and_then(|connection| self.links.get_mut(&connection))
                {
                    link.loses_reply = true;
                }
            }
            Fault::SlowLink { process, times, length } => {
                if let Some(connection) = connection(self, process)
                    && let Some(link) = self.links.get_mut(&connection)
                {
                    let latency = link.latency;
                    link.latency = latency * times;
                    self.plan(self.now + length, Due::LinkIsQuick { connection, latency });
                }
            }
            Fault::Pause { process, length } => {
                if self.processes[process].runs() {
                    self.processes[process].is_paused = true;
                    for grant in self.processes[process].grants() {
                        self.rules.pause(grant);
                    }
                    let life = self.processes[process].life;
                    self.plan(self.now + length, Due::Resume { process, life });
                }
            }
            Fault::Kill { process, length } => self.kill(process, length),
            Fault::ServerPause { length } => {
                if self.server_state == ServerState::Up {
                    self.server_state = ServerState::Stopped;
                    self.news.clear();
                    self.plan(self.now + length, Due::ServerResumes);
                }
            }
            Fault::Restart { length } => self.restart(length, None, 0),
            Fault::RestartOld { length, age } => {
                let data = self.copy_of(self.now.saturating_sub(age));
                self.restart(length, Some(data), 0);
            }
            Fault::RestartEmpty { length } => self.restart(length, Some(Store::default()), 0),
            Fault::Failover { length, lag, clock } => {
                let data = self.copy_of(self.now.saturating_sub(lag));
                self.rules.tokens_suspended_until = self.now + self.rules.recovery;
                self.restart(length, Some(data), clock);
            }
            Fault::FlushScripts => self.server.flush_scripts(),
            Fault::FlushAll => {
                let pushes = self.server.flush();
                self.send_pushes(pushes);
            }
            Fault::ClockStep { by } => self.server.clock_offset += by,
            Fault::Evict { key } => {
                let keys = self.server.keys();
                if let Some(key) = keys.get(key as usize % keys.len().max(1)) {
                    let pushes = self.server.evict(key);
                    self.send_pushes(pushes);
                }
            }
            Fault::OutOfMemory { length } => {
                self.server.set_out_of_memory(true);
                self.plan(self.now + length, Due::MemoryIsBack);
            }
            Fault::PythonClient { name, length } => self.python_client(name, length),
            Fault::Resize { process, name, slots } => {
                if self.processes[process].runs() && self.processes[process].connection.is_some() {
                    let script =
                        self.processes[process].engine.resize(&self.processes[process].targets[name], slots);
                    self.transmit(process, Work::Resize { name, slots, script: Rc::new(script) });
                }
            }
            Fault::EvictHolder { process, number } => self.evict_holder(process, number),
            Fault::DropAll { process } => self.drop_all(process),
            Fault::Crowd { process, name, waiters, limit } => self.crowd(process, name, waiters, limit),
            Fault::HandOver { process, number, ttl, kill_after } => {
                self.hand_over(process, number, ttl, kill_after);
            }
        }
    }

    fn copy_of(&self, then: Time) -> Store {
        let copy = self.copies.iter().rev().find(|(at, _)| *at <= then).or(self.copies.first());
        copy.map(|(_, store)| store.clone()).unwrap_or_default()
    }

    /// The server goes down. `data` is what it comes back with; what it had if that is `None`.
    fn restart(&mut self, length: Time, data: Option<Store>, clock: i64) {
        if self.server_state == ServerState::Down {
            return;
        }
        self.server_state = ServerState::Down;
        self.unread.clear();
        self.news.clear();
        let data = data.unwrap_or_else(|| self.server.snapshot());
        self.server.set_out_of_memory(false);
        for connection in self.links.keys().copied().collect::<Vec<_>>() {
            self.server.disconnect(connection);
            self.send_to_client(connection, Answer::Closed);
        }
        self.plan(self.now + length, Due::ServerStarts { data: Some(Box::new(data)), clock });
    }

    fn kill(&mut self, process: usize, length: Time) {
        if !self.processes[process].is_alive {
            return;
        }
        for grant in self.processes[process].grants() {
            self.rules.ended(grant, self.now, "died");
        }
        self.processes[process].is_alive = false;
        self.missed[process].clear();
        let own = self.links.iter().filter(|(_, link)| link.process == process);
        for connection in own.map(|(connection, _)| *connection).collect::<Vec<_>>() {
            self.send_to_server(connection, Request::Close);
        }
        self.plan(self.now + length, Due::Start { process });
    }

    fn start(&mut self, process: usize) {
        let life = self.processes[process].life + 1;
        self.processes[process] = Process::new(self.settings, process, life);
        self.note(Some(process), || "starts".into());
        self.start_users(process);
    }

    /// It goes on where it stood: its timers first, then all that has come meanwhile.
    fn resume(&mut self, process: usize, life: u64) {
        if self.processes[process].life != life || !self.processes[process].is_alive {
            return;
        }
        self.processes[process].is_paused = false;
        self.note(Some(process), || "goes on".into());
        self.change(process, Client::handle_timeout);
        for user in 0..self.processes[process].users.len() {
            // Its grace may be over.
            if let Doing::Finishing { key, grant } = self.processes[process].users[user].doing {
                self.finish(process, user, key, grant);
            }
        }
        for grant in self.processes[process].grants() {
            if self.processes[process].has_outlived(grant, self.now) {
                self.rules.ended(grant, self.now, "renewal is over");
            }
            if !self.rules.is_ended(grant) {
                self.rules.believe(grant, self.now);
            }
        }
        for due in std::mem::take(&mut self.missed[process]) {
            self.happen(due);
        }
    }

    fn evict_holder(&mut self, process: usize, number: u64) {
        let held: Vec<_> =
            (0..self.processes.len()).flat_map(|process| self.processes[process].grants()).collect();
        let Some(grant) = held.get(number as usize % held.len().max(1)) else { return };
        let (name, id) = (self.rules.grants[*grant].name, self.rules.grants[*grant].id.clone());
        if self.processes[process].runs() {
            // Without a grace, the next holder may have its slot before the message is there. A second eviction takes the
            // grace away.
            if !std::mem::take(&mut self.rules.grants[*grant].has_grace) {
                self.rules.pause(*grant);
                self.rules.evicted.insert(*grant);
            }
            let target = Arc::clone(&self.processes[process].targets[name]);
            self.change(process, |client, now| {
                let number = client.end_by_id(&target, &id, EndReason::Evicted, now);
                client.abandon_operation(number);
            });
        }
    }

    fn drop_all(&mut self, process: usize) {
        if !self.processes[process].runs() {
            return;
        }
        let now = self.processes[process].local(self.now);
        for user in 0..self.processes[process].users.len() {
            match self.processes[process].users[user].doing {
                Doing::Acquiring { key, .. } => self.processes[process].client.cancel(key, now),
                Doing::Holding { key, grant, .. } => {
                    self.rules.ended(grant, self.now, "dropped");
                    self.processes[process].client.drop_lease(key, now);
                }
                _ => continue,
            }
            self.rest(process, user);
        }
        self.carry_out(process);
    }

    fn crowd(&mut self, process: usize, name: usize, waiters: u64, limit: Time) {
        if !self.processes[process].runs() || self.is_over() {
            return;
        }
        let (target, now) =
            (Arc::clone(&self.processes[process].targets[name]), self.processes[process].local(self.now));
        for _ in 0..waiters {
            let request = AcquireRequest::new(1, None, Wait::For(Duration::from_micros(limit)));
            let key = self.processes[process].client.acquire(&target, request, now);
            self.processes[process].crowd.push((key, self.now + limit));
        }
        self.carry_out(process);
    }

    fn hand_over(&mut self, to: usize, number: u64, ttl: Time, kill_after: Option<Time>) {
        let holders =
            self.processes.iter().enumerate().filter(|(from, process)| *from != to && process.runs());
        let holders = holders.flat_map(|(from, process)| {
            let users = process.users.iter().enumerate();
            let detached = users.filter(|(_, user)| matches!(user.doing, Doing::Detached { .. }));
            detached.map(move |(user, _)| (from, user))
        });
        let holders: Vec<_> = holders.collect();
        let Some((from, holder)) = holders.get(number as usize % holders.len().max(1)).copied() else {
            return;
        };
        let mut users = self.processes[to].users.iter();
        let Some(user) = users.position(|user| matches!(user.doing, Doing::Nothing)) else { return };
        if !self.processes[to].runs() || self.is_over() {
            return;
        }
        let doing = std::mem::replace(&mut self.processes[from].users[holder].doing, Doing::Nothing);
        let Doing::Detached { name, grant, id, .. } = doing else { return };
        self.rest(from, holder);
        self.adopted.insert(Arc::clone(&id));
        // Between the two, no process relies on it.
        self.rules.pause(grant);
        self.note(Some(to), || format!("user {user} adopts {id} of process {from} for {ttl} µs"));
        let now = self.processes[to].local(self.now);
        let target = Arc::clone(&self.processes[to].targets[name]);
        let counts_for = ttl.min(target.heartbeat.as_micros() as Time);
        // The server's clock may be faster.
        let until = self.now + counts_for - counts_for / 1_000;
        let life = self.processes[from].life;
        let release = Due::FormerHolderReleases { process: from, life, name, id: Arc::clone(&id) };
        self.plan(until + SECOND, release);
        let number = self.processes[to].client.renew(&target, &id, Some(Duration::from_micros(ttl)), now);
        let then = Box::new(Doing::Adopted { name, grant, id, until });
        let someone = &mut self.processes[to].users[user];
        someone.plan += 1;
        someone.doing = Doing::Operating { number, then };
        self.look(to, user);
        self.carry_out(to);
        if let Some(after) = kill_after {
            self.plan(self.now + after, Due::Fault(Fault::Kill { process: from, length: SECOND }));
        }
    }

    // Clients of the Python library, which share the first five keys

    fn main_key(&self, name: usize) -> String {
        self.processes[0].targets[name].keys[0].clone()
    }

    fn python_command(&mut self, words: &[&str]) -> Option<Value> {
        if self.server_state != ServerState::Up {
            return None;
        }
        self.set_server_time();
        let (outcome, pushes) = self.server.run(words);
        self.send_pushes(pushes);
        outcome.ok()
    }

    /// Takes a slot if one is free and no client waits, as that library's scripts do, with a short lease.
    fn python_client(&mut self, name: usize, length: Time) {
        let key = self.main_key(name);
        let waiting = self.processes[0].targets[name].keys[3].clone();
        let now = (EPOCH + self.now as i64 + self.server.clock_offset) as f64 / SECOND as f64;
        self.python_command(&["ZREMRANGEBYSCORE", &key, "-inf", &now.to_string()]);
        let held = self.python_command(&["ZCARD", &key]);
        let in_line = self.python_command(&["ZCARD", &waiting]);
        let slots = i64::from(self.settings.slots[name]);
        let is_free =
            matches!((held, in_line), (Some(Value::Int(held)), Some(Value::Int(0))) if held < slots);
        if is_free {
            let member = format!("{:032x}", self.network.next());
            self.python_command(&["ZADD", &key, &(now + 3.0).to_string(), &member]);
            self.plan(self.now + length, Due::PythonLeaves { name, member });
        }
        self.python_command(&["EXPIRE", &key, "13"]);
    }

    // The end

    /// Rules 5 and 6.
    fn check_the_end(&mut self) {
        for number in 0..self.processes.len() {
            let process = &self.processes[number];
            if !process.is_alive {
                continue;
            }
            if let Some(user) = process.users.iter().position(|user| !matches!(user.doing, Doing::Nothing)) {
                let what = match &process.users[user].doing {
                    Doing::Acquiring { key, name, .. } => format!("still waits for n{name}: {key:?}"),
                    Doing::Operating { number, .. } => format!("still waits for operation {number}"),
                    _ => "still holds".into(),
                };
                self.rules.report(
                    self.now,
                    "every waiter is served",
                    format!("user {user} of process {number} {what}"),
                );
            } else if !process.client.is_empty() {
                let what = format!("process {number}: {:?}", process.client);
                self.rules.report(self.now, "nothing is left", what);
            }
        }
        // Statistics and endings are kept for an hour.
        self.now += 2 * 3_600 * SECOND;
        self.set_server_time();
        self.server.expire();
        let left = self.server.keys();
        if !left.is_empty() {
            let left: Vec<_> = left.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect();
            self.rules.report(self.now, "nothing is left", format!("keys: {left:?}"));
        }
    }
}

struct Lines {
    holders: Rc<SortedSet>,
    waiters: Rc<SortedSet>,
}

/// A line as it was when its places were last checked.
#[derive(Default)]
struct SeenLine {
    waiters: Rc<SortedSet>,
    /// Those that have learned their place since.
    told: Vec<String>,
}

/// The place that a request asks for, because the server gave it before and has forgotten it.
fn returns_to(call: &ScriptCall, id: &[u8]) -> Option<f64> {
    let (asks, place) = (call.arguments.get(1)?, call.arguments.get(13)?);
    let place: f64 = str::from_utf8(place).ok()?.parse().ok()?;
    (asks == id && call.arguments.len() == 15 && place > 0.0).then_some(place)
}

fn describe(call: &ScriptCall, reply: &Result<Value, String>) -> String {
    let arguments: Vec<_> = call.arguments.iter().map(|word| String::from_utf8_lossy(word)).collect();
    let reply = match reply {
        Ok(value) => show(std::slice::from_ref(value)),
        Err(error) => error.clone(),
    };
    format!("{} -> {reply}", arguments.join(" "))
}

/// A value in few words.
fn show(values: &[Value]) -> String {
    let show = |value: &Value| match value {
        Value::BulkString(text) => String::from_utf8_lossy(text).into_owned(),
        Value::Array(items) => self::show(items),
        Value::Nil => "-".into(),
        Value::Int(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    values.iter().map(show).collect::<Vec<_>>().join(" ")
}
