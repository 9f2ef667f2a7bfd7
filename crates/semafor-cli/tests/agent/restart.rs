//! A new agent knows from a killed one which slots are held, how many slots there are, and which tokens were issued.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use semafor_testkit::cli::{CommandEnv, Output, Process, census};

use crate::env;

fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("the pid is valid");
    kill_process(pid, signal).expect("this user owns it");
}

fn kill_agent(env: &CommandEnv) {
    let [pid] = env.agents()[..] else { panic!("expected one agent") };
    signal(pid, Signal::KILL);
    env.until("the agent is gone", |_| !census::is_alive(pid));
}

/// The command of a holder: logs its start and its end, and ends once the gate is open.
const COUNTED: &str = "echo + >> log; : < gate; echo - >> log";

/// The most commands that ran at the same time, according to their log.
fn most_at_once(env: &CommandEnv) -> i32 {
    let (mut running, mut most) = (0, 0);
    for line in env.lines("log") {
        running += match line.as_str() {
            "+" => 1,
            "-" => -1,
            other => panic!("unexpected line {other:?}"),
        };
        most = most.max(running);
    }
    most
}

/// There are `slots` holders and `waiters` waiters when the agent is killed. No waiter begins before a holder has
/// ended.
fn no_commands_overlap(slots: usize, waiters: usize) {
    let env = env();
    let gate = env.gate("gate");
    let slots_word = slots.to_string();
    let run = ["run", "--name", "it", "--slots", &slots_word, "--on-lost", "warn", "--", "sh", "-c", COUNTED];
    let mut holders: Vec<Process> = (0..slots).map(|_| env.start(run)).collect();
    env.until_lines("log", slots);
    let mut waiting: Vec<Process> = (0..waiters).map(|_| env.start(run)).collect();
    env.until_waiting("it", waiters as u64);
    kill_agent(&env);
    env.until("all have come back", |env| {
        let began = env.lines("log").len();
        assert_eq!(began, slots, "{began} commands on {slots} slots");
        let it = env.status("it");
        (&it["holders"], &it["waiting"]) == (&slots.into(), &waiters.into())
    });
    let _open = gate.open();
    for process in holders.iter_mut().chain(&mut waiting) {
        assert_eq!(process.wait().code(), Some(0));
    }
    assert_eq!(env.lines("log").len(), 2 * (slots + waiters), "each of them ran");
    assert!(
        most_at_once(&env) <= i32::try_from(slots).expect("the number is small"),
        "{} at once",
        most_at_once(&env)
    );
}

/// `SEMAFOR_AGENT_KILLS=20` kills twenty agents, each with 20 slots and 250 waiters.
#[test]
fn many_waiters_do_not_overlap_with_the_holders() {
    let Ok(kills) = std::env::var("SEMAFOR_AGENT_KILLS") else { return no_commands_overlap(10, 60) };
    for kill in 1..=kills.parse::<u32>().expect("SEMAFOR_AGENT_KILLS is a number") {
        no_commands_overlap(20, 250);
        println!("{kill} of {kills} agents killed, with 20 slots and 250 waiters each");
    }
}

#[test]
fn holder_that_reconnects_slowly_keeps_its_slot() {
    let env = env();
    let gate = env.gate("gate");
    let run = ["run", "--name", "it", "--slots", "2", "--on-lost", "warn", "--", "sh", "-c", COUNTED];
    let mut slow = env.start(run);
    let mut quick = env.start(run);
    env.until_lines("log", 2);
    slow.pause();
    // The second new agent knows the holder only from the first.
    for _ in 0..2 {
        kill_agent(&env);
        let output = env.run(["run", "--name", "it", "--slots", "2", "--timeout", "2s", "--", "true"]);
        assert!(output.complaint(75).contains("2 of 2 held"), "{output:?}");
    }
    slow.resume();
    let _open = gate.open();
    for holder in [&mut slow, &mut quick] {
        assert_eq!(holder.wait().code(), Some(0));
    }
}

/// The slot is free as soon as the last process that could use it has ended, and not before.
#[test]
fn slot_of_a_holder_that_died_with_the_agent_is_free() {
    let env = env();
    let mut holder = env.start(["run", "--name", "it", "--", "sh", "-c", "echo + >> log; exec sleep 1000"]);
    env.until_lines("log", 1);
    holder.pause();
    kill_agent(&env);
    assert_eq!(holder.kill().signal(), Some(9));
    assert_eq!(env.run(["run", "--name", "it", "--", "true"]).text(), "");
}

