//! The number of commands that run at once, counted by the commands themselves.

use std::collections::BTreeSet;
use std::fs;

use semafor_testkit::cli::{CommandEnv, Process};

/// Creates a file that must not exist yet, counts the files, and removes its own.
const IN_A_SLOT: &str = "
    set -C
    : > slots/$SEMAFOR_SLOT || echo \"$SEMAFOR_SLOT\" >> shared
    : < gate
    ls slots | wc -l >> counts
    rm slots/$SEMAFOR_SLOT";

pub(crate) fn never_more_than_the_slots_run_at_once(env: &CommandEnv) {
    fs::create_dir(env.path("slots")).expect("it can be created");
    let gate = env.gate("gate");
    let run = ["run", "--name", "it", "--slots", "4", "--", "sh", "-c", IN_A_SLOT];
    let mut contenders: Vec<Process> = (0..40).map(|_| env.start(run)).collect();
    env.until_waiting("it", 36);
    assert_eq!(env.status("it")["held"], 4);
    let _open = gate.open();
    for contender in &mut contenders {
        assert_eq!(contender.wait().text(), "");
    }
    assert_eq!(env.read("shared"), "", "slot numbers are not shared");
    let counts: Vec<u32> =
        env.lines("counts").iter().map(|count| count.trim().parse().expect("a number")).collect();
    assert_eq!(counts.len(), 40, "each of them ran");
    assert!(counts.iter().all(|count| (1..=4).contains(count)), "{counts:?}");
}

/// The same with as many files as its weight.
const WITH_A_WEIGHT: &str = "
    for n in $(seq $0); do : > slots/$SEMAFOR_ID.$n; done
    : < gate
    ls slots | wc -l >> counts
    rm slots/$SEMAFOR_ID.*";

pub(crate) fn weight_takes_that_many_slots(env: &CommandEnv) {
    fs::create_dir(env.path("slots")).expect("it can be created");
    let gate = env.gate("gate");
    let run = |weight| {
        let words =
            ["run", "--name", "it", "--slots", "4", "--weight", weight, "--", "sh", "-c", WITH_A_WEIGHT];
        env.start(words.into_iter().chain([weight]))
    };
    let mut contenders: Vec<Process> = ["1", "2", "3", "4"].into_iter().cycle().take(20).map(run).collect();
    env.until("all hold or wait", |env| {
        let it = env.status("it");
        it["holders"].as_u64().unwrap_or(0) + it["waiting"].as_u64().unwrap_or(0) == 20
    });
    let _open = gate.open();
    for contender in &mut contenders {
        assert_eq!(contender.wait().text(), "");
    }
    let counts: Vec<u32> =
        env.lines("counts").iter().map(|count| count.trim().parse().expect("a number")).collect();
    assert_eq!(counts.len(), 20, "each of them ran");
    assert!(counts.iter().all(|count| (1..=4).contains(count)), "{counts:?}");
}

pub(crate) fn environment_has_slot_token_and_id(env: &CommandEnv) {
    let gate = env.gate("gate");
    let script = "echo $SEMAFOR_SLOT $SEMAFOR_FENCING_TOKEN $SEMAFOR_ID >> seen; : < gate";
    let mut holders: Vec<Process> = Vec::new();
    for count in 1..=3 {
        holders.push(env.start(["run", "--name", "it", "--slots", "3", "--", "sh", "-c", script]));
        env.until_lines("seen", count);
    }
    let seen = env.lines("seen");
    let inspected = env.inspect("it");
    let inspected: BTreeSet<String> = inspected["holders"]
        .as_array()
        .expect("an array")
        .iter()
        .map(|holder| {
            format!("{} {} {}", holder["slot"], holder["fencing_token"], holder["id"]).replace('"', "")
        })
        .collect();
    assert_eq!(inspected, seen.iter().cloned().collect(), "the same as in `inspect`");
    let lines: Vec<Vec<&str>> = seen.iter().map(|line| line.split(' ').collect()).collect();
    assert_eq!(lines.iter().map(|words| words[0]).collect::<Vec<_>>(), ["0", "1", "2"]);
    let tokens: Vec<u64> = lines.iter().map(|words| words[1].parse().expect("a number")).collect();
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    let _open = gate.open();
    for holder in &mut holders {
        assert_eq!(holder.wait().text(), "");
    }
}

pub(crate) fn slots_can_be_relative_to_cores(env: &CommandEnv) {
    let cores = std::thread::available_parallelism().expect("it is known").get();
    let gate = env.gate("gate");
    let mut holders = Vec::new();
    for (name, said, slots) in [("all", "100%", cores), ("more", "+2", cores + 2), ("fewer", "-1000", 1)] {
        holders.push(env.start(["run", "--name", name, "--slots", said, "--", "sh", "-c", ": < gate"]));
        env.until_holders(name, 1);
        assert_eq!(env.status(name)["capacity"], slots);
    }
    let _open = gate.open();
    for holder in &mut holders {
        assert_eq!(holder.wait().text(), "");
    }
}
