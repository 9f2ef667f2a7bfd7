//! Losing the slot ends the command before the next one starts.

use semafor_testkit::cli::{CommandEnv, Process};

use super::{ALONE, hold};

/// Ends on SIGTERM and logs it. So do its children, in its own group and in another.
const ENDS_ON_TERM: &str = "
    sh -c 'trap \"echo grandchild >> ended; exit\" TERM; echo >> began; while :; do sleep 0.01; done' &
    timeout 900 sh -c 'trap \"echo other group >> ended; exit\" TERM; echo >> began; while :; do sleep 0.01; done' &
    trap 'echo child >> ended; exit' TERM
    echo >> began
    while :; do sleep 0.01; done";

/// Ignores SIGTERM. It has children in its own group and in another.
const IGNORES_TERM: &str = "
    trap '' TERM
    sleep 1000 &
    timeout 900 sleep 900 &
    echo >> began
    while :; do sleep 1000; done";

fn evict_the_holder(env: &CommandEnv) {
    let it = env.inspect("it");
    let id = it["holders"][0]["id"].as_str().expect("it has a holder");
    assert_eq!(env.run(["evict", "it", id]).text(), "");
}

/// Starts a holder of "it", and returns when `processes` of its processes have begun.
fn start(env: &CommandEnv, more: &[&str], script: &str, processes: usize) -> Process {
    let script = format!("{ALONE} {script}");
    let run = env.start([&["run", "--name", "it"], more, &["--", "sh", "-c", &script]].concat());
    env.until_lines("began", processes);
    run
}

fn ends_with_76(env: &CommandEnv, run: &mut Process) -> String {
    let output = run.wait();
    assert_eq!(output.code(), Some(76), "{output:?}");
    assert_eq!(env.processes(), Vec::<u32>::new(), "its processes ended before it");
    assert!(output.stderr.contains("lost the slot of \"it\""), "{}", output.stderr);
    output.stderr
}

pub(crate) fn eviction_sends_sigterm_to_the_command_and_its_children(env: &CommandEnv) {
    let mut run = start(env, &[], ENDS_ON_TERM, 3);
    evict_the_holder(env);
    ends_with_76(env, &mut run);
    let mut ended = env.lines("ended");
    ended.sort();
    assert_eq!(ended, ["child", "grandchild", "other group"]);
}

pub(crate) fn command_that_ignores_sigterm_is_killed_with_its_children(env: &CommandEnv) {
    let mut run = start(env, &["--grace", "200ms"], IGNORES_TERM, 1);
    evict_the_holder(env);
    ends_with_76(env, &mut run);
}

pub(crate) fn grace_of_zero_kills_at_once(env: &CommandEnv) {
    let mut run = start(env, &["--grace", "0"], ENDS_ON_TERM, 3);
    evict_the_holder(env);
    ends_with_76(env, &mut run);
    assert_eq!(env.read("ended"), "", "it had no time to write");
}

pub(crate) fn command_that_exceeds_its_ttl_ends_before_the_next_begins(env: &CommandEnv) {
    let options = ["--ttl", "300ms", "--grace", "200ms"];
    let mut runs = vec![start(env, &options, IGNORES_TERM, 1)];
    for place in 1..=2 {
        let script = format!("{ALONE} {IGNORES_TERM}");
        let words = [&["run", "--name", "it"], &options[..], &["--", "sh", "-c", &script]].concat();
        runs.push(env.start(words));
        env.until(&format!("{place} hold or wait"), |env| {
            let it = env.status("it");
            env.lines("began").len() as u64 + it["waiting"].as_u64().unwrap_or(0) > place
        });
    }
    for run in &mut runs {
        let output = run.wait();
        assert_eq!(output.code(), Some(76), "{output:?}");
        assert!(output.stderr.contains("--ttl"), "{}", output.stderr);
    }
    assert_eq!(env.lines("began").len(), 3, "each of them ran");
    assert_eq!(env.read("overlaps"), "", "no two at the same time");
}

pub(crate) fn command_of_an_evicted_holder_ends_before_the_next_begins(env: &CommandEnv) {
    let mut run = start(env, &["--grace", "300ms"], IGNORES_TERM, 1);
    let script = format!("{ALONE} echo next >> log");
    let mut next = env.start(["run", "--name", "it", "--", "sh", "-c", &script]);
    env.until_waiting("it", 1);
    evict_the_holder(env);
    assert_eq!(run.wait().code(), Some(76));
    assert_eq!(next.wait().text(), "");
    assert_eq!(env.lines("log"), ["next"]);
    assert_eq!(env.read("overlaps"), "", "they did not run at the same time");
}

pub(crate) fn command_that_ends_within_its_ttl_is_not_affected(env: &CommandEnv) {
    let output = env.run(["run", "--name", "it", "--ttl", "1h", "--", "sh", "-c", "exit 5"]);
    assert_eq!((output.code(), output.stderr.as_str()), (Some(5), ""));
}

pub(crate) fn on_lost_warn_lets_the_command_continue(env: &CommandEnv) {
    let gate = env.gate("gate");
    let mut run = hold(env, &["--on-lost", "warn"]);
    evict_the_holder(env);
    semafor_testkit::redis::eventually("it warns", || {
        run.stderr().contains("lost the slot of \"it\"").then_some(())
    });
    assert!(run.is_running());
    assert_eq!(env.run(["run", "--name", "it", "--", "true"]).text(), "", "another holder gets the slot");
    let _open = gate.open();
    let output = run.wait();
    assert_eq!(output.code(), Some(0), "the exit code of the command");
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
}

fn renew_the_holder(env: &CommandEnv, ttl: &str) {
    let it = env.inspect("it");
    let id = it["holders"][0]["id"].as_str().expect("it has a holder");
    assert_eq!(env.run(["renew", "--ttl", ttl, "it", id]).text(), "");
}

pub(crate) fn renewed_run_continues_beyond_its_ttl(env: &CommandEnv) {
    let gate = env.gate("gate");
    let mut run = hold(env, &["--ttl", "3s", "--grace", "100ms"]);
    renew_the_holder(env, "1h");
    // This one would get the slot if the run ended with its first --ttl.
    env.run(["acquire", "--name", "it", "--ttl", "1h", "--timeout", "6s"]).complaint(75);
    assert!(run.is_running(), "{}", run.stderr());
    let _open = gate.open();
    assert_eq!(run.wait().text(), "");
}

/// With a command that uses its whole grace.
fn run_renewed_for_three_seconds_ends_before_the_next_begins(env: &CommandEnv, more: &[&str]) {
    let mut run = start(env, &[more, &["--grace", "1s"]].concat(), IGNORES_TERM, 1);
    renew_the_holder(env, "3s");
    let script = format!("{ALONE} true");
    assert_eq!(env.run(["run", "--name", "it", "--", "sh", "-c", &script]).text(), "");
    assert!(ends_with_76(env, &mut run).contains("renewed"));
    assert_eq!(env.read("overlaps"), "", "they did not run at the same time");
}

pub(crate) fn run_renewed_for_a_shorter_time_ends_before_the_next_begins(env: &CommandEnv) {
    run_renewed_for_three_seconds_ends_before_the_next_begins(env, &["--ttl", "1h"]);
}

pub(crate) fn run_without_a_ttl_that_is_renewed_with_one_ends_before_the_next_begins(env: &CommandEnv) {
    run_renewed_for_three_seconds_ends_before_the_next_begins(env, &[]);
}