/// The guardians of `run`, which are forks of it.
fn guardians(env: &CommandEnv, run: &Process, words: &[&str]) -> Vec<u32> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let copies = census::with_arguments(&words).into_iter();
    copies.filter(|pid| *pid != run.pid() && env.processes().contains(pid)).collect()
}

/// With `before`, the agent is killed while `semafor run` still lives, so the guardian has no connection to the next
/// agent.
fn check_guardian_keeps_the_slot(before: bool) {
    let env = env();
    // The sleep survives the death of its parent: only the guardian kills it.
    let script = "(exec 9>> busy; flock -n 9; echo began >> log; exec sleep 1000) & wait";
    let words = ["run", "--name", "it", "--on-lost", "warn", "--", "sh", "-c", script];
    let mut holder = env.start(words);
    env.until_lines("log", 1);
    env.until("it has a guardian", |env| guardians(env, &holder, &words).len() == 1);
    let guardian = guardians(&env, &holder, &words)[0];
    signal(guardian, Signal::STOP);
    if before {
        kill_agent(&env);
        env.until_holders("it", 1);
        assert_eq!(holder.kill().signal(), Some(9));
    } else {
        assert_eq!(holder.kill().signal(), Some(9));
        kill_agent(&env);
    }
    let alone = "exec 9>> busy; flock -n 9 || echo overlaps";
    let output = env.run(["run", "--name", "it", "--timeout", "2s", "--", "sh", "-c", alone]);
    assert!(output.complaint(75).contains("1 of 1 held"), "{output:?}");
    signal(guardian, Signal::CONT);
    assert_eq!(env.run(["run", "--name", "it", "--", "sh", "-c", alone]).text(), "");
}

#[test]
fn killed_run_keeps_its_slot_while_its_guardian_ends_the_command() {
    check_guardian_keeps_the_slot(false);
}

#[test]
fn run_killed_after_its_agent_keeps_its_slot_while_its_guardian_ends_the_command() {
    check_guardian_keeps_the_slot(true);
}

#[test]
fn resized_slots_survive_the_agent_with_holders_and_waiters() {
    let env = env();
    let gate = env.gate("gate");
    let run = |slots| {
        env.start(["run", "--name", "it", "--slots", slots, "--on-lost", "warn", "--", "sh", "-c", COUNTED])
    };
    let mut all: Vec<Process> = (0..2).map(|_| run("2")).collect();
    env.until_lines("log", 2);
    assert_eq!(env.run(["resize", "it", "4"]).text(), "");
    all.extend((0..2).map(|_| run("4")));
    env.until_lines("log", 4);
    all.extend((0..3).map(|_| run("4")));
    env.until_waiting("it", 3);
    kill_agent(&env);
    env.until("all have come back", |env| {
        let it = env.status("it");
        (&it["capacity"], &it["holders"], &it["waiting"]) == (&4.into(), &4.into(), &3.into())
    });
    assert_eq!(env.lines("log").len(), 4, "no waiter began while four held");
    let _open = gate.open();
    for process in &mut all {
        let output = process.wait();
        assert_eq!(output.code(), Some(0), "{output:?}");
    }
    assert_eq!(env.lines("log").len(), 14, "each of them ran");
    assert!(most_at_once(&env) <= 4, "{} at once", most_at_once(&env));
}

#[test]
fn waiter_from_before_a_resize_keeps_waiting_at_the_next_agent() {
    let env = env();
    let gate = env.gate("gate");
    let run = ["run", "--name", "it", "--slots", "3", "--on-lost", "warn", "--", "sh", "-c", COUNTED];
    let mut all: Vec<Process> = (0..3).map(|_| env.start(run)).collect();
    env.until_lines("log", 3);
    all.push(env.start(run));
    env.until_waiting("it", 1);
    assert_eq!(env.run(["resize", "it", "2"]).text(), "");
    kill_agent(&env);
    env.until("all have come back", |env| {
        let it = env.status("it");
        (&it["capacity"], &it["holders"], &it["waiting"]) == (&2.into(), &3.into(), &1.into())
    });
    let _open = gate.open();
    for process in &mut all {
        let output = process.wait();
        assert_eq!(output.code(), Some(0), "{output:?}");
    }
}

