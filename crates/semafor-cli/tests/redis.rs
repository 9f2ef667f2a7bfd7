//! The command with a Redis server.

#[macro_use]
mod promises;

use std::fs;

use promises::ALONE;
use semafor_testkit::cli::{CommandEnv, Process};
use semafor_testkit::redis::{Monitor, RedisServer};
use serde_json::{Value, json};

promises!(CommandEnv::redis(env!("CARGO_BIN_EXE_semafor")));

fn server(env: &CommandEnv) -> &RedisServer {
    env.server().expect("the environment has a server")
}

/// A run of "it" whose command logs its start and SIGTERM.
fn start(env: &CommandEnv, options: &[&str]) -> Process {
    let script = format!(
        "{ALONE} trap 'echo asked >> log; exit' TERM; echo began >> log; while :; do sleep 0.02; done"
    );
    let run = env.start([&["run", "--name", "it"], options, &["--", "sh", "-c", &script]].concat());
    env.until_lines("log", 1);
    run
}

#[test]
fn unresponsive_redis_ends_the_command() {
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
fn redis_that_answers_in_time_loses_no_slot() {
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
fn holder_stopped_for_too_long_ends_its_command() {
    let env = CommandEnv::redis(env!("CARGO_BIN_EXE_semafor"));
    let mut stopped = start(&env, &["--heartbeat", "1s", "--grace", "100ms"]);
    stopped.pause();
    // It sends no heartbeat, so another holder gets the slot at last.
    assert_eq!(env.run(["run", "--name", "it", "--", "true"]).text(), "");
    assert!(stopped.is_running());
    stopped.resume();
    let output = stopped.wait();
    assert_eq!(output.code(), Some(76), "{output:?}");
    assert_eq!(env.processes(), Vec::<u32>::new());
}

#[test]
fn server_that_may_delete_keys_is_warned_about_once() {
    let env = CommandEnv::redis(env!("CARGO_BIN_EXE_semafor"));
    server(&env).command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let output = env.run(["run", "--name", "it", "--", "true"]);
    assert_eq!(output.code(), Some(0), "{output:?}");
    let warnings = output.stderr.lines().filter(|line| line.contains("maxmemory-policy allkeys-lru"));
    assert_eq!(warnings.count(), 1, "{}", output.stderr);
    server(&env).command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    assert_eq!(env.run(["run", "--name", "it", "--", "true"]).stderr, "");
}

#[test]
fn key_of_the_wrong_type_breaks_only_one_name_in_status() {
    let env = CommandEnv::redis(env!("CARGO_BIN_EXE_semafor"));
    let id = env.run(["acquire", "--name", "it", "--ttl", "10m"]).text().trim().to_owned();
    server(&env).command(&["SET", "adv-sem:semaphore_main:broken", "something else"]);

    let status = env.run(["status"]);
    assert_eq!(status.code(), Some(0), "{status:?}");
    let lines: Vec<_> = String::from_utf8_lossy(&status.stdout).lines().map(str::to_owned).collect();
    assert!(lines.iter().any(|line| line.starts_with("it ") && line.contains("1/1")), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("broken ") && line.contains(" broken ")), "{lines:?}");
    let key = "\"adv-sem:semaphore_main:broken\"";
    assert!(status.stderr.contains(key), "{}", status.stderr);

    let json = env.run(["status", "--json"]).json();
    let find = |name: &str| json.as_array().unwrap().iter().find(|one| one["name"] == name).unwrap().clone();
    assert_eq!((&find("it")["held"], &find("it")["error"]), (&1.into(), &serde_json::Value::Null));
    assert!(find("broken")["error"].as_str().unwrap().contains(key), "{json}");

    let inspected = env.run(["inspect", "broken"]);
    assert!(inspected.complaint(69).contains(key));
    assert_eq!(env.run(["release", "--name", "it", &id]).text(), "");
}

/// A holder, a waiter, and a run that times out, all with a secret in their arguments. Returns the output of `inspect`,
/// the error of the last run, and all words that were sent to the server.
fn with_secrets(options: &[&str]) -> (Value, String, Vec<String>) {
    let env = CommandEnv::redis(env!("CARGO_BIN_EXE_semafor"));
    let gate = env.gate("gate");
    let monitor = Monitor::of(server(&env));
    let start =
        |command: &[&str]| env.start([&["run", "--name", "it"][..], options, &["--"], command].concat());
    let mut holder = start(&["sh", "-c", ": < gate", "job", "--password=hunter2"]);
    env.until_holders("it", 1);
    let mut waiter = start(&["/usr/bin/env", "TOKEN=hunter2", "true"]);
    env.until_waiting("it", 1);
    let given_up = env.run(["run", "--name", "it", "--timeout", "0", "--", "true", "--key=hunter2"]);
    let inspected = env.inspect("it");
    let _open = gate.open();
    assert_eq!((holder.wait().text(), waiter.wait().text()), ("", ""));
    let requests = monitor.so_far(server(&env));
    (
        inspected,
        given_up.complaint(75).to_owned(),
        requests.into_iter().flat_map(|request| request.words).collect(),
    )
}

#[test]
fn other_users_see_the_program_name_without_arguments() {
    let (it, complaint, requests) = with_secrets(&["--label", "nightly"]);
    assert_eq!(
        requests.iter().find(|word| word.contains("hunter2")),
        None,
        "a secret was sent to the server"
    );
    assert_eq!((&it["holders"][0]["command"], &it["holders"][0]["label"]), (&json!("sh"), &json!("nightly")));
    assert_eq!(
        (&it["waiters"][0]["command"], &it["waiters"][0]["label"]),
        (&json!("env"), &json!("nightly"))
    );
    assert!(complaint.contains(": sh)"), "{complaint}");
}

#[test]
fn show_command_shows_the_arguments_to_other_users() {
    let (it, complaint, _) = with_secrets(&["--show-command"]);
    assert_eq!(it["holders"][0]["command"], "sh -c ': < gate' job --password=hunter2");
    assert_eq!(it["waiters"][0]["command"], "/usr/bin/env TOKEN=hunter2 true");
    assert!(complaint.contains("--password=hunter2"), "{complaint}");
}

#[test]
fn other_users_see_the_purged_directory_only_with_show_command() {
    let env = CommandEnv::redis(env!("CARGO_BIN_EXE_semafor"));
    let directory = env.path("of-customer-hunter2");
    for (options, is_shown) in [(&[][..], false), (&["--show-command"], true)] {
        fs::create_dir_all(directory.join("empty")).expect("it can be created");
        let monitor = Monitor::of(server(&env));
        let purge = [&["purge", "--quiet", "--fleet-limit", "removals"], options, &["of-customer-hunter2"]];
        assert_eq!(env.run(purge.concat()).code(), Some(0));
        let requests = monitor.so_far(server(&env));
        let mut words = requests.iter().flat_map(|request| &request.words);
        assert_eq!(words.any(|word| word.contains("hunter2")), is_shown);
        assert!(!directory.join("empty").exists(), "the directory was removed");
    }
}
