//! `status` and `inspect`, for people and for scripts.

use std::process::Stdio;

use semafor_testkit::cli::{CommandEnv, Output};
use serde_json::{Value, json};

/// Acquires slots by id.
fn take(env: &CommandEnv, name: &str, slots: &str, weight: &str) -> Taken {
    let words =
        ["acquire", "--name", name, "--slots", slots, "--weight", weight, "--ttl", "1h", "--label", "me"];
    Taken { name: name.to_owned(), id: env.run(words).text().trim_end().to_owned() }
}

struct Taken {
    name: String,
    id: String,
}

impl Taken {
    fn release(self, env: &CommandEnv) {
        assert_eq!(env.run(["release", &self.name, &self.id]).text(), "");
    }
}

fn names(all: &Value) -> Vec<&str> {
    all.as_array().expect("an array").iter().map(|one| one["name"].as_str().expect("a name")).collect()
}

pub(crate) fn status_without_semaphores_is_an_empty_array(env: &CommandEnv) {
    assert_eq!(env.run(["status", "--json"]).json(), json!([]));
    assert_eq!(env.run(["status", "--json", "it"]).json(), json!([]));
    let output = env.run(["status"]);
    assert_eq!((output.code(), output.stdout.len()), (Some(0), 0));
    assert_eq!(output.stderr.lines().count(), 1, "{output:?}");
}

pub(crate) fn status_lists_the_fullest_first(env: &CommandEnv) {
    let taken = [take(env, "half", "2", "1"), take(env, "full", "3", "3"), take(env, "quarter", "4", "1")];
    let all = env.run(["status", "--json"]).json();
    assert_eq!(names(&all), ["full", "half", "quarter"]);
    let half = &all[1];
    let expected =
        json!({ "held": 1, "capacity": 2, "percent": 50.0, "waiting": 0, "holders": 1, "granted": 1 });
    for (key, value) in expected.as_object().expect("an object") {
        assert_eq!(&half[key], value, "{key}");
    }
    assert!(half["longest_wait_seconds"].is_f64(), "{half}");
    for key in ["released", "expired", "evicted", "timed_out", "cancelled", "refused"] {
        assert_eq!(half[key], 0, "{key}");
    }
    for key in ["waited_seconds", "held_seconds"] {
        for part in ["mean", "p50", "p99", "max"] {
            assert!(half[key][part].is_f64(), "{key}.{part}: {half}");
        }
        assert!(half[key]["count"].is_u64(), "{key}: {half}");
    }
    assert_eq!(names(&env.run(["status", "--json", "--limit", "2"]).json()), ["full", "half"]);
    let table = env.run(["status"]).text().to_owned();
    let first: Vec<_> = table.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(first, ["NAME", "full", "half", "quarter"]);
    assert!(table.contains("3/3") && table.contains("50%"), "{table}");
    taken.into_iter().for_each(|taken| taken.release(env));
}

pub(crate) fn status_shows_only_the_given_names(env: &CommandEnv) {
    let taken = [take(env, "a", "2", "1"), take(env, "b", "2", "2"), take(env, "c", "2", "1")];
    assert_eq!(names(&env.run(["status", "--json", "a", "b"]).json()), ["b", "a"]);
    assert_eq!(names(&env.run(["status", "--json", "c", "unknown"]).json()), ["c"]);
    let output = env.run(["status", "c", "unknown"]);
    assert_eq!(output.code(), Some(0));
    assert!(output.stderr.contains("\"unknown\"") && output.stderr.lines().count() == 1, "{output:?}");
    taken.into_iter().for_each(|taken| taken.release(env));
}

