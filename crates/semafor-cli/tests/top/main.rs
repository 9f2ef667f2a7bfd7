//! `semafor top` in a real terminal, against a real home.

mod crowd;
mod picture;
mod scenarios;

use std::path::PathBuf;
use std::process::Command;

use semafor::local::{Agent, Config, stop};
use semafor_testkit::redis::RedisServer;
use semafor_testkit::terminal::Terminal;
use tempfile::TempDir;

/// The command, started in a terminal of that size.
fn top(url: &str, rows: u16, cols: u16) -> Terminal {
    Terminal::spawn(command(url), rows, cols)
}

fn command(url: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semafor"));
    command.args(["top", "--interval", "100ms"]).env("SEMAFOR_URL", url).env_remove("NO_COLOR");
    command
}

/// What any home has to stand.
macro_rules! against_both_homes {
    ($($scenario:ident)*) => {
        mod redis {
            $(#[test]
            fn $scenario() {
                let server = super::RedisServer::start();
                super::scenarios::$scenario(&server.url());
            })*
        }

        mod local {
            $(#[test]
            fn $scenario() {
                let agent = super::LocalAgent::start();
                super::scenarios::$scenario(&agent.url());
            })*
        }
    };
}

/// An agent in a thread of this process.
struct LocalAgent {
    directory: PathBuf,
    _folder: TempDir,
}

impl LocalAgent {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let directory = folder.path().join("semafor");
        let agent = Agent::bind(&directory).expect("there is none yet");
        std::thread::spawn(move || agent.serve());
        Self { directory, _folder: folder }
    }

    fn url(&self) -> String {
        format!("local:{}", self.directory.display())
    }
}

impl Drop for LocalAgent {
    fn drop(&mut self) {
        let stopped = pollster::block_on(stop(&Config::default().directory(&self.directory), true));
        assert!(stopped.is_ok() || std::thread::panicking(), "{stopped:?}");
    }
}

against_both_homes! {
    names_and_bars_are_shown_and_follow_what_happens
    the_list_is_sorted_and_reversed
    the_list_is_filtered_while_one_types
    one_can_look_into_a_semaphore_and_back
    any_size_will_do
    no_colour_is_used_where_none_is_wanted
    quitting_leaves_the_terminal_as_it_was
    signals_leave_the_terminal_as_it_was
    it_ends_with_its_terminal
    it_stops_and_goes_on_as_the_shell_says
    a_name_cannot_break_the_screen
    without_a_terminal_it_says_what_to_do
}

#[test]
fn a_home_that_is_gone_is_waited_for() {
    let server = RedisServer::with(&[("appendonly", "yes"), ("appendfsync", "always")]);
    let mut crowd = crowd::Crowd::at(&server.url());
    crowd.fill("images", 4, 2);
    let terminal = top(&server.url(), 24, 80);
    terminal.wait_until("it is shown", |screen| screen.contains("images"));
    server.kill();
    let screen = terminal.wait_until("it says so", |screen| screen.contains("no answer since"));
    assert!(screen.contains("images") && screen.contains("2/4"), "what was seen last stays:\n{screen}");
    server.start_again();
    terminal.wait_until("it is back", |screen| !screen.contains("no answer") && screen.contains("images"));
    crowd.fill("videos", 1, 1);
    terminal.wait_until("it looks again", |screen| screen.contains("videos"));
}

#[test]
fn a_password_is_not_shown() {
    let server = RedisServer::with(&[("requirepass", "open-sesame")]);
    let terminal = top(&format!("redis://:open-sesame@127.0.0.1:{}/", server.port()), 24, 80);
    let screen = terminal.wait_until("it is up", |screen| screen.contains("Nobody uses a semaphore"));
    assert!(screen.contains("redis://127.0.0.1") && !screen.contains("open-sesame"), "{screen}");
}

#[test]
fn a_home_that_is_not_there_is_said_before_the_screen_is_taken() {
    let mut terminal = top("redis://127.0.0.1:1/?number_of_attempts=1", 24, 80);
    assert_eq!(terminal.wait().code(), Some(69));
    let screen = terminal.screen();
    assert!(screen.contains("semafor: ") && !screen.is_alternate(), "{screen}");
}
