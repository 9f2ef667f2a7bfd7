//! In a terminal, `run` behaves as if the command had been started directly. While it waits, it shows a status line.

use std::process::Command;

use rustix::process::Pid;
use semafor_testkit::cli::{CommandEnv, Gate, Process, census};
use semafor_testkit::terminal::Terminal;

fn env() -> CommandEnv {
    CommandEnv::local(env!("CARGO_BIN_EXE_semafor"))
}

fn open(command: Command) -> Terminal {
    Terminal::spawn(command, 24, 100)
}

/// An interactive shell in the environment, with `semafor` in its PATH.
fn shell(env: &CommandEnv) -> Terminal {
    let mut bash = env.program_listening("bash", ["--norc", "--noprofile", "-i"]);
    let directory = env.binary().parent().expect("the path has a directory").display().to_string();
    let path = format!("{directory}:{}", std::env::var("PATH").unwrap_or_default());
    bash.env("PS1", "ready> ").env("HISTFILE", "").env("PATH", path);
    let terminal = open(bash);
    terminal.wait_until("bash is ready", |screen| screen.contains("ready>"));
    terminal
}

/// A run that holds the one slot of "it" until the gate is opened.
fn hold(env: &CommandEnv) -> (Process, Gate) {
    let gate = env.gate("gate");
    let holder = env.start(["run", "--name", "it", "--label", "the first", "--", "sh", "-c", ": < gate"]);
    env.until_holders("it", 1);
    (holder, gate)
}

/// Waits until the shell is in the foreground again.
#[track_caller]
fn until_back(terminal: &Terminal) {
    terminal.wait_until("the shell is back", |_| terminal.foreground() == Some(terminal.pid()));
}

/// Waits until the group is in the foreground and runs: a stopped process does not get Ctrl-Z.
#[track_caller]
fn until_in_foreground(terminal: &Terminal, group: u32) {
    terminal.wait_until("it is in the foreground", |_| {
        terminal.foreground().map(Pid::as_raw_pid) == i32::try_from(group).ok() && !census::is_stopped(group)
    });
}

/// The pids of `semafor run` and of its command, from the file `pids`.
fn pids(env: &CommandEnv) -> (u32, u32) {
    let lines = env.until_lines("pids", 2);
    (lines[0].parse().expect("a number"), lines[1].parse().expect("a number"))
}

/// Writes that file. The beginning of a script.
const WRITE_PIDS: &str = "echo $PPID >> pids; echo $$ >> pids;";

/// Clears the screen without starting a program.
const CLEAR: &str = "printf \"\\033[2J\\033[H\"";

#[test]
fn status_line_shows_the_wait_and_is_removed_at_the_end() {
    let env = env();
    let (mut holder, gate) = hold(&env);
    let mut terminal = open(env.listening(["run", "--name", "it", "--", "echo", "served"]));
    let screen =
        terminal.wait_until("it shows the status line", |screen| screen.contains("semafor: waiting"));
    let line = screen.line_with("semafor: waiting").expect("it exists");
    for part in ["\"it\"", "place 1 of 1", "the first"] {
        assert!(line.contains(part), "{part:?} is missing: {line}");
    }
    assert_eq!(screen.lines().filter(|line| !line.trim().is_empty()).count(), 1, "{screen}");
    let _open = gate.open();
    assert_eq!(terminal.wait().code(), Some(0));
    let screen = terminal.screen();
    let lines: Vec<_> =
        screen.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect();
    assert_eq!(lines, ["served"], "the status line is gone");
    assert_eq!(holder.wait().text(), "");
}

#[test]
fn status_line_fits_the_terminal() {
    let env = env();
    let (mut holder, gate) = hold(&env);
    let mut terminal = Terminal::spawn(env.listening(["run", "--name", "it", "--", "true"]), 10, 30);
    let screen =
        terminal.wait_until("it shows the status line", |screen| screen.contains("semafor: waiting"));
    assert_eq!(screen.lines().filter(|line| !line.trim().is_empty()).count(), 1, "{screen}");
    let _open = gate.open();
    assert_eq!(terminal.wait().code(), Some(0));
    assert_eq!(holder.wait().text(), "");
}

