//! The agent is killed while there are holders and waiters.

use rustix::process::{Pid, Signal, kill_process};
use semafor_testkit::cli::CommandEnv;

use crate::env;

fn kill_agent(env: &CommandEnv) -> u32 {
    // After a death, the clients start the next one.
    env.until("there is one agent", |env| env.agents().len() == 1);
    let [pid] = env.agents()[..] else { panic!("expected one agent") };
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("the pid is valid");
    kill_process(raw, Signal::KILL).expect("this user owns it");
    pid
}

/// Takes a lock that is held while the child or one of its children lives. A second command that finds it locked
/// overlaps.
const ALONE: &str = "exec 9>> busy; flock -n 9 || echo \"$SEMAFOR_ID\" >> overlaps;";

#[test]
fn holders_command_ends_before_the_next_begins() {
    let env = env();
    let ignores_term = format!("{ALONE} trap '' TERM; echo began >> log; while :; do sleep 1; done");
    let mut holder = env.start(["run", "--name", "it", "--grace", "300ms", "--", "sh", "-c", &ignores_term]);
    env.until_lines("log", 1);
    let brief = format!("{ALONE} echo next >> log");
    let mut next = env.start(["run", "--name", "it", "--", "sh", "-c", &brief]);
    env.until_waiting("it", 1);
    let agent = kill_agent(&env);
    let output = holder.wait();
    assert_eq!(output.code(), Some(76));
    assert!(output.stderr.contains("lost the slot of \"it\""), "{}", output.stderr);
    assert_eq!(next.wait().text(), "", "a new agent granted the slot");
    assert_eq!(env.lines("log"), ["began", "next"]);
    assert_eq!(env.read("overlaps"), "");
    assert_ne!(env.agents(), [agent]);
}

#[test]
fn waiters_are_served_by_a_new_agent() {
    let env = env();
    let mut holder =
        env.start(["run", "--name", "it", "--slots", "2", "--weight", "2", "--", "sleep", "1000"]);
    env.until_holders("it", 1);
    let mut waiters = Vec::new();
    for place in 1..=10 {
        let script = format!("{ALONE} echo \"$SEMAFOR_FENCING_TOKEN\" >> tokens");
        let words = ["run", "--name", "it", "--slots", "2", "--weight", "2", "--", "sh", "-c", &script];
        waiters.push(env.start(words));
        env.until_waiting("it", place);
    }
    let token = env.inspect("it")["holders"][0]["fencing_token"].as_u64().expect("a number");
    kill_agent(&env);
    assert_eq!(holder.wait().code(), Some(76));
    for waiter in &mut waiters {
        assert_eq!(waiter.wait().text(), "");
    }
    assert_eq!(env.agents().len(), 1);
    assert_eq!(env.read("overlaps"), "");
    let tokens: Vec<u64> = env.lines("tokens").iter().map(|token| token.parse().expect("a number")).collect();
    assert_eq!(tokens.len(), 10);
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    assert!(token < tokens[0], "tokens keep growing: {token} {tokens:?}");
}

#[test]
fn holder_with_on_lost_warn_keeps_its_slot() {
    let env = env();
    let gate = env.gate("gate");
    let script = format!("{ALONE} : < gate");
    let mut holder = env.start(["run", "--name", "it", "--on-lost", "warn", "--", "sh", "-c", &script]);
    env.until_holders("it", 1);
    let script = format!("{ALONE} :");
    let mut next = env.start(["run", "--name", "it", "--", "sh", "-c", &script]);
    env.until_waiting("it", 1);
    kill_agent(&env);
    env.until_holders("it", 1);
    env.until_waiting("it", 1);
    assert!(holder.stderr().contains("lost the slot of \"it\""), "{}", holder.stderr());
    assert!(holder.is_running());
    let _open = gate.open();
    assert_eq!(holder.wait().code(), Some(0));
    assert_eq!(next.wait().text(), "");
    assert_eq!(env.read("overlaps"), "");
}

#[test]
fn forced_stop_takes_the_slots_of_holders() {
    let env = env();
    let mut holder = env.start(["run", "--name", "it", "--", "sleep", "1000"]);
    env.until_holders("it", 1);
    assert_eq!(env.run(["agent", "stop", "--force"]).text(), "");
    assert_eq!(holder.wait().code(), Some(76));
}

#[test]
fn slot_number_is_not_reused_while_its_command_runs() {
    let env = env();
    let (first, second) = (env.gate("first"), env.gate("second"));
    let hold = |gate: &str| {
        let script = format!("echo $SEMAFOR_SLOT >> slots; : < {gate}");
        env.start(["run", "--name", "it", "--slots", "2", "--on-lost", "warn", "--", "sh", "-c", &script])
    };
    let mut ended = hold("first");
    env.until_lines("slots", 1);
    let mut holder = hold("second");
    env.until_lines("slots", 2);
    let _first = first.open();
    assert_eq!(ended.wait().text(), "");
    kill_agent(&env);
    env.until_holders("it", 1);
    assert_eq!(env.run(["run", "--name", "it", "--", "sh", "-c", "echo $SEMAFOR_SLOT >> slots"]).text(), "");
    assert_eq!(env.lines("slots"), ["0", "1", "0"], "slot 1 is still held");
    let _second = second.open();
    assert_eq!(holder.wait().code(), Some(0));
}

#[test]
fn commands_never_overlap_when_agents_die_repeatedly() {
    let env = env();
    let script = format!("{ALONE} echo began >> log; exec sleep 0.1");
    let start = || env.start(["run", "--name", "it", "--grace", "200ms", "--", "sh", "-c", &script]);
    let mut clients: Vec<_> = (0..8).map(|_| start()).collect();
    for death in 1..=6 {
        // Wait until another waiter got the slot.
        env.until_lines("log", death * 2);
        kill_agent(&env);
        for client in clients.iter_mut().filter(|client| !client.is_running()) {
            let output = client.wait();
            assert!(matches!(output.code(), Some(0 | 76)), "{output:?}");
            *client = start();
        }
    }
    for client in &mut clients {
        let output = client.wait();
        assert!(matches!(output.code(), Some(0 | 76)), "{output:?}");
    }
    assert_eq!(env.read("overlaps"), "");
}
