//! Processes that are killed with SIGKILL.

use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use semafor_testkit::cli::{CommandEnv, Process, census};
use semafor_testkit::redis::eventually;

use super::{ALONE, hold};

/// A command with children in its own group and in another.
const WITH_CHILDREN: &str = "sleep 1000 & timeout 900 sleep 900 & echo $$ >> began; wait";

pub(crate) fn command_of_a_killed_holder_is_killed_before_the_next_begins(env: &CommandEnv) {
    let script = format!("{ALONE} {WITH_CHILDREN}");
    let words = ["run", "--name", "it", "--heartbeat", "2s", "--", "sh", "-c", &script];
    let mut holder = env.start(words);
    env.until_lines("began", 1);
    let script = format!("{ALONE} echo next >> log");
    let mut next = env.start(["run", "--name", "it", "--heartbeat", "2s", "--", "sh", "-c", &script]);
    env.until_waiting("it", 1);
    assert_eq!(holder.kill().signal(), Some(9));
    assert_eq!(next.wait().text(), "", "it got the slot");
    assert_eq!(env.lines("log"), ["next"]);
    assert_eq!(env.read("overlaps"), "", "all processes of the command were dead");
    eventually("no process is left", || env.processes().is_empty().then_some(()));
}

pub(crate) fn killed_waiter_leaves_the_line(env: &CommandEnv) {
    let gate = env.gate("gate");
    let mut holder = hold(env, &[]);
    let words = |script| ["run", "--name", "it", "--heartbeat", "2s", "--", "sh", "-c", script];
    let mut killed = env.start(words("echo killed >> log"));
    env.until_waiting("it", 1);
    let mut next = env.start(words("echo next >> log"));
    env.until_waiting("it", 2);
    assert_eq!(killed.kill().signal(), Some(9));
    env.until_waiting("it", 1);
    let _open = gate.open();
    assert_eq!(holder.wait().text(), "");
    assert_eq!(next.wait().text(), "");
    assert_eq!(env.lines("log"), ["next"]);
}

pub(crate) fn killed_command_exits_with_137(env: &CommandEnv) {
    let script = "sleep 1000 & echo $$ >> began; wait";
    let mut run = env.start(["run", "--name", "it", "--", "sh", "-c", script]);
    kill(env.until_lines("began", 1)[0].parse().expect("a number"));
    let output = run.wait();
    assert_eq!(output.code(), Some(137), "{output:?}");
    assert_eq!(env.status("it")["held"], 0);
    // A process that outlives its parent goes on, as it would without semafor.
    env.processes().into_iter().for_each(kill);
}

pub(crate) fn killed_guardian_does_not_affect_the_command(env: &CommandEnv) {
    let gate = env.gate("gate");
    let mut run = hold(env, &[]);
    // The guardian is a fork of `run`, with the same arguments.
    let guardians = || {
        let words = ["run", "--name", "it", "--", "sh", "-c", ": < gate"].map(str::as_bytes);
        let copies = census::with_arguments(&words).into_iter();
        copies.filter(|pid| *pid != run.pid() && env.processes().contains(pid)).collect::<Vec<_>>()
    };
    env.until("it has a guardian", |_| guardians().len() == 1);
    kill(guardians()[0]);
    env.until("it is gone", |_| guardians().is_empty());
    let _open = gate.open();
    assert_eq!(run.wait().text(), "");
}

fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("the pid is valid");
    // It may have ended by itself.
    let _ = kill_process(pid, Signal::KILL);
}

/// How many clients are killed. 10,000 take some minutes.
fn kills() -> u32 {
    std::env::var("SEMAFOR_KILLS").map_or(200, |count| count.parse().expect("SEMAFOR_KILLS is a number"))
}

/// A random number generator, good enough to choose which client to kill.
struct Random(u64);

impl Random {
    fn below(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).expect("the number is small")
    }
}

/// Twelve clients contend for four slots. Random clients are killed: before they are in line, in line, or with a slot.
/// Killed and ended clients are replaced. Some hold their slot until they are killed.
pub(crate) fn many_killed_clients_leave_nothing_behind(env: &CommandEnv) {
    let (kills, began, seed) = (kills(), Instant::now(), u64::from(std::process::id()) + 1);
    println!("seed {seed}");
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let script = "exec 9>> busy-$SEMAFOR_SLOT; flock -n 9 || echo $SEMAFOR_SLOT >> overlaps; exec sleep $0";
    let start = |random: &mut Random| {
        let timeout = ["0", "0.02", "0.1", "1000"][random.below(4)];
        let words =
            ["run", "--name", "it", "--slots", "4", "--heartbeat", "5s", "--", "sh", "-c", script, timeout];
        env.start(words)
    };
    let mut clients: Vec<Process> = (0..12).map(|_| start(&mut random)).collect();
    let (mut killed, mut ended) = (0, 0);
    while killed < kills {
        let chosen = random.below(clients.len());
        let output = clients[chosen].kill();
        match output.signal() {
            Some(9) => killed += 1,
            _ => {
                assert_eq!((output.code(), output.stderr.as_str()), (Some(0), ""), "it ended by itself");
                ended += 1;
            }
        }
        clients[chosen] = start(&mut random);
    }
    for client in &mut clients {
        client.kill();
    }
    let granted = env.status("it")["granted"].as_u64().unwrap_or(0);
    eventually("there are no holders and waiters", || {
        let it = env.status("it");
        (it["held"].as_u64().unwrap_or(0) + it["waiting"].as_u64().unwrap_or(0) == 0).then_some(())
    });
    eventually("no process is left", || env.processes().is_empty().then_some(()));
    assert_eq!(env.read("overlaps"), "", "no two commands had the same slot");
    println!(
        "{killed} killed, {} of them with a slot; {ended} ended by themselves; in {:.1?}",
        granted.saturating_sub(ended),
        began.elapsed()
    );
}
