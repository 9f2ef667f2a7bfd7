//! Slots that are held by an id, independent of a process.

use std::ffi::OsString;
use std::fs;
use std::io::{PipeWriter, Write, pipe};
use std::process::Stdio;

use rustix::process::Signal;
use semafor_testkit::cli::{CommandEnv, Process};
use serde_json::Value;

/// Takes a slot of "it" for an hour.
fn acquire(env: &CommandEnv, more: &[&str]) -> String {
    let words = [&["acquire", "--name", "it", "--ttl", "1h"], more].concat();
    let id = env.run(words).text().trim_end().to_owned();
    assert!(!id.is_empty() && !id.contains(char::is_whitespace), "{id:?}");
    id
}

fn release(env: &CommandEnv, id: &str) {
    assert_eq!(env.run(["release", "it", id]).text(), "");
}

fn held(env: &CommandEnv) -> u64 {
    env.status("it")["held"].as_u64().unwrap_or(0)
}

pub(crate) fn acquired_slot_is_held_until_released(env: &CommandEnv) {
    let first = acquire(env, &["--slots", "2"]);
    let second = acquire(env, &["--slots", "2"]);
    assert_ne!(first, second);
    assert_eq!(held(env), 2);
    release(env, &first);
    assert_eq!(held(env), 1);
    assert_eq!(env.run(["release", "--name", "it", &second]).text(), "");
    assert_eq!(held(env), 0);
}

pub(crate) fn acquired_slot_ends_with_its_ttl(env: &CommandEnv) {
    let id = env.run(["acquire", "--name", "it", "--ttl", "300ms"]).text().trim_end().to_owned();
    // Granted when the lease is over: no process released the slot before.
    let next = acquire(env, &["--timeout", "1m"]);
    assert!(env.run(["release", "it", &id]).complaint(1).contains(&id));
    release(env, &next);
}

pub(crate) fn renewing_counts_from_now(env: &CommandEnv) {
    let expires_in =
        || env.inspect("it")["holders"][0]["expires_in_seconds"].as_f64().expect("it has a lease");
    let id = acquire(env, &[]);
    assert!((3500.0..=3600.0).contains(&expires_in()));
    assert_eq!(env.run(["renew", "--ttl", "2h", "it", &id]).text(), "");
    assert!((7100.0..=7200.0).contains(&expires_in()), "longer");
    assert_eq!(env.run(["renew", "--ttl", "10m", "--name", "it", &id]).text(), "");
    assert!((500.0..=600.0).contains(&expires_in()), "shorter");
    release(env, &id);
    assert!(env.run(["renew", "--ttl", "2h", "it", &id]).complaint(1).contains(&id));
}

/// No process sends heartbeats for it.
pub(crate) fn renewed_slot_is_held_beyond_its_first_ttl(env: &CommandEnv) {
    let id = env.run(["acquire", "--name", "it", "--ttl", "700ms"]).text().trim_end().to_owned();
    assert_eq!(env.run(["renew", "--ttl", "1h", "it", &id]).text(), "");
    // It would get the slot if the first lease had ended.
    env.run(["acquire", "--name", "it", "--ttl", "1h", "--timeout", "1500ms"]).complaint(75);
    assert_eq!(held(env), 1);
    release(env, &id);
}

pub(crate) fn weight_is_acquired_and_released_as_one(env: &CommandEnv) {
    let id = acquire(env, &["--slots", "4", "--weight", "3"]);
    assert_eq!(held(env), 3);
    let output = env.run(["acquire", "--name", "it", "--ttl", "1h", "--weight", "2", "--timeout", "0"]);
    output.complaint(75);
    let output = env.run(["acquire", "--name", "it", "--ttl", "1h", "--weight", "5"]);
    assert!(output.complaint(64).contains("weight 5"), "{output:?}");
    release(env, &id);
    assert_eq!(held(env), 0);
}

pub(crate) fn acquire_waits_in_line_and_times_out(env: &CommandEnv) {
    let id = acquire(env, &[]);
    let output = env.run(["acquire", "--name", "it", "--ttl", "1h", "--timeout", "100ms"]);
    output.complaint(75);
    let mut next = env.start(["acquire", "--name", "it", "--ttl", "1h"]);
    env.until_waiting("it", 1);
    release(env, &id);
    release(env, next.wait().text().trim_end());
}

pub(crate) fn killed_acquire_leaves_the_line(env: &CommandEnv) {
    let id = acquire(env, &[]);
    let mut impatient = env.start(["acquire", "--name", "it", "--ttl", "2s"]);
    env.until_waiting("it", 1);
    impatient.kill();
    env.until_waiting("it", 0);
    release(env, &id);
}

pub(crate) fn interrupted_acquire_leaves_the_line(env: &CommandEnv) {
    let id = acquire(env, &[]);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut waiter = env.start_command(env.listening(["acquire", "--name", "it", "--ttl", "1h"]));
        env.until_waiting("it", 1);
        waiter.signal(signal);
        assert_eq!(waiter.wait().code(), Some(code));
        assert_eq!(env.status("it")["waiting"], 0, "it leaves the line before it exits");
    }
    release(env, &id);
}

