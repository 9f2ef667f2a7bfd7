//! Waiting in line.

use rustix::process::Signal;
use semafor_testkit::cli::{CommandEnv, Process};

use super::hold;

pub(crate) fn first_come_first_served(env: &CommandEnv) {
    let gate = env.gate("gate");
    let mut holder = hold(env, &[]);
    let mut contenders = Vec::new();
    for number in 1..=50 {
        let script = format!("echo {number} >> order");
        contenders.push(env.start(["run", "--name", "it", "--", "sh", "-c", &script]));
        env.until_waiting("it", number);
    }
    let _open = gate.open();
    assert_eq!(holder.wait().text(), "");
    for contender in &mut contenders {
        assert_eq!(contender.wait().text(), "");
    }
    let order: Vec<u32> = env.lines("order").iter().map(|number| number.parse().expect("a number")).collect();
    assert_eq!(order, (1..=50).collect::<Vec<_>>());
}

pub(crate) fn timeout_error_names_the_holders(env: &CommandEnv) {
    let gate = env.gate("gate");
    let mut holder = hold(env, &["--label", "the nightly backup"]);
    for timeout in ["100ms", "0"] {
        let output = env.run(["run", "--name", "it", "--timeout", timeout, "--", "touch", "never"]);
        let complaint = output.complaint(75);
        assert!(complaint.contains("the nightly backup"), "{complaint}");
        assert!(complaint.contains(&format!("pid {}", holder.pid())), "{complaint}");
    }
    assert!(!env.path("never").exists(), "the command was not run");
    assert_eq!(env.status("it")["waiting"], 0);
    let _open = gate.open();
    assert_eq!(holder.wait().text(), "");
}

pub(crate) fn nothing_is_printed_to_a_pipe(env: &CommandEnv) {
    let gate = env.gate("gate");
    let mut holder = hold(env, &[]);
    let mut waiters: Vec<Process> = [&[][..], &["--quiet"]]
        .map(|more| env.start([&["run", "--name", "it"], more, &["--", "true"]].concat()))
        .into();
    let mut verbose = env.start(["run", "--name", "it", "--verbose", "--", "true"]);
    env.until_waiting("it", 3);
    semafor_testkit::redis::eventually("it prints that it waits", || {
        verbose.stderr().contains("waiting for \"it\"").then_some(())
    });
    let _open = gate.open();
    assert_eq!(holder.wait().text(), "");
    for waiter in &mut waiters {
        assert_eq!(waiter.wait().text(), "", "and nothing on stderr");
    }
    let output = verbose.wait();
    assert_eq!(output.code(), Some(0));
    assert!(output.stderr.lines().all(|line| line.starts_with("semafor: ")), "{}", output.stderr);
    assert!(
        output.stderr.contains("got slot 0 of \"it\"") && !output.stderr.contains('\x1b'),
        "{}",
        output.stderr
    );
}

pub(crate) fn signal_ends_the_wait(env: &CommandEnv) {
    let gate = env.gate("gate");
    let mut holder = hold(env, &[]);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129), (Signal::QUIT, 131)] {
        let words = ["run", "--name", "it", "--", "touch", "never"];
        let mut waiter = env.start_command(env.listening(words));
        env.until_waiting("it", 1);
        waiter.signal(signal);
        assert_eq!(waiter.wait().code(), Some(code));
        assert_eq!(env.status("it")["waiting"], 0, "it leaves the line before it exits");
    }
    let _open = gate.open();
    assert_eq!(holder.wait().text(), "");
    assert!(!env.path("never").exists(), "the command was not run");
}