#[test]
fn quiet_prints_nothing() {
    let env = env();
    let (mut holder, gate) = hold(&env);
    let mut quiet = open(env.listening(["run", "--name", "it", "--quiet", "--", "true"]));
    env.until_waiting("it", 1);
    let other = open(env.listening(["run", "--name", "it", "--", "true"]));
    other.wait_until("another run has printed its line", |screen| screen.contains("place 2 of 2"));
    assert_eq!(quiet.screen().lines().filter(|line| !line.trim().is_empty()).count(), 0);
    let _open = gate.open();
    assert_eq!(quiet.wait().code(), Some(0));
    assert_eq!(holder.wait().text(), "");
}

#[test]
fn ctrl_c_leaves_the_line() {
    let env = env();
    let (mut holder, gate) = hold(&env);
    let mut terminal = open(env.listening(["run", "--name", "it", "--", "touch", "never"]));
    terminal.wait_until("it waits", |screen| screen.contains("semafor: waiting"));
    terminal.type_in(b"\x03");
    let status = terminal.wait();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(2), "{status:?}");
    assert!(!terminal.screen().contains("waiting for"), "the status line is gone:\n{}", terminal.screen());
    assert_eq!(env.status("it")["waiting"], 0);
    let _open = gate.open();
    assert_eq!(holder.wait().text(), "");
    assert!(!env.path("never").exists());
}

#[test]
fn ctrl_c_ends_the_command_and_the_loop_it_is_in() {
    let env = env();
    let terminal = shell(&env);
    terminal
        .type_in(format!("for n in 1 2 3; do semafor run -- sh -c '{WRITE_PIDS} exec sleep 1000'; done\r"));
    until_in_foreground(&terminal, pids(&env).1);
    terminal.type_in(b"\x03");
    until_back(&terminal);
    terminal.type_in("echo code $?\r");
    terminal.wait_until("it was interrupted", |screen| screen.contains("code 130"));
    assert_eq!(env.lines("pids").len(), 2, "the loop has ended");
    assert_eq!(env.status("default")["held"], 0);
}

#[test]
fn command_can_handle_ctrl_c() {
    let env = env();
    let terminal = shell(&env);
    let script = format!("trap \"echo heard >> log; exit 5\" INT; {WRITE_PIDS} while :; do sleep 0.02; done");
    terminal.type_in(format!("semafor run -- sh -c '{script}'; echo code $?\r"));
    until_in_foreground(&terminal, pids(&env).1);
    terminal.type_in(b"\x03");
    terminal.wait_until("the command chooses its exit code", |screen| screen.contains("code 5"));
    assert_eq!(env.lines("log"), ["heard"], "once");
}

#[test]
fn ctrl_z_stops_the_command_and_fg_continues_it() {
    let env = env();
    let terminal = shell(&env);
    terminal.type_in(format!("semafor run --name it -- sh -c '{WRITE_PIDS} read line; echo got $line'\r"));
    let (_, child) = pids(&env);
    for _ in 0..3 {
        until_in_foreground(&terminal, child);
        terminal.type_in(b"\x1a");
        until_back(&terminal);
        assert_eq!(env.status("it")["held"], 1, "a stopped holder keeps its slot");
        terminal.type_in(format!("{CLEAR}; jobs\r"));
        terminal.wait_until("the shell knows", |screen| screen.contains("Stopped"));
        terminal.type_in(format!("{CLEAR}; fg\r"));
    }
    until_in_foreground(&terminal, child);
    terminal.type_in("hello\r");
    terminal.wait_until("it reads what is typed", |screen| screen.contains("got hello"));
    until_back(&terminal);
}

#[test]
fn bg_continues_it_in_the_background() {
    let env = env();
    let gate = env.gate("gate");
    let terminal = shell(&env);
    terminal.type_in(format!("semafor run --name it -- sh -c '{WRITE_PIDS} : < gate; echo done >> log'\r"));
    until_in_foreground(&terminal, pids(&env).1);
    terminal.type_in(b"\x1a");
    until_back(&terminal);
    terminal.type_in("bg; echo back\r");
    terminal.wait_until("the shell goes on", |screen| screen.lines().any(|line| line.trim_end() == "back"));
    let _open = gate.open();
    env.until_lines("log", 1);
    terminal.type_in("wait; echo code $?\r");
    terminal.wait_until("it has ended with 0", |screen| screen.contains("code 0"));
}

