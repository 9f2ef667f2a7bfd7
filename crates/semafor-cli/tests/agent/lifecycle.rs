//! The agent starts on demand, once, and does not depend on the process that started it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;

use semafor_testkit::cli::{CommandEnv, Process, census};
use serde_json::json;

use crate::{agent, env};

#[test]
fn twenty_simultaneous_first_clients_share_one_agent() {
    let env = env();
    let gate = env.gate("gate");
    let run = ["run", "--name", "it", "--slots", "20", "--", "sh", "-c", ": < gate"];
    let mut clients: Vec<Process> = (0..20).map(|_| env.start(run)).collect();
    env.until_holders("it", 20);
    assert_eq!(env.agents().len(), 1);
    let _open = gate.open();
    for client in &mut clients {
        assert_eq!(client.wait().text(), "");
    }
    assert_eq!(env.agents().len(), 1);
}

#[test]
fn read_only_commands_start_no_agent() {
    let env = env();
    assert_eq!(env.run(["status", "--json"]).json(), json!([]));
    assert_eq!(env.run(["agent", "status", "--json"]).json(), json!({ "running": false }));
    env.run(["inspect", "it"]).complaint(1);
    env.run(["evict", "it", "0-1"]);
    assert!(env.run(["agent", "status"]).text().contains("no agent is running"));
    assert_eq!(env.run(["agent", "stop"]).text(), "", "without an agent, stop succeeds");
    assert!(env.agents().is_empty());
}

#[test]
fn agent_status_json_has_the_documented_keys() {
    let env = env();
    let pid = agent(&env);
    let gate = env.gate("gate");
    let mut holder = env.start(["run", "--name", "it", "--", "sh", "-c", ": < gate"]);
    env.until_holders("it", 1);
    let status = env.run(["agent", "status", "--json"]).json();
    assert_eq!(status["running"], true);
    assert_eq!(status["pid"], pid);
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["directory"], env.agent_directory().to_str().expect("valid UTF-8"));
    assert_eq!((&status["clients"], &status["held"], &status["waiting"]), (&json!(1), &json!(1), &json!(0)));
    assert!(status["uptime_seconds"].as_f64().is_some_and(|time| time > 0.0), "{status}");
    assert!(status["names"].is_u64(), "{status}");
    assert!(env.run(["agent", "status"]).text().contains(&format!("agent {pid} ")));
    let _open = gate.open();
    assert_eq!(holder.wait().text(), "");
}

#[test]
fn stop_is_refused_while_the_agent_is_in_use() {
    let env = env();
    let id = env.run(["acquire", "--ttl", "1h"]).text().trim_end().to_owned();
    let mut waiter = env.start(["acquire", "--ttl", "1h"]);
    env.until_waiting("default", 1);
    let [pid] = env.agents()[..] else { panic!("expected one agent") };
    let output = env.run(["agent", "stop"]);
    let complaint = output.complaint(1);
    assert!(complaint.contains("1 held, 1 waiting") && complaint.contains("--force"), "{complaint}");
    assert!(census::is_alive(pid));
    waiter.kill();
    env.until_waiting("default", 0);
    assert_eq!(env.run(["release", "default", &id]).text(), "");
    assert_eq!(env.run(["agent", "stop"]).text(), "");
    assert!(!census::is_alive(pid), "the agent is gone when the command returns");
    assert!(env.agents().is_empty());
}

#[test]
fn stopped_agent_removes_its_socket_and_a_new_agent_can_start() {
    let env = env();
    let first = agent(&env);
    assert_eq!(env.run(["agent", "stop"]).text(), "");
    assert!(!env.agent_directory().join("agent.sock").exists());
    assert_ne!(agent(&env), first);
}