#[test]
fn resized_slots_are_known_to_the_next_agent() {
    let env = env();
    assert_eq!(env.run(["run", "--name", "it", "--slots", "2", "--", "true"]).text(), "");
    assert_eq!(env.run(["resize", "it", "3"]).text(), "");
    kill_agent(&env);
    assert_eq!(env.run(["run", "--name", "it", "--", "true"]).text(), "");
    assert_eq!(env.status("it")["capacity"], 3);
}

fn acquire(env: &CommandEnv, ttl: &str) -> String {
    env.run(["acquire", "--name", "it", "--ttl", ttl]).text().trim_end().to_owned()
}

/// The script that has the id can't know that the agent died.
#[test]
fn slot_held_by_id_survives_the_agent() {
    let env = env();
    let id = acquire(&env, "1h");
    for _ in 0..2 {
        kill_agent(&env);
        let output = env.run(["acquire", "--name", "it", "--ttl", "1h", "--timeout", "0"]);
        output.complaint(75);
    }
    let mut next = env.start(["acquire", "--name", "it", "--ttl", "1h"]);
    env.until_waiting("it", 1);
    assert_eq!(env.run(["release", "it", &id]).text(), "");
    let next = next.wait().text().trim_end().to_owned();
    assert!(env.run(["release", "it", &id]).complaint(1).contains(&id), "it holds no slot any more");
    assert_eq!(env.run(["release", "it", &next]).text(), "");
}

/// Without a running agent, release, renew and evict start one, which knows the id.
#[test]
fn id_of_a_dead_agent_can_be_released_renewed_and_evicted() {
    let env = env();
    let expires_in =
        || env.inspect("it")["holders"][0]["expires_in_seconds"].as_f64().expect("it has a lease");
    let id = acquire(&env, "1h");
    assert_eq!(env.run(["renew", "--ttl", "3h", "it", &id]).text(), "");
    kill_agent(&env);
    assert!((10_000.0..=10_800.0).contains(&expires_in()), "as it was renewed: {}", expires_in());
    kill_agent(&env);
    assert_eq!(env.run(["renew", "--ttl", "2h", "it", &id]).text(), "");
    kill_agent(&env);
    assert!((7_000.0..=7_200.0).contains(&expires_in()), "as it was renewed: {}", expires_in());
    kill_agent(&env);
    assert_eq!(env.run(["release", "it", &id]).text(), "");
    kill_agent(&env);
    assert_eq!(env.status("it")["held"].as_u64().unwrap_or(0), 0, "its release is known to the next agent");

    let id = acquire(&env, "1h");
    kill_agent(&env);
    assert_eq!(env.run(["evict", "it", &id]).text(), "");
    kill_agent(&env);
    assert_eq!(env.run(["run", "--name", "it", "--timeout", "0", "--", "true"]).text(), "");
}

#[test]
fn slot_of_a_dead_agent_can_be_released_by_the_id_that_inspect_shows() {
    let env = env();
    let id = acquire(&env, "1h");
    kill_agent(&env);
    let shown = env.inspect("it")["holders"][0]["id"].as_str().expect("the id is a string").to_owned();
    assert_eq!(env.run(["renew", "--ttl", "2h", "it", &shown]).text(), "");
    assert_eq!(env.run(["release", "it", &shown]).text(), "");
    assert!(env.run(["release", "it", &id]).complaint(1).contains(&id), "it is the same slot");
}

#[test]
fn slot_of_a_dead_agent_ends_with_its_ttl() {
    let env = env();
    let id = acquire(&env, "2s");
    kill_agent(&env);
    let next = env.run(["acquire", "--name", "it", "--ttl", "1h", "--timeout", "1m"]);
    let next = next.text().trim_end().to_owned();
    assert!(env.run(["release", "it", &id]).complaint(1).contains(&id));
    assert_eq!(env.run(["release", "it", &next]).text(), "");
    // A lease that ends before the next agent starts.
    acquire(&env, "1ms");
    kill_agent(&env);
    assert_eq!(env.run(["run", "--name", "it", "--timeout", "1m", "--", "true"]).text(), "");
}