/// Runs `acquire` of "it" for an hour in a shell script that redirects its stdout: `"$@" > id`.
fn acquire_in_shell(env: &CommandEnv, script: &str, more: &[&str], stdin: Stdio) -> Process {
    let words = ["-c", script, "sh"].map(OsString::from).into_iter();
    let words = words.chain([env.binary().into()]);
    let words =
        words.chain(["acquire", "--name", "it", "--ttl", "1h"].iter().chain(more).map(OsString::from));
    let mut shell = env.program_listening("sh", words);
    shell.stdin(stdin);
    env.start_command(shell)
}

/// Runs `acquire` of "it" with a pipe as its stdout.
fn acquire_to_pipe(env: &CommandEnv, pipe: PipeWriter) -> Process {
    // Processes of a test write to files, so the pipe is passed as stdin.
    acquire_in_shell(env, "exec \"$@\" >&0 < /dev/null", &[], Stdio::from(pipe))
}

fn assert_undelivered(env: &CommandEnv, acquire: &mut Process) {
    let output = acquire.wait();
    let complaint = output.complaint(74);
    assert!(complaint.contains("id"), "{complaint}");
    let it = env.status("it");
    assert!(it.is_null() || (it["held"] == 0 && it["waiting"] == 0), "nothing is held or waiting: {it}");
}

pub(crate) fn slot_is_released_if_the_id_cannot_be_printed(env: &CommandEnv) {
    for more in [&[][..], &["--json"]] {
        // Full, closed, and not open for writing.
        for script in ["\"$@\" > /dev/full", "\"$@\" >&-", "\"$@\" 1< /dev/null"] {
            assert_undelivered(env, &mut acquire_in_shell(env, script, more, Stdio::null()));
        }
        let (reader, writer) = pipe().expect("create a pipe");
        drop(reader);
        assert_undelivered(env, &mut acquire_in_shell(env, "\"$@\" >&0", more, Stdio::from(writer)));
    }
}

pub(crate) fn slot_is_held_if_the_id_goes_to_dev_null(env: &CommandEnv) {
    let output = acquire_in_shell(env, "\"$@\" > /dev/null", &[], Stdio::null()).wait();
    assert_eq!(output.text(), "");
    assert_eq!(held(env), 1);
    let id = env.inspect("it")["holders"][0]["id"].as_str().expect("the id is a string").to_owned();
    release(env, &id);
}

pub(crate) fn acquire_leaves_the_line_when_its_reader_is_gone(env: &CommandEnv) {
    let id = acquire(env, &[]);
    let (reader, writer) = pipe().expect("create a pipe");
    let mut waiter = acquire_to_pipe(env, writer);
    env.until_waiting("it", 1);
    drop(reader);
    let output = waiter.wait();
    assert!(output.complaint(74).contains("reader"), "{output:?}");
    assert_eq!(env.status("it")["waiting"], 0, "it leaves the line before it exits");
    release(env, &id);
    assert_eq!(held(env), 0);
}

pub(crate) fn acquire_leaves_the_line_when_its_script_is_killed(env: &CommandEnv) {
    let id = acquire(env, &[]);
    for script in ["id=$(\"$@\"); echo went on >> log", "\"$@\" > id; echo went on >> log"] {
        let mut killed = acquire_in_shell(env, script, &[], Stdio::null());
        env.until_waiting("it", 1);
        killed.kill();
        env.until_waiting("it", 0);
    }
    release(env, &id);
    assert_eq!((held(env), env.read("id"), env.read("log")), (0, String::new(), String::new()));
}

pub(crate) fn acquire_in_the_background_outlives_its_script(env: &CommandEnv) {
    let id = acquire(env, &[]);
    let scripts =
        ["\"$@\" > id &", "nohup \"$@\" > id 2> /dev/null &", "setsid env --default-signal \"$@\" > id &"];
    let mut last = id;
    for script in scripts {
        assert_eq!(
            acquire_in_shell(env, script, &[], Stdio::null()).wait().text(),
            "",
            "the script has ended"
        );
        env.until_waiting("it", 1);
        // Repeated, so that it has time to react to the end of its parent.
        for _ in 0..20 {
            assert_eq!(env.status("it")["waiting"], 1, "{script}");
        }
        release(env, &last);
        last = env.until_lines("id", 1).remove(0);
        env.until_holders("it", 1);
        fs::remove_file(env.path("id")).expect("it was written");
    }
    release(env, &last);
}

/// A pipe that is full, so that a write to it blocks.
fn full_pipe() -> (std::io::PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().expect("create a pipe");
    let flags = rustix::fs::fcntl_getfl(&writer).expect("the pipe is open");
    rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK).expect("the pipe is open");
    while writer.write(&[b'x'; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&writer, flags).expect("the pipe is open");
    (reader, writer)
}

pub(crate) fn signal_before_the_id_is_printed_releases_the_slot(env: &CommandEnv) {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let (_reader, writer) = full_pipe();
        let mut waiter = acquire_to_pipe(env, writer);
        env.until_holders("it", 1);
        waiter.signal(signal);
        let output = waiter.wait();
        assert_eq!((output.code(), held(env)), (Some(code), 0), "{output:?}");
    }
}

