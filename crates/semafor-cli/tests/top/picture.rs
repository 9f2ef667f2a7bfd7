//! The picture in the README. `cargo xtask picture` writes it.

use std::process::Command;
use std::time::Duration;

use semafor_testkit::redis::{RedisServer, eventually};
use semafor_testkit::terminal::{Screen, Terminal, svg};

use super::clients::Clients;

/// The semaphores of a company with videos and a database.
fn fill_all(clients: &mut Clients) {
    for (name, slots, held) in [
        ("db-migrations", 1, 1),
        ("nightly-backup", 2, 1),
        ("gpu", 8, 7),
        ("geocoder-api", 10, 3),
        ("report-export", 6, 5),
        ("s3-upload", 32, 21),
        ("invoice-run", 1, 1),
        ("vacuum", 2, 1),
        ("crawl:example.org", 4, 1),
        ("pdf-render", 24, 2),
    ] {
        clients.fill(name, slots, held);
    }
    for film in ["dune", "metropolis", "nosferatu", "solaris"] {
        clients.hold("encode-4k", 4, film, &encode(film));
    }
    for film in ["stalker", "vertigo", "m", "playtime", "alphaville"] {
        clients.queue("encode-4k", 4, film, &encode(film));
    }
    clients.queue("db-migrations", 1, "release-2.14", "./migrate up");
    clients.take_turns("thumbnails", 16, 14, Duration::from_millis(12));
    clients.take_turns("mail", 5, 9, Duration::from_millis(35));
    clients.take_turns("search-index", 3, 4, Duration::from_millis(240));
    clients.take_turns("webhooks", 12, 7, Duration::from_millis(90));
}

fn encode(film: &str) -> String {
    format!("ffmpeg -i /films/{film}.mov -vf scale=3840:-2 /films/4k/{film}.mp4")
}

#[test]
fn picture_for_the_readme() {
    let server = RedisServer::start();
    let mut clients = Clients::at(&server.url());
    fill_all(&mut clients);
    let before = clients.grants();
    eventually("they have taken some turns", || (clients.grants() > before + 2_000).then_some(()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_semafor"));
    command.arg("top").env("SEMAFOR_URL", server.url()).env_remove("NO_COLOR");
    let terminal = Terminal::spawn(command, 26, 100);
    let settled = |screen: &Screen| screen.line_with("mail").is_some_and(|line| !line.contains('–'));
    let list = svg(&terminal.wait_until("there are rates", settled));
    assert!(list.contains("thumbnails") && list.contains("encode-4k"));

    terminal.type_in("/enc\r\r");
    let inside = svg(&terminal.wait_until("one is looked into", |screen| screen.contains("alphaville")));
    if let Ok(directory) = std::env::var("SEMAFOR_PICTURES") {
        std::fs::write(format!("{directory}/top.svg"), list).expect("it can be written");
        std::fs::write(format!("{directory}/top-inside.svg"), inside).expect("it can be written");
    }
}