/// The time that a waiter has waited with one agent counts with the next.
#[test]
fn agent_restarts_do_not_extend_a_timeout() {
    let env = env();
    let gate = env.gate("gate");
    let mut holder = env.start(["run", "--name", "it", "--on-lost", "warn", "--", "sh", "-c", ": < gate"]);
    env.until_holders("it", 1);
    let mut waiter = env.start(["run", "--name", "it", "--timeout", "6s", "--", "true"]);
    // Each agent alone would wait 6 seconds, and the client waits 12 more for an agent that does not answer.
    while waiter.is_running() {
        kill_agent(&env);
        env.until("another agent serves", |env| {
            env.run(["agent", "status", "--json"]).json()["running"] == true
        });
        let since = std::time::Instant::now();
        env.until("some time has passed", |_| {
            since.elapsed().as_secs() >= 2 || !census::is_alive(waiter.pid())
        });
    }
    assert!(waiter.wait().complaint(75).contains("1 of 1 held"));
    let _open = gate.open();
    assert_eq!(holder.wait().code(), Some(0));
}

#[test]
fn damaged_journal_is_reported_and_holders_keep_their_slots() {
    let env = env();
    let gate = env.gate("gate");
    let run = ["run", "--name", "it", "--on-lost", "warn", "--", "sh", "-c", COUNTED];
    let mut holder = env.start(run);
    env.until_lines("log", 1);
    holder.pause();
    kill_agent(&env);
    let journal = env.agent_directory().join("agent.journal");
    let text = std::fs::read(&journal).expect("it exists");
    std::fs::write(&journal, &text[..text.len() - 1]).expect("this user owns it");
    let mut next = env.start(run);
    env.until("the damage is reported", |_| next.stderr().contains("agent.journal can't be trusted"));
    assert_eq!(next.stderr().lines().count(), 1, "{}", next.stderr());
    holder.resume();
    env.until_holders("it", 1);
    env.until_waiting("it", 1);
    assert_eq!(env.lines("log"), ["+"], "the waiter did not begin beside the holder");
    let _open = gate.open();
    for process in [&mut holder, &mut next] {
        assert_eq!(process.wait().code(), Some(0));
    }
    assert_eq!(env.lines("log"), ["+", "-", "+", "-"]);
}

/// Runs a script in its own mount namespace, with an empty `/tmp` and an empty `/run/user`. `/run/semafor` is the
/// command.
fn with_empty_directories(env: &CommandEnv, script: &str) -> Output {
    let mut command = env.program("unshare");
    command.env_remove("XDG_RUNTIME_DIR");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--mount", "sh", "-ec"]).arg(format!(
        "mount -t tmpfs tmpfs /run; mkdir /run/user; : > /run/semafor; mount --bind \"$0\" /run/semafor
         mount -t tmpfs -o mode=1777 tmpfs /tmp
         trap '/run/semafor agent stop --force 2> /dev/null || :' EXIT
         {script}"
    ));
    command.arg(env.binary());
    env.output_of(command)
}

/// `prepare` creates what other users left in `/tmp/semafor-UID`. Returns the output of `semafor run -- echo served`,
/// with or without `/run/user/UID`.
fn run_after_other_users(env: &CommandEnv, prepare: &str, has_runtime_directory: bool) -> Output {
    let runtime_directory = if has_runtime_directory { "mkdir -m 700 /run/user/0" } else { ":" };
    with_empty_directories(env, &format!("{runtime_directory}; {prepare}; /run/semafor run -- echo served"))
}

/// What other users may have left there. Only root can chown a directory; other users mount one that root owns.
fn left_by_others() -> [&'static str; 3] {
    let of_another = if rustix::process::geteuid().is_root() {
        "mkdir -m 700 /tmp/semafor-0; chown 65534 /tmp/semafor-0"
    } else {
        "mkdir /tmp/semafor-0; mount --bind /usr /tmp/semafor-0"
    };
    [of_another, "mkdir -m 777 /tmp/semafor-0", ": > /tmp/semafor-0"]
}