pub(crate) fn inspect_json_has_the_documented_keys(env: &CommandEnv) {
    let taken = take(env, "it", "2", "2");
    let mut waiters = Vec::new();
    for (place, label) in [(1, "one"), (2, "two")] {
        waiters.push(env.start(["acquire", "--name", "it", "--ttl", "2s", "--label", label]));
        env.until_waiting("it", place);
    }
    let it = env.inspect("it");
    let expected = json!({ "name": "it", "held": 2, "capacity": 2, "percent": 100.0, "waiting": 2 });
    for (key, value) in expected.as_object().expect("an object") {
        assert_eq!(&it[key], value, "{key}");
    }
    let holders = it["holders"].as_array().expect("an array");
    assert_eq!(holders.len(), 1);
    let holder = &holders[0];
    assert_eq!(
        (&holder["id"], &holder["slot"], &holder["label"]),
        (&json!(taken.id), &json!(0), &json!("me"))
    );
    assert_eq!((&holder["command"], &holder["weight"]), (&json!("semafor acquire"), &json!(2)));
    assert!(holder["fencing_token"].is_u64() && holder["pid"].is_u64(), "{holder}");
    assert!(holder["host"].as_str().is_some_and(|host| !host.is_empty()), "{holder}");
    assert!(holder["held_seconds"].as_f64().is_some_and(|time| time > 0.0), "{holder}");
    assert!(holder["expires_in_seconds"].as_f64().is_some_and(|time| time <= 3600.0), "{holder}");
    for (waiter, (process, label)) in
        it["waiters"].as_array().expect("an array").iter().zip([(0, "one"), (1, "two")])
    {
        let pid = waiters[process].pid();
        assert_eq!((&waiter["position"], &waiter["label"]), (&json!(process + 1), &json!(label)));
        assert_eq!((&waiter["pid"], &waiter["command"]), (&json!(pid), &json!("semafor acquire")));
        assert!(waiter["host"].is_string() && waiter["waited_seconds"].is_f64(), "{waiter}");
    }
    let shown = env.run(["inspect", "it"]).text().to_owned();
    for part in ["2 of 2 slots held, 2 waiting", &taken.id, "me", "one", "two", "semafor acquire"] {
        assert!(shown.contains(part), "{part:?} is missing: {shown}");
    }
    for waiter in &mut waiters {
        waiter.kill();
    }
    env.until_waiting("it", 0);
    taken.release(env);
}

fn assert_no_colours(output: &Output) {
    assert!(!output.text().contains('\x1b'), "{}", output.text());
}

pub(crate) fn output_to_a_pipe_has_no_colours(env: &CommandEnv) {
    let taken = take(env, "it", "1", "1");
    assert_no_colours(&env.run(["status"]));
    assert_no_colours(&env.run(["inspect", "it"]));
    for words in [&["status"][..], &["inspect", "it"]] {
        let mut command = env.semafor(words);
        command.env("NO_COLOR", "1").env("CLICOLOR_FORCE", "0");
        assert_no_colours(&env.output_of(command));
    }
    taken.release(env);
}

pub(crate) fn reader_that_closes_early_is_not_an_error(env: &CommandEnv) {
    let taken = take(env, "it", "1", "1");
    for words in
        [&["status"][..], &["status", "--json"], &["inspect", "it"], &["man"], &["completions", "bash"]]
    {
        let (reader, writer) = std::io::pipe().expect("create a pipe");
        drop(reader);
        // Not `env.start`, whose output goes to files.
        let mut shell = env.program("sh");
        shell.args(["-c", "\"$@\" >&0", "sh"]).arg(env.binary()).args(words).stdin(Stdio::from(writer));
        let output = env.output_of(shell);
        assert_eq!((output.code(), output.stderr.as_str()), (Some(0), ""), "{words:?}");
    }
    taken.release(env);
}

pub(crate) fn resize_serves_the_line(env: &CommandEnv) {
    let taken = take(env, "it", "1", "1");
    let mut waiter = env.start(["acquire", "--name", "it", "--ttl", "1h"]);
    env.until_waiting("it", 1);
    assert_eq!(env.run(["resize", "it", "2"]).text(), "");
    let id = waiter.wait().text().trim_end().to_owned();
    assert_eq!(env.status("it")["capacity"], 2);
    taken.release(env);
    assert_eq!(env.run(["release", "it", &id]).text(), "");
}