pub(crate) fn slot_is_released_if_the_reader_ends_before_the_id_is_printed(env: &CommandEnv) {
    let (reader, writer) = full_pipe();
    let mut waiter = acquire_to_pipe(env, writer);
    env.until_holders("it", 1);
    drop(reader);
    assert_undelivered(env, &mut waiter);
}

pub(crate) fn ignored_signal_does_not_end_acquire(env: &CommandEnv) {
    let id = acquire(env, &[]);
    let mut command = env.program("env");
    command.arg("--default-signal").args(["env", "--ignore-signal=HUP", "--ignore-signal=INT"]);
    command.arg(env.binary()).args(["acquire", "--name", "it", "--ttl", "1h"]);
    let mut waiter = env.start_command(command);
    env.until_waiting("it", 1);
    waiter.signal(Signal::HUP);
    waiter.signal(Signal::INT);
    for _ in 0..20 {
        assert_eq!(env.status("it")["waiting"], 1, "it still waits");
    }
    release(env, &id);
    release(env, waiter.wait().text().trim_end());
}

pub(crate) fn evicted_id_holds_no_slot(env: &CommandEnv) {
    let id = acquire(env, &[]);
    assert_eq!(env.run(["evict", "it", &id]).text(), "");
    assert_eq!(held(env), 0);
    assert!(env.run(["release", "it", &id]).complaint(1).contains(&id));
}

pub(crate) fn ids_that_hold_no_slot_are_errors(env: &CommandEnv) {
    let id = acquire(env, &["--slots", "2"]);
    let other = env.run(["acquire", "--name", "other", "--ttl", "1h"]).text().trim_end().to_owned();
    let released = acquire(env, &[]);
    release(env, &released);
    for wrong in [&other, &released] {
        for words in
            [&["release", "it", wrong][..], &["renew", "--ttl", "1m", "it", wrong], &["evict", "it", wrong]]
        {
            let output = env.run(words);
            let complaint = output.complaint(1);
            assert!(complaint.contains(wrong.as_str()) && complaint.contains("\"it\""), "{complaint}");
        }
    }
    for words in [
        &["release", "it", "no such id"][..],
        &["renew", "--ttl", "1m", "it", "no such id"],
        &["evict", "it", "no such id"],
    ] {
        let output = env.run(words);
        assert!(matches!(output.code(), Some(1 | 64)), "{output:?}");
        assert!(output.complaint(output.code().unwrap_or(0)).contains("no such id"));
    }
    assert_eq!(held(env), 1, "the slot is still held");
    release(env, &id);
    assert_eq!(env.run(["release", "other", &other]).text(), "");
}

pub(crate) fn unused_names_are_errors(env: &CommandEnv) {
    let id = acquire(env, &[]);
    for words in [
        &["release", "unknown", &id][..],
        &["renew", "--ttl", "1m", "unknown", &id],
        &["evict", "unknown", &id],
        &["inspect", "unknown"],
        &["resize", "unknown", "3"],
    ] {
        let output = env.run(words);
        let complaint = output.complaint(1);
        assert!(complaint.contains("\"unknown\""), "{words:?}: {complaint}");
    }
    assert_eq!(env.status("unknown"), Value::Null, "no semaphore was created");
    release(env, &id);
}

pub(crate) fn different_number_of_slots_is_refused_with_both_numbers(env: &CommandEnv) {
    let id = acquire(env, &["--slots", "3"]);
    let output = env.run(["acquire", "--name", "it", "--ttl", "1h", "--slots", "5"]);
    let complaint = output.complaint(64);
    assert!(complaint.contains("3 slots") && complaint.contains("not 5"), "{complaint}");
    release(env, &id);
}

pub(crate) fn default_slots_are_the_current_number_or_one(env: &CommandEnv) {
    let id = acquire(env, &[]);
    assert_eq!(env.status("it")["capacity"], 1);
    let other = env.run(["acquire", "--name", "other", "--slots", "7", "--ttl", "1h"]).text().to_owned();
    let another = env.run(["acquire", "--name", "other", "--ttl", "1h"]).text().to_owned();
    assert_eq!(env.status("other")["capacity"], 7);
    release(env, &id);
    for id in [other, another] {
        assert_eq!(env.run(["release", "other", id.trim_end()]).text(), "");
    }
}

pub(crate) fn acquire_json_has_the_documented_keys(env: &CommandEnv) {
    let acquired = env.run(["acquire", "--name", "it", "--ttl", "90s", "--json"]).json();
    assert_eq!(acquired["name"], "it");
    assert_eq!(acquired["slot"], 0);
    assert_eq!(acquired["ttl_seconds"], 90.0);
    assert!(acquired["fencing_token"].is_u64(), "{acquired}");
    assert!(acquired["waited_seconds"].is_f64(), "{acquired}");
    let holder = &env.inspect("it")["holders"][0];
    assert_eq!((&holder["id"], &holder["fencing_token"]), (&acquired["id"], &acquired["fencing_token"]));
    release(env, acquired["id"].as_str().expect("the id is a string"));
}
