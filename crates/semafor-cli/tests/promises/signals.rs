//! Signals reach the command as if `semafor run` were not there.

use rustix::process::{Pid, Signal, kill_process};
use semafor_testkit::cli::{CommandEnv, Process, census};
use semafor_testkit::redis::eventually;

/// Logs each signal, until SIGTERM.
const RECORDS_SIGNALS: &str = "
    for signal in HUP INT QUIT USR1 USR2 ALRM WINCH; do trap \"echo $signal >> heard\" $signal; done
    trap 'echo TERM >> heard; exit 7' TERM
    echo ready >> heard
    while :; do sleep 0.02; done";

fn start(env: &CommandEnv, script: &str) -> Process {
    env.start_command(env.listening(["run", "--name", "it", "--", "sh", "-c", script]))
}

pub(crate) fn every_signal_reaches_the_command(env: &CommandEnv) {
    let mut run = start(env, RECORDS_SIGNALS);
    env.until_lines("heard", 1);
    let sent = [
        ("HUP", Signal::HUP),
        ("INT", Signal::INT),
        ("QUIT", Signal::QUIT),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
        ("ALRM", Signal::ALARM),
        ("WINCH", Signal::WINCH),
        ("TERM", Signal::TERM),
    ];
    for (count, (name, signal)) in sent.into_iter().enumerate() {
        run.signal(signal);
        let heard = env.until_lines("heard", count + 2);
        assert_eq!(heard.last().map(String::as_str), Some(name));
    }
    let output = run.wait();
    assert_eq!(output.code(), Some(7), "{output:?}");
    assert_eq!(env.lines("heard").len(), sent.len() + 1, "each of them once: {:?}", env.lines("heard"));
}

pub(crate) fn exit_code_tells_the_signal_that_ended_the_command(env: &CommandEnv) {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129), (Signal::USR1, 138)] {
        let mut run = start(env, "exec sleep 1000");
        env.until_holders("it", 1);
        // Wait until the command runs: before that, the signal would end the wait.
        env.until("the command runs", |env| env.processes().iter().any(is_sleeping));
        run.signal(signal);
        assert_eq!(run.wait().code(), Some(code));
    }
}

fn is_sleeping(pid: &u32) -> bool {
    census::with_arguments(&[b"1000"]).contains(pid)
}

pub(crate) fn ignored_signals_stay_ignored(env: &CommandEnv) {
    let mut command = env.program("env");
    command.arg("--ignore-signal=HUP").arg(env.binary());
    command.args(["run", "--", "sh", "-c", "kill -HUP $$; echo survived"]);
    assert_eq!(env.output_of(command).text(), "survived\n");
}

pub(crate) fn stopped_command_can_be_continued(env: &CommandEnv) {
    let mut run = start(env, "echo $$ >> pids; while ! [ -e end ]; do sleep 0.01; done");
    let pid: u32 = env.until_lines("pids", 1)[0].parse().expect("a number");
    let child = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("the pid is valid");
    kill_process(child, Signal::STOP).expect("this user owns it");
    eventually("it has stopped", || census::is_stopped(pid).then_some(()));
    std::fs::write(env.path("end"), "").expect("it can be written");
    assert!(run.is_running(), "the command is still stopped");
    kill_process(child, Signal::CONT).expect("this user owns it");
    assert_eq!(run.wait().text(), "");
}

pub(crate) fn stopped_holder_can_be_continued(env: &CommandEnv) {
    let gate = env.gate("gate");
    let mut holder = super::hold(env, &[]);
    holder.pause();
    let _open = gate.open();
    assert!(holder.is_running());
    holder.resume();
    assert_eq!(holder.wait().text(), "");
}
