//! The cost of clients that only wait or only hold: connections, commands, processor time, memory.

use std::collections::BTreeMap;
use std::fs::read_to_string;
use std::thread::sleep;
use std::time::{Duration, Instant};

use semafor_benchmarks::Report;

use super::peer::PeerCommand;
use super::server_usage::ServerUsage;
use super::setup::Setup;

const VERY_MANY: usize = 100_000;
const MANY: usize = 10_000;
/// As many waiters as every peer can have.
const FEW: usize = 100;

/// How long to measure. Heartbeats come every five seconds from ours, every eight from npm's, every 36 from Python's.
const WINDOW: Duration = Duration::from_secs(20);
const LONG_WINDOW: Duration = Duration::from_secs(36);
const SHORT_WINDOW: Duration = Duration::from_secs(6);

/// Until the work of starting is over.
const SETTLING: Duration = Duration::from_secs(2);

pub(super) fn measure(report: &mut Report, setup: &Setup) {
    let mut server_usage = ServerUsage::open(&setup.server);
    let ours = PeerCommand::ours(setup);
    let others = PeerCommand::others(setup);

    let idle_server = Cost { server_cpu: server_usage.cpu(SHORT_WINDOW), ..Cost::default() };
    let heartbeat = heartbeat(&mut server_usage, setup, &ours);
    let waiting = cost(&mut server_usage, setup, &ours, "wait", MANY, WINDOW).expect("ours can");
    waiting.add_beside_idle_server(report, "10,000 waiters idle", &heartbeat, &idle_server);

    let waiting = cost(&mut server_usage, setup, &ours, "wait", FEW, SHORT_WINDOW).expect("ours can");
    for other in &others {
        match cost(&mut server_usage, setup, other, "wait", FEW, SHORT_WINDOW) {
            Ok(theirs) => waiting.add_beside(report, "100 waiters idle", &theirs),
            Err(reason) => println!("left out: {}: {reason}", other.script()),
        }
    }

    let holding = cost(&mut server_usage, setup, &ours, "hold", MANY, WINDOW).expect("ours can");
    holding.add_beside_idle_server(report, "10,000 holders", &heartbeat, &idle_server);
    for other in &others {
        match cost(&mut server_usage, setup, other, "hold", MANY, LONG_WINDOW) {
            Ok(theirs) => holding.add_beside(report, "10,000 holders", &theirs),
            Err(reason) => println!("left out: {}: {reason}", other.script()),
        }
    }
}

/// The cost of a waiter in its process, without the task that waits.
pub(super) fn measure_waiters(report: &mut Report, setup: &Setup) {
    /// The aim, in bytes.
    const AIM: f64 = 1_000.0;
    let mut server_usage = ServerUsage::open(&setup.server);
    let ours = PeerCommand::ours(setup);
    let standing = cost(&mut server_usage, setup, &ours, "stand", VERY_MANY, SHORT_WINDOW).expect("ours can");
    let heap = standing.answer as f64 / VERY_MANY as f64;
    report.add("100,000 waiters of one name: heap, each", "bytes", heap, "aim", AIM);
    report.add("100,000 waiters of one name: resident, each", "bytes", standing.memory, "aim", AIM);
}

#[derive(Default)]
struct Cost {
    whose: String,
    connections: usize,
    /// Per second.
    commands: BTreeMap<String, f64>,
    /// Milliseconds per second.
    server_cpu: f64,
    client_cpu: f64,
    /// Bytes of resident memory for each that waits or holds, with its task.
    memory: f64,
    /// What the process answered.
    answer: u64,
}

/// Lets so many `wait` or `hold` in a process of their own, and measures them for twice the window.
fn cost(
    server_usage: &mut ServerUsage,
    setup: &Setup,
    command: &PeerCommand,
    work: &str,
    count: usize,
    window: Duration,
) -> Result<Cost, String> {
    let connections_before = server_usage.connections();
    let mut peer = command.start()?;
    let memory_before = resident_memory(peer.pid());
    let answer = peer.ask::<u64>(&format!("{work} {count}"))?;
    sleep(SETTLING);
    let memory = (resident_memory(peer.pid()) - memory_before) / count as f64;
    let connections = server_usage.connections() - connections_before;

    let (start, cpu_before) = (Instant::now(), cpu_so_far(peer.pid()));
    let server_cpu = server_usage.cpu(window);
    let client_cpu = (cpu_so_far(peer.pid()) - cpu_before) / start.elapsed().as_secs_f64();
    let commands = server_usage.commands(window);

    let whose = peer.name().to_owned();
    drop(peer);
    // The process was killed, so its slots and waiters are still on the server.
    setup.server.command(&["FLUSHALL"]);
    Ok(Cost { whose, connections, commands, server_cpu, client_cpu, memory, answer })
}

/// The one command that a single holder sends repeatedly.
fn heartbeat(server_usage: &mut ServerUsage, setup: &Setup, ours: &PeerCommand) -> String {
    let holding = cost(server_usage, setup, ours, "hold", 1, SHORT_WINDOW).expect("ours can");
    let mut commands = holding.commands.into_keys();
    let heartbeat = commands.next().expect("a holder sends heartbeats");
    assert_eq!(commands.next(), None, "a holder sends nothing but heartbeats");
    heartbeat
}

impl Cost {
    /// How many of these commands there are per second.
    fn rate(&self, is_meant: impl Fn(&str) -> bool) -> f64 {
        let meant = self.commands.iter().filter(|(command, _)| is_meant(command));
        meant.fold(0.0, |sum, (_, rate)| sum + rate)
    }

    fn add_beside_idle_server(&self, report: &mut Report, work: &str, heartbeat: &str, idle_server: &Self) {
        let mut add = |what: &str, unit, mine, theirs| {
            report.add(&format!("{work}: {what}"), unit, mine, "no client", theirs);
        };
        add("connections", "connections", self.connections as f64, 0.0);
        add("heartbeats", "commands/s", self.rate(|command| command == heartbeat), 0.0);
        add("other commands", "commands/s", self.rate(|command| command != heartbeat), 0.0);
        add("server CPU", "ms/s", self.server_cpu, idle_server.server_cpu);
        add("client CPU", "ms/s", self.client_cpu, 0.0);
        add("client memory, each", "bytes", self.memory, 0.0);
        for command in self.commands.keys().filter(|command| *command != heartbeat) {
            println!("    beyond heartbeats: {command}");
        }
    }

    fn add_beside(&self, report: &mut Report, work: &str, theirs: &Self) {
        let mut add = |what: &str, unit, mine, theirs_value| {
            report.add(&format!("{work}: {what}"), unit, mine, &theirs.whose, theirs_value);
        };
        let all = |cost: &Self| cost.rate(|_| true);
        add("connections", "connections", self.connections as f64, theirs.connections as f64);
        add("all commands", "commands/s", all(self), all(theirs));
        add("server CPU", "ms/s", self.server_cpu, theirs.server_cpu);
        add("client CPU", "ms/s", self.client_cpu, theirs.client_cpu);
        add("client memory, each", "bytes", self.memory, theirs.memory);
    }
}

/// Bytes.
fn resident_memory(pid: u32) -> f64 {
    let status = read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    kib.expect("it is said") * 1024.0
}

/// Milliseconds.
fn cpu_so_far(pid: u32) -> f64 {
    let stat = read_to_string(format!("/proc/{pid}/stat")).expect("the process is there");
    // The name in front may contain any character, and ends with the last parenthesis.
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let hundredths: f64 = fields[11..=12].iter().map(|field| field.parse::<f64>().expect("a number")).sum();
    hundredths * 10.0
}
