//! The command with the semaphores of a Redis.

#[macro_use]
mod promises;

use promises::ALONE;
use semafor_testkit::cli::{CommandEnv, Process};
use semafor_testkit::redis::RedisServer;

promises!(CommandEnv::redis(env!("CARGO_BIN_EXE_semafor")));

fn server(env: &CommandEnv) -> &RedisServer {
    env.server().expect("there is one")
}

/// A run of "it" whose command says how it ends.
fn start(env: &CommandEnv, options: &[&str]) -> Process {
    let script = format!(
        "{ALONE} trap 'echo asked >> log; exit' TERM; echo began >> log; while :; do sleep 0.02; done"
    );
    let run = env.start([&["run", "--name", "it"], options, &["--", "sh", "-c", &script]].concat());
    env.until_lines("log", 1);
    run
}

#[test]
fn a_redis_that_falls_silent_costs_the_command_its_slot() {
    let env = CommandEnv::redis(env!("CARGO_BIN_EXE_semafor"));
    let mut run = start(&env, &["--heartbeat", "2s", "--grace", "500ms"]);
    server(&env).pause();
    assert_eq!(env.until_lines("log", 2), ["began", "asked"]);
    server(&env).resume();
    let output = run.wait();
    assert_eq!(output.code(), Some(76), "{output:?}");
    assert!(output.stderr.contains("lost the slot of \"it\""), "{}", output.stderr);
}

#[test]
fn a_redis_that_comes_back_in_time_costs_nothing() {
    let env = CommandEnv::redis(env!("CARGO_BIN_EXE_semafor"));
    let gate = env.gate("gate");
    let mut run = promises::hold(&env, &["--heartbeat", "1h"]);
    server(&env).pause();
    let mut status = env.start(["status", "--json", "it"]);
    server(&env).resume();
    assert_eq!(status.wait().json()[0]["held"], 1);
    let _open = gate.open();
    assert_eq!(run.wait().text(), "");
}

#[test]
fn a_holder_that_was_stopped_for_too_long_ends_its_command() {
    let env = CommandEnv::redis(env!("CARGO_BIN_EXE_semafor"));
    let mut stopped = start(&env, &["--heartbeat", "1s", "--grace", "100ms"]);
    stopped.pause();
    // It gives no sign of life, so the slot is another's in the end.
    assert_eq!(env.run(["run", "--name", "it", "--", "true"]).text(), "");
    assert!(stopped.is_running());
    stopped.resume();
    let output = stopped.wait();
    assert_eq!(output.code(), Some(76), "{output:?}");
    assert_eq!(env.processes(), Vec::<u32>::new());
}