#[test]
fn background_command_stops_when_it_reads() {
    let env = env();
    let terminal = shell(&env);
    terminal.type_in(format!("semafor run --name it -- sh -c '{WRITE_PIDS} read line; echo got $line' &\r"));
    let (run, child) = pids(&env);
    terminal.wait_until("it is stopped", |_| census::is_stopped(run) && census::is_stopped(child));
    terminal.type_in(format!("{CLEAR}; jobs\r"));
    terminal.wait_until("the shell knows", |screen| screen.contains("Stopped"));
    terminal.type_in(format!("{CLEAR}; fg\r"));
    until_in_foreground(&terminal, child);
    terminal.type_in("hello\r");
    terminal.wait_until("it reads what is typed", |screen| screen.contains("got hello"));
}

#[test]
fn ctrl_z_stops_the_wait() {
    let env = env();
    let (mut holder, gate) = hold(&env);
    let terminal = shell(&env);
    terminal.type_in("semafor run --name it -- echo served\r");
    terminal.wait_until("it waits", |screen| screen.contains("semafor: waiting"));
    terminal.type_in(b"\x1a");
    until_back(&terminal);
    terminal.type_in(format!("{CLEAR}; fg\r"));
    terminal.wait_until("it goes on waiting", |screen| screen.contains("semafor: waiting"));
    let _open = gate.open();
    terminal.wait_until("it is served", |screen| screen.lines().any(|line| line.trim_end() == "served"));
    assert_eq!(holder.wait().text(), "");
}

#[test]
fn pipeline_is_one_job() {
    let env = env();
    let terminal = shell(&env);
    terminal.type_in("echo some words | semafor run -- tr a-z A-Z | cat -A\r");
    terminal.wait_until("the pipeline has printed", |screen| screen.contains("SOME WORDS$"));
    until_back(&terminal);
    terminal.type_in(format!("semafor run --name it -- sh -c '{WRITE_PIDS} exec sleep 1000' | cat\r"));
    let (run, child) = pids(&env);
    for _ in 0..2 {
        until_in_foreground(&terminal, run);
        terminal.wait_until("the command goes on, too", |_| !census::is_stopped(child));
        terminal.type_in(b"\x1a");
        until_back(&terminal);
        terminal.wait_until("all of it is stopped", |_| census::is_stopped(run) && census::is_stopped(child));
        terminal.type_in("fg\r");
    }
    until_in_foreground(&terminal, run);
    terminal.wait_until("the command goes on, too", |_| !census::is_stopped(child));
    terminal.type_in(b"\x03");
    until_back(&terminal);
    assert_eq!(env.status("it")["held"], 0);
}

#[test]
fn agent_outlives_the_terminal_it_was_started_from() {
    let env = env();
    let terminal = shell(&env);
    terminal.type_in("semafor run --name it -- echo $((6 * 7))\r");
    terminal.wait_until("it has run", |screen| screen.contains("42"));
    until_back(&terminal);
    let agents = env.agents();
    assert_eq!(agents.len(), 1);
    drop(terminal);
    assert_eq!(env.status("it")["granted"], 1, "the same agent answers");
    assert_eq!(env.agents(), agents);
}

#[test]
fn colours_are_used_on_terminals_unless_no_color_is_set() {
    let env = env();
    let (mut holder, gate) = hold(&env);
    let coloured = |command| {
        let mut terminal = open(command);
        assert_eq!(terminal.wait().code(), Some(0));
        let screen = terminal.screen();
        assert!(screen.contains("it"), "{screen}");
        screen.cells().contents_formatted().contains("\x1b[33m")
    };
    assert!(coloured(env.listening(["status"])), "all slots are held: yellow");
    let mut plain = env.listening(["status"]);
    plain.env("NO_COLOR", "1");
    assert!(!coloured(plain));
    let _open = gate.open();
    assert_eq!(holder.wait().text(), "");
}