#[test]
fn agent_inherits_nothing_from_the_process_that_started_it() {
    let env = env();
    let secret = fs::File::create(env.path("secret")).expect("it can be created");
    let mut shell = env.program("sh");
    shell.args(["-c", "exec 7< secret; exec \"$@\"", "sh"]).arg(env.binary()).args(["run", "--", "true"]);
    shell.env("PRIVATE", "of the starter");
    assert_eq!(env.output_of(shell).text(), "");
    drop(secret);
    let [pid] = env.agents()[..] else { panic!("expected one agent") };
    let of_agent = |file: &str| format!("/proc/{pid}/{file}");
    assert_eq!(fs::read_link(of_agent("cwd")).expect("this user owns it"), std::path::Path::new("/"));
    assert_eq!(fs::read(of_agent("environ")).expect("this user owns it"), b"", "the environment is empty");
    let files: Vec<_> = fs::read_dir(of_agent("fd"))
        .expect("this user owns it")
        .filter_map(|file| fs::read_link(file.ok()?.path()).ok())
        .map(|file| file.to_string_lossy().into_owned())
        .collect();
    let scratch = env.path("").to_string_lossy().into_owned();
    assert!(!files.iter().any(|file| file.starts_with(&scratch) || file.starts_with("pipe:")), "{files:?}");
    assert!(!files.iter().any(|file| file.contains("(deleted)")), "the files of our output: {files:?}");
    let stat = fs::read_to_string(of_agent("stat")).expect("this user owns it");
    let fields: Vec<i64> = stat
        .rsplit_once(") ")
        .expect("the name ends with a parenthesis")
        .1
        .split_whitespace()
        .skip(1)
        .map_while(|number| number.parse().ok())
        .collect();
    let (session, terminal) = (fields[2], fields[3]);
    assert_eq!((session, terminal), (i64::from(pid), 0), "a session of its own, and no terminal");
}

#[test]
fn only_the_user_can_access_directory_and_socket() {
    let env = env();
    agent(&env);
    let mode = |path| fs::metadata(path).expect("it exists").mode() & 0o777;
    assert_eq!(mode(env.agent_directory()), 0o700);
    for file in ["agent.sock", "agent.lock", "agent.journal", "agent.clients"] {
        assert_eq!(mode(env.agent_directory().join(file)) & 0o077, 0, "{file}");
    }
}

/// Creates the files that an agent leaves if the machine loses power.
fn create_leftovers(env: &CommandEnv) {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().mode(0o700).create(env.agent_directory()).expect("it can be created");
    for file in ["agent.sock", "agent.sock.new"] {
        drop(UnixListener::bind(env.agent_directory().join(file)).expect("it can be bound"));
    }
    for (file, text) in [("agent.lock", "4711"), ("agent.clients", "")] {
        let mut options = fs::File::options();
        let file = options.write(true).create_new(true).mode(0o600).open(env.agent_directory().join(file));
        file.and_then(|mut file| file.write_all(text.as_bytes())).expect("it can be written");
    }
}

#[test]
fn agent_starts_despite_leftovers_of_a_dead_agent() {
    let env = env();
    create_leftovers(&env);
    assert_eq!(env.run(["agent", "status", "--json"]).json(), json!({ "running": false }));
    assert_eq!(env.run(["status", "--json"]).json(), json!([]));
    agent(&env);
}

#[test]
fn clients_share_one_agent_despite_leftovers_of_a_dead_agent() {
    let env = env();
    create_leftovers(&env);
    let mut clients: Vec<Process> =
        (0..10).map(|_| env.start(["run", "--slots", "3", "--", "true"])).collect();
    for client in &mut clients {
        assert_eq!(client.wait().text(), "");
    }
    assert_eq!(env.agents().len(), 1);
}

#[test]
fn agent_status_works_whatever_semafor_url_says() {
    let env = env();
    let status = |url: &str| {
        let mut command = env.semafor(["agent", "status"]);
        command.env("SEMAFOR_URL", url);
        env.output_of(command).text().to_owned()
    };
    assert!(status("redis://user:secret@127.0.0.1:1/").starts_with("no agent is running"));
    assert!(status(&format!("local:{}", env.agent_directory().display())).starts_with("no agent is running"));
}

#[test]
fn password_in_a_wrong_url_is_not_printed() {
    let env = env();
    let output = env.run(["agent", "status", "--url", "redis://user:secret@127.0.0.1:1/"]);
    assert_eq!(output.code(), Some(64), "{output:?}");
    assert!(output.stderr.contains("redis://…") && !output.stderr.contains("secret"), "{}", output.stderr);
}
