//! `semafor top` in a real terminal, against a real home.

mod clients;
mod picture;
mod scenarios;

use std::path::PathBuf;
use std::process::Command;

use semafor::local::{Agent, Config, stop};
use semafor_testkit::redis::RedisServer;
use semafor_testkit::terminal::Terminal;
use tempfile::TempDir;

/// `semafor top` in a terminal of that size.
fn top(url: &str, rows: u16, cols: u16) -> Terminal {
    Terminal::spawn(command(url), rows, cols)
}

fn command(url: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semafor"));
    command.args(["top", "--interval", "100ms"]).env("SEMAFOR_URL", url).env_remove("NO_COLOR");
    command
}

/// Makes two tests of each scenario: one for Redis, one for a local agent.
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
    _temp: TempDir,
}

impl LocalAgent {
    fn start() -> Self {
        let temp = tempfile::tempdir().expect("create a directory");
        let directory = temp.path().join("semafor");
        let agent = Agent::bind(&directory).expect("no agent is running");
        std::thread::spawn(move || agent.serve());
        Self { directory, _temp: temp }
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
    names_and_bars_are_shown_and_updated
    list_can_be_sorted_and_reversed
    list_is_filtered_while_typing
    detail_of_a_semaphore_opens_and_closes
    terminal_can_have_any_size
    no_color_disables_colours
    quitting_restores_the_terminal
    signals_restore_the_terminal
    closing_the_terminal_ends_top
    ctrl_z_stops_top_and_fg_continues_it
    control_characters_in_names_do_not_break_the_screen
    error_without_a_terminal_names_the_alternative
}

#[test]
fn unreachable_home_is_retried() {
    let server = RedisServer::with(&[("appendonly", "yes"), ("appendfsync", "always")]);
    let mut clients = clients::Clients::at(&server.url());
    clients.fill("images", 4, 2);
    let terminal = top(&server.url(), 24, 80);
    terminal.wait_until("it is shown", |screen| screen.contains("images"));
    server.kill();
    let screen =
        terminal.wait_until("the missing answer is shown", |screen| screen.contains("no answer for"));
    assert!(screen.contains("images") && screen.contains("2/4"), "the last data stays:\n{screen}");
    server.start_again();
    terminal.wait_until("it is back", |screen| !screen.contains("no answer") && screen.contains("images"));
    clients.fill("videos", 1, 1);
    terminal.wait_until("it is updated again", |screen| screen.contains("videos"));
}

#[test]
fn password_is_not_shown() {
    let server = RedisServer::with(&[("requirepass", "open-sesame")]);
    let terminal = top(&format!("redis://:open-sesame@127.0.0.1:{}/", server.port()), 24, 80);
    let screen = terminal.wait_until("it is up", |screen| screen.contains("There are no semaphores"));
    assert!(screen.contains("redis://127.0.0.1") && !screen.contains("open-sesame"), "{screen}");
}

#[test]
fn missing_home_is_an_error_before_the_screen_opens() {
    let mut terminal = top("redis://127.0.0.1:1/?number_of_attempts=1", 24, 80);
    assert_eq!(terminal.wait().code(), Some(69));
    let screen = terminal.screen();
    assert!(screen.contains("semafor: ") && !screen.is_alternate(), "{screen}");
}