#[test]
fn directory_prepared_by_another_user_is_skipped_with_a_warning() {
    assert!(Path::new("/run").is_dir(), "/run exists on Linux");
    let env = env();
    for prepare in left_by_others() {
        let output = run_after_other_users(&env, prepare, true);
        assert_eq!((output.code(), &*output.stdout), (Some(0), &b"served\n"[..]), "{prepare}: {output:?}");
        let lines: Vec<_> = output.stderr.lines().collect();
        assert_eq!(lines.len(), 1, "{prepare}: {output:?}");
        assert!(
            lines[0].starts_with("semafor: ") && lines[0].contains("/tmp/semafor-0"),
            "{prepare}: {output:?}"
        );
    }
}

#[test]
fn directory_prepared_by_another_user_is_an_error_without_an_alternative() {
    let env = env();
    for prepare in left_by_others() {
        let output = run_after_other_users(&env, prepare, false);
        assert!(output.complaint(69).contains("/tmp/semafor-0"), "{prepare}: {output:?}");
    }
}

/// A login creates `/run/user/UID`, which is preferred to `/tmp/semafor-UID`, where the agent was.
#[test]
fn new_agent_starts_in_the_old_directory_although_a_better_one_exists_now() {
    let env = env();
    let script = "
        id=$(/run/semafor acquire --ttl 1h)
        agent=$(/run/semafor agent status | cut -d ' ' -f 2)
        mkdir -m 700 /run/user/0
        kill -KILL $agent
        while readlink /proc/$agent/exe > /dev/null; do :; done
        /run/semafor acquire --ttl 1h --timeout 0 2> /dev/null && echo overlaps
        /run/semafor release default $id
        ls -d /tmp/semafor-0/agent.sock /run/user/0/semafor 2> /dev/null || :";
    let output = with_empty_directories(&env, script);
    assert_eq!(output.text(), "/tmp/semafor-0/agent.sock\n");
}

/// A pipe that is full, so that a write to it blocks.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().expect("create a pipe");
    let flags = rustix::fs::fcntl_getfl(&writer).expect("the pipe is open");
    rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK).expect("the pipe is open");
    while writer.write(&[b'x'; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&writer, flags).expect("the pipe is open");
    (reader, writer)
}

/// Here the agent dies before it hears that the slot is held by its id from now on.
#[test]
fn printed_id_is_held_no_matter_when_the_agent_died() {
    let env = env();
    let (mut reader, writer) = full_pipe();
    let mut shell = env.program("sh");
    shell.args(["-c", "exec \"$0\" acquire --name it --ttl 1h >&0 < /dev/null"]).arg(env.binary());
    shell.stdin(writer);
    let mut acquire = env.start_command(shell);
    env.until_holders("it", 1);
    let [agent] = env.agents()[..] else { panic!("expected one agent") };
    signal(agent, Signal::STOP);
    let text = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("valid UTF-8");
        text.trim_start_matches('x').trim_end().to_owned()
    });
    // Enough time for a faulty `acquire` to print the id now.
    for _ in 0..20 {
        assert_eq!(env.run(["--version"]).code(), Some(0));
    }
    kill_agent(&env);
    let (output, id) = (acquire.wait(), text.join().expect("it was read"));
    if id.is_empty() {
        assert!(output.complaint(76).contains("before its id was printed"), "{output:?}");
    } else {
        assert_eq!(env.run(["release", "it", &id]).text(), "", "it is held");
    }
}

/// Lines of ended grants in the journal make room for live ones.
#[test]
fn full_disk_does_not_lose_the_holders_of_a_dead_agent() {
    let env = env();
    let script = "
        mkdir -m 700 /run/user/0
        mount -t tmpfs -o size=64k,mode=700 tmpfs /run/user/0
        id=$(/run/semafor acquire --name it --ttl 1h)
        cat /dev/zero > /run/user/0/full 2> /dev/null || :
        for n in $(seq 40); do /run/semafor run --name other -- true; done
        for n in 1 2; do
            agent=$(/run/semafor agent status | cut -d ' ' -f 2)
            kill -KILL $agent
            while readlink /proc/$agent/exe > /dev/null; do :; done
            /run/semafor acquire --name it --ttl 1h --timeout 0 2> /dev/null && echo overlaps
        done
        /run/semafor release it $id";
    assert_eq!(with_empty_directories(&env, script).text(), "");
}
