//! The behaviour of `top` with every home.

use std::process::Command;

use rustix::process::Signal;
use semafor_testkit::terminal::{Screen, Terminal};

use super::clients::Clients;
use super::{command, top};

/// Three semaphores: nearly idle, half full, and full with waiters.
fn clients(url: &str) -> Clients {
    let mut clients = Clients::at(url);
    clients.fill("alpha", 10, 1);
    clients.fill("beta", 4, 2);
    clients.fill("gamma", 2, 2);
    clients.queue("gamma", 2, "first-in-line", "./backup.sh --all");
    clients.queue("gamma", 2, "second-in-line", "./backup.sh --some");
    clients
}

/// The names in the order they are shown.
fn order(screen: &Screen) -> Vec<String> {
    let words = screen.lines().filter_map(|line| line.split_whitespace().next().map(str::to_owned));
    words.filter(|word| ["alpha", "beta", "gamma"].contains(&word.as_str())).collect()
}

fn assert_restored(terminal: &Terminal) {
    let screen = terminal.screen();
    assert!(!screen.is_alternate() && screen.shows_cursor(), "{screen}");
    assert!(terminal.is_cooked());
}

pub(crate) fn names_and_bars_are_shown_and_updated(url: &str) {
    let mut clients = clients(url);
    let terminal = top(url, 24, 100);
    let screen = terminal.wait_until("all are shown", |screen| order(screen).len() == 3);
    assert!(screen.is_alternate() && !screen.shows_cursor());
    let line = |name| screen.line_with(name).expect("it is shown");
    for (name, parts) in [
        ("alpha", &["■·", "10%", "1/10"][..]),
        ("beta", &["■·", "50%", "2/4"]),
        ("gamma", &["■ ", "100%", "2/2", " 2 "]),
        ("names", &["3 names", "held 5/16 31%", "waiting 2"]),
    ] {
        assert!(parts.iter().all(|part| line(name).contains(part)), "{parts:?} in\n{screen}");
    }
    assert!(!line("gamma").contains('·'));

    clients.release_first();
    terminal.wait_until("it follows", |screen| {
        screen.line_with("alpha").is_some_and(|line| line.contains("0/10"))
    });
}

pub(crate) fn list_can_be_sorted_and_reversed(url: &str) {
    let _clients = clients(url);
    let terminal = top(url, 24, 100);
    terminal.wait_until("the fullest is first", |screen| order(screen) == ["gamma", "beta", "alpha"]);
    terminal.type_in("r");
    terminal.wait_until("it is reversed", |screen| order(screen) == ["alpha", "beta", "gamma"]);
    terminal.type_in("rs");
    terminal
        .wait_until("sorted by waiters", |screen| screen.contains("WAITING▾") && order(screen)[0] == "gamma");
    terminal.type_in("s");
    terminal.wait_until("by the longest wait", |screen| screen.contains("LONGEST▾"));
    terminal.type_in("s");
    terminal.wait_until("by name", |screen| order(screen) == ["alpha", "beta", "gamma"]);
}

pub(crate) fn list_is_filtered_while_typing(url: &str) {
    let _clients = clients(url);
    let terminal = top(url, 24, 80);
    terminal.wait_until("all are shown", |screen| order(screen).len() == 3);
    terminal.type_in("/M");
    let screen = terminal.wait_until("one is left", |screen| order(screen) == ["gamma"]);
    assert!(screen.contains("1 of 3 names") && screen.contains("/M"), "{screen}");
    terminal.type_in("\r");
    terminal.wait_until("it is kept", |screen| screen.contains("quit") && order(screen) == ["gamma"]);
    terminal.type_in("/zz");
    terminal.wait_until("no name matches", |screen| screen.contains("No name contains"));
    terminal.type_in("\x1b");
    terminal.wait_until("it is cleared", |screen| order(screen).len() == 3);
}

pub(crate) fn detail_of_a_semaphore_opens_and_closes(url: &str) {
    let _clients = clients(url);
    let terminal = top(url, 24, 120);
    terminal.wait_until("all are shown", |screen| order(screen).len() == 3);
    terminal.type_in("\r");
    let screen = terminal.wait_until("the waiter is shown", |screen| screen.contains("second-in-line"));
    for wanted in ["Holders 2", "Waiters 2", "holder-1", "./work", "./backup.sh --all"] {
        assert!(screen.contains(wanted), "{wanted} in\n{screen}");
    }
    let (first, second) = (screen.line_with("first-in-line"), screen.line_with("second-in-line"));
    assert!(
        first.is_some_and(|line| line.contains(" 1 ")) && second.is_some_and(|line| line.contains(" 2 "))
    );
    let pid = std::process::id().to_string();
    assert!(screen.line_with("holder-0").is_some_and(|line| line.contains(&pid)), "{screen}");
    terminal.type_in("\x1b");
    terminal.wait_until("all are shown again", |screen| order(screen).len() == 3);
    terminal.type_in("j\r");
    terminal.wait_until("the next one", |screen| screen.contains("beta") && screen.contains("No waiters"));
}

pub(crate) fn terminal_can_have_any_size(url: &str) {
    let _clients = clients(url);
    let mut terminal = top(url, 24, 80);
    let screen = terminal.wait_until("all are shown", |screen| order(screen).len() == 3);
    assert!(screen.contains("GRANTS/S"), "all columns fit:\n{screen}");
    terminal.resize(10, 40);
    let fits = |screen: &Screen| {
        let gamma = screen.line_with("gamma").unwrap_or_default();
        !screen.contains("GRANTS/S") && gamma.contains("2/2") && gamma.contains('■')
    };
    terminal.wait_until("what matters is left", fits);
    // Wait for each key: an escape directly followed by another byte is a different key.
    for (key, wanted) in [("\r", "Holders"), ("\t", "Waiters"), ("\x1b", "alpha"), ("?", "any key closes")] {
        terminal.type_in(key);
        terminal.wait_until(wanted, |screen| screen.contains(wanted));
    }
    for (rows, cols) in [(1, 1), (3, 7), (5, 200), (60, 5), (24, 80)] {
        terminal.resize(rows, cols);
        terminal.type_in("?");
    }
    terminal.wait_until("it is as it was", |screen| order(screen).len() == 3);
    terminal.type_in("q");
    assert!(terminal.wait().success());
}

pub(crate) fn no_color_disables_colours(url: &str) {
    let _clients = clients(url);
    let mut command = command(url);
    command.env("NO_COLOR", "1");
    let terminal = Terminal::spawn(command, 24, 100);
    let screen = terminal.wait_until("all are shown", |screen| order(screen).len() == 3);
    assert!(screen.line_with("beta").is_some_and(|line| line.contains("■·")), "{screen}");
    for (row, col) in (0..24).flat_map(|row| (0..100).map(move |col| (row, col))) {
        let cell = screen.cells().cell(row, col).expect("it is on the screen");
        assert_eq!(format!("{:?} {:?}", cell.fgcolor(), cell.bgcolor()), "Default Default");
    }
}

pub(crate) fn quitting_restores_the_terminal(url: &str) {
    for keys in ["q", "\x03", "\x1b"] {
        let mut terminal = top(url, 24, 80);
        terminal.wait_until("it is up", |screen| screen.contains("There are no semaphores"));
        terminal.type_in(keys);
        assert_eq!(terminal.wait().code(), Some(0));
        assert_restored(&terminal);
    }
}

pub(crate) fn signals_restore_the_terminal(url: &str) {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let mut terminal = top(url, 24, 80);
        terminal.wait_until("it is up", |screen| screen.contains("There are no semaphores"));
        terminal.signal(signal);
        assert_eq!(terminal.wait().code(), Some(code));
        assert_restored(&terminal);
    }
}

pub(crate) fn closing_the_terminal_ends_top(url: &str) {
    let terminal = top(url, 24, 80);
    terminal.wait_until("it is up", |screen| screen.contains("There are no semaphores"));
    assert_eq!(terminal.close().code(), Some(129), "not a hidden panic");
}

pub(crate) fn ctrl_z_stops_top_and_fg_continues_it(url: &str) {
    let mut bash = Command::new("bash");
    bash.args(["--norc", "--noprofile", "-i"]).env("PS1", "ready> ").env("SEMAFOR_URL", url);
    let terminal = Terminal::spawn(bash, 24, 80);
    terminal.wait_until("bash is ready", |screen| screen.contains("ready>"));
    terminal.type_in(format!("{} top\r", env!("CARGO_BIN_EXE_semafor")));
    terminal.wait_until("it is up", |screen| screen.contains("There are no semaphores"));
    terminal.type_in(b"\x1a");
    terminal.wait_until("it is stopped", |screen| !screen.is_alternate() && screen.contains("Stopped"));
    terminal.type_in("fg\r");
    terminal.wait_until("it goes on", |screen| {
        screen.is_alternate() && screen.contains("There are no semaphores") && !screen.shows_cursor()
    });
    terminal.type_in("q");
    terminal.wait_until("it has quit", |screen| !screen.is_alternate() && screen.shows_cursor());
}

pub(crate) fn control_characters_in_names_do_not_break_the_screen(url: &str) {
    let mut clients = Clients::at(url);
    clients.hold("画像\u{1b}[31m処理🎬", 2, "\u{1b}[2J\u{1b}[H\u{7}", "sh -c 'a\nb'\u{202e}\u{9b}2J");
    let terminal = top(url, 24, 100);
    let screen = terminal.wait_until("it is shown", |screen| screen.contains("画像"));
    let line = screen.line_with("画像").expect("it is shown");
    assert!(line.contains("[31m処理🎬") && line.contains("1/2"), "{screen}");
    terminal.type_in("\r");
    let screen = terminal.wait_until("its holder is shown", |screen| screen.contains("sh -c 'a b'"));
    assert!(
        screen.contains("semafor top") && screen.contains("Waiters 0"),
        "the layout is intact:\n{screen}"
    );
}

pub(crate) fn error_without_a_terminal_names_the_alternative(url: &str) {
    let output = command(url).output().expect("it can be run");
    assert_eq!(output.status.code(), Some(64));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said, "semafor: semafor top needs a terminal; in scripts, use `semafor status --json`\n");
}
